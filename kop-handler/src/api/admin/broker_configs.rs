//! The broker's configuration under Kafka's names, where they mean the same.
//!
//! Everything is read-only: it comes from the configuration file, and a change needs a restart.

use super::topic_configs::{Source, default_source};
use crate::api::Server;
use crate::config::Config;
use crate::topics::configs::{DEFINITIONS, Kind};
use crate::topics::nodes::Node;

/// One configuration of the broker.
pub(super) struct BrokerConfig {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// `None` where Kafka shows null: nothing is set, or it is a secret.
    pub(super) value: Option<String>,
    pub(super) source: Source,
    pub(super) documentation: String,
}

/// Settings that Kafka has too: its name, its type, ours.
const SETTINGS: &[(&str, Kind, &str)] = &[
    (
        "auto.create.topics.enable",
        Kind::Boolean,
        "allowAutoTopicCreation",
    ),
    ("connections.max.idle.ms", Kind::Long, "connectionMaxIdleMs"),
    (
        "group.initial.rebalance.delay.ms",
        Kind::Int,
        "groupInitialRebalanceDelayMs",
    ),
    (
        "group.max.session.timeout.ms",
        Kind::Int,
        "groupMaxSessionTimeoutMs",
    ),
    ("group.max.size", Kind::Int, "kopGroupMaxSize"),
    (
        "group.min.session.timeout.ms",
        Kind::Int,
        "groupMinSessionTimeoutMs",
    ),
    ("max.connections", Kind::Int, "kopMaxConnections"),
    ("num.partitions", Kind::Int, "defaultNumPartitions"),
    (
        "offset.metadata.max.bytes",
        Kind::Int,
        "offsetMetadataMaxSize",
    ),
    (
        "offsets.commit.timeout.ms",
        Kind::Int,
        "offsetCommitTimeoutMs",
    ),
    (
        "offsets.retention.check.interval.ms",
        Kind::Long,
        "offsetsRetentionCheckIntervalMs",
    ),
    (
        "offsets.retention.minutes",
        Kind::Int,
        "offsetsRetentionMinutes",
    ),
    (
        "offsets.topic.num.partitions",
        Kind::Int,
        "offsetsTopicNumPartitions",
    ),
    ("queued.max.requests", Kind::Int, "maxQueuedRequests"),
    ("request.timeout.ms", Kind::Int, "requestTimeoutMs"),
];

/// Secrets that Kafka has a name for: never shown, whatever they are.
const SECRETS: &[&str] = &[
    "sasl.jaas.config",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.truststore.password",
];

/// All of them, by name. `node` is this broker on the client's listener.
pub(super) fn all(server: &Server, node: &Node) -> Vec<BrokerConfig> {
    let mut configs = settings(&server.config);
    configs.extend(topic_defaults(server));
    configs.extend(bounds(server));
    configs.extend(identity(server, node));
    configs.extend(SECRETS.iter().map(|name| BrokerConfig {
        name,
        kind: Kind::Password,
        value: None,
        source: Source::Default,
        documentation: "A secret: never shown.".to_owned(),
    }));
    configs.sort_by_key(|config| config.name);
    configs
}

fn settings(config: &Config) -> Vec<BrokerConfig> {
    let values = config.values();
    SETTINGS
        .iter()
        .filter_map(|(name, kind, key)| {
            let (info, value) = Config::SETTINGS
                .iter()
                .zip(&values)
                .find(|(setting, _)| setting.key == *key)?;
            let source = if *value == info.default {
                Source::Default
            } else {
                Source::StaticBroker
            };
            Some(BrokerConfig {
                name,
                kind: *kind,
                value: Some(value.clone()),
                source,
                documentation: format!("{} The key in the broker's file is {key}.", info.doc),
            })
        })
        .collect()
}

/// What topics without a configuration of their own get.
fn topic_defaults(server: &Server) -> Vec<BrokerConfig> {
    let defaults = server.topics.defaults();
    DEFINITIONS
        .iter()
        .filter_map(|definition| {
            Some(BrokerConfig {
                name: definition.synonym?,
                kind: definition.kind,
                value: Some(defaults.value(definition).to_owned()),
                source: default_source(definition, defaults),
                documentation: format!(
                    "What topics without {} of their own get. {}",
                    definition.name,
                    definition.documentation()
                ),
            })
        })
        .collect()
}

fn bounds(server: &Server) -> Vec<BrokerConfig> {
    let limits = &server.limits;
    [
        (
            "fetch.max.bytes",
            limits.max_fetch_bytes,
            "Most bytes in the reply to one fetch.",
        ),
        (
            "max.incremental.fetch.session.cache.slots",
            limits.max_fetch_sessions,
            "Incremental fetch sessions that are kept at once.",
        ),
        (
            "socket.request.max.bytes",
            limits.max_produce_frame,
            "Largest request in bytes.",
        ),
    ]
    .into_iter()
    .map(|(name, value, documentation)| fixed(name, Kind::Int, value.to_string(), documentation))
    .collect()
}

fn identity(server: &Server, node: &Node) -> Vec<BrokerConfig> {
    let id = node.id.to_string();
    let list = |shown: fn(&crate::config::Listener) -> String| {
        server
            .config
            .listeners
            .iter()
            .map(shown)
            .collect::<Vec<_>>()
            .join(",")
    };
    let bound = list(|listener| format!("{}://{}", listener.name, listener.bind));
    let advertised = list(|listener| format!("{}://{}", listener.name, listener.advertised));
    let mut configs = vec![
        fixed(
            "listeners",
            Kind::List,
            bound,
            "The sockets that are bound: kafkaListeners.",
        ),
        fixed(
            "advertised.listeners",
            Kind::List,
            advertised,
            "What clients are told to connect to: kafkaAdvertisedListeners.",
        ),
    ];
    for config in &mut configs {
        config.source = Source::StaticBroker;
    }
    let hash = "The hash of the advertised address, as in KoP.";
    let replicas = "Kafka clients see one replica; the host replicates beneath it.";
    configs.extend([
        fixed("broker.id", Kind::Int, id.clone(), hash),
        fixed("node.id", Kind::Int, id, hash),
        fixed(
            "default.replication.factor",
            Kind::Int,
            "1".to_owned(),
            replicas,
        ),
        fixed(
            "offsets.topic.replication.factor",
            Kind::Short,
            "1".to_owned(),
            replicas,
        ),
        fixed(
            "delete.topic.enable",
            Kind::Boolean,
            "true".to_owned(),
            "Topics can always be deleted.",
        ),
        fixed(
            "group.coordinator.rebalance.protocols",
            Kind::List,
            "classic".to_owned(),
            "Protocols of groups that are served.",
        ),
    ]);
    configs
}

fn fixed(name: &'static str, kind: Kind, value: String, documentation: &str) -> BrokerConfig {
    BrokerConfig {
        name,
        kind,
        value: Some(value),
        source: Source::Default,
        documentation: documentation.to_owned(),
    }
}
