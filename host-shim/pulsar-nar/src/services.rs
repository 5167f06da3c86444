//! The broker's services as a plugin sees them.
//!
//! Each call goes to the file that knows how; this one only sorts.

use std::sync::Arc;

use bytes::Bytes;
use handler_api::{
    ApiError, AppendRequest, Appended, Handle, HostServices, Level, Owner, Position, ReadAnswer,
    ReadRequest, Reply, capability,
};

use crate::bridge::{Bridge, Settings};
use crate::{append, control, ledgers, logging, read};

/// Services of a broker for its plugin.
pub(crate) struct Services {
    bridge: Arc<Bridge>,
    settings: Settings,
}

impl Services {
    pub(crate) fn new(bridge: Arc<Bridge>, settings: Settings) -> Self {
        Self { bridge, settings }
    }
}

impl HostServices for Services {
    fn capabilities(&self) -> u64 {
        // A broker gives up what no subscription holds back, by its policies of retention.
        let mut bits = capability::HOST_RETENTION;
        if self.settings.authentication {
            bits |= capability::AUTHENTICATION;
        }
        bits
    }

    fn log_enabled(&self, level: Level) -> bool {
        logging::enabled(level)
    }

    fn log(&self, level: Level, target: &str, message: &str) {
        logging::line(level, target, message);
    }

    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        control::lookup(&*self.bridge, &topics)
    }

    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        append::append(&self.bridge, &self.settings, requests)
    }

    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        read::read(&self.bridge, requests, max_bytes)
    }

    fn find(&self, handle: Handle, index: i64) -> Reply<Position> {
        read::find(&self.bridge, handle, index)
    }

    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        self.bridge.watch(handle, after_index)
    }

    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
        ledgers::dispatch(&self.bridge, op, version, &request)
            .unwrap_or_else(|| control::dispatch(&*self.bridge, op, version, &request))
    }
}
