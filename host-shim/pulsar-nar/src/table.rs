//! The handles that are open: numbers that are never given out twice, and the partitions behind them.
//!
//! It must not know what is done with a partition.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use handler_api::{ApiError, Handle};
use parking_lot::RwLock;

use crate::jvm::PartitionRef;
use crate::partition::{Partition, closed};

/// Open partitions by the id of their handle.
#[derive(Debug)]
pub(crate) struct Table {
    /// Of this life of the broker: handles of another are dead.
    generation: u64,
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<Partition>>>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = started.map_or(0, |since| since.as_micros());
        Self {
            generation: u64::try_from(micros).unwrap_or(u64::MAX),
            next: AtomicU64::new(1),
            open: RwLock::default(),
        }
    }

    /// Takes in what Java has opened.
    pub(crate) fn open(&self, java: PartitionRef, name: String) -> Arc<Partition> {
        let handle = Handle {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            generation: self.generation,
        };
        let partition = Arc::new(Partition::new(handle, name, java));
        self.open.write().insert(handle.id, Arc::clone(&partition));
        partition
    }

    /// The partition of a handle.
    pub(crate) fn get(&self, handle: Handle) -> Result<Arc<Partition>, ApiError> {
        self.by_id(handle.id)
            .filter(|partition| partition.handle == handle)
            .ok_or_else(|| closed("the managed ledger", "nothing is known of this handle"))
    }

    /// The partition that Java calls by its number.
    pub(crate) fn by_id(&self, id: u64) -> Option<Arc<Partition>> {
        self.open.read().get(&id).cloned()
    }

    /// Forgets a partition.
    pub(crate) fn remove(&self, partition: &Partition) {
        self.open.write().remove(&partition.handle.id);
    }

    /// Forgets all.
    pub(crate) fn drain(&self) -> Vec<Arc<Partition>> {
        self.open
            .write()
            .drain()
            .map(|(_, partition)| partition)
            .collect()
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.read().len()
    }
}
