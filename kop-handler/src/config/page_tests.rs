//! `SETTINGS.md` is what the code says: every key of KoP with its state and both defaults.
//!
//! `KOP_WRITE_SETTINGS=1` makes the test write the page instead of comparing it.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

use super::unbuilt::{KEYS, LISTENER_KEYS, Verdict};
use super::*;

/// Every key of KoP (its `KafkaServiceConfiguration`, read at the commit that archived it), by topic, with its default.
#[rustfmt::skip]
const KOP: &[(&str, &[(&str, &str)])] = &[
    ("Listeners and network", &[
        ("kafkaListeners", ""), ("listeners", ""), ("kafkaAdvertisedListeners", ""), ("kafkaProtocolMap", ""),
        ("maxQueuedRequests", "500"), ("requestTimeoutMs", "30000"), ("connectionMaxIdleMs", "600000"),
        ("failedAuthenticationDelayMs", "300"), ("brokerLookupTimeoutMs", "30000"), ("numSendKafkaResponseThreads", "4"),
        ("maxMessageSize", "5242880"),
    ]),
    ("Topics, namespaces, tenants", &[
        ("kafkaTenant", "public"), ("kafkaNamespace", "default"), ("kafkaMetadataTenant", "public"),
        ("kafkaMetadataNamespace", "__kafka"), ("kafkaEnableMultiTenantMetadata", "true"),
        ("kafkaManageSystemNamespaces", "true"), ("kopAllowedNamespaces", ""),
    ]),
    ("Storage", &[
        ("entryFormat", "pulsar"), ("kafkaCompressionType", "none"), ("maxReadEntriesNum", "5"),
        ("skipMessagesWithoutIndex", "false"),
    ]),
    ("Groups and offsets", &[
        ("groupMinSessionTimeoutMs", "6000"), ("groupMaxSessionTimeoutMs", "300000"),
        ("groupInitialRebalanceDelayMs", "3000"), ("offsetsTopicNumPartitions", "50"),
        ("offsetsTopicCompressionCodec", "NONE"), ("offsetMetadataMaxSize", "4096"), ("offsetsRetentionMinutes", "4320"),
        ("offsetsRetentionCheckIntervalMs", "600000"), ("offsetsMessageTTL", "259200"),
        ("systemTopicRetentionSizeInMB", "-1"), ("offsetCommitTimeoutMs", "5000"),
        ("kafkaMetaMaxPendingMessages", "10000"), ("groupIdZooKeeperPath", "/client_group_id"),
    ]),
    ("Transactions", &[
        ("kafkaTransactionCoordinatorEnabled", "false"), ("kafkaBrokerId", "1"), ("kafkaTxnLogTopicNumPartitions", "50"),
        ("kafkaTxnProducerStateTopicNumPartitions", "8"), ("kafkaTxnProducerStateTopicSnapshotIntervalSeconds", "300"),
        ("kafkaTxnPurgeAbortedTxnIntervalSeconds", "86400"), ("kafkaTransactionRecoveryNumThreads", "8"),
        ("kafkaTxnAbortTimedOutTransactionCleanupIntervalMs", "10000"), ("kafkaTransactionalIdExpirationEnable", "true"),
        ("kafkaTransactionalIdExpirationMs", "604800000"),
        ("kafkaTransactionsRemoveExpiredTransactionalIdCleanupIntervalMs", "3600000"),
        ("kafkaTransactionProducerIdsStoredOnPulsar", "false"),
    ]),
    ("SASL, OAuth, authorization", &[
        ("saslAllowedMechanisms", ""), ("kopOauth2AuthenticateCallbackHandler", "an unsecured validator"),
        ("kopOauth2ConfigFile", ""), ("kafkaEnableAuthorizationForceGroupIdCheck", "false"),
        ("kopAuthorizationCacheRefreshMs", "30000"), ("kopAuthorizationCacheMaxCountPerConnection", "100"),
    ]),
    ("TLS", &[
        ("kopSslProtocol", "TLS"), ("kopSslProvider", ""), ("kopSslCipherSuites", ""),
        ("kopSslEnabledProtocols", "TLSv1.2,TLSv1.1,TLSv1"), ("kopSslKeystoreType", "JKS"), ("kopSslKeystoreLocation", ""),
        ("kopSslKeystorePassword", ""), ("kopSslKeyPassword", ""), ("kopSslTruststoreType", "JKS"),
        ("kopSslTruststoreLocation", ""), ("kopSslTruststorePassword", ""), ("kopSslKeymanagerAlgorithm", "SunX509"),
        ("kopSslTrustmanagerAlgorithm", "SunX509"), ("kopSslSecureRandomImplementation", ""), ("kopSslClientAuth", ""),
        ("kopTlsEnabledWithBroker", "false"),
    ]),
    ("Schema registry, migration, metrics", &[
        ("kopSchemaRegistryEnable", "false"), ("kopSchemaRegistryPort", "8001"),
        ("kopSchemaRegistryNamespace", "__kafka_schemaregistry"), ("kopSchemaRegistryTopicName", "__schema-registry"),
        ("kopMigrationEnable", "false"), ("kopMigrationServicePort", "8002"),
        ("kopPrometheusStatsLatencyRolloverSeconds", "60"), ("kopEnableGroupLevelConsumerMetrics", "false"),
    ]),
];

