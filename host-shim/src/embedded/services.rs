//! The services of the embedded broker: what is shared, how it starts and stops, and which call goes where.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use handler_api::control::Event;
use handler_api::ledger::HandleClosed;
use handler_api::{
    ApiError, AppendRequest, Appended, Handle, HostServices, Level, Owner, Position, ReadAnswer,
    ReadRequest, Reply, capability,
};
use parking_lot::Mutex;
use redb::ReadableTable;

use super::catalog::{Catalog, META, NAMESPACES, Outcome, closing, meta};
use super::config::{EmbeddedConfig, OpenError};
use super::disk::{DiskThreads, Space};
use super::files::Files;
use super::handles::{Attachment, Attachments, Handles};
use super::layout::{self, Layout, Lock};
use super::limits::{ENTRY_HEADROOM_BYTES, LEDGER_ID_BLOCK};
use super::maintain::{Maintenance, checkpoint, record_dead};
use super::metrics::Metrics;
use super::opening::Opening;
use super::partition::{Fired, Partition};
use super::read::Buffers;
use super::record::RECORD_HEADER_BYTES;
use super::sync::Syncer;
use super::topics::Topics;
use super::{append, control, read, recover, search};
use crate::events::EventSink;
use crate::logging;

/// The namespace that a fresh broker has, as Pulsar's standalone does.
const FIRST_NAMESPACE: &str = "public/default";

/// A record's length field is believed up to this size, or what the configuration allows if that is more: entries
/// stay readable when `maxMessageSize` is lowered.
const LARGEST_RECORD_BYTES: u64 = 128 * 1024 * 1024;

/// Everything that is shared by the services of all plugins.
pub(crate) struct Core {
    pub(crate) config: EmbeddedConfig,
    pub(crate) layout: Layout,
    pub(crate) files: Files,
    pub(crate) space: Space,
    pub(crate) catalog: Catalog,
    pub(crate) topics: Topics,
    pub(crate) handles: Handles,
    pub(crate) attachments: Attachments,
    pub(crate) opening: Opening,
    pub(crate) disk: DiskThreads,
    pub(crate) sync: Syncer,
    pub(crate) maintenance: Maintenance,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) metrics: Metrics,
    /// Id of the next ledger, and the first that is not reserved.
    ledger_ids: (AtomicI64, AtomicI64),
    reserving: Mutex<()>,
    closing: AtomicBool,
    lock: Mutex<Option<Lock>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Wall time in ms since the epoch.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}

/// What the catalog says at the start.
struct Started {
    starts: i64,
    clean: bool,
    ledgers: i64,
}

fn note_start(catalog: &Catalog, layout: &Layout, files: &Files) -> Result<Started, ApiError> {
    let (layout, reader) = (layout.clone(), Files::new(layout.clone(), 8));
    let (started, waste) = catalog.write(move |transaction| -> Outcome<(Started, Vec<_>)> {
        let started = {
            let mut table = transaction.open_table(META)?;
            let read = |key| -> Result<Option<i64>, redb::Error> {
                Ok(table.get(key)?.map(|number| number.value()))
            };
            let started = Started {
                starts: read(meta::STARTS)?.unwrap_or(0) + 1,
                // A fresh directory has nothing to clean up.
                clean: read(meta::CLEAN)?.unwrap_or(1) == 1,
                ledgers: read(meta::NEXT_LEDGER)?.unwrap_or(0),
            };
            table.insert(meta::STARTS, started.starts)?;
            table.insert(meta::CLEAN, 0)?;
            table.insert(meta::NEXT_LEDGER, started.ledgers + LEDGER_ID_BLOCK)?;
            started
        };
        if started.starts == 1 {
            transaction
                .open_table(NAMESPACES)?
                .insert(FIRST_NAMESPACE, ())?;
        }
        if started.clean {
            return Ok(Ok((started, Vec::new())));
        }
        let waste = recover::reconcile(transaction, &layout, &reader)?;
        Ok(waste.map(|waste| (started, waste)))
    })?;
    for (ledger, replaced) in waste {
        tracing::info!(
            ledger,
            replaced,
            "removing a ledger file that nothing refers to"
        );
        if let Err(error) = files.remove((ledger, replaced)) {
            tracing::warn!(ledger, %error, "a ledger file could not be removed");
        }
    }
    Ok(started)
}

