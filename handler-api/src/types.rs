//! Names, positions, entries, errors and shared bytes: the values that cross the boundary.
//!
//! Every struct here is passed by value and its fields are frozen for the whole major version
//! (see `ABI.md`). It must not know what a plugin or a host does with them.

use abi_stable::StableAbi;
pub use abi_stable::std_types::{RString as Text, RVec as List};

pub use crate::ffi::SharedBytes;

/// Where an entry lies: a ledger and the number of the entry in it (Pulsar's `Position`).
#[repr(C)]
#[derive(StableAbi, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Ledger id; negative means "not known".
    pub ledger: i64,
    /// Entry number in the ledger, from 0.
    pub entry: i64,
}

impl Position {
    /// No position: the host finds the place by index.
    pub const UNKNOWN: Self = Self {
        ledger: -1,
        entry: -1,
    };

    /// A position in a ledger.
    #[must_use]
    pub const fn new(ledger: i64, entry: i64) -> Self {
        Self { ledger, entry }
    }

    /// Whether this names a place at all.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.ledger >= 0
    }
}

/// An open managed ledger. It dies when ownership moves or the topic goes; using a dead handle is an ordinary
/// error ([`ErrorCode::HandleClosed`]), and a host never gives the same pair out twice.
#[repr(C)]
#[derive(StableAbi, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// The managed ledger within this host.
    pub id: u64,
    /// Which opening of it.
    pub generation: u64,
}

/// A piece of an entry: bytes in memory, or a region of an open file.
#[repr(C)]
#[derive(StableAbi, Clone, Debug)]
pub struct Segment {
    /// The bytes; empty for a file region, whose file stays open as long as this value (or a clone of it) lives.
    pub bytes: SharedBytes,
    /// File descriptor of a region, or −1. Only given to a reader that set [`ReadRequest::ACCEPT_FILE_REGIONS`].
    pub fd: i32,
    /// Where the region starts in the file, in bytes.
    pub offset: u64,
    /// Length of the region in bytes; 0 for bytes in memory.
    pub length: u64,
}

impl From<SharedBytes> for Segment {
    fn from(bytes: SharedBytes) -> Self {
        Self {
            bytes,
            fd: -1,
            offset: 0,
            length: 0,
        }
    }
}

impl From<bytes::Bytes> for Segment {
    fn from(bytes: bytes::Bytes) -> Self {
        SharedBytes::from(bytes).into()
    }
}

/// An entry as read: what was appended, and where it lies.
#[repr(C)]
#[derive(StableAbi, Clone, Debug)]
pub struct Entry {
    /// Ledger and entry number.
    pub position: Position,
    /// Index of the *last* message of the entry (Pulsar's broker entry metadata), or −1 if the entry has none.
    pub index: i64,
    /// The appended bytes in order, without the host's own broker entry metadata. Usually one or two segments.
    pub segments: List<Segment>,
}

impl Entry {
    /// Length in bytes over all segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments
            .iter()
            .map(|s| s.bytes.len() + usize::try_from(s.length).unwrap_or(usize::MAX))
            .sum()
    }

    /// Whether the entry holds no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One entry to append.
#[repr(C)]
#[derive(StableAbi, Clone, Debug)]
pub struct AppendRequest {
    /// Where to.
    pub handle: Handle,
    /// Messages (Kafka: offsets) that the entry takes up; the index grows by it. At least 1.
    pub messages: u32,
    /// Bits, see the constants.
    pub flags: u32,
    /// The entry's bytes: Pulsar's metadata header and payload, in as many pieces as the caller has.
    pub segments: List<SharedBytes>,
}

impl AppendRequest {
    /// The entry is a marker: the host's own deduplication must not look at it.
    pub const MARKER: u32 = 1;
}

/// Where an append went; given once it is as durable as the host is set up to make it.
#[repr(C)]
#[derive(StableAbi, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Ledger and entry number.
    pub position: Position,
    /// Index of the last message of the entry: base = index − (messages − 1).
    pub index: i64,
}

