//! Keys of KoP and Pulsar that this plugin knows but does not act on, and what an operator is told about each.
//!
//! What operators rely on for security, or for the bytes that are stored, refuses the start; the rest is a warning.

use std::collections::HashMap;

use handler_api::ApiError;

use super::{Config, given, invalid};

/// What is done about a key that is set.
pub(super) enum Verdict {
    /// The start is refused if the value asks for the feature.
    Refuse(&'static str),
    /// A warning if the value asks for the feature.
    Warn(&'static str),
    /// A warning whenever the key is set to something other than KoP's default: it has no counterpart here.
    NoCounterpart {
        default: &'static str,
        why: &'static str,
    },
}

use Verdict::{NoCounterpart, Refuse, Warn};

const TRANSACTIONS: &str = "transactions are not built yet, so this has no effect";
const SCHEMA_REGISTRY: &str = "the schema registry is not built yet, so this has no effect";
const TLS: &str = "TLS is not built yet, so this has no effect";
const SASL: &str = "SASL is not built yet, so this has no effect";

#[rustfmt::skip]
pub(super) const KEYS: &[(&str, Verdict)] = &[
    ("saslAllowedMechanisms", Refuse("SASL is not built yet, and the listeners would be open to everyone: remove the key and protect the port by the network")),
    ("authenticationEnabled", Refuse("authentication of Kafka clients is not built yet, and the listeners would be open to everyone: set it to false and protect the port by the network")),
    ("authorizationEnabled", Refuse("authorization of Kafka clients is not built yet, and the listeners would be open to everyone: set it to false and protect the port by the network")),

    ("kafkaTransactionCoordinatorEnabled", Warn("transactions are not built yet: transactional producers are refused, everything else works (idempotent producers and read_committed consumers among it)")),
    ("kopSchemaRegistryEnable", Warn("the schema registry is not built yet: no port is opened for it")),
    ("kopMigrationEnable", Warn("the migration service is not built: no port is opened for it")),
    ("kafkaTxnLogTopicNumPartitions", Warn(TRANSACTIONS)),
    ("kafkaTxnProducerStateTopicNumPartitions", Warn(TRANSACTIONS)),
    ("kafkaTxnProducerStateTopicSnapshotIntervalSeconds", Warn(TRANSACTIONS)),
    ("kafkaTxnPurgeAbortedTxnIntervalSeconds", Warn(TRANSACTIONS)),
    ("kafkaTransactionRecoveryNumThreads", Warn(TRANSACTIONS)),
    ("kafkaTxnAbortTimedOutTransactionCleanupIntervalMs", Warn(TRANSACTIONS)),
    ("kafkaTransactionalIdExpirationEnable", Warn(TRANSACTIONS)),
    ("kafkaTransactionalIdExpirationMs", Warn(TRANSACTIONS)),
    ("kafkaTransactionsRemoveExpiredTransactionalIdCleanupIntervalMs", Warn(TRANSACTIONS)),
    ("kafkaTransactionProducerIdsStoredOnPulsar", Warn("producer ids are always stored in the metadata store")),
    ("kopOauth2AuthenticateCallbackHandler", Warn(SASL)),
    ("kopOauth2ConfigFile", Warn(SASL)),
    ("failedAuthenticationDelayMs", Warn(SASL)),
    ("kafkaEnableAuthorizationForceGroupIdCheck", Warn(SASL)),
    ("kopAuthorizationCacheRefreshMs", Warn(SASL)),
    ("kopAuthorizationCacheMaxCountPerConnection", Warn(SASL)),
    ("kopSslProtocol", Warn(TLS)),
    ("kopSslProvider", Warn(TLS)),
    ("kopSslCipherSuites", Warn(TLS)),
    ("kopSslEnabledProtocols", Warn(TLS)),
    ("kopSslKeystoreType", Warn(TLS)),
    ("kopSslKeystoreLocation", Warn(TLS)),
    ("kopSslKeystorePassword", Warn(TLS)),
    ("kopSslKeyPassword", Warn(TLS)),
    ("kopSslTruststoreType", Warn(TLS)),
    ("kopSslTruststoreLocation", Warn(TLS)),
    ("kopSslTruststorePassword", Warn(TLS)),
    ("kopSslKeymanagerAlgorithm", Warn(TLS)),
    ("kopSslTrustmanagerAlgorithm", Warn(TLS)),
    ("kopSslSecureRandomImplementation", Warn(TLS)),
    ("kopSslClientAuth", Warn(TLS)),
    ("kopTlsEnabledWithBroker", Warn(TLS)),
    ("kopSchemaRegistryPort", Warn(SCHEMA_REGISTRY)),
    ("kopSchemaRegistryNamespace", Warn(SCHEMA_REGISTRY)),
    ("kopSchemaRegistryTopicName", Warn(SCHEMA_REGISTRY)),
    ("kopMigrationServicePort", Warn("the migration service is not built, so this has no effect")),

    ("kafkaEnableMultiTenantMetadata", NoCounterpart { default: "true", why: "a tenant of its own comes with a SASL user name, and SASL is not built yet: everybody uses kafkaTenant and kafkaMetadataTenant" }),
    ("allowAutoTopicCreationType", NoCounterpart { default: "partitioned", why: "topics of Kafka clients are always created with defaultNumPartitions partitions; those that Pulsar clients create would never grow: set it to partitioned" }),
    ("numSendKafkaResponseThreads", NoCounterpart { default: "4", why: "each connection sends its own replies; see kopWorkerThreads" }),
    ("maxReadEntriesNum", NoCounterpart { default: "5", why: "reads are bounded by bytes, not by entries" }),
    ("skipMessagesWithoutIndex", NoCounterpart { default: "false", why: "entries without an index are always skipped" }),
    ("offsetsTopicCompressionCodec", NoCounterpart { default: "NONE", why: "the offsets topic is stored uncompressed" }),
    ("kafkaMetaMaxPendingMessages", NoCounterpart { default: "10000", why: "writes of the coordinators are bounded by their shards' queues" }),
    ("groupIdZooKeeperPath", NoCounterpart { default: "/client_group_id", why: "clients' groups are not written to the metadata store" }),
    ("kopPrometheusStatsLatencyRolloverSeconds", NoCounterpart { default: "60", why: "latencies are histograms, which never roll over" }),
    ("kopEnableGroupLevelConsumerMetrics", NoCounterpart { default: "false", why: "fetches carry no group id, so that no metric can have one" }),
];

#[rustfmt::skip]
/// Listener keys, read elsewhere, with their defaults in words and what they are for.
pub(super) const LISTENER_KEYS: &[(&str, &str, &str)] = &[
    ("kafkaListeners", "none: it must be set", "Sockets to bind, `NAME://host:port`, comma list; an empty host stands for `advertisedAddress`."),
    ("listeners", "none", "KoP's old name of `kafkaListeners`, read if that is not set."),
    ("kafkaAdvertisedListeners", "`kafkaListeners`", "What clients are told to connect to, by listener name; the host `advertisedAddress` stands for the broker's own. 0.0.0.0 and [::] are refused."),
    ("kafkaProtocolMap", "none", "`NAME:PROTOCOL`, comma list, for listeners whose names are no protocols. Only `PLAINTEXT` is built yet: another protocol refuses the start."),
];

/// Warnings about what is set, in order of the keys.
///
/// # Errors
/// What refuses the start.
pub(super) fn check(pairs: &HashMap<String, String>) -> Result<Vec<String>, ApiError> {
    let mut warnings = Vec::new();
    for (key, verdict) in KEYS {
        let Some(value) = given(pairs, key) else {
            continue;
        };
        match verdict {
            Refuse(why) if asks(value) => return Err(invalid(key, value, why)),
            Warn(why) if asks(value) => {
                warnings.push(format!("{key}={}: {why}", shown(key, value)))
            }
            NoCounterpart { default, why } if !value.eq_ignore_ascii_case(default) => {
                warnings.push(format!("{key}={value} has no effect: {why}"));
            }
            Refuse(_) | Warn(_) | NoCounterpart { .. } => {}
        }
    }
    let mut unknown: Vec<&String> = pairs
        .keys()
        .filter(|key| is_ours(key) && !is_known(key))
        .collect();
    unknown.sort();
    warnings.extend(
        unknown
            .iter()
            .map(|key| format!("{key} is not a setting of this plugin: it has no effect")),
    );
    Ok(warnings)
}

/// Whether a value asks for the feature behind its key.
fn asks(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false")
}

/// The value as it may be logged.
fn shown<'a>(key: &str, value: &'a str) -> &'a str {
    if key.ends_with("Password") {
        "…"
    } else {
        value
    }
}

fn is_ours(key: &str) -> bool {
    key.starts_with("kafka") || key.starts_with("kop")
}

fn is_known(key: &str) -> bool {
    LISTENER_KEYS.iter().any(|(known, _, _)| *known == key)
        || KEYS.iter().any(|(known, _)| *known == key)
        || Config::SETTINGS.iter().any(|setting| setting.key == key)
}
