//! Managed ledgers beside the hot path: open, describe, roll over, trim, replace.
//!
//! A managed ledger is the log of one partition: a list of ledgers, all sealed but the last. Entries have positions
//! (ledger, entry) and indexes (messages counted over the whole life of the partition, never reset).

use std::collections::HashMap;

use prost::Message;

use crate::control::{Event, Fault, Nothing, operations};
use crate::topics::TopicNames;
use crate::types::{Handle, Position};

operations! {
    /// Opens the managed ledgers of partitions that this broker owns, so that they can be appended to and read.
    /// Opening one twice gives the same handle. `NotOwner`, `NotFound`, `NotReady` per name.
    OpenLedgers = 0x0201: TopicNames => OpenedList;
    /// The ledgers of a managed ledger, oldest first.
    DescribeLedgers = 0x0202: HandleRef => LedgerList;
    /// Seals the last ledger if it holds any entry, and starts another.
    Rollover = 0x0203: HandleRef => Nothing;
    /// Gives up entries from the front: those whose messages all lie below an index. A host without
    /// `TRIM_TO_ENTRY` gives up whole sealed ledgers only. The answer's `start_index` is what holds now.
    Trim = 0x0204: TrimRequest => Opened;
    /// Sets and removes properties of a managed ledger; they live as long as it does.
    UpdateLedgerProperties = 0x0205: PropertiesChange => Properties;
    /// Puts other entries into a sealed ledger's place, in one step. Entries keep their indexes, must be in order and
    /// within the index range of the ledger they replace; positions may change.
    ReplaceLedger = 0x0206: Replacement => Nothing;
    /// Bytes stored, and what the storage has left.
    StorageUse = 0x0207: TopicNames => StorageReport;
}

/// A handle inside a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct HandleRef {
    /// See [`Handle::id`].
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// See [`Handle::generation`].
    #[prost(uint64, tag = "2")]
    pub generation: u64,
}

impl From<Handle> for HandleRef {
    fn from(handle: Handle) -> Self {
        Self {
            id: handle.id,
            generation: handle.generation,
        }
    }
}

impl From<HandleRef> for Handle {
    fn from(handle: HandleRef) -> Self {
        Self {
            id: handle.id,
            generation: handle.generation,
        }
    }
}

/// A position inside a message.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PositionRef {
    /// See [`Position::ledger`].
    #[prost(sint64, tag = "1")]
    pub ledger: i64,
    /// See [`Position::entry`].
    #[prost(sint64, tag = "2")]
    pub entry: i64,
}

impl From<Position> for PositionRef {
    fn from(position: Position) -> Self {
        Self {
            ledger: position.ledger,
            entry: position.entry,
        }
    }
}

impl From<PositionRef> for Position {
    fn from(position: PositionRef) -> Self {
        Self {
            ledger: position.ledger,
            entry: position.entry,
        }
    }
}

/// Answers of [`OpenLedgers`], in the order of the names.
#[derive(Clone, PartialEq, Message)]
pub struct OpenedList {
    /// One per name.
    #[prost(message, repeated, tag = "1")]
    pub ledgers: Vec<Opened>,
}

/// An open managed ledger, or why it is not.
#[derive(Clone, PartialEq, Message)]
pub struct Opened {
    /// Its handle, absent if it could not be opened.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleRef>,
    /// Why not.
    #[prost(message, optional, tag = "2")]
    pub fault: Option<Fault>,
    /// Index of the first message that still exists (= `end_index` + 1 if there is none).
    #[prost(sint64, tag = "3")]
    pub start_index: i64,
    /// Index of the last durable message; −1 if there never was one.
    #[prost(sint64, tag = "4")]
    pub end_index: i64,
    /// Properties of the managed ledger.
    #[prost(map = "string, string", tag = "5")]
    pub properties: HashMap<String, String>,
}

/// The ledgers of a managed ledger.
#[derive(Clone, PartialEq, Message)]
pub struct LedgerList {
    /// Oldest first; the last one is open.
    #[prost(message, repeated, tag = "1")]
    pub ledgers: Vec<Ledger>,
}

