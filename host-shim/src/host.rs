//! Runs a broker: loads and initialises plugins, starts them on some services, serves the web port, stops in order.
//!
//! ```no_run
//! # async fn example(services: std::sync::Arc<dyn host_shim::host::BrokerServices>) -> Result<(), Box<dyn std::error::Error>> {
//! use host_shim::config::HostConfig;
//! use host_shim::host::BrokerHost;
//!
//! let config = HostConfig::of([
//!     ("messagingProtocols", "kafka"),
//!     ("kafkaListeners", "PLAINTEXT://127.0.0.1:9092"),
//! ])?;
//! let broker = BrokerHost::builder(config).prepare()?.start(services).await?;
//! println!("{}", broker.summary());
//! broker.stop().await;
//! # Ok(()) }
//! ```
//!
//! The order is a Pulsar broker's: make the handlers, `initialize`, `protocol_data_to_advertise`, `start`, `listeners`;
//! at the end `close` each, then the services. It must not know which services these are, nor any protocol.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use handler_api::{ApiError, Handle, Handler, HostServices, Position};

use crate::config::{HostConfig, Origin};
use crate::embedded::EmbeddedBroker;
use crate::events::EventSink;
use crate::loader::{self, LoadError, Plugin};
use crate::sim::SimHost;
use crate::{process, web};

/// What a broker is made of beside its plugins: something that gives each plugin its view of the services.
pub trait BrokerServices: Send + Sync + 'static {
    /// The services for one plugin. `protocol_data` is what it advertises, `sink` receives its events and the wake-ups
    /// of its watches.
    fn attach(&self, protocol_data: String, sink: Arc<dyn EventSink>) -> Arc<dyn HostServices>;

    /// The services' own metrics in Prometheus' text format.
    fn metrics(&self) -> String {
        String::new()
    }

    /// Gives up everything, after the plugins were closed. May block.
    fn close(&self) {}
}

impl BrokerServices for EmbeddedBroker {
    fn attach(&self, protocol_data: String, sink: Arc<dyn EventSink>) -> Arc<dyn HostServices> {
        Self::attach(self, protocol_data, sink)
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }

    fn close(&self) {
        Self::close(self);
    }
}

impl BrokerServices for SimHost {
    fn attach(&self, protocol_data: String, sink: Arc<dyn EventSink>) -> Arc<dyn HostServices> {
        Self::attach(self, &protocol_data, Some(sink))
    }
}

/// Why a broker does not start. Each is one line for an operator.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A plugin is missing.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A plugin does not accept the configuration.
    #[error("{protocol}: {error}")]
    Initialize {
        /// Its protocol.
        protocol: String,
        /// What it says.
        error: ApiError,
    },
    /// A plugin cannot serve.
    #[error("{protocol} cannot start: {error}")]
    Start {
        /// Its protocol.
        protocol: String,
        /// What it says.
        error: ApiError,
    },
    /// The web port cannot be bound.
    #[error(
        "webServicePort={}: cannot listen on {address}: {source}; choose another port, or give none to turn it off",
        .address.port()
    )]
    Web {
        /// Where it should have listened.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// Builds a [`BrokerHost`].
#[derive(Debug)]
pub struct Builder {
    config: HostConfig,
    plugins: Vec<Plugin>,
}

impl Builder {
    /// Adds a handler of this process, beside those that `messagingProtocols` has loaded from files.
    #[must_use]
    pub fn plugin(mut self, handler: Handler) -> Self {
        self.plugins.push(Plugin {
            protocol: handler.protocol_name(),
            path: PathBuf::new(),
            abi_version: handler_api::ABI_VERSION.to_owned(),
            handler,
        });
        self
    }

    /// Loads the plugins and gives each the configuration. Nothing is bound or opened yet.
    pub fn prepare(self) -> Result<BrokerHost, HostError> {
        process::mark_start();
        let Self {
            config,
            mut plugins,
        } = self;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let directory = &config.protocol_handler_directory;
        plugins.extend(loader::load(directory, &config.messaging_protocols)?);
        if plugins.is_empty() {
            tracing::warn!(
                "messagingProtocols names no protocol: nothing but the web port is served"
            );
        }
        let pairs = config.for_plugins();
        for plugin in &plugins {
            let initialized = plugin.handler.initialize(&pairs);
            initialized.map_err(|error| HostError::Initialize {
                protocol: plugin.protocol.clone(),
                error: located(&config, error),
            })?;
            tracing::info!(
                "plugin {} from {} (ABI {})",
                plugin.protocol,
                plugin.path.display(),
                plugin.abi_version
            );
        }
        Ok(BrokerHost { config, plugins })
    }
}

/// Says where the setting came from that an error begins with.
fn located(config: &HostConfig, error: ApiError) -> ApiError {
    let key = error.message.split(['=', ':']).next().unwrap_or_default();
    match config.origin(key) {
        Origin::Default => error,
        origin => ApiError {
            message: format!("{} ({origin})", error.message).into(),
            ..error
        },
    }
}

/// A broker whose plugins are loaded and initialised, and that serves nobody yet.
#[derive(Debug)]
pub struct BrokerHost {
    config: HostConfig,
    plugins: Vec<Plugin>,
}

impl BrokerHost {
    /// Begins with a configuration.
    #[must_use]
    pub fn builder(config: HostConfig) -> Builder {
        Builder {
            config,
            plugins: Vec::new(),
        }
    }

    /// Starts everything; ready when all listeners accept connections. If anything fails, what had started is closed.
    /// Must run on a tokio runtime.
    pub async fn start(self, services: Arc<dyn BrokerServices>) -> Result<Broker, HostError> {
        let port = match self.config.web_service_port {
            Some(port) => {
                let address = SocketAddr::new(self.config.bind_address, port);
                let bound = web::Bound::bind(address).await;
                Some(bound.map_err(|source| HostError::Web { address, source })?)
            }
            None => None,
        };
        let mut broker = Broker {
            plugins: Vec::new(),
            services: Arc::clone(&services),
            web: None,
            timeout: Duration::from_millis(self.config.broker_shutdown_timeout_ms),
        };
        for plugin in self.plugins {
            let handler = Arc::new(plugin.handler);
            let protocol_data = handler.protocol_data_to_advertise();
            let sink: Arc<dyn EventSink> = Arc::new(Link(Arc::downgrade(&handler)));
            let started = handler.start(services.attach(protocol_data, sink)).await;
            broker.plugins.push(Running {
                protocol: plugin.protocol.clone(),
                handler,
            });
            if let Err(error) = started {
                broker.stop().await;
                let protocol = plugin.protocol;
                return Err(HostError::Start { protocol, error });
            }
        }
        broker.web = port.map(|port| port.serve(broker.gather()));
        Ok(broker)
    }
}

/// How the services reach a plugin. Weak, because the plugin holds the services: a stopped broker leaves nothing behind.
struct Link(Weak<Handler>);

impl EventSink for Link {
    fn event(&self, op: u32, payload: Bytes) {
        if let Some(handler) = self.0.upgrade() {
            handler.raw_event(op, payload);
        }
    }

    fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        if let Some(handler) = self.0.upgrade() {
            handler.end_moved(handle, position, index);
        }
    }
}

