//! The broker's configuration: Pulsar's `key=value` files, what the command line adds, and the host's own keys, typed.
//!
//! Whose key is it? The host reads the keys of [`HostConfig::SETTINGS`] and stops on a malformed value. Everything,
//! those keys among it, goes to each plugin, which checks its own: the Kafka plugin knows which `kafka*` and `kop*`
//! keys there are and warns of others. All further keys are left alone, since a file made for Pulsar holds hundreds
//! that other parts of Pulsar read. A value that is empty counts as not given, as in Pulsar, except that an empty
//! `webServicePort` turns the port off. Of a repeated key the last counts.

mod properties;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use properties::{Property, SyntaxError};

use crate::embedded::EmbeddedConfig;

/// Where a value came from; later ones go before earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave it.
    Default,
    /// A line of a file.
    File(PathBuf, usize),
    /// The option `--data-dir`.
    DataDir,
    /// An option `--set`.
    Set,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path, line) => write!(f, "{}, line {line}", path.display()),
            Self::DataDir => write!(f, "--data-dir"),
            Self::Set => write!(f, "--set"),
        }
    }
}

/// Why there is no configuration. Each is one line for an operator.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {source}; name another with --config")]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no list of settings.
    #[error("{path}, {error}")]
    Syntax {
        /// Its path.
        path: PathBuf,
        /// Where, and what.
        error: SyntaxError,
    },
    /// A value makes no sense.
    #[error("{key}={value} ({origin}): {remedy}")]
    Malformed {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// Who gave it.
        origin: Origin,
        /// What would be right.
        remedy: String,
    },
}

/// A key that the host reads: for documentation.
#[derive(Clone, Copy, Debug)]
pub struct SettingInfo {
    /// As in the file.
    pub key: &'static str,
    /// The default, as it would be written in the file.
    pub default: &'static str,
    /// One line.
    pub doc: &'static str,
}

/// Declares the host's keys: `field: Type = "key", "default", parser;`.
macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $field:ident: $type:ty = $key:literal, $default:literal, $parse:expr;)+) => {
        /// The configuration of a broker: every key as text, and the host's own typed.
        #[derive(Clone, Debug)]
        pub struct HostConfig {
            $($(#[doc = $doc])+ pub $field: $type,)+
            /// What an operator should read when the broker starts.
            pub warnings: Vec<String>,
            values: HashMap<String, (String, Origin)>,
        }

        impl HostConfig {
            /// Every key that the host reads.
            pub const SETTINGS: &'static [SettingInfo] = &[
                $(SettingInfo { key: $key, default: $default, doc: concat!($($doc),+).trim_ascii() },)+
            ];

            fn typed(values: HashMap<String, (String, Origin)>) -> Result<Self, ConfigError> {
                Ok(Self {
                    $($field: read(&values, $key, $default, $parse)?,)+
                    warnings: Vec::new(),
                    values,
                })
            }
        }
    };
}

settings! {
    /// Protocols to serve, comma list: for each a plugin that offers it must lie in `protocolHandlerDirectory`.
    messaging_protocols: Vec<String> = "messagingProtocols", "", list;
    /// Where plugins (`*.so`) lie; relative to the working directory.
    protocol_handler_directory: PathBuf = "protocolHandlerDirectory", "./protocols", path;
    /// Where the embedded broker keeps everything; relative to the working directory. (Not a key of Pulsar.)
    data_directory: PathBuf = "dataDirectory", "data", path;
    /// Name of the cluster.
    cluster_name: String = "clusterName", "standalone", word;
    /// The name or address under which others reach this broker; part of its id.
    advertised_address: String = "advertisedAddress", "localhost", word;
    /// The address on which the web port listens.
    bind_address: IpAddr = "bindAddress", "0.0.0.0", address;
    /// Port of `/metrics` and `/status.html`; 0 lets the system choose, an empty value turns it off.
    web_service_port: Option<u16> = "webServicePort", "8080", port;
    /// Least severity that is logged: error, warn, info, debug or trace, or directives as `RUST_LOG` takes them,
    /// which goes before this key. (Not a key of Pulsar.)
    log_level: String = "logLevel", "info", directives;
    /// Time in ms within which the broker stops serving when it is told to end.
    broker_shutdown_timeout_ms: u64 = "brokerShutdownTimeoutMs", "60000", whole(0, 86_400_000);
    /// Whether an append is acknowledged after fdatasync (group commit), or after the write.
    journal_sync_data: bool = "journalSyncData", "true", flag;
    /// Largest message in bytes.
    max_message_size: u32 = "maxMessageSize", "5242880", whole(1024, 100 * 1024 * 1024);
    /// Entries after which a ledger is sealed (Pulsar: 50000).
    max_entries_per_ledger: u32 = "managedLedgerMaxEntriesPerLedger", "1000000", whole(1, u32::MAX);
    /// Megabytes after which a ledger is sealed (Pulsar: 2048).
    max_size_per_ledger_mb: u64 = "managedLedgerMaxSizePerLedgerMbytes", "256", whole(1, 1024 * 1024);
    /// Minutes before which no ledger is sealed for its size or number of entries (Pulsar: 10).
    min_rollover_minutes: u64 = "managedLedgerMinLedgerRolloverTimeMinutes", "0", whole(0, 525_600);
    /// Minutes after which a ledger that holds entries is sealed; 0: never.
    max_rollover_minutes: u64 = "managedLedgerMaxLedgerRolloverTimeMinutes", "240", whole(0, 525_600);
    /// Whether clients' metadata requests may create topics; for plugins.
    allow_auto_topic_creation: bool = "allowAutoTopicCreation", "true", flag;
    /// Kind of topics so created: `partitioned` or `non-partitioned`; for plugins.
    allow_auto_topic_creation_type: String = "allowAutoTopicCreationType", "partitioned", topic_type;
    /// Partitions of topics so created; for plugins.
    default_num_partitions: u32 = "defaultNumPartitions", "1", whole(1, 100_000);
    /// Java classes that add metadata to entries. The embedded broker always keeps an index, as
    /// `AppendIndexMetadataInterceptor` does.
    entry_metadata_interceptors: Vec<String> = "brokerEntryMetadataInterceptors", "", interceptors;
    /// Whether topics without producers and subscriptions are deleted. The embedded broker never does.
    delete_inactive_topics: bool = "brokerDeleteInactiveTopicsEnabled", "false", flag;
}

