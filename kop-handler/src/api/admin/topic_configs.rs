//! Configurations of a topic as requests and replies carry them.

use crate::error::Fault;
use crate::topics::configs::{DEFINITIONS, Definition, Overrides, ServerDefaults};

/// Where a value comes from (Kafka's `ConfigSource`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub(super) enum Source {
    /// Given to the topic.
    Topic = 1,
    /// In the broker's configuration file.
    StaticBroker = 4,
    /// Nobody gave it.
    Default = 5,
    /// A level of the broker's log.
    BrokerLogger = 6,
}

/// One configuration of a topic as it is in force.
pub(super) struct Entry<'a> {
    pub(super) definition: &'static Definition,
    pub(super) value: &'a str,
    pub(super) source: Source,
}

/// All configurations of a topic, by name.
pub(super) fn effective<'a>(
    overrides: &'a Overrides,
    defaults: &'a ServerDefaults,
) -> impl Iterator<Item = Entry<'a>> {
    DEFINITIONS.iter().map(move |definition| {
        let own = overrides.get(definition.name);
        Entry {
            definition,
            value: own.unwrap_or_else(|| defaults.value(definition)),
            source: match own {
                Some(_) => Source::Topic,
                None => default_source(definition, defaults),
            },
        }
    })
}

/// Where the broker's value of a configuration comes from.
pub(super) fn default_source(definition: &Definition, defaults: &ServerDefaults) -> Source {
    if defaults.is_static(definition.name) {
        Source::StaticBroker
    } else {
        Source::Default
    }
}

/// Sets configurations as CreateTopics gives them.
///
/// # Errors
/// [`Fault::InvalidConfig`] in Kafka's words.
pub(super) fn set_all<'a>(
    overrides: &mut Overrides,
    configs: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<(), Fault> {
    let mut nulls = Vec::new();
    for (name, value) in configs {
        match value {
            Some(value) => overrides.set(name, value)?,
            None => nulls.push(name),
        }
    }
    if nulls.is_empty() {
        return Ok(());
    }
    Err(Fault::InvalidConfig(format!(
        "Null value not supported for topic configs: {}",
        nulls.join(",")
    )))
}
