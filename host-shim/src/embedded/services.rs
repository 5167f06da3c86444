//! The services of the embedded broker.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use handler_api::{
    ApiError, AppendRequest, Appended, ErrorCode, Handle, HostServices, Level, Owner, Position,
    ReadAnswer, ReadRequest, Reply, capability, control,
};

use super::config::{EmbeddedConfig, OpenError};
use super::layout::{self, Layout, Lock};
use crate::events::EventSink;

/// Everything that is shared by the services of all plugins.
pub(crate) struct Core {
    config: EmbeddedConfig,
    _lock: Lock,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn open(config: EmbeddedConfig) -> Result<Self, OpenError> {
        let layout = Layout::new(&config.data_dir);
        layout.create()?;
        let lock = Lock::take(&layout)?;
        layout::prepare(&layout)?;
        Ok(Self {
            config,
            _lock: lock,
        })
    }

    pub(crate) fn close(&self) {}
}

struct Services {
    core: Arc<Core>,
    protocol_data: String,
    _sink: Arc<dyn EventSink>,
}

pub(crate) fn attach(
    core: &Arc<Core>,
    protocol_data: String,
    sink: Arc<dyn EventSink>,
) -> Arc<dyn HostServices> {
    Arc::new(Services {
        core: Arc::clone(core),
        protocol_data,
        _sink: sink,
    })
}

fn missing<T>() -> Reply<T> {
    Reply::err(ApiError::new(ErrorCode::Unsupported, "not offered yet"))
}

impl HostServices for Services {
    fn capabilities(&self) -> u64 {
        capability::SINGLE_BROKER | capability::REPLACE_LEDGER | capability::TRIM_TO_ENTRY
    }
    fn log_enabled(&self, _level: Level) -> bool {
        true
    }
    fn log(&self, _level: Level, target: &str, message: &str) {
        tracing::info!(target: "plugin", plugin = target, "{message}");
    }
    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        let owner = Owner {
            local: true,
            broker: self.core.config.broker_id.as_str().into(),
            protocol_data: self.protocol_data.as_str().into(),
        };
        Reply::ok(topics.iter().map(|_| Ok(owner.clone())).collect())
    }
    fn append(&self, _requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        missing()
    }
    fn read(
        &self,
        _requests: Vec<ReadRequest>,
        _max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        missing()
    }
    fn find(&self, _handle: Handle, _index: i64) -> Reply<Position> {
        missing()
    }
    fn watch(&self, _handle: Handle, _after_index: i64) -> Result<i64, ApiError> {
        Err(ApiError::new(ErrorCode::Unsupported, "not offered yet"))
    }
    fn call(&self, op: u32, version: u32, _request: Bytes) -> Reply<Bytes> {
        Reply::err(control::unsupported(op, version))
    }
}
