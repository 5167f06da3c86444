//! The host for a stock Apache Pulsar broker: a library that a small Java protocol handler (`java/`) loads, that loads
//! the plugin in its turn, and that offers the broker's topics and managed ledgers to it over JNI.
//!
//! ```text
//! broker ── KafkaProtocolHandler (Java) ── Native ⇄ this library ── handler-api ── libkop_handler.so
//! ```
//!
//! The hot path (append, read, find, watch) has methods of its own on the Java class `Partition`; everything else goes
//! through `Control.call` with the bytes of [`control`]. Nothing here knows Kafka.

mod append;
mod bridge;
mod control;
mod entry;
mod jvm;
mod ledgers;
mod logging;
mod metrics;
mod partition;
mod pending;
mod places;
mod read;
mod services;
mod table;