impl Core {
    pub(crate) fn open(config: EmbeddedConfig) -> Result<Arc<Self>, OpenError> {
        let layout = Layout::new(&config.data_dir);
        layout.create()?;
        let lock = Lock::take(&layout)?;
        layout::prepare(&layout)?;
        let capacity = match config.max_open_files {
            0 => Files::default_capacity(),
            count => count,
        };
        let files = Files::new(layout.clone(), capacity);
        let catalog = Catalog::open(&layout.catalog())?;
        let failed = |error: ApiError| OpenError::Catalog {
            path: layout.catalog(),
            reason: error.message.into_string(),
        };
        let started = note_start(&catalog, &layout, &files).map_err(failed)?;
        if !started.clean {
            tracing::info!(dir = %layout.root().display(), "the last process was not stopped cleanly: recovering");
        }
        let topics = Topics::load(&catalog).map_err(failed)?;
        let core = Arc::new(Self {
            space: Space::watch(layout.root(), config.reserve_bytes)?,
            handles: Handles::new(started.starts.cast_unsigned()),
            disk: DiskThreads::start()?,
            attachments: Attachments::default(),
            opening: Opening::default(),
            sync: Syncer::default(),
            maintenance: Maintenance::default(),
            buffers: Arc::default(),
            metrics: Metrics::default(),
            ledger_ids: (
                AtomicI64::new(started.ledgers),
                AtomicI64::new(started.ledgers + LEDGER_ID_BLOCK),
            ),
            reserving: Mutex::new(()),
            closing: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
            config,
            layout,
            files,
            catalog,
            topics,
        });
        core.sync.start(Arc::downgrade(&core))?;
        let interval = Duration::from_millis(core.config.checkpoint_interval_ms.max(1));
        core.maintenance.start(Arc::downgrade(&core), interval)?;
        Ok(core)
    }

    /// Stops in order: no new calls, what waits is finished, everything is synced and noted, the mark is set.
    pub(crate) fn close(self: &Arc<Self>) {
        if self.closing.swap(true, Ordering::SeqCst) {
            return;
        }
        self.disk.close();
        for partition in self.handles.all() {
            partition.end(&closing());
        }
        self.sync.close();
        self.maintenance.close();
        let noted = checkpoint(self).and_then(|()| self.note_dead());
        let clean = i64::from(noted.is_ok());
        if let Err(error) = noted {
            tracing::error!(%error, "not everything could be noted: the next start will look at the files");
        }
        let next = self.ledger_ids.0.load(Ordering::SeqCst);
        let marked = self.catalog.write(move |transaction| {
            let mut table = transaction.open_table(META)?;
            table.insert(meta::CLEAN, clean)?;
            if clean == 1 {
                table.insert(meta::NEXT_LEDGER, next)?;
            }
            Ok(Ok(()))
        });
        if let Err(error) = marked {
            tracing::error!(%error, "the mark of a clean stop could not be set");
        }
        self.catalog.close();
        self.lock.lock().take();
    }

    /// Notes the ledgers of openings that died and were not followed by others.
    fn note_dead(&self) -> Result<(), ApiError> {
        self.handles
            .all_dead()
            .iter()
            .try_for_each(|partition| record_dead(self, partition))
    }

    /// Refuses calls once the broker stops.
    pub(crate) fn check_open(&self) -> Result<(), ApiError> {
        if self.closing.load(Ordering::Relaxed) {
            return Err(closing());
        }
        Ok(())
    }

