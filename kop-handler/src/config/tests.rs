//! Facts about the configuration.

use super::*;

fn pairs(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    let mut map: HashMap<String, String> = pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    map.entry("kafkaListeners".to_owned())
        .or_insert_with(|| "PLAINTEXT://127.0.0.1:9092".to_owned());
    map
}

fn config(given: &[(&str, &str)]) -> Config {
    Config::parse(&pairs(given)).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(given: &[(&str, &str)]) -> String {
    let error = Config::parse(&pairs(given)).expect_err("must be refused");
    assert_eq!(error.kind(), ErrorCode::InvalidConfiguration);
    error.to_string()
}

#[test]
fn defaults_hold_when_only_listeners_are_given() {
    let config = config(&[]);
    assert_eq!(config.max_queued_requests, 500);
    assert_eq!(config.connection_max_idle_ms, 600_000);
    assert_eq!(config.kafka_metadata_namespace, "__kafka");
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    assert_eq!(config.values().len(), Config::SETTINGS.len());
}

#[test]
fn a_blank_value_is_not_set() {
    let config = config(&[
        ("maxMessagePublishBufferSizeInMB", ""),
        ("kafkaTenant", " "),
        ("kopMigrationEnable", ""),
    ]);
    assert_eq!(
        (
            config.max_message_publish_buffer_mb,
            config.kafka_tenant.as_str()
        ),
        (128, "public")
    );
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn a_malformed_value_names_key_value_and_remedy() {
    for (key, value, remedy) in [
        ("maxQueuedRequests", "many", "whole number from 1"),
        ("maxQueuedRequests", "0", "whole number from 1"),
        ("allowAutoTopicCreation", "yes", "true or false"),
        ("kafkaTenant", "a/b", "letters"),
        ("connectionMaxIdleMs", "-2", "whole number from -1"),
    ] {
        let text = refusal(&[(key, value)]);
        assert!(
            text.starts_with(&format!("{key}={value}: ")) && text.contains(remedy),
            "{text}"
        );
    }
}

#[test]
fn unknown_keys_of_ours_are_warned_about_by_name_and_others_are_not() {
    let config = config(&[
        ("kafkaListenerz", "x"),
        ("kopFoo", "1"),
        ("zookeeperServers", "z"),
    ]);
    assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
    assert!(config.warnings.iter().any(|w| w.contains("kafkaListenerz")));
    assert!(config.warnings.iter().any(|w| w.contains("kopFoo")));
}

#[test]
fn transactions_do_not_prevent_the_start_but_are_warned_about() {
    let on = config(&[("kafkaTransactionCoordinatorEnabled", "true")]);
    assert!(
        on.warnings
            .iter()
            .any(|w| w.contains("transactions are not built yet")),
        "{:?}",
        on.warnings
    );
    assert!(
        config(&[("kafkaTransactionCoordinatorEnabled", "false")])
            .warnings
            .is_empty()
    );
}

#[test]
fn security_that_is_not_built_refuses_the_start() {
    for (key, value) in [
        ("saslAllowedMechanisms", "PLAIN"),
        ("authenticationEnabled", "true"),
        ("authorizationEnabled", "true"),
        ("kafkaListeners", "SASL_SSL://127.0.0.1:9093"),
    ] {
        assert!(refusal(&[(key, value)]).contains("built yet"), "{key}");
    }
    assert!(
        config(&[("entryFormat", "kafka"), ("saslAllowedMechanisms", "")])
            .warnings
            .is_empty()
    );
}

#[test]
fn entry_formats_and_their_codec_are_read_in_any_case() {
    for (name, format) in [
        ("pulsar", EntryFormat::Pulsar),
        ("KAFKA", EntryFormat::Kafka),
        ("Mixed_Kafka", EntryFormat::MixedKafka),
    ] {
        assert_eq!(config(&[("entryFormat", name)]).entry_format, format);
    }
    assert!(refusal(&[("entryFormat", "avro")]).contains("mixed_kafka"));
    for (name, codec) in [("none", None), ("ZSTD", Some(Compression::Zstd))] {
        let config = config(&[("kafkaCompressionType", name)]);
        assert_eq!(config.kafka_compression_type, MixedCompression(codec));
        assert_eq!(config.warnings, Vec::<String>::new());
    }
    for name in ["uncompressed", "brotli"] {
        assert!(
            refusal(&[("kafkaCompressionType", name)]).contains("lz4"),
            "{name}"
        );
    }
}

#[test]
fn passwords_are_not_repeated_in_warnings() {
    let config = config(&[("kopSslKeystorePassword", "hunter2")]);
    assert_eq!(config.warnings.len(), 1);
    assert!(!config.warnings.concat().contains("hunter2"));
}

#[test]
fn listeners_advertise_themselves_unless_told_otherwise() {
    let plain = config(&[("kafkaListeners", "PLAINTEXT://127.0.0.1:0")]);
    let [listener] = plain.listeners.as_slice() else {
        panic!("{:?}", plain.listeners)
    };
    assert_eq!(
        (listener.bind.to_string(), listener.advertised.to_string()),
        ("127.0.0.1:0".to_owned(), "127.0.0.1:0".to_owned())
    );

    let two = config(&[
        ("kafkaListeners", "in://0.0.0.0:9092,out://[::]:9093"),
        (
            "kafkaAdvertisedListeners",
            "in://advertisedAddress:9092,out://kafka.example.org:443",
        ),
        ("kafkaProtocolMap", "in:PLAINTEXT,out:plaintext"),
        ("advertisedAddress", "10.0.0.7"),
    ]);
    let shown: Vec<String> = two
        .listeners
        .iter()
        .map(|l| format!("{} {} {}", l.name, l.bind, l.advertised))
        .collect();
    assert_eq!(
        shown,
        [
            "in 0.0.0.0:9092 10.0.0.7:9092",
            "out [::]:9093 kafka.example.org:443"
        ]
    );
}

#[test]
fn the_deprecated_key_and_an_empty_host_are_understood() {
    let map: HashMap<String, String> = [
        ("listeners", "PLAINTEXT://:9092"),
        ("advertisedAddress", "broker-1"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into();
    let config = Config::parse(&map).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        config
            .listeners
            .iter()
            .all(|l| l.bind.host == "broker-1" && l.advertised.host == "broker-1")
    );
}

#[test]
fn listeners_that_cannot_work_are_refused() {
    for (value, names) in [
        ("PLAINTEXT://0.0.0.0:9092", "kafkaAdvertisedListeners"),
        ("PLAINTEXT://[::]:9092", "kafkaAdvertisedListeners"),
        ("PLAINTEXT://127.0.0.1:99999", "port"),
        ("PLAINTEXT://127.0.0.1", "NAME://host:port"),
        ("127.0.0.1:9092", "NAME://host:port"),
        ("PLAINTEXT://::1:9092", "NAME://host:port"),
        ("PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2", "twice"),
        ("internal://127.0.0.1:1", "kafkaProtocolMap"),
        (",", "at least one"),
    ] {
        let text = refusal(&[("kafkaListeners", value)]);
        assert!(
            text.contains(names) && text.contains("kafkaListeners"),
            "{value}: {text}"
        );
    }
    let text = refusal(&[("kafkaAdvertisedListeners", "SSL://a:1")]);
    assert!(
        text.contains("kafkaAdvertisedListeners=SSL://a:1"),
        "{text}"
    );
    let none = Config::parse(&HashMap::new()).expect_err("listeners are required");
    assert!(none.to_string().contains("kafkaListeners is missing"));
}

#[test]
fn prerequisites_that_are_set_wrong_name_key_and_cure() {
    const INDEX: &str = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor";
    const TIME: &str =
        "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor";
    let both = format!("{TIME}, {INDEX}");
    for (key, value, cure) in [
        ("brokerEntryMetadataInterceptors", TIME, Some(INDEX)),
        ("brokerEntryMetadataInterceptors", &both, None),
        ("brokerEntryMetadataInterceptors", "", None),
        (
            "brokerDeleteInactiveTopicsEnabled",
            "true",
            Some("set it to false"),
        ),
        ("brokerDeleteInactiveTopicsEnabled", "false", None),
    ] {
        let broken = config(&[(key, value)]).broken_prerequisites;
        match cure {
            None => assert!(broken.is_empty(), "{broken:?}"),
            Some(cure) => {
                let [line] = broken.as_slice() else {
                    panic!("{broken:?}")
                };
                assert!(line.starts_with(&format!("{key}={value}: ")), "{line}");
                assert!(line.contains(cure) && line.lines().count() == 1, "{line}");
            }
        }
    }
}

#[test]
fn namespaces_that_cannot_be_listed_are_refused() {
    for bad in ["public", "a/b/c", "a/", "/b", "a/b,*", "a b/c"] {
        let text = refusal(&[("kopAllowedNamespaces", bad)]);
        assert!(text.contains("tenant/namespace"), "{text}");
    }
    for good in ["${tenant}/default", "a/*", "a/b, ${tenant}/*"] {
        assert_eq!(
            config(&[("kopAllowedNamespaces", good)]).kop_allowed_namespaces,
            good
        );
    }
}