/// One partition's share of a read.
#[repr(C)]
#[derive(StableAbi, Clone, Copy, Debug)]
pub struct ReadRequest {
    /// Which managed ledger.
    pub handle: Handle,
    /// Index of the first message wanted: the answer starts with the entry that holds it, or with the next entry that exists.
    pub index: i64,
    /// Where that entry lies, if the caller knows it from [`ReadAnswer::next`]; else [`Position::UNKNOWN`].
    pub position: Position,
    /// Most entries to return.
    pub max_entries: u32,
    /// Bits, see the constants.
    pub flags: u32,
    /// Bytes at which to stop. The first entry is returned even if it alone is larger when [`Self::AT_LEAST_ONE`] is set.
    pub max_bytes: u64,
}

impl ReadRequest {
    /// Return the first entry whatever its size, if nothing was returned before it in the same call.
    pub const AT_LEAST_ONE: u32 = 1;
    /// The reader can send regions of files.
    pub const ACCEPT_FILE_REGIONS: u32 = 2;
}

/// What a read found.
#[repr(C)]
#[derive(StableAbi, Clone, Debug)]
pub struct ReadAnswer {
    /// Entries in order, possibly none.
    pub entries: List<Entry>,
    /// Where to go on: the position after the last entry returned, or [`Position::UNKNOWN`].
    pub next: Position,
    /// Index of the first message that still exists (= last index + 1 if there is none).
    pub start_index: i64,
    /// Index of the last *durable* message; −1 if there never was one.
    pub end_index: i64,
}

/// Who serves a topic.
#[repr(C)]
#[derive(StableAbi, Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Whether it is this broker.
    pub local: bool,
    /// The broker's id in the cluster (Pulsar: `host:port` of its lookup service).
    pub broker: Text,
    /// What the same protocol's handler advertised there (`protocol_data_to_advertise`); may be empty.
    pub protocol_data: Text,
}

/// An error that crosses the boundary: a code from [`ErrorCode`] (open-ended, so a number) and a sentence that
/// names the thing and the remedy.
#[repr(C)]
#[derive(StableAbi, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// One of [`ErrorCode`]'s numbers; a newer peer may send others.
    pub code: u32,
    /// For people.
    pub message: Text,
}

impl ApiError {
    /// An error of a known kind.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code as u32,
            message: Text::from(message.into()),
        }
    }

    /// The kind; a number from a newer peer is [`ErrorCode::Internal`].
    #[must_use]
    pub fn kind(&self) -> ErrorCode {
        ErrorCode::from_number(self.code)
    }
}

macro_rules! error_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal,)+) => {
        /// What kind of error: sorted by what the receiver can do about it. Numbers are never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum ErrorCode { $($(#[doc = $doc])+ $name = $number,)+ }

        impl ErrorCode {
            /// Every code, for exhaustive maps and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The kind behind a number; unknown numbers are [`ErrorCode::Internal`].
            #[must_use]
            pub const fn from_number(number: u32) -> Self {
                match number { $($number => Self::$name,)+ _ => Self::Internal }
            }
        }
    };
}

error_codes! {
    /// A fault of the peer itself, a caught panic among them. Unknown outcome for an append.
    Internal = 1,
    /// The operation, its version or a capability is not offered by this peer.
    Unsupported = 2,
    /// The request makes no sense: a name that cannot be, a count out of range.
    InvalidArgument = 3,
    /// No such topic, ledger, cursor, path.
    NotFound = 4,
    /// It exists already, or another version than the expected one is stored.
    Conflict = 5,
    /// The handle died: ownership moved, the topic was deleted, the host closes. Look up and open again.
    HandleClosed = 6,
    /// Another broker owns the topic.
    NotOwner = 7,
    /// Being loaded or moved; the same call may succeed in a moment.
    NotReady = 8,
    /// The append was *refused*: nothing was written and nothing will be (full disk, read-only storage, over a limit).
    Refused = 9,
    /// The disk is full: a [`Self::Refused`] with a known remedy.
    NoSpace = 10,
    /// Larger than the host stores.
    TooLarge = 11,
    /// The outcome of an append is not known: a storage fault after bytes may have been written. The handle is dead.
    UnknownOutcome = 12,
    /// Stored bytes do not match their checksum; the message names file and offset.
    Corrupt = 13,
    /// Credentials were wrong, or no such mechanism.
    Unauthenticated = 14,
    /// Known, but not allowed.
    Unauthorized = 15,
    /// No answer in time.
    Timeout = 16,
    /// The peer is shutting down.
    Closing = 17,
    /// A setting is wrong; the message names its key and the remedy.
    InvalidConfiguration = 18,
}