    /// An id for a new ledger. Waits for the disk once in a million.
    pub(crate) fn next_ledger_id(&self) -> Result<i64, ApiError> {
        let id = self.ledger_ids.0.fetch_add(1, Ordering::SeqCst);
        if id < self.ledger_ids.1.load(Ordering::SeqCst) {
            return Ok(id);
        }
        let _guard = self.reserving.lock();
        let reserved = self.ledger_ids.1.load(Ordering::SeqCst);
        if id >= reserved {
            let end = id + LEDGER_ID_BLOCK;
            self.catalog.write(move |transaction| {
                transaction
                    .open_table(META)?
                    .insert(meta::NEXT_LEDGER, end)?;
                Ok(Ok(()))
            })?;
            self.ledger_ids.1.store(end, Ordering::SeqCst);
        }
        Ok(id)
    }

    /// The largest record whose length is believed.
    pub(crate) fn largest_record(&self) -> u64 {
        let configured = u64::from(self.config.max_message_size)
            + u64::from(ENTRY_HEADROOM_BYTES)
            + RECORD_HEADER_BYTES as u64;
        configured.max(LARGEST_RECORD_BYTES)
    }

    /// Delivers wake-ups. No lock may be held.
    pub(crate) fn deliver(&self, fired: &[Fired]) {
        if !fired.is_empty() {
            self.attachments.deliver(fired);
        }
    }

    /// Tells all plugins. No lock may be held.
    pub(crate) fn announce<E: Event>(&self, event: &E) {
        self.attachments.announce(event);
    }

    /// Ends an opening after a fault; the next one takes over its ledgers. No lock of it may be held.
    pub(crate) fn kill(&self, partition: &Arc<Partition>, why: &str) {
        let reason = partition.closed(why);
        if partition.end(&reason) {
            self.bury(partition, &reason);
        }
    }

    /// Takes an ended opening out of the tables and tells the plugins.
    pub(crate) fn bury(&self, partition: &Arc<Partition>, reason: &ApiError) {
        self.handles.remove(partition, true);
        self.closed(partition, reason);
    }

    /// Tells the plugins that a handle is closed.
    pub(crate) fn closed(&self, partition: &Arc<Partition>, reason: &ApiError) {
        self.announce(&HandleClosed {
            handle: Some(partition.handle.into()),
            topic: partition.name.to_string(),
            reason: reason.message.to_string(),
        });
    }
}

/// The services as one plugin sees them.
pub(crate) struct Services {
    pub(crate) core: Arc<Core>,
    protocol_data: String,
    pub(crate) attachment: Arc<Attachment>,
}

impl Services {
    pub(crate) fn attach(
        core: &Arc<Core>,
        protocol_data: String,
        sink: Arc<dyn EventSink>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            protocol_data,
            attachment: core.attachments.add(sink),
        }
    }

    /// This broker, as [`HostServices::lookup`] and `ListBrokers` name it.
    pub(crate) fn owner(&self) -> Owner {
        Owner {
            local: true,
            broker: self.core.config.broker_id.as_str().into(),
            protocol_data: self.protocol_data.as_str().into(),
        }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.core.attachments.remove(self.attachment.id);
    }
}

impl HostServices for Services {
    fn capabilities(&self) -> u64 {
        capability::SINGLE_BROKER | capability::REPLACE_LEDGER | capability::TRIM_TO_ENTRY
    }

    fn log_enabled(&self, level: Level) -> bool {
        logging::plugin_enabled(level)
    }

    fn log(&self, level: Level, target: &str, message: &str) {
        logging::plugin_line(level, target, message);
    }

    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        let owner = self.owner();
        self.core
            .check_open()
            .map(|()| {
                topics
                    .iter()
                    .map(|name| super::topics::check_name(name).map(|_| owner.clone()))
                    .collect()
            })
            .into()
    }

    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        append::append(&self.core, &requests)
    }

    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        read::read(&self.core, requests, max_bytes)
    }

    fn find(&self, handle: Handle, index: i64) -> Reply<Position> {
        search::find(&self.core, handle, index)
    }

    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        let partition = self.core.handles.get(handle)?;
        let mut view = partition.view.lock();
        if let Some(dead) = &view.dead {
            return Err(dead.clone());
        }
        Ok(view.watch(self.attachment.id, after_index))
    }

    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
        if let Err(error) = self.core.check_open() {
            return Reply::err(error);
        }
        control::dispatch(self, op, version, &request)
    }
}
