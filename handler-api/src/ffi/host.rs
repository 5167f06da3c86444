//! The host across the boundary: its services wrapped for the crossing, and the plugin's view of them.
//!
//! It must not know what a call means.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use abi_stable::std_types::{RResult, RStr, RString, RVec};
use async_ffi::FfiFuture;
use bytes::Bytes;

use super::abi::{HostAbi, HostObject, host_object};
use super::fence::{Guarded, bridge, fence, from_list, to_list};
use super::shared::SharedBytes;
use crate::control::Operation;
use crate::handler::Level;
use crate::host::{HostServices, Reply};
use crate::types::{
    ApiError, AppendRequest, Appended, Handle, Owner, Position, ReadAnswer, ReadRequest,
};

/// Services on their way to the plugin.
pub(super) struct HostAdapter {
    pub(super) inner: Guarded<Arc<dyn HostServices>>,
}

impl HostAbi for HostAdapter {
    fn capabilities(&self) -> u64 {
        fence("capabilities", || self.inner.capabilities()).unwrap_or(0)
    }
    fn log_enabled(&self, level: u32) -> bool {
        fence("log_enabled", || {
            self.inner.log_enabled(Level::from_number(level))
        })
        .unwrap_or(false)
    }
    fn log(&self, level: u32, target: RStr<'_>, message: RStr<'_>) {
        let _ = fence("log", || {
            self.inner
                .log(Level::from_number(level), target.as_str(), message.as_str())
        });
    }
    fn lookup(
        &self,
        topics: RVec<RString>,
    ) -> FfiFuture<RResult<RVec<RResult<Owner, ApiError>>, ApiError>> {
        let topics = topics.into_iter().map(RString::into_string).collect();
        bridge("lookup", || self.inner.lookup(topics), to_list)
    }
    fn append(
        &self,
        requests: RVec<AppendRequest>,
    ) -> FfiFuture<RResult<RVec<RResult<Appended, ApiError>>, ApiError>> {
        bridge("append", || self.inner.append(requests.into_vec()), to_list)
    }
    fn read(
        &self,
        requests: RVec<ReadRequest>,
        max_bytes: u64,
    ) -> FfiFuture<RResult<RVec<RResult<ReadAnswer, ApiError>>, ApiError>> {
        bridge(
            "read",
            || self.inner.read(requests.into_vec(), max_bytes),
            to_list,
        )
    }
    fn find(&self, handle: Handle, index: i64) -> FfiFuture<RResult<Position, ApiError>> {
        bridge(
            "find",
            || self.inner.find(handle, index),
            |position| position,
        )
    }
    fn watch(&self, handle: Handle, after_index: i64) -> RResult<i64, ApiError> {
        fence("watch", || self.inner.watch(handle, after_index))
            .and_then(|result| result)
            .into()
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
}

/// A plugin's view of its host: cheap to clone, every call may be made from any thread.
///
/// Futures are polled on the caller's thread and belong to no runtime. An append is ordered and owned by the host
/// when [`Host::append`] returns; dropping its future cancels nothing.
#[derive(Clone)]
pub struct Host {
    object: Arc<HostObject>,
    capabilities: u64,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("capabilities", &self.capabilities)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Wraps what came through [`crate::ProtocolHandler::start`].
    #[must_use]
    pub fn new(object: HostObject) -> Self {
        let capabilities = object.capabilities();
        Self {
            object: Arc::new(object),
            capabilities,
        }
    }

    /// The same view of services in this process, for tests and embedding.
    #[must_use]
    pub fn of(services: Arc<dyn HostServices>) -> Self {
        Self::new(host_object(services))
    }

    /// Whether the host has all of these bits of [`crate::host::capability`].
    #[must_use]
    pub fn has(&self, capability: u64) -> bool {
        self.capabilities & capability == capability
    }

    /// Whether a message of this level would be kept.
    #[must_use]
    pub fn log_enabled(&self, level: Level) -> bool {
        self.object.log_enabled(level as u32)
    }

    /// Writes to the host's log.
    pub fn log(&self, level: Level, target: &str, message: &str) {
        self.object
            .log(level as u32, RStr::from(target), RStr::from(message));
    }

    /// Who serves each topic (full names of partitions). See [`HostServices::lookup`].
    pub fn lookup(
        &self,
        topics: Vec<String>,
    ) -> impl Future<Output = Result<Vec<Result<Owner, ApiError>>, ApiError>> + Send + use<> {
        let future = self
            .object
            .lookup(topics.into_iter().map(RString::from).collect());
        async move { future.await.into_result().map(from_list) }
    }

    /// Appends entries, one crossing for all. See [`HostServices::append`].
    pub fn append(
        &self,
        requests: Vec<AppendRequest>,
    ) -> impl Future<Output = Result<Vec<Result<Appended, ApiError>>, ApiError>> + Send + use<>
    {
        let future = self.object.append(requests.into());
        async move { future.await.into_result().map(from_list) }
    }

    /// Reads entries, one crossing for all. See [`HostServices::read`].
    pub fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> impl Future<Output = Result<Vec<Result<ReadAnswer, ApiError>>, ApiError>> + Send + use<>
    {
        let future = self.object.read(requests.into(), max_bytes);
        async move { future.await.into_result().map(from_list) }
    }

    /// Finds the entry that holds an index. See [`HostServices::find`].
    pub fn find(
        &self,
        handle: Handle,
        index: i64,
    ) -> impl Future<Output = Result<Position, ApiError>> + Send + use<> {
        let future = self.object.find(handle, index);
        async move { future.await.into_result() }
    }

    /// Asks for one call of [`crate::ProtocolHandler::end_moved`]. See [`HostServices::watch`].
    pub fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        self.object.watch(handle, after_index).into_result()
    }

    /// A control operation; see [`crate::control`].
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
}

/// A plugin's view of its host is a host again, for plugins that stand between.
impl HostServices for Host {
    fn capabilities(&self) -> u64 {
        self.capabilities
    }

    fn log_enabled(&self, level: Level) -> bool {
        Self::log_enabled(self, level)
    }

    fn log(&self, level: Level, target: &str, message: &str) {
        Self::log(self, level, target, message);
    }

    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        Reply::pending(Self::lookup(self, topics))
    }

    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        Reply::pending(Self::append(self, requests))
    }

    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        Reply::pending(Self::read(self, requests, max_bytes))
    }

    fn find(&self, handle: Handle, index: i64) -> Reply<Position> {
        Reply::pending(Self::find(self, handle, index))
    }

    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        Self::watch(self, handle, after_index)
    }

    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
        let future = self.object.call(op, version, request.into());
        Reply::pending(async move { future.await.into_result().map(Bytes::from) })
    }
}
