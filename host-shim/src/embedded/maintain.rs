//! What happens on its own time: checkpoints of what was written, sealing of old ledgers, removal of files.
//!
//! One thread for all of it, asleep until something is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use handler_api::{ApiError, ErrorCode};
use parking_lot::{Condvar, Mutex, MutexGuard};
use redb::{ReadableTable, WriteTransaction};

use super::catalog::{LIVES, LedgerRow, MANAGED, MARKS, ManagedRow};
use super::config::OpenError;
use super::files::FileKey;
use super::partition::{Partition, View, fresh_row};
use super::record::{Mark, pack_marks};
use super::services::Core;

/// Managed ledgers whose checkpoints share a transaction.
const CHECKPOINT_BATCH: usize = 256;

/// A ledger to be sealed for its age, if it is still open then.
struct Rollover {
    due: Instant,
    partition: Weak<Partition>,
    ledger: i64,
}

impl PartialEq for Rollover {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}
impl Eq for Rollover {}
impl PartialOrd for Rollover {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Rollover {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

#[derive(Default)]
struct State {
    dirty: Vec<Arc<Partition>>,
    /// When the oldest of them was written.
    dirty_since: Option<Instant>,
    rollovers: BinaryHeap<Reverse<Rollover>>,
    waste: Vec<FileKey>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

/// The maintenance thread's work list.
#[derive(Default)]
pub(crate) struct Maintenance {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Maintenance {
    pub(crate) fn start(&self, core: Weak<Core>, interval: Duration) -> Result<(), OpenError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name("kop-maintenance".into())
            .spawn(move || shared.run(&core, interval))
            .map_err(OpenError::io("cannot start a thread for", "maintenance"))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Notes that a managed ledger is ahead of the catalog.
    pub(crate) fn mark_dirty(&self, partition: &Arc<Partition>) {
        if partition.dirty.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut state = self.shared.state.lock();
        state.dirty.push(Arc::clone(partition));
        if state.dirty_since.is_none() {
            state.dirty_since = Some(Instant::now());
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// Seals a ledger after a time.
    pub(crate) fn schedule_rollover(
        &self,
        partition: &Arc<Partition>,
        ledger: i64,
        after: Duration,
    ) {
        self.shared.state.lock().rollovers.push(Reverse(Rollover {
            due: Instant::now() + after,
            partition: Arc::downgrade(partition),
            ledger,
        }));
        self.shared.wake.notify_one();
    }

    /// Removes files that nothing refers to any more.
    pub(crate) fn discard(&self, files: impl IntoIterator<Item = FileKey>) {
        let mut state = self.shared.state.lock();
        state.waste.extend(files);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Ends the thread; what is waste by then is still removed. What is dirty is left to [`checkpoint`].
    pub(crate) fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }

    /// Takes what waits for a checkpoint.
    pub(crate) fn take_dirty(&self) -> Vec<Arc<Partition>> {
        let mut state = self.shared.state.lock();
        state.dirty_since = None;
        std::mem::take(&mut state.dirty)
    }
}

enum Due {
    Checkpoint,
    Rollovers(Vec<Rollover>),
    Waste(Vec<FileKey>),
    End,
}

impl Shared {
    fn run(&self, core: &Weak<Core>, interval: Duration) {
        loop {
            let due = self.wait(interval);
            let Some(core) = core.upgrade() else { return };
            match due {
                Due::End => return,
                Due::Checkpoint => {
                    if let Err(error) = checkpoint(&core) {
                        tracing::warn!(%error, "a checkpoint failed; the next one tries again");
                    }
                }
                Due::Rollovers(rollovers) => {
                    for rollover in rollovers {
                        if let Some(partition) = rollover.partition.upgrade() {
                            partition.seal_old(&core, rollover.ledger);
                        }
                    }
                }
                Due::Waste(files) => {
                    for key in files {
                        match core.files.remove(key) {
                            Ok(()) => core.metrics.removed_files.add(1),
                            Err(error) => {
                                tracing::warn!(ledger = key.0, %error, "a ledger file could not be removed");
                            }
                        }
                    }
                }
            }
        }
    }

    fn wait(&self, interval: Duration) -> Due {
        let mut state = self.state.lock();
        loop {
            if !state.waste.is_empty() {
                return Due::Waste(std::mem::take(&mut state.waste));
            }
            if state.closed {
                return Due::End;
            }
            let now = Instant::now();
            let checkpoint = state.dirty_since.map(|since| since + interval);
            if checkpoint.is_some_and(|due| due <= now) {
                return Due::Checkpoint;
            }
            let mut old = Vec::new();
            while let Some(Reverse(first)) = state.rollovers.peek()
                && first.due <= now
            {
                old.extend(state.rollovers.pop().map(|Reverse(rollover)| rollover));
            }
            if !old.is_empty() {
                return Due::Rollovers(old);
            }
            let next = state.rollovers.peek().map(|Reverse(first)| first.due);
            match checkpoint.into_iter().chain(next).min() {
                Some(due) => {
                    self.wake.wait_until(&mut state, due);
                }
                None => self.wake.wait(&mut state),
            }
        }
    }
}

/// What one managed ledger has to say to the catalog.
pub(crate) struct Snapshot {
    owner: (u64, u32),
    pub(crate) row: ManagedRow,
    /// Files to be synced before the row may say what it says.
    files: Vec<FileKey>,
    /// New marks of the unsealed ledger.
    marks: Vec<Mark>,
    marks_end: usize,
    /// Ledgers whose marks now lie in their footers.
    sealed: Vec<i64>,
}

/// Syncs what was written and notes it in the catalog, so that a crash need not look at it again. Waits for the disk.
pub(crate) fn checkpoint(core: &Arc<Core>) -> Result<(), ApiError> {
    let dirty = core.maintenance.take_dirty();
    let mut failed = None;
    for batch in dirty.chunks(CHECKPOINT_BATCH) {
        if let Err(error) = checkpoint_batch(core, batch) {
            for partition in batch {
                core.maintenance.mark_dirty(partition);
            }
            failed = Some(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

fn checkpoint_batch(core: &Arc<Core>, batch: &[Arc<Partition>]) -> Result<(), ApiError> {
    // Held until the rows are committed: nobody else writes them meanwhile.
    let mut guards: Vec<MutexGuard<'_, ()>> = Vec::with_capacity(batch.len());
    let mut snapshots = Vec::with_capacity(batch.len());
    for partition in batch {
        guards.push(partition.structure.lock());
        partition.dirty.store(false, Ordering::SeqCst);
        let view = partition.view.lock();
        // One that died of a fault is noted by its next opening; one that is only closed is intact.
        let intact = view
            .dead
            .as_ref()
            .is_none_or(|reason| reason.kind() == ErrorCode::Closing);
        if intact {
            snapshots.push((partition, Snapshot::take(partition, &view)));
        }
    }
    let recorded = record(core, snapshots);
    drop(guards);
    recorded.map_err(|failure| failure.settle(core))
}

/// Why nothing was recorded, and the opening that ended over it.
pub(crate) struct Unrecorded {
    error: ApiError,
    ended: Option<(Arc<Partition>, ApiError)>,
}

impl From<ApiError> for Unrecorded {
    fn from(error: ApiError) -> Self {
        Self { error, ended: None }
    }
}

impl Unrecorded {
    /// Ends an opening at once; who is to be told is told later. The lock of its structure may be held, no other.
    pub(crate) fn ending(partition: &Arc<Partition>, why: &str, error: ApiError) -> Self {
        let reason = partition.closed(why);
        let ended = partition.end(&reason);
        Self {
            error,
            ended: ended.then(|| (Arc::clone(partition), reason)),
        }
    }

    /// The error, once the plugins are told what ended. No lock may be held.
    pub(crate) fn settle(self, core: &Core) -> ApiError {
        if let Some((partition, reason)) = self.ended {
            core.bury(&partition, &reason);
        }
        self.error
    }
}

/// Syncs the files that snapshots speak of, and writes their rows. The caller holds the locks of their structure, and
/// settles a failure once it has dropped them.
pub(crate) fn record(
    core: &Arc<Core>,
    snapshots: Vec<(&Arc<Partition>, Snapshot)>,
) -> Result<(), Unrecorded> {
    core.files
        .sync_names()
        .map_err(|error| sync_failed(core, &error))?;
    for (partition, snapshot) in &snapshots {
        let synced = snapshot.files.iter().try_for_each(|key| {
            match core.files.open(*key).and_then(|file| file.sync()) {
                // A missing file was reported when it was missed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                synced => synced,
            }
        });
        if let Err(error) = synced {
            // The next sync would succeed without having written what this one could not.
            return Err(Unrecorded::ending(
                partition,
                "a sync failed; open the topic again",
                sync_failed(core, &error),
            ));
        }
    }
    let (partitions, rows): (Vec<_>, Vec<_>) = snapshots.into_iter().unzip();
    let rows = Arc::new(rows);
    let written = Arc::clone(&rows);
    core.catalog.write(move |transaction| {
        for snapshot in written.iter() {
            snapshot.write(transaction)?;
        }
        Ok(Ok(()))
    })?;
    for (partition, snapshot) in partitions.into_iter().zip(rows.iter()) {
        let mut view = partition.view.lock();
        for ledger in &mut view.ledgers {
            if snapshot.sealed.contains(&ledger.row.id) {
                ledger.recorded = true;
            }
        }
        let same = view.ledgers.last().map(|ledger| ledger.row.id)
            == snapshot.row.ledgers.last().map(|ledger| ledger.id);
        if same {
            view.marks_saved = view.marks_saved.max(snapshot.marks_end);
        }
    }
    Ok(())
}

fn sync_failed(core: &Core, error: &std::io::Error) -> ApiError {
    ApiError::new(
        ErrorCode::NotReady,
        format!(
            "{}: syncing failed: {error}",
            core.layout.ledgers().display()
        ),
    )
}

/// A sealed ledger whose last entries are not durable yet is still unsealed to the catalog.
fn durable_row(row: LedgerRow, sealed_end: u64) -> LedgerRow {
    LedgerRow {
        sealed: row.sealed && row.data_end == sealed_end,
        ..row
    }
}

impl Snapshot {
    /// A managed ledger as its readers see it now.
    pub(crate) fn take(partition: &Partition, view: &View) -> Self {
        let row = ManagedRow {
            start_index: view.start_index,
            next_index: view.end_index + 1,
            last_ledger: view.last_ledger,
            ledgers: view
                .ledgers
                .iter()
                .map(|ledger| durable_row(ledger.row, ledger.sealed_end))
                .collect(),
            properties: view.properties(),
        };
        let news = view
            .ledgers
            .iter()
            .zip(&row.ledgers)
            .filter(|(ledger, _)| !ledger.recorded);
        let files = news.clone().map(|(_, row)| row.key()).collect();
        let sealed = news
            .filter(|(_, row)| row.sealed)
            .map(|(_, row)| row.id)
            .collect();
        let open_end = row
            .ledgers
            .last()
            .filter(|ledger| !ledger.sealed)
            .map_or(0, |ledger| ledger.data_end);
        let durable = view.marks.partition_point(|mark| mark.offset < open_end);
        let marks = view
            .marks
            .get(view.marks_saved..durable)
            .unwrap_or_default()
            .to_vec();
        Self {
            owner: (partition.topic_id, partition.number),
            row,
            files,
            marks_end: view.marks_saved + marks.len(),
            marks,
            sealed,
        }
    }

    /// Writes the row, unless the topic is gone meanwhile.
    fn write(&self, transaction: &WriteTransaction) -> Result<(), redb::Error> {
        if transaction.open_table(LIVES)?.get(self.owner.0)?.is_none() {
            return Ok(());
        }
        transaction.open_table(MANAGED)?.insert(
            self.owner,
            prost::Message::encode_to_vec(&self.row).as_slice(),
        )?;
        let mut table = transaction.open_table(MARKS)?;
        for ledger in &self.sealed {
            table.retain_in((*ledger, 0)..=(*ledger, u32::MAX), |_, _| false)?;
        }
        if let (Some(first), Some(ledger)) = (self.marks.first(), self.row.ledgers.last()) {
            table.insert((ledger.id, first.entry), pack_marks(&self.marks).as_slice())?;
        }
        Ok(())
    }
}

/// Notes the ledgers of a handle that died, so that the next opening finds them and looks at each from its start.
pub(crate) fn record_dead(core: &Core, partition: &Partition) -> Result<(), ApiError> {
    let _guard = partition.structure.lock();
    let view = partition.view.lock();
    let mut snapshot = Snapshot::take(partition, &view);
    snapshot.marks = Vec::new();
    for (ledger, row) in view.ledgers.iter().zip(&mut snapshot.row.ledgers) {
        if !ledger.recorded {
            *row = fresh_row(row.id, row.first_index, row.created_ms);
            snapshot.sealed.push(row.id);
        }
    }
    drop(view);
    core.catalog.write(move |transaction| {
        snapshot.write(transaction)?;
        Ok(Ok(()))
    })
}
