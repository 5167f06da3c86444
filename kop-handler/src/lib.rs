//! A Kafka protocol handler for Apache Pulsar: the plugin that a broker loads as `libkop_handler.so`.
//!
//! This file exports the root module and nothing else; `ARCHITECTURE.md` is the map of the rooms.

pub mod clock;
pub mod config;
pub mod coordinator;
pub mod error;
pub mod format;
pub mod log;
pub mod wire;
pub mod topics;
