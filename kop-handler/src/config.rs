//! Typed settings, read once from the broker's own key=value configuration.
//!
//! Keys are KoP's where KoP has one, with KoP's meaning and default; a broker that serves Kafka's clients alone gives
//! Kafka's instead (`conf/standalone.conf`). A malformed value stops the start with its key and the remedy; a `kafka*` or
//! `kop*` key that nobody knows is a warning, and so is a key of KoP whose feature is not built or has no counterpart
//! here. `SETTINGS.md` lists them all. It must not know who uses a setting.

mod limits;
mod listeners;
mod prerequisites;
mod unbuilt;

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;

use handler_api::{ApiError, ErrorCode};

use crate::format::{Compression, EntryFormat};

pub use limits::Limits;
pub use listeners::{Endpoint, Listener, Protocol};

/// A setting's key, default and meaning, for documentation and DescribeConfigs.
#[derive(Clone, Copy, Debug)]
pub struct SettingInfo {
    /// As in the configuration file.
    pub key: &'static str,
    /// The default, as it would be written in the file.
    pub default: &'static str,
    /// One line.
    pub doc: &'static str,
}

/// Declares settings: `field: Type = "key", "default", parser;`. The default goes through the same parser as a value.
macro_rules! settings {
    ($(#[doc = $doc:literal] $field:ident: $type:ty = $key:literal, $default:literal, $parse:expr;)+) => {
        /// All settings. See [`Config::parse`].
        #[derive(Clone, Debug)]
        pub struct Config {
            $(#[doc = $doc] pub $field: $type,)+
            /// The sockets to bind, with what each advertises. `kafkaListeners`, `kafkaAdvertisedListeners`, `kafkaProtocolMap`.
            pub listeners: Vec<Listener>,
            /// What an operator should read when the plugin starts: unknown keys, features that are not built.
            pub warnings: Vec<String>,
            /// What is set wrong in a broker that other programs use too: it must not start like that. One line each.
            pub broken_prerequisites: Vec<String>,
        }

        impl Config {
            /// Every setting that is read here, the listeners aside.
            pub const SETTINGS: &'static [SettingInfo] = &[
                $(SettingInfo { key: $key, default: $default, doc: $doc },)+
            ];

            /// Reads the broker's whole configuration.
            ///
            /// # Errors
            /// [`ErrorCode::InvalidConfiguration`] that names the key, its value and the remedy.
            pub fn parse(pairs: &HashMap<String, String>) -> Result<Self, ApiError> {
                Ok(Self {
                    $($field: read($key, given(pairs, $key).unwrap_or($default), $parse)?,)+
                    listeners: listeners::parse(pairs)?,
                    warnings: unbuilt::check(pairs)?,
                    broken_prerequisites: prerequisites::broken(pairs),
                })
            }

            /// The value in force of every setting, in the order of [`Self::SETTINGS`], as text.
            #[must_use]
            pub fn values(&self) -> Vec<String> {
                vec![$(self.$field.to_string(),)+]
            }
        }
    };
}

settings! {
    #[doc = "Requests that one connection may have in flight before its socket is read no further."]
    max_queued_requests: usize = "maxQueuedRequests", "500", whole(1, 100_000);
    #[doc = "Time in ms after which a request that is still unanswered is answered with an error."]
    request_timeout_ms: u64 = "requestTimeoutMs", "30000", whole(100, MAX_MS);
    #[doc = "Time in ms after which a silent connection is closed; -1: never."]
    connection_max_idle_ms: i64 = "connectionMaxIdleMs", "600000", whole(-1, MAX_MS_I64);
    #[doc = "Largest record batch in bytes that is accepted (Kafka: message.max.bytes)."]
    max_message_size: usize = "maxMessageSize", "5242880", whole(1024, 100 * 1024 * 1024);
    #[doc = "Memory in MB for requests that are not answered yet, over all connections; sockets are read no further above it."]
    max_message_publish_buffer_mb: usize = "maxMessagePublishBufferSizeInMB", "128", whole(1, 1024 * 1024);
    #[doc = "Time in ms within which the host must say which brokers own partitions."]
    broker_lookup_timeout_ms: u64 = "brokerLookupTimeoutMs", "30000", whole(1, MAX_MS);
    #[doc = "Connections served at once; further ones are closed at once."]
    max_connections: usize = "kopMaxConnections", "10000", whole(1, 1_000_000);
    #[doc = "Threads that serve connections and coordinators; 0: one per core."]
    worker_threads: usize = "kopWorkerThreads", "0", whole(0, 1024);
    #[doc = "Time in ms within which close ends requests in flight; Pulsar's key, of which KoP takes the whole."]
    broker_shutdown_timeout_ms: u64 = "brokerShutdownTimeoutMs", "60000", whole(0, MAX_MS);

    #[doc = "Name of the cluster, and so the cluster id that Kafka clients see."]
    cluster_name: String = "clusterName", "standalone", text;
    #[doc = "Tenant of topics whose names have none."]
    kafka_tenant: String = "kafkaTenant", "public", word;
    #[doc = "Namespace of topics whose names have none."]
    kafka_namespace: String = "kafkaNamespace", "default", word;
    #[doc = "Tenant of the system topics."]
    kafka_metadata_tenant: String = "kafkaMetadataTenant", "public", word;
    #[doc = "Namespace of the system topics."]
    kafka_metadata_namespace: String = "kafkaMetadataNamespace", "__kafka", word;
    #[doc = "Whether missing system namespaces and topics are created."]
    kafka_manage_system_namespaces: bool = "kafkaManageSystemNamespaces", "true", flag;
    #[doc = "Namespaces whose topics are listed, comma list; `tenant/*` for all of a tenant; `${tenant}` stands for kafkaTenant. Empty: `${tenant}/<kafkaNamespace>`."]
    kop_allowed_namespaces: String = "kopAllowedNamespaces", "", namespaces;
    #[doc = "Partitions of a topic that is created without a number."]
    default_num_partitions: u32 = "defaultNumPartitions", "1", whole(1, 100_000);
    #[doc = "Whether Metadata requests may create topics."]
    allow_auto_topic_creation: bool = "allowAutoTopicCreation", "true", flag;

    #[doc = "Shortest session timeout of a group member in ms."]
    group_min_session_timeout_ms: i32 = "groupMinSessionTimeoutMs", "6000", whole(1, i32::MAX);
    #[doc = "Longest session timeout of a group member in ms."]
    group_max_session_timeout_ms: i32 = "groupMaxSessionTimeoutMs", "300000", whole(1, i32::MAX);
    #[doc = "Time in ms that an empty group waits for more members before its first generation."]
    group_initial_rebalance_delay_ms: i32 = "groupInitialRebalanceDelayMs", "3000", whole(0, i32::MAX);
    #[doc = "Most members of a group."]
    group_max_size: usize = "kopGroupMaxSize", "100000", whole(1, 10_000_000);
    #[doc = "Partitions of the offsets topic, used when it is first created."]
    offsets_topic_num_partitions: u32 = "offsetsTopicNumPartitions", "50", whole(1, 10_000);
    #[doc = "Longest metadata string of a committed offset in bytes."]
    offset_metadata_max_size: usize = "offsetMetadataMaxSize", "4096", whole(0, 1024 * 1024);
    #[doc = "Minutes for which the offsets of an empty group are kept."]
    offsets_retention_minutes: i64 = "offsetsRetentionMinutes", "4320", whole(1, i64::MAX / 60_000);
    #[doc = "Seconds after which subscriptions of Pulsar clients in the system namespace are done with a message (its TTL)."]
    offsets_message_ttl: i64 = "offsetsMessageTTL", "259200", whole(0, i64::from(i32::MAX));
    #[doc = "Megabytes up to which the topics of the system namespace are retained, each; -1: any size."]
    system_topic_retention_size_mb: i64 = "systemTopicRetentionSizeInMB", "-1", whole(-1, i64::from(i32::MAX));
    #[doc = "Time in ms between two searches for expired offsets."]
    offsets_retention_check_interval_ms: u64 = "offsetsRetentionCheckIntervalMs", "600000", whole(1, MAX_MS);
    #[doc = "Time in ms within which a write to the offsets topic must be durable."]
    offset_commit_timeout_ms: u64 = "offsetCommitTimeoutMs", "5000", whole(1, MAX_MS);
    #[doc = "How entries are written: kafka, mixed_kafka or pulsar. A topic's property kafkaEntryFormat goes before it."]
    entry_format: EntryFormat = "entryFormat", "pulsar", entry_format;
    #[doc = "What batches are compressed with in entries of the format mixed_kafka: none (as the client did), gzip, snappy, lz4 or zstd. A topic's compression.type goes before it."]
    kafka_compression_type: MixedCompression = "kafkaCompressionType", "none", compression;
    #[doc = "Time in ms between two looks at retention and compaction of all partitions (Kafka: log.retention.check.interval.ms)."]
    log_retention_check_interval_ms: u64 = "kopLogRetentionCheckIntervalMs", "300000", whole(100, MAX_MS);
    #[doc = "Time in ms after which an idempotent producer that is silent is forgotten (Kafka: producer.id.expiration.ms)."]
    producer_id_expiration_ms: i64 = "kopProducerIdExpirationMs", "86400000", whole(1, MAX_MS_I64);
    #[doc = "This broker's id in the producer id blocks."]
    kafka_broker_id: i32 = "kafkaBrokerId", "1", whole(0, i32::MAX);
}

/// Longest time that a setting may name: a year, in ms.
const MAX_MS: u64 = 366 * 24 * 3_600 * 1_000;
const MAX_MS_I64: i64 = 366 * 24 * 3_600 * 1_000;

/// The value of a key; one that is blank is not set, as in Pulsar's files.
pub(crate) fn given<'a>(pairs: &'a HashMap<String, String>, key: &str) -> Option<&'a str> {
    pairs
        .get(key)
        .map(|value| value.trim())
        .filter(|value| !value.is_empty())
}

