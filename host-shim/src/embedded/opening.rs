//! Opening managed ledgers by name, and how much they store.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use handler_api::ledger::{Opened, OpenedList, StorageReport};
use handler_api::topics::TopicNames;
use handler_api::{ApiError, ErrorCode, Reply};
use parking_lot::{Mutex, MutexGuard};

use super::catalog::{MANAGED, ManagedRow, decode_row};
use super::maintain::record_dead;
use super::partition::Partition;
use super::recover::load;
use super::services::{Core, now_ms};
use super::topics::Resolved;

/// Locks that keep two threads from opening the same name.
#[derive(Default)]
pub(crate) struct Opening([Mutex<()>; 16]);

impl Opening {
    fn lock(&self, name: &str) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let stripe = usize::try_from(hasher.finish() % self.0.len() as u64).unwrap_or(0);
        self.0.get(stripe).map(Mutex::lock)
    }
}

/// See [`handler_api::ledger::OpenLedgers`]. Ready at once if all are open already.
pub(crate) fn open(core: &Arc<Core>, request: TopicNames) -> Reply<OpenedList> {
    let open: Vec<_> = request
        .names
        .iter()
        .map_while(|name| core.handles.named(name))
        .collect();
    if open.len() == request.names.len() {
        return Reply::ok(OpenedList {
            ledgers: open.iter().map(|partition| partition.opened()).collect(),
        });
    }
    let worker = Arc::clone(core);
    core.disk.reply("opening", move || {
        let open = |name: &String| match open_one(&worker, name) {
            Ok(partition) => partition.opened(),
            Err(error) => Opened {
                fault: Some(error.into()),
                start_index: 0,
                end_index: -1,
                ..Opened::default()
            },
        };
        Ok(OpenedList {
            ledgers: request.names.iter().map(open).collect(),
        })
    })
}

/// Opens a managed ledger, or answers the opening that there is. Waits for the disk.
pub(crate) fn open_one(core: &Arc<Core>, name: &str) -> Result<Arc<Partition>, ApiError> {
    let _guard = core.opening.lock(name);
    if let Some(partition) = core.handles.named(name) {
        return Ok(partition);
    }
    let Resolved { topic_id, number } = core.topics.resolve(name)?;
    if let Some(dead) = core.handles.dead(name) {
        record_dead(core, &dead)?;
    }
    let loaded = load(core, topic_id, number, name)?;
    let dirty = loaded.dirty;
    let open_ledger = loaded
        .ledgers
        .last()
        .filter(|ledger| !ledger.row.sealed)
        .map(|ledger| ledger.row);
    let partition = core
        .handles
        .insert(|handle| Partition::new(handle, name.into(), topic_id, number, loaded));
    // The topic may have been deleted meanwhile, and its handles ended before this one was among them.
    if core
        .topics
        .resolve(name)
        .is_ok_and(|now| now.topic_id == topic_id)
    {
        if dirty {
            core.maintenance.mark_dirty(&partition);
        }
        if let Some(row) = open_ledger {
            let age = u64::try_from(now_ms() - row.created_ms).unwrap_or(0);
            if core.config.max_rollover_ms > 0 {
                let left = core.config.max_rollover_ms.saturating_sub(age);
                core.maintenance
                    .schedule_rollover(&partition, row.id, Duration::from_millis(left));
            }
        }
        return Ok(partition);
    }
    let reason = partition.closed("the topic was deleted");
    partition.end(&reason);
    core.handles.remove(&partition, false);
    Err(reason)
}

/// See [`handler_api::ledger::StorageUse`].
pub(crate) fn storage_use(core: &Arc<Core>, request: TopicNames) -> Reply<StorageReport> {
    let worker = Arc::clone(core);
    core.disk.reply("counting bytes", move || {
        let bytes = request
            .names
            .iter()
            .map(|name| stored(&worker, name))
            .collect::<Result<_, _>>()?;
        let (total_bytes, usable_bytes) = worker.space.volume();
        Ok(StorageReport {
            bytes,
            total_bytes,
            usable_bytes,
            location: worker.layout.root().display().to_string(),
        })
    })
}

/// Bytes of a partition, or of all partitions of a topic; 0 for an unknown name.
fn stored(core: &Core, name: &str) -> Result<u64, ApiError> {
    if let Some(partitions) = core.topics.partitions_of(name) {
        let mut sum = 0;
        for partition in partitions {
            sum += stored_in_one(core, &partition)?;
        }
        return Ok(sum);
    }
    stored_in_one(core, name)
}

fn stored_in_one(core: &Core, name: &str) -> Result<u64, ApiError> {
    if let Some(partition) = core.handles.named(name) {
        let view = partition.view.lock();
        return Ok(view.ledgers.iter().map(|ledger| ledger.row.bytes).sum());
    }
    let resolved = match core.topics.resolve(name) {
        Ok(resolved) => resolved,
        Err(error) if error.kind() == ErrorCode::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let row = core.catalog.read(|transaction| {
        let table = transaction.open_table(MANAGED)?;
        let row = table.get((resolved.topic_id, resolved.number))?;
        Ok(row.map(|row| decode_row::<ManagedRow>(row.value(), name)))
    })?;
    let row = row.transpose()?.unwrap_or_default();
    Ok(row.ledgers.iter().map(|ledger| ledger.bytes).sum())
}
