#![doc = include_str!("DESIGN.md")]

mod append;
mod catalog;
pub mod config;
mod control;
mod cursors;
mod disk;
mod files;
mod handles;
mod layout;
pub mod limits;
mod maintain;
mod metrics;
pub(crate) mod offline;
mod opening;
mod partition;
mod read;
mod record;
mod recover;
mod search;
mod services;
mod structure;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod topics;
mod values;

use std::sync::Arc;

use handler_api::HostServices;

pub(crate) use catalog::{LedgerRow, ManagedRow};
pub use config::{EmbeddedConfig, OpenError};
pub use layout::FORMAT;

use crate::events::EventSink;

/// A broker in this process: durable topics in one data directory.
#[derive(Debug)]
pub struct EmbeddedBroker {
    core: Arc<services::Core>,
}

impl EmbeddedBroker {
    /// Opens a data directory, creating it if it is missing, and recovers what the last process left.
    /// Blocks; call it before serving.
    pub fn open(config: EmbeddedConfig) -> Result<Self, OpenError> {
        Ok(Self {
            core: services::Core::open(config)?,
        })
    }

    /// The services for one plugin. `protocol_data` is what it advertises
    /// ([`handler_api::ProtocolHandler::protocol_data_to_advertise`]), `sink` receives its events and the wake-ups of
    /// its watches, until the services are dropped.
    #[must_use]
    pub fn attach(&self, protocol_data: String, sink: Arc<dyn EventSink>) -> Arc<dyn HostServices> {
        Arc::new(services::Services::attach(&self.core, protocol_data, sink))
    }

    /// What the store counts of itself, in Prometheus' text format.
    #[must_use]
    pub fn metrics(&self) -> String {
        metrics::render(&self.core)
    }

    /// Syncs everything, writes the mark of a clean stop and gives the directory up. Later calls of services are
    /// answered `Closing`. Blocks.
    pub fn close(&self) {
        self.core.close();
    }
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        self.close();
    }
}
