//! The handler across the boundary: wrapped for the crossing, and the host's view of it.
//!
//! It must not know what a call means.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use abi_stable::std_types::{RResult, RStr, RString, RVec, Tuple2};
use async_ffi::FfiFuture;
use bytes::Bytes;

use super::abi::{HandlerAbi, HandlerObject, HostObject, handler_object, host_object};
use super::fence::{Guarded, bridge, fence};
use super::host::Host;
use super::shared::SharedBytes;
use crate::control::Operation;
use crate::handler::{ListenerInfo, ProtocolHandler};
use crate::host::HostServices;
use crate::types::{ApiError, Handle, Position};

/// A handler on its way to the host.
pub(super) struct HandlerAdapter {
    pub(super) inner: Guarded<Arc<dyn ProtocolHandler>>,
}

impl HandlerAbi for HandlerAdapter {
    fn protocol_name(&self) -> RString {
        fence("protocol_name", || {
            RString::from(self.inner.protocol_name())
        })
        .unwrap_or_default()
    }
    fn accept(&self, protocol: RStr<'_>) -> bool {
        fence("accept", || self.inner.accept(protocol.as_str())).unwrap_or(false)
    }
    fn initialize(&self, configuration: RVec<Tuple2<RString, RString>>) -> RResult<(), ApiError> {
        let configuration: HashMap<String, String> = configuration
            .into_iter()
            .map(|Tuple2(key, value)| (key.into_string(), value.into_string()))
            .collect();
        fence("initialize", || self.inner.initialize(configuration))
            .and_then(|result| result)
            .into()
    }
    fn protocol_data_to_advertise(&self) -> RString {
        fence("protocol_data_to_advertise", || {
            RString::from(self.inner.protocol_data_to_advertise())
        })
        .unwrap_or_default()
    }
    fn start(&self, host: HostObject) -> FfiFuture<RResult<(), ApiError>> {
        bridge("start", || self.inner.start(Host::new(host)), |()| ())
    }
    fn listeners(&self) -> RVec<ListenerInfo> {
        fence("listeners", || self.inner.listeners().into()).unwrap_or_default()
    }
    fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        let _ = fence("end_moved", || {
            self.inner.end_moved(handle, position, index)
        });
    }
    fn event(&self, op: u32, payload: SharedBytes) {
        let _ = fence("event", || self.inner.event(op, payload.into()));
    }
    fn metrics(&self) -> SharedBytes {
        fence("metrics", || self.inner.metrics().into()).unwrap_or_default()
    }
    fn call(
        &self,
        op: u32,
        version: u32,
        request: SharedBytes,
    ) -> FfiFuture<RResult<SharedBytes, ApiError>> {
        bridge(
            "call",
            || self.inner.call(op, version, request.into()),
            SharedBytes::from,
        )
    }
    fn close(&self) -> FfiFuture<RResult<(), ApiError>> {
        bridge("close", || self.inner.close(), |()| ())
    }
}

/// A host's view of a plugin.
pub struct Handler {
    object: HandlerObject,
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler").finish_non_exhaustive()
    }
}

impl Handler {
    /// Wraps what a plugin's root module made.
    #[must_use]
    pub fn new(object: HandlerObject) -> Self {
        Self { object }
    }

    /// The same view of a handler in this process, for tests.
    #[must_use]
    pub fn of(handler: impl ProtocolHandler) -> Self {
        Self::new(handler_object(handler))
    }

    /// See [`ProtocolHandler::protocol_name`].
    #[must_use]
    pub fn protocol_name(&self) -> String {
        self.object.protocol_name().into_string()
    }

    /// See [`ProtocolHandler::accept`].
    #[must_use]
    pub fn accept(&self, protocol: &str) -> bool {
        self.object.accept(RStr::from(protocol))
    }

    /// See [`ProtocolHandler::initialize`].
    pub fn initialize(&self, configuration: &HashMap<String, String>) -> Result<(), ApiError> {
        let pairs = configuration
            .iter()
            .map(|(k, v)| Tuple2(RString::from(k.as_str()), RString::from(v.as_str())))
            .collect();
        self.object.initialize(pairs).into_result()
    }

    /// See [`ProtocolHandler::protocol_data_to_advertise`].
    #[must_use]
    pub fn protocol_data_to_advertise(&self) -> String {
        self.object.protocol_data_to_advertise().into_string()
    }

    /// See [`ProtocolHandler::start`].
    pub fn start(
        &self,
        services: Arc<dyn HostServices>,
    ) -> impl Future<Output = Result<(), ApiError>> + Send + use<> {
        let future = self.object.start(host_object(services));
        async move { future.await.into_result() }
    }

    /// See [`ProtocolHandler::listeners`].
    #[must_use]
    pub fn listeners(&self) -> Vec<ListenerInfo> {
        self.object.listeners().into_vec()
    }

    /// See [`ProtocolHandler::end_moved`].
    pub fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        self.object.end_moved(handle, position, index);
    }

    /// Tells the plugin of an event of [`crate::control`].
    pub fn event<E: crate::control::Event>(&self, event: &E) {
        self.object
            .event(E::OP, crate::control::encode(event).into());
    }

    /// Tells the plugin of an event that is encoded already.
    pub fn raw_event(&self, op: u32, payload: Bytes) {
        self.object.event(op, payload.into());
    }

    /// See [`ProtocolHandler::metrics`].
    #[must_use]
    pub fn metrics(&self) -> Bytes {
        self.object.metrics().into()
    }

    /// A control operation of the plugin.
    pub fn control<O: Operation>(
        &self,
        request: &O::Request,
    ) -> impl Future<Output = Result<O::Answer, ApiError>> + Send + use<O> {
        let future = self
            .object
            .call(O::OP, O::VERSION, crate::control::encode(request).into());
        async move {
            let answer = future.await.into_result()?;
            crate::control::decode(answer.into())
        }
    }

    /// See [`ProtocolHandler::close`].
    pub fn close(&self) -> impl Future<Output = Result<(), ApiError>> + Send + use<> {
        let future = self.object.close();
        async move { future.await.into_result() }
    }
}
