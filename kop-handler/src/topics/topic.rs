//! One topic, as it was last seen. It must not know how it is kept or changed.

use std::collections::HashMap;

use handler_api::topics::Topic as HostTopic;
use uuid::Uuid;

use super::configs::Overrides;
use super::names::{Names, partition_name};
use crate::format::EntryFormat;

/// KoP's property that tells a topic from one of the same name that was deleted: a UUID, Kafka's topic id here.
pub const ID_PROPERTY: &str = "kafkaTopicUUID";

/// KoP's property that says how the topic's entries are written; read in any case.
pub(super) const FORMAT_PROPERTY: &str = "kafkaEntryFormat";
/// Its value where KoP creates a topic for its own records.
pub(super) const KOPS_FORMAT: &str = "PULSAR";

/// One topic.
#[derive(Clone, Debug, PartialEq)]
pub struct Topic {
    /// What lists of topics call it; a client that asks by another form of the name gets its own form back.
    pub name: String,
    /// Full Pulsar name, without a partition's suffix.
    pub full_name: String,
    /// Kafka's topic id, the same for the life of the topic on every broker.
    pub id: Uuid,
    /// Whether it is one of Kafka's internal topics.
    pub internal: bool,
    /// When it was created, in ms since the epoch; 0 if the host does not know.
    pub created_ms: i64,
    /// Configurations that were given to the topic itself.
    pub overrides: Overrides,
    /// How its entries are written, where it says so itself.
    pub entry_format: Option<EntryFormat>,
    partitions: u32,
}

impl Topic {
    /// What the host says of a topic that exists. `None` if Kafka clients are not shown it, `Err` with the property's
    /// value if it has no id that can be read.
    pub(super) fn from_host(names: &Names, topic: &HostTopic) -> Option<Result<Self, String>> {
        let name = names.kafka_name(&topic.name)?;
        let property = topic.properties.get(ID_PROPERTY);
        let id = property.and_then(|text| Uuid::parse_str(text).ok());
        let Some(id) = id.filter(|id| !id.is_nil()) else {
            return Some(Err(property.cloned().unwrap_or_default()));
        };
        Some(Ok(Self {
            name,
            internal: names.is_internal(&topic.name),
            full_name: topic.name.clone(),
            id,
            created_ms: topic.created_ms,
            overrides: Overrides::from_properties(&topic.properties),
            entry_format: entry_format(topic),
            partitions: topic.partitions,
        }))
    }

    /// Number of partitions that Kafka clients see; a non-partitioned Pulsar topic is one partition.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        self.partitions.max(1)
    }

    /// Whether the host knows it as a partitioned topic, which can grow.
    #[must_use]
    pub fn is_partitioned(&self) -> bool {
        self.partitions > 0
    }

    /// Full Pulsar name of a partition; `None` if there is no such partition.
    #[must_use]
    pub fn partition(&self, index: i32) -> Option<String> {
        let index = u32::try_from(index)
            .ok()
            .filter(|i| *i < self.partitions())?;
        Some(if self.is_partitioned() {
            partition_name(&self.full_name, index)
        } else {
            self.full_name.clone()
        })
    }

    /// Full Pulsar names of all partitions, in order.
    pub fn partition_names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.partitions()).map(|index| {
            if self.is_partitioned() {
                partition_name(&self.full_name, index)
            } else {
                self.full_name.clone()
            }
        })
    }
}

/// A format that nobody knows is reported, and the broker's holds.
fn entry_format(topic: &HostTopic) -> Option<EntryFormat> {
    let name = topic.properties.get(FORMAT_PROPERTY)?;
    EntryFormat::parse(name)
        .inspect_err(|error| {
            tracing::warn!(topic = topic.name, property = FORMAT_PROPERTY, %error, "the topic is written in the format of entryFormat");
        })
        .ok()
}

/// The properties of a new topic.
pub(super) fn properties(id: Uuid, overrides: &Overrides) -> HashMap<String, String> {
    let mut properties = overrides.to_properties();
    properties.insert(ID_PROPERTY.to_owned(), id.to_string());
    properties
}
