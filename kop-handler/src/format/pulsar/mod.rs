//! Pulsar's own format: one Pulsar message per Kafka record, one batch message per Kafka batch.
//!
//! ```text
//! 0e 01 | u32 CRC-32C of all that follows | u32 size | MessageMetadata | payload, compressed as a whole
//!                                                       payload: (u32 size | SingleMessageMetadata | value)*
//! ```
//!
//! Written byte for byte as KoP writes it, but for what KoP loses: that goes into one property of the outer metadata
//! ([`extra`]), which neither KoP nor a Pulsar client shows to anyone. Read is whatever Pulsar's producers write. See
//! `FORMATS.md`. It must not know where entries are kept.

mod decode;
mod encode;
mod extra;
mod payload;

pub(super) use decode::decode;
pub(super) use encode::encode;

/// Numbers of the fields of `SingleMessageMetadata`.
mod single {
    pub(super) const PROPERTY: u64 = 1;
    pub(super) const PARTITION_KEY: u64 = 2;
    pub(super) const PAYLOAD_SIZE: u64 = 3;
    pub(super) const COMPACTED_OUT: u64 = 4;
    pub(super) const EVENT_TIME: u64 = 5;
    pub(super) const KEY_IS_BASE64: u64 = 6;
    pub(super) const ORDERING_KEY: u64 = 7;
    pub(super) const SEQUENCE_ID: u64 = 8;
    pub(super) const NULL_VALUE: u64 = 9;
    pub(super) const NULL_KEY: u64 = 10;
}

/// Pulsar's markers of a transaction's end.
const TXN_COMMIT: i32 = 21;
const TXN_ABORT: i32 = 22;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
