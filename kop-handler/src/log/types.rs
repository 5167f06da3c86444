//! What goes into the log and what comes out: requests, answers, settings. It must not know how they are carried out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use super::partition::Partition;
use crate::error::Fault;
pub use crate::format::EntryFormat;
pub use crate::wire::batch::{Compression, RecordError, Rejection, TimestampType};

/// One partition's share of an append.
#[derive(Clone, Debug)]
pub struct Append {
    /// Where to.
    pub partition: Arc<Partition>,
    /// One record batch of magic 2, as it came; null comes as empty.
    pub records: Bytes,
    /// Who appends.
    pub origin: Origin,
}

/// Who appends: what is checked follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client's Produce request of this version: everything is checked.
    Client {
        /// Version of the request; zstd needs 7.
        version: i16,
    },
    /// Our own coordinators: the batch is well-formed and has no producer state.
    Coordinator,
}

/// Where a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// Offset of its first record; for a duplicate that of the batch appended before.
    pub base_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
    /// The broker's time in its records if the topic uses log append time, else −1.
    pub log_append_time_ms: i64,
    /// First offset of the partition.
    pub log_start_offset: i64,
}

/// One partition's share of a read.
#[derive(Clone, Debug)]
pub struct Read {
    /// Where from.
    pub partition: Arc<Partition>,
    /// First offset wanted.
    pub offset: i64,
    /// Most bytes of batches.
    pub max_bytes: usize,
    /// What may be seen.
    pub isolation: Isolation,
}

/// What a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Everything up to the high watermark.
    #[default]
    ReadUncommitted,
    /// Up to the last stable offset, with the aborted ranges named.
    ReadCommitted,
}

/// What a read found.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    /// Whole batches in order, offsets set; pieces of one batch follow each other.
    pub records: Vec<Bytes>,
    /// Bytes of `records`.
    pub size: usize,
    /// Batches in `records`.
    pub batches: u64,
    /// Records in those batches, control records among them.
    pub record_count: u64,
    /// End of what is durable.
    pub high_watermark: i64,
    /// End of what is decided.
    pub last_stable_offset: i64,
    /// First offset of the partition.
    pub log_start_offset: i64,
    /// Aborted transactions that touch what was read.
    pub aborted: Vec<AbortedTransaction>,
}

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose.
    pub producer_id: i64,
    /// Where it began in this partition.
    pub first_offset: i64,
}

/// An idempotent producer that appended to a partition and is remembered there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Its id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// Sequence number of its last record, or −1.
    pub last_sequence: i32,
    /// Largest timestamp of its last batch in ms since the epoch, or −1.
    pub last_timestamp_ms: i64,
}

/// A record found by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// Its timestamp in ms since the epoch.
    pub timestamp_ms: i64,
    /// Its offset.
    pub offset: i64,
}

/// What the log must know of a topic's configuration; Kafka's names and meanings, its defaults by [`Default`].
#[derive(Clone, Debug, PartialEq)]
pub struct TopicSettings {
    /// `max.message.bytes`: the largest batch.
    pub max_message_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `compression.type`; `None` stands for `producer`: batches stay as the client compressed them.
    pub compression: Option<Compression>,
    /// How its entries are written (KoP's `kafkaEntryFormat`, else `entryFormat`).
    pub entry_format: EntryFormat,
    /// `cleanup.policy` holds `delete`.
    pub delete: bool,
    /// `cleanup.policy` holds `compact`.
    pub compact: bool,
    /// `retention.ms`; −1: for ever.
    pub retention_ms: i64,
    /// `retention.bytes`; −1: any size.
    pub retention_bytes: i64,
    /// `segment.bytes`: a ledger of this size is rolled, a larger batch refused.
    pub segment_bytes: u64,
    /// `segment.ms`: a ledger of this age is rolled.
    pub segment_ms: i64,
    /// `delete.retention.ms`: how long a tombstone stays after it was cleaned first.
    pub delete_retention_ms: i64,
    /// `min.cleanable.dirty.ratio`.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`: how long a record stays uncompacted at least.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: how long a record may stay uncompacted.
    pub max_compaction_lag_ms: i64,
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self {
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compression: None,
            entry_format: EntryFormat::Kafka,
            delete: true,
            compact: false,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            segment_bytes: 1_073_741_824,
            segment_ms: 604_800_000,
            delete_retention_ms: 86_400_000,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
        }
    }
}

/// A future in a box.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where the log learns of topics: implemented by who knows them.
pub trait Directory: Send + Sync + 'static {
    /// Settings of the topic of a partition, by the partition's full name. Asked when it is opened; changes come by
    /// [`super::Logs::apply_settings`].
    fn settings<'a>(&'a self, partition: &'a str) -> Boxed<'a, Result<TopicSettings, Fault>>;

    /// Full names of all partitions that exist and that this broker serves, so that retention reaches those that no
    /// client touches.
    fn partitions(&self) -> Boxed<'_, Result<Vec<String>, Fault>>;
}

/// What holds for all partitions.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// What batches are compressed with in entries of the format `mixed_kafka` (KoP's `kafkaCompressionType`), where the
    /// topic does not say; `None`: as the client did.
    pub mixed_compression: Option<Compression>,
    /// The largest entry that the host takes, in bytes (`maxMessageSize`).
    pub max_entry_bytes: usize,
    /// After how long without a batch a producer is forgotten (`producer.id.expiration.ms`).
    pub producer_id_expiration_ms: i64,
    /// How often retention, rolling and compaction are looked at, per partition
    /// (`log.retention.check.interval.ms`).
    pub check_interval_ms: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            mixed_compression: None,
            max_entry_bytes: 5 * 1024 * 1024,
            producer_id_expiration_ms: 86_400_000,
            check_interval_ms: 300_000,
        }
    }
}
