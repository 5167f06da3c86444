//! Configurations of topics: which there are, which values are legal, what a topic has and what is in force.
//!
//! A configuration given to a topic is stored as a property of the Pulsar topic, `kafkaConfig.<name>`. It must not know
//! requests.

pub mod definition;
mod overrides;
mod server;
mod settings;
mod table;

#[cfg(test)]
mod tests;

pub use self::definition::{Definition, Effect, Kind};
pub use self::overrides::{Change, Overrides};
pub use self::server::{ServerDefault, ServerDefaults};
pub use self::table::DEFINITIONS;

use crate::error::Fault;

/// The definition of a configuration.
#[must_use]
pub fn definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS
        .binary_search_by(|definition| definition.name.cmp(name))
        .ok()
        .and_then(|index| DEFINITIONS.get(index))
}

/// The error for a name that is not in the table.
pub(crate) fn unknown(name: &str) -> Fault {
    Fault::InvalidConfig(format!("Unknown topic config name: {name}"))
}
