//! What was configured for one topic. It must not know where it is stored.

use std::collections::{BTreeMap, HashMap};

use super::definition::items;
use super::{Kind, ServerDefaults, definition, unknown};
use crate::error::Fault;

/// What the names of these properties start with.
const PROPERTY_PREFIX: &str = "kafkaConfig.";

/// Configurations that a topic has of its own, by name, checked and in canonical form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    values: BTreeMap<&'static str, String>,
}

/// Properties to change so that one set of configurations becomes another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// To set.
    pub set: HashMap<String, String>,
    /// To remove.
    pub remove: Vec<String>,
    /// How they must stand for it; empty: absent.
    pub expect: HashMap<String, String>,
}

impl Overrides {
    /// What the properties of a topic say. A configuration that this release does not know, or whose value it does not
    /// take, is left alone: a newer one stored it.
    #[must_use]
    pub fn from_properties(properties: &HashMap<String, String>) -> Self {
        let values = properties
            .iter()
            .filter_map(|(key, value)| {
                let definition = definition(key.strip_prefix(PROPERTY_PREFIX)?)?;
                Some((definition.name, definition.parse(value).ok()?))
            })
            .collect();
        Self { values }
    }

    /// As properties.
    #[must_use]
    pub fn to_properties(&self) -> HashMap<String, String> {
        self.values
            .iter()
            .map(|(name, value)| (property(name), value.clone()))
            .collect()
    }

    /// The value of a configuration that was given to the topic itself.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
    }

    /// Gives a configuration a value.
    ///
    /// # Errors
    /// [`Fault::InvalidConfig`] in Kafka's words for an unknown name or a value that is not legal.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        let definition = definition(name).ok_or_else(|| unknown(name))?;
        self.values
            .insert(definition.name, definition.parse(value)?);
        Ok(())
    }

    /// Takes a configuration back, so that the broker's holds. An unknown name is no error, as in Kafka.
    pub fn unset(&mut self, name: &str) {
        self.values.remove(name);
    }

    /// Adds items to a list, where they are not in it yet.
    ///
    /// # Errors
    /// [`Fault::InvalidConfig`] for what is not a list, and as of [`Self::set`].
    pub fn append(
        &mut self,
        name: &str,
        value: &str,
        defaults: &ServerDefaults,
    ) -> Result<(), Fault> {
        let current = self.list(name, "APPEND", defaults)?;
        let mut list = items(&current);
        for item in items(value) {
            if !list.contains(&item) {
                list.push(item);
            }
        }
        self.set(name, &list.join(","))
    }

    /// Takes items out of a list.
    ///
    /// # Errors
    /// [`Fault::InvalidConfig`] for what is not a list, and as of [`Self::set`].
    pub fn subtract(
        &mut self,
        name: &str,
        value: &str,
        defaults: &ServerDefaults,
    ) -> Result<(), Fault> {
        let current = self.list(name, "SUBTRACT", defaults)?;
        let gone = items(value);
        let list: Vec<&str> = items(&current)
            .into_iter()
            .filter(|item| !gone.contains(item))
            .collect();
        self.set(name, &list.join(","))
    }

    fn list(
        &self,
        name: &str,
        operation: &str,
        defaults: &ServerDefaults,
    ) -> Result<String, Fault> {
        match definition(name) {
            Some(definition) if definition.kind == Kind::List => Ok(self
                .get(name)
                .unwrap_or_else(|| defaults.value(definition))
                .to_owned()),
            _ => Err(Fault::InvalidConfig(format!(
                "Can't {operation} to key {name} because its type is not LIST."
            ))),
        }
    }

    /// Checks what no single value shows.
    ///
    /// # Errors
    /// [`Fault::InvalidConfig`] in Kafka's words.
    pub fn check(&self, defaults: &ServerDefaults) -> Result<(), Fault> {
        let min = self.long("min.compaction.lag.ms", defaults);
        let max = self.long("max.compaction.lag.ms", defaults);
        if min > max {
            return Err(Fault::InvalidConfig(format!(
                "conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})"
            )));
        }
        Ok(())
    }

    /// The value in force of a configuration of numbers; 0 for a name that is none.
    #[must_use]
    pub fn long(&self, name: &str, defaults: &ServerDefaults) -> i64 {
        self.effective(name, defaults).parse().unwrap_or(0)
    }

    /// The value in force of a configuration; empty for an unknown name.
    #[must_use]
    pub fn effective<'a>(&'a self, name: &str, defaults: &'a ServerDefaults) -> &'a str {
        match (self.get(name), definition(name)) {
            (Some(value), _) => value,
            (None, Some(definition)) => defaults.value(definition),
            (None, None) => "",
        }
    }

    /// The properties to change so that this becomes `wanted`.
    pub(crate) fn change_to(&self, wanted: &Self) -> Change {
        let mut change = Change::default();
        for (name, value) in wanted
            .iter()
            .filter(|(name, value)| self.get(name) != Some(*value))
        {
            change.set.insert(property(name), value.to_owned());
            change.expect.insert(
                property(name),
                self.get(name).unwrap_or_default().to_owned(),
            );
        }
        for (name, value) in self.iter().filter(|(name, _)| wanted.get(name).is_none()) {
            change.remove.push(property(name));
            change.expect.insert(property(name), value.to_owned());
        }
        change
    }
}

fn property(name: &str) -> String {
    format!("{PROPERTY_PREFIX}{name}")
}
