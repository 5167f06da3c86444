//! The versioned metadata store: small values under paths, changed by compare-and-set, shared by all brokers.

use prost::Message;

use crate::control::{Event, Nothing, operations};

operations! {
    /// Reads a value; `NotFound` if there is none.
    GetValue = 0x0401: Path => Value;
    /// Writes a value. `Conflict` if the stored version is not `expected_version`.
    PutValue = 0x0402: PutRequest => Value;
    /// Deletes a value; versions as for [`PutValue`]. `NotFound` if there is none.
    DeleteValue = 0x0403: PutRequest => Nothing;
    /// The paths directly below a path, by name.
    ListChildren = 0x0404: Path => PathList;
    /// Asks for [`ValueChanged`] events of a path and all below it, for the life of the plugin.
    WatchPath = 0x0405: Path => Nothing;
}

/// A path, `/a/b`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Path {
    /// The path.
    #[prost(string, tag = "1")]
    pub path: String,
}

/// Paths by name.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PathList {
    /// The paths.
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
}

/// A stored value.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Value {
    /// Its path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Its bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
    /// Its version, from 0, raised by each write.
    #[prost(sint64, tag = "3")]
    pub version: i64,
}

/// A write.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PutRequest {
    /// Where.
    #[prost(string, tag = "1")]
    pub path: String,
    /// What.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
    /// Version that must be stored now; −1: none may be. Absent: any.
    #[prost(sint64, optional, tag = "3")]
    pub expected_version: Option<i64>,
}

/// A watched value was written or deleted.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ValueChanged {
    /// Its path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Whether it is gone.
    #[prost(bool, tag = "2")]
    pub deleted: bool,
}

impl Event for ValueChanged {
    const OP: u32 = 0x0401;
}
