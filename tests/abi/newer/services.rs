//! The services of a newer host: one more operation than today's.

use std::sync::Arc;

use bytes::Bytes;
use handler_api::{
    ApiError, AppendRequest, Appended, Handle, HostServices, Level, Owner, Position, ReadAnswer,
    ReadRequest, Reply, control,
};

pub(crate) fn offer(sim: Arc<dyn HostServices>) -> Arc<dyn HostServices> {
    Arc::new(Newer(sim))
}

struct Newer(Arc<dyn HostServices>);

impl HostServices for Newer {
    fn capabilities(&self) -> u64 {
        self.0.capabilities()
    }
    fn log_enabled(&self, level: Level) -> bool {
        self.0.log_enabled(level)
    }
    fn log(&self, level: Level, target: &str, message: &str) {
        self.0.log(level, target, message);
    }
    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        self.0.lookup(topics)
    }
    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        self.0.append(requests)
    }
    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        self.0.read(requests, max_bytes)
    }
    fn find(&self, handle: Handle, index: i64) -> Reply<Position> {
        self.0.find(handle, index)
    }
    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        self.0.watch(handle, after_index)
    }
    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
        match control::request::<control::Ping>(op, version, &request) {
            Some(asked) => asked.map(|nothing| control::encode(&nothing)).into(),
            None => self.0.call(op, version, request),
        }
    }
}
