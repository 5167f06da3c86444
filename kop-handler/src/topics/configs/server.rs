//! What the broker gives to topics that are configured otherwise nowhere. It must not know topics.

use super::definition::Definition;
use crate::config::Config;
use crate::format::EntryFormat;

/// A broker-wide value of a topic configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDefault {
    /// Kafka's name of the topic configuration.
    pub topic_name: &'static str,
    /// The value, as text.
    pub value: String,
    /// Whether an operator gave it: it is not the default of the broker's setting.
    pub is_static: bool,
}

/// Where this broker differs from Kafka's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerDefaults {
    /// `entryFormat`: how entries of topics are written that do not say themselves.
    pub entry_format: EntryFormat,
    values: Vec<ServerDefault>,
}

impl ServerDefaults {
    /// What the broker's own settings say.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let max_message_bytes = config.max_message_size.to_string();
        let is_static = Config::SETTINGS
            .iter()
            .any(|setting| setting.key == "maxMessageSize" && setting.default != max_message_bytes);
        Self {
            entry_format: config.entry_format,
            values: vec![ServerDefault {
                topic_name: "max.message.bytes",
                value: max_message_bytes,
                is_static,
            }],
        }
    }

    /// Whether an operator gave the broker's value.
    #[must_use]
    pub fn is_static(&self, name: &str) -> bool {
        self.values
            .iter()
            .any(|default| default.topic_name == name && default.is_static)
    }

    /// The broker's own value of a configuration, where it has one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values
            .iter()
            .find(|default| default.topic_name == name)
            .map(|default| default.value.as_str())
    }

    /// The value that holds for a topic without one.
    #[must_use]
    pub fn value(&self, definition: &Definition) -> &str {
        self.get(definition.name).unwrap_or(definition.default)
    }
}
