//! Topics as Kafka clients see them: names, ids, partitions, configurations, who leads what.
//!
//! A cached view over the host's topics. Reading order: [`names`], `topic`, `view` (the cache), `leaders`, `changes`
//! (creating, growing, altering, deleting), [`configs`], [`nodes`]. It must not know requests, groups or sockets.

mod changes;
pub mod configs;
mod deletions;
mod directory;
mod leaders;
pub mod names;
pub mod nodes;
mod policies;
mod topic;
mod view;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use handler_api::{Host, capability};
use parking_lot::{Mutex, RwLock};

use crate::clock::Clock;
use crate::config::{Config, Limits};
use crate::error::Fault;

use self::configs::definition::items;
use self::configs::{Overrides, ServerDefaults};
use self::deletions::Deletions;
use self::leaders::Owners;
use self::names::Names;
use self::nodes::Advertised;
use self::view::Cache;

pub use self::changes::{AutoCreation, Taken};
pub use self::leaders::Leaders;
pub use self::topic::{ID_PROPERTY, Topic};

/// The view of all topics; shared by every room that needs one.
pub struct Topics {
    host: Host,
    clock: Arc<dyn Clock>,
    names: Names,
    allowed: Vec<Allowed>,
    default_partitions: u32,
    auto_create: bool,
    manage_system_topics: bool,
    defaults: ServerDefaults,
    cluster_id: String,
    lookup_timeout: Duration,
    limits: Limits,
    cache: RwLock<Cache>,
    owners: RwLock<Owners>,
    local: Arc<Advertised>,
    deletions: Deletions,
    creating: Mutex<HashMap<String, changes::Creation>>,
}

impl Topics {
    /// The view under a configuration; nothing is read before it is asked for.
    #[must_use]
    pub fn new(host: Host, clock: Arc<dyn Clock>, config: &Config) -> Arc<Self> {
        let names = Names::new(
            &config.kafka_tenant,
            &config.kafka_namespace,
            &config.kafka_metadata_tenant,
            &config.kafka_metadata_namespace,
        );
        let limits = Limits::new(config);
        let max_cached_topics = limits.max_cached_topics;
        let local = Advertised::new(config.listeners.iter().map(|listener| {
            let advertised = &listener.advertised;
            (&*listener.name, advertised.host.as_str(), advertised.port)
        }));
        Arc::new(Self {
            host,
            clock,
            allowed: Allowed::parse(
                &config.kop_allowed_namespaces,
                &config.kafka_tenant,
                names.user_namespace(),
            ),
            names,
            default_partitions: config.default_num_partitions,
            auto_create: config.allow_auto_topic_creation,
            manage_system_topics: config.kafka_manage_system_namespaces,
            defaults: ServerDefaults::new(config),
            cluster_id: config.cluster_name.clone(),
            lookup_timeout: Duration::from_millis(config.broker_lookup_timeout_ms),
            limits,
            cache: RwLock::new(Cache::new(max_cached_topics)),
            owners: RwLock::default(),
            local: Arc::new(local),
            deletions: Deletions::new(),
            creating: Mutex::default(),
        })
    }

    /// How names are made.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Kafka's cluster id: Pulsar's cluster name.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Whether the host's storage can compact a topic and keep its offsets.
    #[must_use]
    pub fn can_compact(&self) -> bool {
        self.host.has(capability::REPLACE_LEDGER)
    }

    /// Whether the host's storage can do what a topic is to be configured for.
    ///
    /// # Errors
    /// [`Fault::InvalidConfig`] for compaction where ledgers cannot be replaced. Pulsar's own compaction is no way out: it
    /// drops what it cannot read the key of, which is every batch of Kafka's.
    pub fn check_storage(&self, overrides: &Overrides) -> Result<(), Fault> {
        let policies = overrides.effective("cleanup.policy", &self.defaults);
        if !self.can_compact() && items(policies).contains(&"compact") {
            return Err(Fault::InvalidConfig(format!(
                "Invalid value {policies} for configuration cleanup.policy: the storage of this broker cannot compact a topic and keep its offsets. Use delete."
            )));
        }
        Ok(())
    }

    /// What the broker gives to topics that have no configuration of their own.
    #[must_use]
    pub fn defaults(&self) -> &ServerDefaults {
        &self.defaults
    }

    /// Partitions of a topic that is created without a number.
    #[must_use]
    pub fn default_partitions(&self) -> u32 {
        self.default_partitions
    }
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topics")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// One entry of `kopAllowedNamespaces`: namespaces whose topics are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    /// `tenant/namespace`.
    Namespace(String),
    /// `tenant/*`.
    Tenant(String),
}

impl Allowed {
    /// Reads the setting; empty means the namespace of short names.
    fn parse(setting: &str, tenant: &str, user_namespace: &str) -> Vec<Self> {
        let entries: Vec<Self> = setting
            .split(',')
            .map(|entry| entry.trim().replace("${tenant}", tenant))
            .filter(|entry| !entry.is_empty())
            .map(|entry| match entry.strip_suffix("/*") {
                Some(tenant) => Self::Tenant(tenant.to_owned()),
                None => Self::Namespace(entry),
            })
            .collect();
        if entries.is_empty() {
            return vec![Self::Namespace(user_namespace.to_owned())];
        }
        entries
    }

    fn holds(&self, namespace: &str) -> bool {
        match self {
            Self::Namespace(allowed) => allowed == namespace,
            Self::Tenant(tenant) => namespace
                .split_once('/')
                .is_some_and(|(of, _)| of == tenant),
        }
    }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod pulsar_tests;
#[cfg(test)]
mod tests;
