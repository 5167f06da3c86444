//! How a host reaches its plugins: events and the wake-up of a watched end.
//!
//! Shared by all hosts of this crate. It must not know how a plugin is loaded, nor what a plugin does with a call.

use std::sync::Arc;

use bytes::Bytes;
use handler_api::control::{Event, encode};
use handler_api::{Handle, Handler, Position};

/// Receives what a host tells one plugin. Calls come from any thread, with no lock of the host held, and must return
/// at once.
pub trait EventSink: Send + Sync + 'static {
    /// One of [`handler_api::control::Event`]'s kinds, encoded; see [`handler_api::ProtocolHandler::event`].
    fn event(&self, op: u32, payload: Bytes);

    /// A watched end moved; see [`handler_api::ProtocolHandler::end_moved`].
    fn end_moved(&self, handle: Handle, position: Position, index: i64);
}

/// Encodes an event once and hands it to several sinks.
pub fn broadcast<E: Event>(sinks: &[Arc<dyn EventSink>], event: &E) {
    if sinks.is_empty() {
        return;
    }
    let payload = encode(event);
    for sink in sinks {
        sink.event(E::OP, payload.clone());
    }
}

/// A loaded plugin is the usual sink.
impl EventSink for Handler {
    fn event(&self, op: u32, payload: Bytes) {
        self.raw_event(op, payload);
    }

    fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        Handler::end_moved(self, handle, position, index);
    }
}

/// A sink that drops everything: for tools that only call.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _op: u32, _payload: Bytes) {}

    fn end_moved(&self, _handle: Handle, _position: Position, _index: i64) {}
}
