//! Tables and rows of the catalog. Rows are protobuf messages and grow by new fields.

use std::collections::HashMap;

use handler_api::{ApiError, ErrorCode};
use prost::Message;
use redb::TableDefinition;

/// Single numbers, by name; see [`meta`].
pub(crate) const META: TableDefinition<'_, &str, i64> = TableDefinition::new("meta");
/// `tenant/namespace`.
pub(crate) const NAMESPACES: TableDefinition<'_, &str, ()> = TableDefinition::new("namespaces");
/// Full name → [`TopicRow`].
pub(crate) const TOPICS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("topics");
/// Number of each topic that exists → its name.
pub(crate) const LIVES: TableDefinition<'_, u64, &str> = TableDefinition::new("lives");
/// Topic's number and partition → [`ManagedRow`]; absent until something was written.
pub(crate) const MANAGED: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("managed");
/// Ledger and first entry → marks of an unsealed ledger, packed.
pub(crate) const MARKS: TableDefinition<'_, (i64, u32), &[u8]> = TableDefinition::new("marks");
/// Topic's number, partition and cursor's name → last index that is done with.
pub(crate) const CURSORS: TableDefinition<'_, (u64, u32, &str), i64> =
    TableDefinition::new("cursors");
/// Path → version and value of the metadata store.
pub(crate) const VALUES: TableDefinition<'_, &str, (i64, &[u8])> = TableDefinition::new("values");

/// Keys of [`META`].
pub(crate) mod meta {
    /// How often the directory was opened.
    pub(crate) const STARTS: &str = "starts";
    /// 1 after a clean stop.
    pub(crate) const CLEAN: &str = "clean";
    /// Number of the next topic.
    pub(crate) const NEXT_TOPIC: &str = "next_topic";
    /// First ledger id that nobody may have used.
    pub(crate) const NEXT_LEDGER: &str = "next_ledger";
}

/// A topic.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TopicRow {
    /// Number of this life of the topic, never reused.
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// 0: not partitioned.
    #[prost(uint32, tag = "2")]
    pub(crate) partitions: u32,
    #[prost(map = "string, string", tag = "3")]
    pub(crate) properties: HashMap<String, String>,
    #[prost(int64, tag = "4")]
    pub(crate) created_ms: i64,
}

/// A managed ledger, as of its last checkpoint.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ManagedRow {
    /// Index of the first message that still exists.
    #[prost(sint64, tag = "1")]
    pub(crate) start_index: i64,
    /// Index that the next message gets, at least.
    #[prost(sint64, tag = "2")]
    pub(crate) next_index: i64,
    /// Highest ledger id that was ever in the list: a file with a higher one is news, one with a lower one is waste.
    #[prost(sint64, tag = "3")]
    pub(crate) last_ledger: i64,
    /// Oldest first.
    #[prost(message, repeated, tag = "4")]
    pub(crate) ledgers: Vec<LedgerRow>,
    #[prost(map = "string, string", tag = "5")]
    pub(crate) properties: HashMap<String, String>,
}

/// A ledger; of an unsealed one what was certainly on disk at the last checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LedgerRow {
    #[prost(sint64, tag = "1")]
    pub(crate) id: i64,
    #[prost(uint32, tag = "2")]
    pub(crate) replaced: u32,
    /// Index of the first message that it may hold.
    #[prost(sint64, tag = "3")]
    pub(crate) first_index: i64,
    /// Index of the last message of its range; `first_index` − 1 if it never held one.
    #[prost(sint64, tag = "4")]
    pub(crate) last_index: i64,
    #[prost(uint64, tag = "5")]
    pub(crate) entries: u64,
    /// Bytes of payloads.
    #[prost(uint64, tag = "6")]
    pub(crate) bytes: u64,
    /// Number that the next entry gets.
    #[prost(uint32, tag = "7")]
    pub(crate) next_entry: u32,
    /// Where records end in the file (and a sealed ledger's footer starts).
    #[prost(uint64, tag = "8")]
    pub(crate) data_end: u64,
    #[prost(int64, tag = "9")]
    pub(crate) created_ms: i64,
    /// 0 if it has no entry.
    #[prost(int64, tag = "10")]
    pub(crate) last_append_ms: i64,
    #[prost(bool, tag = "11")]
    pub(crate) sealed: bool,
}

impl LedgerRow {
    /// What names its file.
    pub(crate) fn key(&self) -> (i64, u32) {
        (self.id, self.replaced)
    }
}

/// Decodes a row.
pub(crate) fn decode_row<M: Message + Default>(bytes: &[u8], what: &str) -> Result<M, ApiError> {
    M::decode(bytes).map_err(|error| {
        ApiError::new(
            ErrorCode::Corrupt,
            format!("the catalog's row of {what} cannot be read: {error}"),
        )
    })
}
