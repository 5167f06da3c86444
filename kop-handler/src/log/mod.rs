//! The log of a partition on a managed ledger: appending, reading, waiting, offsets by time, producer state,
//! retention and compaction.
//!
//! An offset is the index of a message in the managed ledger. An entry holds one batch; its index is that of the
//! batch's last record. It must not know requests, groups or sockets.

mod partition;
mod types;
mod wait;

use std::future::Future;
use std::sync::Arc;

use handler_api::{Handle, Host, Position};

pub use self::partition::Partition;
pub use self::types::*;
pub use self::wait::{Waiter, Wake};
use crate::clock::Clock;
use crate::error::Fault;

/// All partitions that are open here.
pub struct Logs {}

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
        let _ = (host, clock, directory, options, runtime);
        unimplemented!()
    }

    /// Opens partitions by their full names; answers in their order. One that is open already costs a look into a map.
    pub async fn open(self: &Arc<Self>, partitions: &[&str]) -> Vec<Result<Arc<Partition>, Fault>> {
        let _ = partitions;
        unimplemented!()
    }

    /// Appends batches, in one crossing. Their order in each partition, and the host's ownership of them, are fixed
    /// when this *call* returns; dropping the future cancels nothing. Answers in the order of `appends`, when they are
    /// as durable as the host is set up to make them.
    pub fn append(
        self: &Arc<Self>,
        appends: Vec<Append>,
    ) -> impl Future<Output = Vec<Result<AppendInfo, Rejection>>> + Send + 'static {
        let _ = appends;
        async { unimplemented!() }
    }

    /// Reads whole batches, in one crossing, in the order of `reads`, until `max_bytes` are found. With
    /// `at_least_one` the first partition that has any gives one batch whatever its size.
    pub async fn read(
        &self,
        reads: Vec<Read>,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Vec<Result<Fetched, Fault>> {
        let _ = (reads, max_bytes, at_least_one);
        unimplemented!()
    }

    /// Completes when one of the partitions has a durable record at its offset or after it, or dies. Name the high
    /// watermark that a read answered with; then read again.
    pub fn wait(&self, partitions: &[(Arc<Partition>, i64)]) -> Waiter {
        let _ = partitions;
        unimplemented!()
    }

    /// The host's wake-up: call it from [`handler_api::ProtocolHandler::end_moved`].
    pub fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        let _ = (handle, position, index);
        unimplemented!()
    }

    /// The host's [`handler_api::ledger::HandleClosed`].
    pub fn closed(&self, handle: Handle) {
        let _ = handle;
        unimplemented!()
    }

    /// The host's [`handler_api::ledger::StartMoved`].
    pub fn start_moved(&self, handle: Handle, start_index: i64) {
        let _ = (handle, start_index);
        unimplemented!()
    }

    /// New settings of a topic, for those of its partitions (full names) that are open.
    pub fn apply_settings(&self, partitions: &[&str], settings: &TopicSettings) {
        let _ = (partitions, settings);
        unimplemented!()
    }

    /// Snapshots, retention, rolling and compaction of all partitions, for ever: one task, bounded work at a time.
    pub async fn housekeep(self: Arc<Self>) {
        unimplemented!()
    }

    /// Writes the last snapshots. Afterwards nothing may be appended.
    pub async fn close(&self) {
        unimplemented!()
    }
}
