//! What a plugin offers: Pulsar's `ProtocolHandler`, as a Rust trait.
//!
//! Order of calls, as in a Pulsar broker: make → `protocol_name`/`accept` → `initialize` → `protocol_data_to_advertise`
//! → `start` → `listeners` → … → `close`. It must not know which host calls.

use std::collections::HashMap;

use abi_stable::StableAbi;
use bytes::Bytes;

use crate::ffi::Host;
use crate::host::Reply;
use crate::types::{ApiError, Handle, Position, Text};

/// A protocol that a broker can serve beside its own.
///
/// Every method may be called from any thread. None may block (except `initialize` and the making of the handler,
/// which run before the host serves anyone) and none may touch an ambient async runtime: each side has its own.
/// A panic is contained at the boundary and answered as an error.
pub trait ProtocolHandler: Send + Sync + 'static {
    /// The protocol's name as `messagingProtocols` spells it, e.g. `kafka`.
    fn protocol_name(&self) -> String;

    /// Whether this handler serves the protocol; names are compared without regard to case.
    fn accept(&self, protocol: &str) -> bool {
        protocol.eq_ignore_ascii_case(&self.protocol_name())
    }

    /// Takes the broker's whole configuration: every key of its files, known to the host or not. Services do not
    /// exist yet; sockets may be bound already. A wrong value is [`crate::ErrorCode::InvalidConfiguration`], its text
    /// beginning with the key and naming the remedy, and stops the broker's start.
    fn initialize(&self, configuration: HashMap<String, String>) -> Result<(), ApiError>;

    /// What other brokers learn about this one (for Kafka: its advertised listeners). Called after `initialize` and
    /// *before* `start`, so it follows from the configuration alone.
    fn protocol_data_to_advertise(&self) -> String;

    /// Starts serving on the host's services; ready when the listeners accept connections.
    fn start(&self, host: Host) -> Reply<()>;

    /// The sockets that the plugin has bound and owns. Empty before `start`.
    fn listeners(&self) -> Vec<ListenerInfo>;

    /// The durable end of a managed ledger moved beyond what [`crate::HostServices::watch`] named: one call per
    /// watch. Runs on the thread that moved the end, possibly inside the plugin's own append: wake and return.
    fn end_moved(&self, handle: Handle, position: Position, index: i64);

    /// Something happened: one of [`crate::control::Event`]'s kinds. An unknown `op` is from a newer host: ignore it.
    fn event(&self, op: u32, payload: Bytes);

    /// The plugin's metrics in Prometheus' text format, for the broker's own `/metrics`.
    fn metrics(&self) -> Bytes;

    /// A control operation *of the plugin*; none is defined in 1.0.
    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
        let _ = request;
        Reply::err(crate::control::unsupported(op, version))
    }

    /// Stops serving: refuses new connections, lets requests in flight end, releases everything. The host calls it
    /// before it gives up its topics, and bounds it by `brokerShutdownTimeoutMs`. Called once, also after a `start`
    /// that failed.
    fn close(&self) -> Reply<()>;
}

/// A socket that a plugin has bound.
#[repr(C)]
#[derive(StableAbi, Clone, Debug, PartialEq, Eq)]
pub struct ListenerInfo {
    /// Listener name, e.g. `PLAINTEXT`.
    pub name: Text,
    /// `host:port` really bound, the port never 0.
    pub address: Text,
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Something failed and somebody must act.
    Error = 1,
    /// Suspicious, or about to fail.
    Warn = 2,
    /// Worth knowing in normal operation.
    Info = 3,
    /// For finding faults.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

impl Level {
    /// The level behind a number; anything above 5 is [`Level::Trace`].
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            0 | 1 => Self::Error,
            2 => Self::Warn,
            3 => Self::Info,
            4 => Self::Debug,
            _ => Self::Trace,
        }
    }
}
