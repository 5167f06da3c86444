//! What the tests and the commands of the repository both need of the world outside: programs of other people, fetched
//! by package name and exact version, and child processes with a bound on their time. It knows nothing of our product.

pub mod folder;
pub mod java;
pub mod process;
pub mod pulsar;