/// One ledger.
#[derive(Clone, PartialEq, Message)]
pub struct Ledger {
    /// Its id, unique in the cluster.
    #[prost(sint64, tag = "1")]
    pub id: i64,
    /// Index of its first message, or of the next one if it is empty.
    #[prost(sint64, tag = "2")]
    pub first_index: i64,
    /// Index of its last message; `first_index` − 1 if it is empty.
    #[prost(sint64, tag = "3")]
    pub last_index: i64,
    /// Entries that it holds.
    #[prost(uint64, tag = "4")]
    pub entries: u64,
    /// Bytes of those entries, possibly with the little that the host stores beside each.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    /// Whether it takes no more entries.
    #[prost(bool, tag = "6")]
    pub sealed: bool,
    /// When it was created, in ms since the epoch.
    #[prost(int64, tag = "7")]
    pub created_ms: i64,
    /// When its last entry was appended, in ms since the epoch; 0 if it has none.
    #[prost(int64, tag = "8")]
    pub last_append_ms: i64,
    /// How often it was replaced.
    #[prost(uint32, tag = "9")]
    pub replaced: u32,
}

/// What to give up.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TrimRequest {
    /// Which managed ledger.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleRef>,
    /// Entries whose last message lies below this index go.
    #[prost(sint64, tag = "2")]
    pub before_index: i64,
}

/// Properties to change.
#[derive(Clone, PartialEq, Message)]
pub struct PropertiesChange {
    /// Which managed ledger.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleRef>,
    /// To set.
    #[prost(map = "string, string", tag = "2")]
    pub set: HashMap<String, String>,
    /// To remove.
    #[prost(string, repeated, tag = "3")]
    pub remove: Vec<String>,
}

/// Properties of a managed ledger.
#[derive(Clone, PartialEq, Message)]
pub struct Properties {
    /// All of them.
    #[prost(map = "string, string", tag = "1")]
    pub properties: HashMap<String, String>,
}

/// New content of a sealed ledger.
#[derive(Clone, PartialEq, Message)]
pub struct Replacement {
    /// Which managed ledger.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleRef>,
    /// Which sealed ledger of it.
    #[prost(sint64, tag = "2")]
    pub ledger: i64,
    /// [`Ledger::replaced`] as it was read; `Conflict` if it has changed.
    #[prost(uint32, tag = "3")]
    pub replaced: u32,
    /// The entries that stand there from now on.
    #[prost(message, repeated, tag = "4")]
    pub entries: Vec<ReplacementEntry>,
}

/// One entry of a [`Replacement`].
#[derive(Clone, PartialEq, Message)]
pub struct ReplacementEntry {
    /// Index of its last message.
    #[prost(sint64, tag = "1")]
    pub index: i64,
    /// Messages that it takes up.
    #[prost(uint32, tag = "2")]
    pub messages: u32,
    /// Its bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub payload: bytes::Bytes,
}

/// Answer of [`StorageUse`].
#[derive(Clone, PartialEq, Message)]
pub struct StorageReport {
    /// Bytes stored per name of the request, 0 for unknown ones.
    #[prost(uint64, repeated, tag = "1")]
    pub bytes: Vec<u64>,
    /// Size of the volume, 0 if not known.
    #[prost(uint64, tag = "2")]
    pub total_bytes: u64,
    /// Free bytes of the volume.
    #[prost(uint64, tag = "3")]
    pub usable_bytes: u64,
    /// Where the data lies, for people.
    #[prost(string, tag = "4")]
    pub location: String,
}

/// A handle died; calls with it are answered `HandleClosed`.
#[derive(Clone, PartialEq, Message)]
pub struct HandleClosed {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleRef>,
    /// Full name of the partition.
    #[prost(string, tag = "2")]
    pub topic: String,
    /// Why, for people.
    #[prost(string, tag = "3")]
    pub reason: String,
}

impl Event for HandleClosed {
    const OP: u32 = 0x0201;
}

/// The first index that exists moved, by retention or by hand.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct StartMoved {
    /// Which managed ledger.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleRef>,
    /// Index of the first message that still exists.
    #[prost(sint64, tag = "2")]
    pub start_index: i64,
}

impl Event for StartMoved {
    const OP: u32 = 0x0202;
}
