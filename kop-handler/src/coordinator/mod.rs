//! Coordinators: state machines that are replayed from compacted logs, and the engine that runs them.
//!
//! [`group`] holds the machines (pure: no I/O, clock, randomness, `async`), [`record`] what they persist, [`engine`] the
//! one part that touches logs and tasks, [`Groups`] the face for the API files, [`ids`] the producer ids. They must not
//! know connections or the protocol's versions; the API files translate.

pub mod engine;
pub mod group;
mod groups;
pub mod ids;
pub mod record;

pub use groups::Groups;
