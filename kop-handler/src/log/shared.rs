//! What all partitions share: the host, the clock, the options, and the lists of what needs upkeep.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use handler_api::Host;
use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;

use super::partition::Partition;
use super::types::{Directory, LogOptions};
use crate::clock::Clock;

/// The services that partitions use.
pub(super) struct Shared {
    pub(super) host: Host,
    /// What batches are handed out with; see [`super::leader_epoch`].
    pub(super) leader_epoch: i32,
    /// Whether ledgers are rolled and trimmed from here. A host with retention of its own does both by its own
    /// policies, which learn elsewhere what a topic wants.
    pub(super) retains: bool,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) options: LogOptions,
    /// Carries on what a caller gave up on.
    pub(super) runtime: Runtime,
    /// Waiters over all partitions.
    pub(super) waiters: AtomicUsize,
    /// Partitions with something to save, each once.
    pub(super) unsaved: Mutex<Vec<Arc<Partition>>>,
    /// Woken when something cannot wait for the next round of upkeep.
    pub(super) urgent: Notify,
}
