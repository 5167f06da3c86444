//! Record batches, format v2: the header view, patching, validation, records and building.
//!
//! ```text
//!  0 base offset      i64 ┐ outside the checksum: patched when the batch gets its place
//!  8 batch length     i32 │ (bytes after this field)
//! 12 leader epoch     i32 ┘
//! 16 magic            i8    2
//! 17 crc              u32   CRC-32C of everything after it
//! 21 attributes       i16   bits 0–2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
//! 23 last offset delta i32
//! 27 base timestamp   i64
//! 35 max timestamp    i64
//! 43 producer id      i64
//! 51 producer epoch   i16
//! 53 base sequence    i32
//! 57 record count     i32
//! 61 records, compressed as a whole
//! ```
//!
//! It must not know topics or logs: a topic's rules are an argument of [`validate_produce`].

pub use build::{BatchBuilder, ControlType, NewRecord};
pub use codec::{Compression, compress, decompress};
pub use header::{
    Attributes, BatchHeader, HEADER_BYTES, LENGTH_PREFIX_BYTES, TimestampType, crc32c, crc32c_of,
    has_right_crc, patch, patched,
};
pub use records::{Header, Headers, Record, RecordIter, Records};
pub use validate::{ProduceRules, RecordError, Rejection, ValidBatch, validate_produce};
pub use view::{BatchView, Batches};

mod build;
mod codec;
mod header;
mod records;
mod validate;
mod view;
mod walk;

use thiserror::Error;

/// Largest size that the records of one compressed batch may have unpacked, in bytes. Kafka has no such bound; the
/// batches that real clients send (1 MiB by default) stay far below it.
pub const MAX_UNPACKED_BYTES: usize = 256 * 1024 * 1024;

/// Why bytes are not a record batch, or its records cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BatchError {
    /// Fewer bytes than a header, or than the batch's own length says.
    #[error("batch needs {needed} bytes, {have} are there")]
    Incomplete {
        /// Bytes that the batch takes up, or the size of a header.
        needed: usize,
        /// Bytes given.
        have: usize,
    },
    /// A length field that no batch of format v2 can have.
    #[error("batch length {0} is impossible")]
    Length(i32),
    /// Not format v2.
    #[error("batch magic is {0}, not 2")]
    Magic(i8),
    /// Codec bits without a meaning.
    #[error("compression codec {0} is not known")]
    UnknownCompression(u8),
    /// The compressed bytes cannot be unpacked.
    #[error("{codec:?} data cannot be unpacked: {reason}")]
    Unpack {
        /// The codec.
        codec: Compression,
        /// What the library says.
        reason: String,
    },
    /// The records would unpack to more than the caller allows.
    #[error("records unpack to more than {limit} bytes")]
    UnpackedTooLarge {
        /// The caller's limit in bytes.
        limit: usize,
    },
    /// A record whose fields do not fit its length or the batch.
    #[error("record {index}: {reason}")]
    Record {
        /// Which record, from 0.
        index: u32,
        /// What is wrong.
        reason: &'static str,
    },
    /// Bytes after the last record that the header counts.
    #[error("bytes after the last of {0} records")]
    TrailingRecords(i32),
}
