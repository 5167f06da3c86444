//! The plugin: builds the rooms, owns the runtime, starts and stops everything in order.
//!
//! Sockets are bound in `initialize`, so that what is advertised before the start names the real ports, and accept
//! connections from `start` on. All work runs on the plugin's own runtime; the host's threads only hand over. It must
//! not know what a request means.

mod events;
pub(crate) mod rooms;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use handler_api::{
    ApiError, ErrorCode, Handle, Host, ListenerInfo, Position, ProtocolHandler, Reply, capability,
};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::api::Server;
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::net::Shared;
use crate::net::listener::{self, Bound};
use crate::telemetry::{self, Forwarding};

/// Kafka for a Pulsar broker. See [`ProtocolHandler`] for the order of calls.
pub struct KafkaHandler {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    prepared: Mutex<Option<Prepared>>,
    advertised: OnceLock<String>,
    /// From the start to the end of the close, and no longer: it holds the host's services.
    running: RwLock<Option<Arc<Running>>>,
    /// The log goes to the host until the end of the close.
    forwarding: Mutex<Option<Forwarding>>,
    /// Taken out by whoever stops it.
    runtime: Mutex<Option<Runtime>>,
}

/// What `initialize` leaves to `start`.
#[derive(Debug)]
struct Prepared {
    config: Config,
    bound: Vec<Bound>,
}

/// What `start` built.
struct Running {
    server: Arc<Server>,
    runtime: tokio::runtime::Handle,
    shared: Arc<Shared>,
    listeners: Vec<ListenerInfo>,
}

impl KafkaHandler {
    /// A handler on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// A handler on another clock, for simulations.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            inner: Arc::new(Inner {
                clock,
                prepared: Mutex::new(None),
                advertised: OnceLock::new(),
                running: RwLock::new(None),
                forwarding: Mutex::new(None),
                runtime: Mutex::new(None),
            }),
        }
    }
}

impl Default for KafkaHandler {
    fn default() -> Self {
        Self::new()
    }
}

impl ProtocolHandler for KafkaHandler {
    fn protocol_name(&self) -> String {
        "kafka".to_owned()
    }

    fn initialize(&self, configuration: HashMap<String, String>) -> Result<(), ApiError> {
        let mut config = Config::parse(&configuration)?;
        let bound = listener::bind(&config.listeners)?;
        config.listeners = bound.iter().map(|bound| bound.listener.clone()).collect();
        let advertised: Vec<String> = config
            .listeners
            .iter()
            .map(|listener| format!("{}://{}", listener.name, listener.advertised))
            .collect();
        self.inner
            .advertised
            .set(advertised.join(","))
            .map_err(|_| out_of_order("initialize was called twice"))?;
        *self.inner.prepared.lock() = Some(Prepared { config, bound });
        Ok(())
    }

    fn protocol_data_to_advertise(&self) -> String {
        self.inner.advertised.get().cloned().unwrap_or_default()
    }

    fn start(&self, host: Host) -> Reply<()> {
        let Some(prepared) = self.inner.prepared.lock().take() else {
            return Reply::err(out_of_order(
                "start needs initialize before it, and only one start",
            ));
        };
        *self.inner.forwarding.lock() = Some(telemetry::forward_to(&host));
        for warning in &prepared.config.warnings {
            tracing::warn!("{warning}");
        }
        // A broker that is alone keeps these promises whatever its settings say.
        if !host.has(capability::SINGLE_BROKER)
            && let Some(broken) = prepared.config.broken_prerequisites.first()
        {
            return Reply::err(ApiError::new(
                ErrorCode::InvalidConfiguration,
                broken.clone(),
            ));
        }
        let runtime = match runtime(&prepared.config) {
            Ok(runtime) => runtime,
            Err(error) => {
                return Reply::err(ApiError::new(
                    ErrorCode::Internal,
                    format!("the runtime of the Kafka plugin does not start: {error}"),
                ));
            }
        };
        let inner = Arc::clone(&self.inner);
        let starting = runtime.spawn(async move { inner.start(prepared, host).await });
        *self.inner.runtime.lock() = Some(runtime);
        let inner = Arc::clone(&self.inner);
        Reply::pending(async move {
            let result = starting.await.unwrap_or_else(|error| {
                Err(ApiError::new(
                    ErrorCode::Internal,
                    format!("the start of the Kafka plugin broke off: {error}"),
                ))
            });
            if result.is_err() {
                inner.abandon();
            }
            result
        })
    }

