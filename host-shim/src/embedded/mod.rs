#![doc = include_str!("DESIGN.md")]

pub mod config;
mod layout;
pub mod limits;
mod services;

use std::sync::Arc;

use handler_api::HostServices;

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
            core: Arc::new(services::Core::open(config)?),
        })
    }

    /// The services for one plugin. `protocol_data` is what it advertises
    /// ([`handler_api::ProtocolHandler::protocol_data_to_advertise`]), `sink` receives its events and the wake-ups of
    /// its watches, until the services are dropped.
    #[must_use]
    pub fn attach(&self, protocol_data: String, sink: Arc<dyn EventSink>) -> Arc<dyn HostServices> {
        services::attach(&self.core, protocol_data, sink)
    }

    /// Syncs everything, writes the mark of a clean stop and gives the directory up. Later calls of services are
    /// answered `Closing`. Blocks.
    pub fn close(&self) {
        self.core.close();
    }
}
