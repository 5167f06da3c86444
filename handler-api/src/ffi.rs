//! The boundary itself: shared bytes, the two ABI traits, the root module, the panic fence and the future bridge.
//!
//! Plugins implement [`crate::handler::ProtocolHandler`], hosts implement [`crate::host::HostServices`]; both are plain
//! Rust. This module turns each into an object that another compilation of this crate can call, and wraps what comes
//! from the other side. Hand-written unsafe code is in `shared` only; `abi` has what macros generate.

mod abi;
mod fence;
mod handler;
mod host;
mod shared;
#[cfg(test)]
mod tests;

pub use abi::{
    HandlerAbi, HandlerModule, HandlerModuleRef, HandlerObject, HostAbi, HostObject, Made,
    handler_object, host_object, make_handler, root_module,
};
pub use fence::fence;
pub use handler::Handler;
pub use host::Host;
pub use shared::SharedBytes;

/// Version of the contract. The major part must be equal on both sides, the minor part says which control
/// operations and events a side knows; see `ABI.md`.
pub const ABI_VERSION: &str = env!("CARGO_PKG_VERSION");