/// Where Pulsar's interceptors live.
const INTERCEPTOR_PACKAGE: &str = "org.apache.pulsar.common.intercept.";
const INDEX_INTERCEPTOR: &str = "AppendIndexMetadataInterceptor";
const TIMESTAMP_INTERCEPTOR: &str = "AppendBrokerTimestampMetadataInterceptor";
/// The key that `--data-dir` stands for.
const DATA_DIRECTORY: &str = "dataDirectory";
/// The key whose empty value means something.
const WEB_SERVICE_PORT: &str = "webServicePort";

/// What plugins are given where nobody says otherwise. Inside a Pulsar broker a plugin keeps to what its users know from
/// there; this broker serves nobody else, and so has the values of the broker that it stands for. `conf/standalone.conf`
/// writes them out.
pub const STANDALONE_DEFAULTS: &[(&str, &str)] = &[
    ("entryFormat", "kafka"),
    ("groupMaxSessionTimeoutMs", "1800000"),
    ("offsetsRetentionMinutes", "10080"),
];

/// What a configuration is put together from; later parts go before earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Text of a file, with its name for messages.
    pub text: Option<(PathBuf, String)>,
    /// The option `--data-dir`.
    pub data_dir: Option<PathBuf>,
    /// The options `--set`, in their order.
    pub set: Vec<(String, String)>,
}

impl Sources {
    /// Reads a file.
    pub fn file(mut self, path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        self.text = Some((path.to_owned(), text));
        Ok(self)
    }

    /// Puts everything together and checks the host's keys.
    pub fn load(self) -> Result<HostConfig, ConfigError> {
        let mut values = HashMap::new();
        if let Some((path, text)) = self.text {
            let properties = properties::parse(&text).map_err(|error| ConfigError::Syntax {
                path: path.clone(),
                error,
            })?;
            for property in properties {
                let origin = Origin::File(path.clone(), property.line);
                values.insert(property.key, (property.value, origin));
            }
        }
        if let Some(directory) = self.data_dir {
            let text = directory.to_string_lossy().into_owned();
            values.insert(DATA_DIRECTORY.to_owned(), (text, Origin::DataDir));
        }
        for (key, value) in self.set {
            values.insert(key, (value.trim().to_owned(), Origin::Set));
        }
        values.retain(|key, (value, _)| !value.is_empty() || key == WEB_SERVICE_PORT);
        let mut config = HostConfig::typed(values)?;
        config.warnings = config.warn();
        Ok(config)
    }
}

impl HostConfig {
    /// A configuration from pairs alone, as embedders and tests write it.
    pub fn of<K: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError> {
        let pair = |(key, value): (K, V)| (key.into(), value.into());
        Sources {
            set: pairs.into_iter().map(pair).collect(),
            ..Sources::default()
        }
        .load()
    }

    /// What plugins are given: every key that has a value, the defaults of the host's, and [`STANDALONE_DEFAULTS`].
    #[must_use]
    pub fn for_plugins(&self) -> HashMap<String, String> {
        let defaults = Self::SETTINGS
            .iter()
            .map(|setting| (setting.key, setting.default))
            .chain(STANDALONE_DEFAULTS.iter().copied())
            .filter(|(_, default)| !default.is_empty());
        let mut pairs: HashMap<String, String> = defaults
            .map(|(key, default)| (key.to_owned(), default.to_owned()))
            .collect();
        let given = self.values.iter();
        pairs.extend(given.map(|(key, (value, _))| (key.clone(), value.clone())));
        pairs
    }

