#![doc = include_str!("../DESIGN.md")]

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