/// Reads one value; the parser's error says what is expected.
fn read<T>(
    key: &str,
    value: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, ApiError> {
    parse(value.trim()).map_err(|expected| invalid(key, value, &expected))
}

/// The error for a wrong value: key, value, remedy.
pub(crate) fn invalid(key: &str, value: &str, remedy: &str) -> ApiError {
    ApiError::new(
        ErrorCode::InvalidConfiguration,
        format!("{key}={value}: {remedy}"),
    )
}

/// A whole number within bounds.
fn whole<T: FromStr + PartialOrd + Display + Copy>(
    min: T,
    max: T,
) -> impl FnOnce(&str) -> Result<T, String> {
    move |text| {
        text.parse()
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("give a whole number from {min} to {max}"))
    }
}

/// `true` or `false`.
fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("give true or false".to_owned()),
    }
}

/// The name of an entry format.
fn entry_format(text: &str) -> Result<EntryFormat, String> {
    EntryFormat::parse(text).map_err(|error| error.to_string())
}

/// `kafkaCompressionType`: a codec, or `None` for the client's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MixedCompression(pub Option<Compression>);

impl Display for MixedCompression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.map_or("none", Compression::name))
    }
}

/// The name of a codec, in any case.
fn compression(text: &str) -> Result<MixedCompression, String> {
    let name = text.to_ascii_lowercase();
    if name == "none" {
        return Ok(MixedCompression(None));
    }
    match Compression::from_name(&name) {
        Some(codec) if codec != Compression::None => Ok(MixedCompression(Some(codec))),
        _ => Err("give none, gzip, snappy, lz4 or zstd".to_owned()),
    }
}

/// Any text.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a parser")]
fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// A part of a Pulsar name.
fn word(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-=:._".contains(c);
    if !text.is_empty() && text.chars().all(legal) {
        Ok(text.to_owned())
    } else {
        Err("give a name of letters, digits and -=:._".to_owned())
    }
}

/// Namespaces whose topics are listed: see `kopAllowedNamespaces`.
fn namespaces(text: &str) -> Result<String, String> {
    for entry in text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        let parts = entry.replace("${tenant}", "tenant");
        let is_legal = parts.split_once('/').is_some_and(|(tenant, namespace)| {
            word(tenant).is_ok() && (namespace == "*" || word(namespace).is_ok())
        });
        if !is_legal {
            return Err(format!(
                "{entry} is not tenant/namespace or tenant/*: give those, separated by commas (${{tenant}} stands for kafkaTenant)"
            ));
        }
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod tests;