    /// Who gave a key its value.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        let given = self.values.get(key);
        given.map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// This broker's id, as Pulsar forms it.
    #[must_use]
    pub fn broker_id(&self) -> String {
        let port = self.web_service_port.unwrap_or_default();
        format!("{}:{port}", self.advertised_address)
    }

    /// The settings of the embedded broker.
    #[must_use]
    pub fn embedded(&self) -> EmbeddedConfig {
        const MINUTE_MS: u64 = 60_000;
        let mut embedded = EmbeddedConfig::new(&self.data_directory);
        embedded.cluster_name.clone_from(&self.cluster_name);
        embedded.broker_id = self.broker_id();
        embedded.sync_data = self.journal_sync_data;
        embedded.max_message_size = self.max_message_size;
        embedded.max_ledger_bytes = self.max_size_per_ledger_mb * 1024 * 1024;
        embedded.max_ledger_entries = self.max_entries_per_ledger;
        embedded.min_rollover_ms = self.min_rollover_minutes * MINUTE_MS;
        embedded.max_rollover_ms = self.max_rollover_minutes * MINUTE_MS;
        embedded
    }

    fn warn(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.delete_inactive_topics {
            warnings.push(
                "brokerDeleteInactiveTopicsEnabled=true has no effect: this broker never deletes a topic for being \
                 inactive"
                    .to_owned(),
            );
        }
        let interceptors = &self.entry_metadata_interceptors;
        if interceptors
            .iter()
            .any(|name| name == TIMESTAMP_INTERCEPTOR)
        {
            warnings.push(format!(
                "brokerEntryMetadataInterceptors: {TIMESTAMP_INTERCEPTOR} has no effect on this broker, which keeps \
                 the time of a ledger's last entry only"
            ));
        }
        if !interceptors.is_empty() && !interceptors.iter().any(|name| name == INDEX_INTERCEPTOR) {
            warnings.push(format!(
                "brokerEntryMetadataInterceptors lacks {INDEX_INTERCEPTOR}: this broker keeps an index nevertheless, \
                 but another would not"
            ));
        }
        warnings
    }
}

/// Reads one key.
fn read<T>(
    values: &HashMap<String, (String, Origin)>,
    key: &str,
    default: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, ConfigError> {
    let (value, origin) = values
        .get(key)
        .map_or((default, &Origin::Default), |(value, origin)| {
            (value.as_str(), origin)
        });
    parse(value).map_err(|remedy| ConfigError::Malformed {
        key: key.to_owned(),
        value: value.to_owned(),
        origin: origin.clone(),
        remedy,
    })
}

fn whole<T: FromStr + PartialOrd + fmt::Display + Copy>(
    min: T,
    max: T,
) -> impl FnOnce(&str) -> Result<T, String> {
    move |text| {
        let number = text.parse().ok();
        let number = number.filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| format!("give a whole number from {min} to {max}"))
    }
}

fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "give true or false".to_owned())
}

fn port(text: &str) -> Result<Option<u16>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().map(Some);
    number.map_err(|_| "give a port from 0 to 65535, or nothing to turn it off".to_owned())
}

fn address(text: &str) -> Result<IpAddr, String> {
    let remedy = |_| "give an IP address, such as 0.0.0.0 or 127.0.0.1".to_owned();
    text.parse().map_err(remedy)
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of a parser")]
fn path(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(text))
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of a parser")]
fn list(text: &str) -> Result<Vec<String>, String> {
    let parts = text.split(',').map(str::trim);
    Ok(parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect())
}

/// A name that fits into one line of a log and into `name:port`.
fn word(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    if text.chars().all(legal) {
        Ok(text.to_owned())
    } else {
        Err("give a name of letters, digits and -_.:[]".to_owned())
    }
}

fn topic_type(text: &str) -> Result<String, String> {
    match text {
        "partitioned" | "non-partitioned" => Ok(text.to_owned()),
        _ => Err("give partitioned or non-partitioned".to_owned()),
    }
}

fn directives(text: &str) -> Result<String, String> {
    let parsed = tracing_subscriber::filter::EnvFilter::try_new(text);
    parsed.map(|_| text.to_owned()).map_err(|error| {
        format!(
            "give error, warn, info, debug or trace, or directives as RUST_LOG takes them ({error})"
        )
    })
}

/// Simple names of Pulsar's interceptors; another class cannot be run here.
fn interceptors(text: &str) -> Result<Vec<String>, String> {
    let known = |class: String| {
        let name = class.strip_prefix(INTERCEPTOR_PACKAGE);
        match name {
            Some(name @ (INDEX_INTERCEPTOR | TIMESTAMP_INTERCEPTOR)) => Ok(name.to_owned()),
            _ => Err(format!(
                "{class} is a Java class that this broker cannot run; give \
                 {INTERCEPTOR_PACKAGE}{INDEX_INTERCEPTOR}, or nothing"
            )),
        }
    };
    list(text)?.into_iter().map(known).collect()
}

#[cfg(test)]
mod tests;