#[derive(Clone)]
struct Running {
    protocol: String,
    handler: Arc<Handler>,
}

/// A broker that serves.
pub struct Broker {
    plugins: Vec<Running>,
    services: Arc<dyn BrokerServices>,
    web: Option<web::Web>,
    timeout: Duration,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("endpoints", &self.endpoints())
            .finish_non_exhaustive()
    }
}

/// A socket on which a broker accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The protocol; `http` for the web port.
    pub protocol: String,
    /// The listener's name within it; empty for the web port.
    pub listener: String,
    /// `host:port` really bound.
    pub address: String,
}

impl Broker {
    /// Where connections are accepted.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        for plugin in &self.plugins {
            let listeners = plugin.handler.listeners().into_iter();
            endpoints.extend(listeners.map(|listener| Endpoint {
                protocol: plugin.protocol.clone(),
                listener: listener.name.into_string(),
                address: listener.address.into_string(),
            }));
        }
        endpoints.extend(self.web.as_ref().map(|web| Endpoint {
            protocol: "http".to_owned(),
            listener: String::new(),
            address: web.address().to_string(),
        }));
        endpoints
    }

    /// The address of a protocol's first listener.
    #[must_use]
    pub fn address(&self, protocol: &str) -> Option<String> {
        let endpoints = self.endpoints().into_iter();
        let mut matching = endpoints.filter(|endpoint| endpoint.protocol == protocol);
        matching.next().map(|endpoint| endpoint.address)
    }

    /// One line that says where connections are accepted: `kafka PLAINTEXT 127.0.0.1:9092, http 127.0.0.1:8080`.
    #[must_use]
    pub fn summary(&self) -> String {
        let describe = |endpoint: &Endpoint| match endpoint.listener.as_str() {
            "" => format!("{} {}", endpoint.protocol, endpoint.address),
            name => format!("{} {name} {}", endpoint.protocol, endpoint.address),
        };
        let lines: Vec<String> = self.endpoints().iter().map(describe).collect();
        lines.join(", ")
    }

    /// The text of `/metrics`: the process, the services, each plugin.
    #[must_use]
    pub fn metrics(&self) -> String {
        (self.gather())()
    }

    fn gather(&self) -> web::Gather {
        let plugins = self.plugins.clone();
        let services = Arc::clone(&self.services);
        Arc::new(move || {
            let mut text = process::metrics();
            text.push_str(&services.metrics());
            for plugin in &plugins {
                text.push_str(&String::from_utf8_lossy(&plugin.handler.metrics()));
            }
            text
        })
    }

    /// Stops: closes the plugins, all at once and within `brokerShutdownTimeoutMs`, then the services. Returns whether
    /// all of it ended well; what did not is logged.
    pub async fn stop(self) -> bool {
        let mut clean = true;
        let closing: Vec<_> = self
            .plugins
            .iter()
            // On tasks of their own: a plugin that blocks holds up neither the others nor the clock.
            .map(|plugin| (&plugin.protocol, tokio::spawn(plugin.handler.close())))
            .collect();
        let deadline = tokio::time::Instant::now() + self.timeout;
        for (protocol, task) in closing {
            let problem = match tokio::time::timeout_at(deadline, task).await {
                Ok(Ok(Ok(()))) => continue,
                Ok(Ok(Err(error))) => error.to_string(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!(
                    "not within brokerShutdownTimeoutMs={}",
                    self.timeout.as_millis()
                ),
            };
            tracing::error!("{protocol} did not close: {problem}");
            clean = false;
        }
        drop(self.web);
        let (services, plugins) = (self.services, self.plugins);
        let last = move || {
            services.close();
            // What did not close still runs, and is left alone.
            if clean {
                drop(plugins);
            } else {
                std::mem::forget(plugins);
            }
        };
        if let Err(error) = tokio::task::spawn_blocking(last).await {
            tracing::error!("the services did not close: {error}");
            clean = false;
        }
        clean
    }
}
