//! Hosts for protocol handler plugins: the loader, a durable embedded broker, a simulated one.
//!
//! A host never links a plugin; it loads it from `protocolHandlerDirectory`. Nothing here knows Kafka.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "this broker runs on Linux only: it relies on fdatasync, fallocate and the ELF loader as Linux has them"
);

pub mod config;
pub mod embedded;
pub mod events;
pub mod host;
pub mod inspect;
pub mod loader;
pub mod logging;
pub mod names;
mod process;
pub mod sim;
mod web;
