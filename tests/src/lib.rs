//! What the whole-product tests and the benchmark share: starting and stopping brokers, obtaining other
//! people's clients by package name, and running their programs. It knows the product only from outside:
//! its binary, its plugin and its ports.

pub use kop_fetch::process;

pub mod broker;
pub mod node;
pub mod pulsar;
pub mod raw;
pub mod rd;
mod reference;
pub mod skip;
pub mod stat;
pub mod tools;
