//! What a host offers: the hot path as typed methods, everything else through control operations.
//!
//! Implemented by the embedded broker, the simulated one, a stock Pulsar broker behind JNI. It must not know Kafka.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::handler::Level;
use crate::types::{
    ApiError, AppendRequest, Appended, Handle, Owner, Position, ReadAnswer, ReadRequest,
};

/// An answer that is there already, or a future for it. Hosts answer hot calls with [`Reply::Ready`] where they can:
/// a hop to another runtime costs 5–20 µs, a ready call tens of nanoseconds.
pub enum Reply<T> {
    /// Done within the call.
    Ready(Result<T, ApiError>),
    /// Completes later. Polled on the caller's thread, so it must not touch an ambient runtime.
    Pending(Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send>>),
}

impl<T> Reply<T> {
    /// A value that is there.
    pub fn ok(value: T) -> Self {
        Self::Ready(Ok(value))
    }

    /// An error that is known at once.
    pub fn err(error: ApiError) -> Self {
        Self::Ready(Err(error))
    }

    /// A future.
    pub fn pending(future: impl Future<Output = Result<T, ApiError>> + Send + 'static) -> Self {
        Self::Pending(Box::pin(future))
    }
}

impl<T> From<Result<T, ApiError>> for Reply<T> {
    fn from(result: Result<T, ApiError>) -> Self {
        Self::Ready(result)
    }
}

/// Bits that say what a host can do beyond the rest; a plugin refuses clearly what needs an absent one.
pub mod capability {
    /// All topics are owned by this broker: lookups never name another.
    pub const SINGLE_BROKER: u64 = 1 << 0;
    /// Sealed ledgers can be replaced ([`crate::ledger::ReplaceLedger`]), so that a plugin can compact them.
    pub const REPLACE_LEDGER: u64 = 1 << 1;
    /// The head of a managed ledger can be cut at any entry, not only at a ledger's border ([`crate::ledger::Trim`]).
    pub const TRIM_TO_ENTRY: u64 = 1 << 2;
    /// Reads may answer with regions of files.
    pub const FILE_REGIONS: u64 = 1 << 3;
    /// Clients must authenticate, and [`crate::auth::Authorize`] decides for real.
    pub const AUTHENTICATION: u64 = 1 << 4;
    /// The host gives up old data by policies of its own; [`crate::topics::SetTopicPolicies`] says which. Since 1.1.
    pub const HOST_RETENTION: u64 = 1 << 5;
}

/// The services of a broker.
///
/// Calls come from any thread. An outer error means that the call as a whole failed; results of a list are in the
/// order of the requests.
pub trait HostServices: Send + Sync + 'static {
    /// Bits of [`capability`]; constant.
    fn capabilities(&self) -> u64;

    /// Whether a message of this level would be kept.
    fn log_enabled(&self, level: Level) -> bool;

    /// Writes to the broker's log; `target` is the plugin's module path.
    fn log(&self, level: Level, target: &str, message: &str);

    /// Who serves each topic, given full names of partitions (`persistent://t/ns/topic-partition-0`) or of
    /// non-partitioned topics. The topic need not exist; asking may make this broker its owner. An answer
    /// with [`Owner::local`] may be kept until an [`crate::topics::OwnershipChanged`] event covers it; any other holds
    /// for the moment only, since nobody is told when ownership moves between other brokers.
    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>>;

    /// Appends entries. The order of appends to one handle, and the host's ownership of them, are fixed when this
    /// *call* returns, before its reply is polled: dropping the reply cancels nothing. A result comes when the entry
    /// is as durable as the host is set up to make it. A refused entry ([`crate::ErrorCode::Refused`] and the like)
    /// takes up no index. After [`crate::ErrorCode::UnknownOutcome`] the handle is dead.
    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>>;

    /// Reads durable entries, several managed ledgers in one call, in the order of the requests, until `max_bytes`
    /// of entries are found over all. A request past the end, or before the start, is no error: it answers what there
    /// is, and `start_index` and `end_index`.
    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>>;

    /// The position of the entry that holds `index`, or of the first after it; past the end, the position where the
    /// next entry will lie.
    fn find(&self, handle: Handle, index: i64) -> Reply<Position>;

    /// Returns the durable end (index of the last message, −1 if none). If it is not beyond `after_index`, the host
    /// also calls [`crate::ProtocolHandler::end_moved`] once, when it is, whoever wrote. A second watch before that
    /// replaces the first. The check and the arming are one step: no move is missed.
    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError>;

    /// A control operation; see [`crate::control`]. An unknown one is [`crate::ErrorCode::Unsupported`].
    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes>;
}
