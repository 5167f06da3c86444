//! Deadlines as data: one heap for all shards, instead of a task or a timer for each group.
//!
//! An entry says when a group (or a shard's search for expired offsets) is to be looked at; it is not taken out when the
//! deadline moves, since looking at a group whose time has not come costs little and arms the next entry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    /// On the monotonic clock.
    pub(super) at_ms: u64,
    pub(super) shard: u32,
    /// Which life of the shard armed it; another life ignores it.
    pub(super) life: u64,
    /// The group; `None` for the search for expired offsets.
    pub(super) group: Option<Arc<str>>,
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<Due>>>,
    /// Told when an earlier deadline than all others is armed.
    pub(super) sooner: Notify,
}

impl Timers {
    pub(super) fn arm(&self, due: Due) {
        let mut heap = self.heap.lock();
        let first = heap
            .peek()
            .is_none_or(|Reverse(next)| due.at_ms < next.at_ms);
        heap.push(Reverse(due));
        drop(heap);
        if first {
            self.sooner.notify_one();
        }
    }

    /// Takes out everything that is due.
    pub(super) fn take(&self, now_ms: u64) -> Vec<Due> {
        let mut heap = self.heap.lock();
        let mut due = Vec::new();
        while heap
            .peek()
            .is_some_and(|Reverse(next)| next.at_ms <= now_ms)
        {
            due.extend(heap.pop().map(|Reverse(entry)| entry));
        }
        due
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        self.heap.lock().peek().map(|Reverse(due)| due.at_ms)
    }
}
