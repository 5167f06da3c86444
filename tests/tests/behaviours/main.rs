//! The rows of the table of behaviours, as raw protocol checks: where brokers that speak Kafka's protocol have failed
//! their users, and what Apache Kafka does. Each test is named for its fact; `Row n` says which row.
//!
//! With `KOP_TEST_REFERENCE=kafka` they run against Apache Kafka itself, which keeps them honest.

mod admin;
mod cleaning;
mod fetch;
mod groups;
mod handshake;
mod hostile;
mod kit;
mod list_offsets;
mod metadata;
mod offsets;
mod produce;
mod static_members;
