//! The Kafka wire, without I/O: frames, request heads, the guard in front of the codec, responses and record batches.
//!
//! Bytes come in as [`bytes::Bytes`] and go out as lists of them. This room knows no socket, clock, task, topic or
//! coordinator: everything it needs (the time, a topic's limits) is an argument. Reading order: [`framer`],
//! [`request`], [`guard`], [`response`], [`fetch`], [`batch`].

pub mod batch;
pub mod fetch;
pub mod framer;
pub mod guard;
pub mod request;
pub mod response;

pub use error::WireError;

mod error;
pub(crate) mod put;

#[cfg(test)]
mod golden_tests;
