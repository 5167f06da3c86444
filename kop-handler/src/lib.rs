//! A Kafka protocol handler for Apache Pulsar: the plugin that a broker loads as `libkop_handler.so`.
//!
//! This file exports the root module and nothing else; `ARCHITECTURE.md` is the map of the rooms.

pub(crate) mod api;
pub mod clock;
pub mod config;
pub mod coordinator;
pub mod error;
pub mod format;
pub mod log;
pub mod metrics;
pub(crate) mod net;
pub mod plugin;
pub(crate) mod telemetry;
pub mod topics;
pub mod wire;

handler_api::export_handler!(plugin::KafkaHandler::new());
