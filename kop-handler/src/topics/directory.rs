//! What the log asks about topics. It must not know the log beyond that.

use super::Topics;
use super::names::split_partition;
use super::topic::Topic;
use crate::error::Fault;
use crate::format::EntryFormat;
use crate::log::{Boxed, Directory, TopicSettings};

impl Topics {
    /// What the log does for a topic.
    #[must_use]
    pub fn log_settings(&self, topic: &Topic) -> TopicSettings {
        let format = if self.is_kops(&topic.full_name) {
            Some(EntryFormat::Pulsar)
        } else {
            topic.entry_format
        };
        TopicSettings {
            entry_format: format.unwrap_or(self.defaults.entry_format),
            ..topic.overrides.log_settings(&self.defaults)
        }
    }

    /// Whether a topic, by its full name, is one of Kafka's internal topics, and brokers of KoP may read and write it
    /// beside us: where there are several brokers.
    #[must_use]
    pub fn is_kops(&self, full_name: &str) -> bool {
        !self.is_single_broker() && self.names.is_internal(full_name)
    }
}

impl Directory for Topics {
    fn settings<'a>(&'a self, partition: &'a str) -> Boxed<'a, Result<TopicSettings, Fault>> {
        Box::pin(async move {
            // A non-partitioned topic is its own partition.
            let full_name = split_partition(partition).map_or(partition, |(topic, _)| topic);
            let found = self.describe(&[full_name.to_owned()]).await?;
            found
                .into_iter()
                .flatten()
                .next()
                .map(|topic| self.log_settings(&topic))
                .ok_or_else(|| {
                    Fault::UnknownTopicOrPartition(format!("{full_name} does not exist"))
                })
        })
    }

    fn partitions(&self) -> Boxed<'_, Result<Vec<String>, Fault>> {
        Box::pin(async move {
            let topics = self.list().await?;
            let partitions: Vec<String> = topics
                .iter()
                .flat_map(|topic| topic.partition_names())
                .collect();
            Ok(self.known_local(partitions))
        })
    }
}
