//! Hosts for protocol handler plugins: a durable embedded broker, and what hosts share.

pub mod embedded;
pub mod events;
