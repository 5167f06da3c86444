//! One open partition: its handle, its bounds, what is kept about it.

use std::sync::Arc;

use super::types::TimestampOffset;
use crate::error::Fault;

/// An open partition of a Kafka topic, on a managed ledger that this broker owns.
///
/// It dies when ownership moves or the topic goes; then every call answers [`Fault::NotLeader`], and opening it again
/// finds out who serves it.
#[derive(Debug)]
pub struct Partition {
    name: Arc<str>,
}

impl Partition {
    /// Full name, `persistent://tenant/namespace/topic-partition-N`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The offset after the last durable record.
    #[must_use]
    pub fn high_watermark(&self) -> i64 {
        unimplemented!()
    }

    /// The first offset whose fate is open, else the high watermark.
    #[must_use]
    pub fn last_stable_offset(&self) -> i64 {
        self.high_watermark()
    }

    /// The first offset that exists.
    #[must_use]
    pub fn log_start_offset(&self) -> i64 {
        unimplemented!()
    }

    /// The leader epoch of everything in the partition, and of its leader now.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        0
    }

    /// Whether the handle still lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        unimplemented!()
    }

    /// The first record whose timestamp is `timestamp_ms` or later; control batches do not count.
    pub async fn offset_for_time(
        &self,
        timestamp_ms: i64,
    ) -> Result<Option<TimestampOffset>, Fault> {
        let _ = timestamp_ms;
        unimplemented!()
    }

    /// The first of the records with the largest timestamp.
    pub async fn max_timestamp(&self) -> Result<Option<TimestampOffset>, Fault> {
        unimplemented!()
    }

    /// Gives up all records below `before_offset` (−1: the high watermark), durably; answers the new first offset.
    pub async fn delete_records(&self, before_offset: i64) -> Result<i64, Fault> {
        let _ = before_offset;
        unimplemented!()
    }
}
