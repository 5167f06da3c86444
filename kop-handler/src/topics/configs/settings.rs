//! What the log does by a topic's configurations. It must not know what the log does with them.

use super::definition::items;
use super::{Overrides, ServerDefaults};
use crate::log::{Compression, TimestampType, TopicSettings};

impl Overrides {
    /// The values in force, as the log wants them; the format of entries is none of them.
    #[must_use]
    pub fn log_settings(&self, defaults: &ServerDefaults) -> TopicSettings {
        let long = |name| self.long(name, defaults);
        let text = |name| self.effective(name, defaults);
        let policies = items(text("cleanup.policy"));
        TopicSettings {
            max_message_bytes: usize::try_from(long("max.message.bytes")).unwrap_or(0),
            timestamp_type: match text("message.timestamp.type") {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_max_ms: long("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: long("message.timestamp.after.max.ms"),
            // `producer` names no codec: batches stay as they came.
            compression: Compression::from_name(text("compression.type")),
            entry_format: defaults.entry_format,
            delete: policies.contains(&"delete"),
            compact: policies.contains(&"compact"),
            retention_ms: long("retention.ms"),
            retention_bytes: long("retention.bytes"),
            segment_bytes: u64::try_from(long("segment.bytes")).unwrap_or(0),
            segment_ms: long("segment.ms"),
            delete_retention_ms: long("delete.retention.ms"),
            min_cleanable_dirty_ratio: text("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
            min_compaction_lag_ms: long("min.compaction.lag.ms"),
            max_compaction_lag_ms: long("max.compaction.lag.ms"),
        }
    }
}
