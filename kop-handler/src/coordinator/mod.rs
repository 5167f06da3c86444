//! Coordinators: state machines that are replayed from compacted logs, and the engine that runs them.
//!
//! [`group`] holds the machines (pure: no I/O, clock, randomness, `async`), [`record`] what they persist. They must not
//! know connections or the protocol's versions; the API files translate.

pub mod group;
pub mod record;