/// Keys of Pulsar that are known here but decided elsewhere.
const PULSARS: &[(&str, &str)] = &[
    (
        "advertisedAddress",
        "Where others reach this broker; what a listener without a host, and the literal `advertisedAddress`, stand for.",
    ),
    (
        "bindAddress",
        "Where a listener without a host is bound if `advertisedAddress` is not set.",
    ),
    (
        "brokerEntryMetadataInterceptors",
        "Must hold `AppendIndexMetadataInterceptor` in a Pulsar broker, which does not start otherwise.",
    ),
    (
        "brokerDeleteInactiveTopicsEnabled",
        "Must be `false` in a Pulsar broker, which does not start otherwise.",
    ),
];

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What `conf/standalone.conf` sets.
fn standalone() -> HashMap<String, String> {
    file("../conf/standalone.conf")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn setting(key: &str) -> Option<&'static SettingInfo> {
    Config::SETTINGS.iter().find(|setting| setting.key == key)
}

fn verdict(key: &str) -> Option<&'static Verdict> {
    KEYS.iter()
        .find(|(known, _)| *known == key)
        .map(|(_, verdict)| verdict)
}

fn listener(key: &str) -> Option<(&'static str, &'static str)> {
    LISTENER_KEYS
        .iter()
        .find(|(known, _, _)| *known == key)
        .map(|(_, default, doc)| (*default, *doc))
}

/// State of a key, and what there is to say of it.
fn state(key: &str) -> (&'static str, String) {
    if let Some(setting) = setting(key) {
        return ("honoured", setting.doc.to_owned());
    }
    if let Some((_, doc)) = listener(key) {
        return ("honoured", doc.to_owned());
    }
    match verdict(key) {
        Some(Verdict::Refuse(why)) => ("refuses the start", (*why).to_owned()),
        Some(Verdict::Warn(why)) => ("warns", (*why).to_owned()),
        Some(Verdict::NoCounterpart { why, .. }) => ("warns if changed", (*why).to_owned()),
        None => panic!("{key} is a key of KoP and nothing is done about it"),
    }
}

fn code(text: &str) -> String {
    if text.is_empty() {
        "none".to_owned()
    } else {
        format!("`{text}`")
    }
}

