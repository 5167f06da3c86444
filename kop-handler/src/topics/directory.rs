//! What the log asks about topics. It must not know the log beyond that.

use super::Topics;
use super::names::split_partition;
use crate::error::Fault;
use crate::log::{Boxed, Directory, TopicSettings};

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
                .map(|topic| topic.overrides.log_settings(&self.defaults))
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
