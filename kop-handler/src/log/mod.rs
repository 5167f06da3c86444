//! The log of a partition on a managed ledger: appending, reading, waiting, offsets by time, producer state,
//! retention and compaction.
//!
//! An offset is the index of a message in the managed ledger. An entry holds one batch; its index is that of the
//! batch's last record. It must not know requests, groups or sockets.

mod append;
mod clean;
mod compact;
pub mod limits;
mod load;
mod partition;
mod pending;
mod positions;
mod prepare;
pub mod producers;
mod read;
mod retention;
mod search;
mod shared;
pub mod snapshot;
mod text;
pub mod time_index;
mod types;
mod upkeep;
mod wait;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use futures_util::future::join_all;
use handler_api::ledger::Opened;
use handler_api::{Handle, Host, Position, capability};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, OnceCell};

pub use self::partition::{Growth, Partition};
pub use self::types::*;
pub use self::wait::{Waiter, Wake};
use crate::clock::Clock;
use crate::error::Fault;
use shared::Shared;

/// The leader epoch of all partitions. Where there is one broker nothing ever moves: it is 0. Elsewhere there is none
/// (−1), since ownership has no number that all brokers know and that survives them.
#[must_use]
pub fn leader_epoch(host: &Host) -> i32 {
    if host.has(capability::SINGLE_BROKER) {
        0
    } else {
        -1
    }
}

/// All partitions that are open here.
pub struct Logs {
    shared: Arc<Shared>,
    open: RwLock<Open>,
    /// Partitions being loaded: who asks meanwhile waits for the same load.
    loading: Mutex<HashMap<Arc<str>, Loading>>,
}

type Loading = Arc<OnceCell<Arc<Partition>>>;

#[derive(Default)]
struct Open {
    by_name: HashMap<Arc<str>, Arc<Partition>>,
    by_handle: HashMap<Handle, Arc<Partition>>,
}

impl Open {
    fn alive(&self, name: &str) -> Option<Arc<Partition>> {
        self.by_name
            .get(name)
            .filter(|partition| partition.is_alive())
            .cloned()
    }

    fn insert(&mut self, partition: &Arc<Partition>) {
        let name = partition.shared_name();
        if let Some(old) = self.by_name.insert(name, Arc::clone(partition)) {
            self.by_handle.remove(&old.handle());
        }
        self.by_handle
            .insert(partition.handle(), Arc::clone(partition));
    }
}

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logs")
            .field("open", &self.open.read().by_name.len())
            .finish_non_exhaustive()
    }
}