fn page() -> String {
    let standalone = standalone();
    let mut page = String::from(include_str!("testdata/settings-head.md"));
    for (group, keys) in KOP {
        write!(
            page,
            "\n### {group}\n\n| key | state | default in a Pulsar broker | in the standalone broker | what it does, or what is said |\n|---|---|---|---|---|\n"
        )
        .unwrap();
        for (key, kops) in *keys {
            let (state, says) = state(key);
            let default = match (setting(key), listener(key)) {
                (Some(setting), _) => code(setting.default),
                (None, Some((default, _))) => default.to_owned(),
                (None, None) => format!("({})", code(kops)),
            };
            let own = standalone
                .get(*key)
                .map_or_else(|| "the same".to_owned(), |value| code(value));
            let own = if own == default {
                "the same".to_owned()
            } else {
                own
            };
            writeln!(page, "| `{key}` | {state} | {default} | {own} | {says} |").unwrap();
        }
    }
    let kops: Vec<&str> = KOP
        .iter()
        .flat_map(|(_, keys)| *keys)
        .map(|(key, _)| *key)
        .collect();
    page.push_str("\n## Other keys that are read\n\n| key | whose | default | what it does |\n|---|---|---|---|\n");
    for setting in Config::SETTINGS
        .iter()
        .filter(|setting| !kops.contains(&setting.key))
    {
        let whose = if setting.key.starts_with("kop") {
            "ours"
        } else {
            "Pulsar's"
        };
        writeln!(
            page,
            "| `{}` | {whose} | {} | {} |",
            setting.key,
            code(setting.default),
            setting.doc
        )
        .unwrap();
    }
    for (key, doc) in PULSARS {
        writeln!(page, "| `{key}` | Pulsar's | the host's | {doc} |").unwrap();
    }
    for (key, _) in KEYS.iter().filter(|(key, _)| !kops.contains(key)) {
        let (state, says) = state(key);
        writeln!(
            page,
            "| `{key}` | Pulsar's | the host's | {state}: {says} |"
        )
        .unwrap();
    }
    page
}

#[test]
fn the_page_of_settings_is_what_the_code_says() {
    let page = page();
    if std::env::var_os("KOP_WRITE_SETTINGS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("SETTINGS.md");
        std::fs::write(path, &page).unwrap();
    }
    assert!(
        file("SETTINGS.md") == page,
        "SETTINGS.md is old: KOP_WRITE_SETTINGS=1 cargo test -p kop-handler --lib page_tests"
    );
}

#[test]
fn every_key_of_kop_has_a_state_and_kops_default() {
    for (key, kops) in KOP.iter().flat_map(|(_, keys)| *keys) {
        let _ = state(key); // panics for one that nobody knows
        if let Some(setting) = setting(key) {
            assert_eq!(setting.default, *kops, "{key}");
        }
        if let Some(Verdict::NoCounterpart { default, .. }) = verdict(key) {
            assert_eq!(default, kops, "{key}");
        }
    }
}

#[test]
fn the_standalone_broker_has_kafkas_defaults_written_out() {
    let standalone = standalone();
    for (key, kafkas) in [
        ("entryFormat", "kafka"),
        ("offsetsRetentionMinutes", "10080"),
        ("groupMaxSessionTimeoutMs", "1800000"),
        ("groupInitialRebalanceDelayMs", "3000"),
        ("offsetsTopicNumPartitions", "50"),
        ("allowAutoTopicCreation", "true"),
        ("allowAutoTopicCreationType", "partitioned"),
        ("defaultNumPartitions", "1"),
    ] {
        assert_eq!(
            standalone.get(key).map(String::as_str),
            Some(kafkas),
            "{key}"
        );
    }
    // Of the others KoP's default is Kafka's.
    for (key, kafkas) in [
        ("connectionMaxIdleMs", "600000"),
        ("groupMinSessionTimeoutMs", "6000"),
        ("maxQueuedRequests", "500"),
        ("offsetCommitTimeoutMs", "5000"),
        ("offsetMetadataMaxSize", "4096"),
        ("offsetsRetentionCheckIntervalMs", "600000"),
        ("requestTimeoutMs", "30000"),
    ] {
        assert_eq!(setting(key).unwrap().default, kafkas, "{key}");
    }
}

#[test]
fn what_an_operator_sets_goes_before_every_default() {
    for setting in Config::SETTINGS {
        let Ok(number) = setting.default.parse::<i64>() else {
            continue;
        };
        let other = if number == 1 { 2 } else { number.max(2) - 1 };
        let pairs = HashMap::from([
            (
                "kafkaListeners".to_owned(),
                "PLAINTEXT://127.0.0.1:0".to_owned(),
            ),
            (setting.key.to_owned(), other.to_string()),
        ]);
        let config = Config::parse(&pairs).unwrap_or_else(|error| panic!("{error}"));
        let values = config.values();
        let place = Config::SETTINGS
            .iter()
            .position(|info| info.key == setting.key)
            .unwrap();
        assert_eq!(values[place], other.to_string(), "{}", setting.key);
    }
}
