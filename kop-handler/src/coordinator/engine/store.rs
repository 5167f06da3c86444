//! Where shards are kept, as the engine sees it: logs of keyed records, one per shard.
//!
//! A small trait, so that a simulation runs the engine over a log of its own. [`super::LogStore`] is the real one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::coordinator::record::KeyValue;

/// A future that is polled by whoever awaits it.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, StoreFault>> + Send>>;

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// Nothing was written, and nothing will be: the shard goes on.
    #[error("the log refuses the write: {0}")]
    Refused(String),
    /// One append is larger than the log takes; nothing was written.
    #[error("the records do not fit into one entry of the log: {0}")]
    TooLarge(String),
    /// Another broker owns the shard, or its log was closed.
    #[error("the log is not open here: {0}")]
    NotOwner(String),
    /// The outcome is not known, or the store is out of order for now.
    #[error("the log failed: {0}")]
    Failed(String),
}

/// Some records of a log, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The records.
    pub records: Vec<KeyValue>,
    /// Offset to read on from; `None` at the end.
    pub next: Option<i64>,
}

/// The log of one shard.
pub trait ShardLog: Send + Sync + 'static {
    /// Appends records as one entry. The order is fixed when the *call* returns; the future completes when they are
    /// durable, and dropping it cancels nothing.
    fn append(&self, records: Vec<KeyValue>) -> Pending<()>;

    /// Whether this opening of the log is still good for anything.
    fn is_open(&self) -> bool;

    /// Reads about `max_bytes` from an offset on; 0 (or less than the first that exists) is the start.
    fn read(&self, from: i64, max_bytes: usize) -> Pending<Chunk>;
}

/// All shards.
pub trait ShardStore: Send + Sync + 'static {
    /// How many shards there are; `None` if the topic does not exist and `create` is not set.
    fn shards(&self, create: bool) -> Pending<Option<u32>>;

    /// Which of the `count` shards this broker serves at the moment, so that a question to all of them does not knock at
    /// each door.
    fn served(&self, count: u32) -> Pending<Vec<u32>>;

    /// Opens a shard's log, which makes an older opening of it useless.
    fn open(&self, shard: u32) -> Pending<Arc<dyn ShardLog>>;
}