impl Logs {
    /// Nothing open yet. `runtime` carries on what a caller gave up on.
    #[must_use]
    pub fn new(
        host: Host,
        clock: Arc<dyn Clock>,
        directory: Arc<dyn Directory>,
        options: LogOptions,
        runtime: tokio::runtime::Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::new(Shared {
                leader_epoch: leader_epoch(&host),
                retains: !host.has(capability::HOST_RETENTION),
                host,
                clock,
                directory,
                options,
                runtime,
                waiters: AtomicUsize::new(0),
                unsaved: Mutex::new(Vec::new()),
                urgent: Notify::new(),
            }),
            open: RwLock::new(Open::default()),
            loading: Mutex::new(HashMap::new()),
        })
    }

    /// Opens partitions by their full names; answers in their order. One that is open already costs a look into a map.
    pub async fn open(&self, partitions: &[&str]) -> Vec<Result<Arc<Partition>, Fault>> {
        let mut found: Vec<Option<Result<Arc<Partition>, Fault>>> = {
            let open = self.open.read();
            let known = |name: &&str| open.alive(name).map(Ok);
            partitions.iter().map(known).collect()
        };
        let missing: Vec<Arc<str>> = partitions
            .iter()
            .zip(&found)
            .filter(|(_, found)| found.is_none())
            .map(|(name, _)| Arc::from(*name))
            .collect();
        if !missing.is_empty() {
            let opened = load::open_ledgers(&self.shared, &missing).await;
            let mut opened: Vec<_> = missing.into_iter().zip(opened).collect();
            let mut loaded = Vec::with_capacity(opened.len());
            while !opened.is_empty() {
                let rest = opened.split_off(limits::LOADS_AT_ONCE.min(opened.len()));
                let loads = std::mem::replace(&mut opened, rest).into_iter();
                loaded.extend(join_all(loads.map(|(name, opened)| self.load(name, opened))).await);
            }
            let mut loaded = loaded.into_iter();
            for place in found.iter_mut().filter(|place| place.is_none()) {
                *place = loaded.next();
            }
        }
        let lost = || Err(Fault::Internal("a partition was not opened".to_owned()));
        found
            .into_iter()
            .map(|found| found.unwrap_or_else(lost))
            .collect()
    }

    /// Loads a partition, once for all who ask at the same time.
    async fn load(
        &self,
        name: Arc<str>,
        opened: Result<Opened, Fault>,
    ) -> Result<Arc<Partition>, Fault> {
        let opened = &opened?;
        let cell = {
            let mut loading = self.loading.lock();
            if let Some(known) = self.open.read().alive(&name) {
                return Ok(known);
            }
            Arc::clone(loading.entry(Arc::clone(&name)).or_default())
        };
        let load = async || {
            self.must_be_settled(opened)?;
            let settings = self.shared.directory.settings(&name).await?;
            let partition = load::load(&self.shared, Arc::clone(&name), opened, settings).await?;
            Ok(Arc::new(partition))
        };
        let loaded = cell.get_or_try_init(load).await.cloned();
        let mut loading = self.loading.lock();
        if loading
            .get(&name)
            .is_some_and(|other| Arc::ptr_eq(other, &cell))
        {
            if let Ok(partition) = &loaded {
                self.open.write().insert(partition);
            }
            loading.remove(&name);
        }
        if let Ok(partition) = &loaded
            && partition.lock().unsaved.since_ms.is_some()
        {
            partition.list_unsaved();
        }
        loaded
    }

    /// A partition that we gave up, while its handle lives on, may still have appends under way: it is loaded again
    /// when they have ended, so that none is missed.
    fn must_be_settled(&self, opened: &Opened) -> Result<(), Fault> {
        let handle = opened.handle.map(Handle::from);
        let old = handle.and_then(|handle| self.by_handle(handle));
        if old.is_some_and(|old| !old.lock().pendings.is_empty()) {
            return Err(Fault::LeaderNotAvailable(
                "appends of unknown outcome are under way".to_owned(),
            ));
        }
        Ok(())
    }

    /// Appends batches, in one crossing. Their order in each partition, and the host's ownership of them, are fixed
    /// when this *call* returns; dropping the future cancels nothing. Answers in the order of `appends`, when they are
    /// as durable as the host is set up to make them.
    pub fn append(
        &self,
        appends: Vec<Append>,
    ) -> impl Future<Output = Vec<Result<AppendInfo, Rejection>>> + Send + use<> {
        append::append(&self.shared, appends)
    }

    /// Reads whole batches, in one crossing, in the order of `reads`, until `max_bytes` are found. With
    /// `at_least_one` the first partition that has any gives one batch whatever its size.
    pub async fn read(
        &self,
        reads: Vec<Read>,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Vec<Result<Fetched, Fault>> {
        read::read(&self.shared, reads, max_bytes, at_least_one).await
    }

    /// Completes when one of the partitions has a durable record at its offset or after it, or dies. Name the high
    /// watermark that a read answered with; then read again.
    pub fn wait(&self, partitions: &[(Arc<Partition>, i64)]) -> Waiter {
        wait::wait(&self.shared, partitions)
    }

    /// The host's wake-up: call it from [`handler_api::ProtocolHandler::end_moved`].
    pub fn end_moved(&self, handle: Handle, _position: Position, index: i64) {
        if let Some(partition) = self.by_handle(handle) {
            partition.raise_end(index + 1);
            wait::wake(&partition);
        }
    }

    /// The host's [`handler_api::ledger::HandleClosed`]: the partition is dead, who waits for it is woken.
    pub fn closed(&self, handle: Handle) {
        if let Some(partition) = self.by_handle(handle) {
            partition.die();
            self.forget(&partition);
        }
    }

    /// The host's [`handler_api::ledger::StartMoved`].
    pub fn start_moved(&self, handle: Handle, start_index: i64) {
        if let Some(partition) = self.by_handle(handle) {
            partition.host_starts_at(start_index);
        }
    }

    /// New settings of a topic, for those of its partitions (full names) that are open.
    pub fn apply_settings(&self, partitions: &[&str], settings: &TopicSettings) {
        let open = self.open.read();
        for name in partitions {
            if let Some(partition) = open.by_name.get(*name) {
                partition.set_settings(settings.clone());
            }
        }
    }

    fn by_handle(&self, handle: Handle) -> Option<Arc<Partition>> {
        self.open.read().by_handle.get(&handle).cloned()
    }

    /// Takes a dead partition out of the maps, so that the next who asks opens it again.
    fn forget(&self, partition: &Arc<Partition>) {
        let mut open = self.open.write();
        open.by_handle.remove(&partition.handle());
        if open
            .by_name
            .get(partition.name())
            .is_some_and(|known| Arc::ptr_eq(known, partition))
        {
            open.by_name.remove(partition.name());
        }
    }
}

#[cfg(test)]
mod tests;