    fn listeners(&self) -> Vec<ListenerInfo> {
        self.inner
            .running()
            .map(|running| running.listeners.clone())
            .unwrap_or_default()
    }

    fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        if let Some(running) = self.inner.running() {
            running.server.logs.end_moved(handle, position, index);
        }
    }

    fn event(&self, op: u32, payload: Bytes) {
        if let Some(running) = self.inner.running() {
            events::dispatch(&running.server, &running.runtime, op, payload);
        }
    }

    fn metrics(&self) -> Bytes {
        self.inner
            .running()
            .map(|running| rooms::metrics(&running.server).into())
            .unwrap_or_default()
    }

    fn close(&self) -> Reply<()> {
        let inner = Arc::clone(&self.inner);
        let (done, closed) = tokio::sync::oneshot::channel();
        // A runtime may not be stopped from one of its own threads, nor may the host's be kept waiting.
        let thread = std::thread::Builder::new()
            .name("kop-close".to_owned())
            .spawn(move || {
                inner.stop();
                let _ = done.send(());
            });
        if let Err(error) = thread {
            return Reply::err(ApiError::new(
                ErrorCode::Internal,
                format!("the Kafka plugin cannot close in order: {error}"),
            ));
        }
        Reply::pending(async move {
            closed.await.map_err(|_| {
                ApiError::new(ErrorCode::Internal, "closing the Kafka plugin panicked")
            })
        })
    }
}

fn out_of_order(text: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidArgument, text)
}

fn runtime(config: &Config) -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if config.worker_threads > 0 {
        builder.worker_threads(config.worker_threads);
    }
    builder.thread_name("kop").enable_all().build()
}

impl Inner {
    fn running(&self) -> Option<Arc<Running>> {
        self.running.read().clone()
    }

    /// Builds the rooms and opens the doors.
    async fn start(&self, prepared: Prepared, host: Host) -> Result<(), ApiError> {
        let Prepared { config, bound } = prepared;
        let runtime = tokio::runtime::Handle::current();
        let server = rooms::build(config, Arc::clone(&self.clock), host, &runtime).await;
        let shared = Arc::new(Shared::new(Arc::clone(&server)));
        let listeners = bound
            .iter()
            .map(|bound| ListenerInfo {
                name: bound.listener.name.to_string().into(),
                address: bound.address.to_string().into(),
            })
            .collect();
        // The host's events must reach the rooms before the first request does.
        *self.running.write() = Some(Arc::new(Running {
            server,
            runtime,
            shared: Arc::clone(&shared),
            listeners,
        }));
        let listening: Vec<_> = bound
            .into_iter()
            .map(Bound::listen)
            .collect::<Result<_, _>>()?;
        for listening in listening {
            tokio::spawn(listening.serve(Arc::clone(&shared)));
        }
        Ok(())
    }

    /// Gives up on a failed start, from whatever thread.
    fn abandon(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
        self.let_go();
    }

    /// Stops serving. Blocks: runs on a thread of its own.
    fn stop(&self) {
        drop(self.prepared.lock().take());
        let Some(runtime) = self.runtime.lock().take() else {
            return;
        };
        if let Some(running) = self.running() {
            // Half of the broker's patience for requests in flight; what is left is the host's.
            let patience =
                Duration::from_millis(running.server.config.broker_shutdown_timeout_ms / 2);
            let started = Instant::now();
            running.shared.close();
            let drained = runtime.block_on(async {
                let drained = tokio::time::timeout(patience, async {
                    tokio::join!(running.server.groups.close(), running.shared.drained());
                })
                .await;
                running.server.logs.close().await;
                drained.is_ok()
            });
            let ms = started.elapsed().as_millis();
            if drained {
                tracing::info!(ms, "all requests are answered and all connections closed");
            } else {
                tracing::warn!(ms, "requests in flight were cut off");
            }
        }
        runtime.shutdown_timeout(Duration::from_secs(1));
        self.let_go();
    }

    /// Keeps nothing of the host's.
    fn let_go(&self) {
        let running = self.running.write().take();
        // Not under the lock: what a host drops may call back.
        drop(running);
        drop(self.forwarding.lock().take());
    }
}

#[cfg(test)]
mod cluster_members_tests;
#[cfg(test)]
mod cluster_storm_tests;
#[cfg(test)]
mod cluster_testing;
#[cfg(test)]
mod cluster_tests;
