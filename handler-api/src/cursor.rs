//! Durable cursors: named places in a managed ledger that the host remembers, and data from which on it keeps.
//!
//! Reads need no cursor (they go by index and position); a host over Pulsar opens its non-durable ones by itself.

use prost::Message;

use crate::control::{Nothing, operations};
use crate::ledger::{HandleRef, PositionRef};

operations! {
    /// Opens a durable cursor, creating it at `index` if it does not exist. `Trim` keeps what lies behind it.
    OpenCursor = 0x0301: CursorRequest => Cursor;
    /// Moves a cursor: entries up to the one that holds `index` are done with. Moving backwards is `InvalidArgument`.
    MarkDelete = 0x0302: CursorRequest => Cursor;
    /// Forgets a cursor.
    DeleteCursor = 0x0303: CursorRequest => Nothing;
    /// All cursors of a managed ledger, by name.
    ListCursors = 0x0304: HandleRef => CursorList;
}

/// Which cursor, and where to.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CursorRequest {
    /// Which managed ledger.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleRef>,
    /// Name, not empty.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Last index that is done with; −1 for none.
    #[prost(sint64, tag = "3")]
    pub index: i64,
}

/// A cursor.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Cursor {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Last index that is done with; −1 for none.
    #[prost(sint64, tag = "2")]
    pub index: i64,
    /// Where that entry lies, if it still exists.
    #[prost(message, optional, tag = "3")]
    pub position: Option<PositionRef>,
}

/// Cursors by name.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CursorList {
    /// The cursors.
    #[prost(message, repeated, tag = "1")]
    pub cursors: Vec<Cursor>,
}
