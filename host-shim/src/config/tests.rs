//! Facts about the configuration: precedence, typed values, messages.

use std::path::PathBuf;

use super::*;

fn load(text: &str, data_dir: Option<&str>, set: &[(&str, &str)]) -> Result<HostConfig, String> {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Sources {
        text: Some((PathBuf::from("x.conf"), text.to_owned())),
        data_dir: data_dir.map(PathBuf::from),
        set: set.iter().map(own).collect(),
    }
    .load()
    .map_err(|error| error.to_string())
}

#[test]
fn set_goes_before_data_dir_before_file_before_default() {
    let directory = |text, data_dir, set: &[_]| load(text, data_dir, set).unwrap().data_directory;
    assert_eq!(directory("", None, &[]), PathBuf::from("data"));
    let file = "dataDirectory=/file";
    assert_eq!(directory(file, None, &[]), PathBuf::from("/file"));
    assert_eq!(
        directory(file, Some("/option"), &[]),
        PathBuf::from("/option")
    );
    let set = [("dataDirectory", "/one"), ("dataDirectory", "/two")];
    assert_eq!(
        directory(file, Some("/option"), &set),
        PathBuf::from("/two")
    );
}

#[test]
fn a_malformed_value_names_key_value_origin_and_remedy() {
    let text = "# comment\njournalSyncData=yes\n";
    assert_eq!(
        load(text, None, &[]).unwrap_err(),
        "journalSyncData=yes (x.conf, line 2): give true or false"
    );
    assert_eq!(
        load("", None, &[("maxMessageSize", "1")]).unwrap_err(),
        "maxMessageSize=1 (--set): give a whole number from 1024 to 104857600"
    );
}

#[test]
fn every_typed_key_refuses_what_it_cannot_be() {
    let wrong = [
        ("clusterName", "a b"),
        ("advertisedAddress", "a/b"),
        ("bindAddress", "localhost!"),
        ("webServicePort", "65536"),
        ("logLevel", "a=loud"),
        ("brokerShutdownTimeoutMs", "-1"),
        ("journalSyncData", "1"),
        ("maxMessageSize", "5MB"),
        ("managedLedgerMaxEntriesPerLedger", "0"),
        ("managedLedgerMaxSizePerLedgerMbytes", "0"),
        ("managedLedgerMinLedgerRolloverTimeMinutes", "x"),
        ("managedLedgerMaxLedgerRolloverTimeMinutes", "x"),
        ("allowAutoTopicCreation", "x"),
        ("allowAutoTopicCreationType", "persistent"),
        ("defaultNumPartitions", "0"),
        ("brokerEntryMetadataInterceptors", "com.example.Mine"),
        ("brokerDeleteInactiveTopicsEnabled", "x"),
    ];
    for (key, value) in wrong {
        let error = load("", None, &[(key, value)]).unwrap_err();
        let start = format!("{key}={value} (--set): ");
        assert!(error.starts_with(&start), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn an_empty_value_counts_as_not_given_but_turns_the_web_port_off() {
    let config = load(
        "maxMessageSize=\nwebServicePort=\nkafkaListeners=\n",
        None,
        &[],
    )
    .unwrap();
    assert_eq!(config.max_message_size, 5 * 1024 * 1024);
    assert_eq!(config.web_service_port, None);
    let pairs = config.for_plugins();
    assert_eq!(pairs.get("maxMessageSize").unwrap(), "5242880");
    assert_eq!(pairs.get("kafkaListeners"), None);
    assert_eq!(pairs.get("webServicePort").unwrap(), "");
}

#[test]
fn plugins_are_given_unknown_keys_and_the_defaults_of_known_ones() {
    let config = load(
        "kafkaListeners=PLAINTEXT://:1\nother=2",
        None,
        &[("a", " b ")],
    )
    .unwrap();
    let pairs = config.for_plugins();
    for (key, value) in [
        ("kafkaListeners", "PLAINTEXT://:1"),
        ("other", "2"),
        ("a", "b"),
        ("clusterName", "standalone"),
        ("advertisedAddress", "localhost"),
        ("bindAddress", "0.0.0.0"),
    ] {
        assert_eq!(pairs.get(key).map(String::as_str), Some(value), "{key}");
    }
}

#[test]
fn plugins_are_given_the_standalone_defaults_which_the_shipped_file_writes_out() {
    let shipped = include_str!("../../../conf/standalone.conf");
    let written = load(shipped, None, &[]).unwrap().for_plugins();
    let unwritten = load("", None, &[]).unwrap().for_plugins();
    for (key, value) in STANDALONE_DEFAULTS {
        for pairs in [&written, &unwritten] {
            assert_eq!(pairs.get(*key).map(String::as_str), Some(*value), "{key}");
        }
        let set = load(shipped, None, &[(key, "other")]).unwrap();
        assert_eq!(set.for_plugins().get(*key).unwrap(), "other");
    }
}

#[test]
fn what_has_no_effect_here_is_warned_of() {
    let classes = format!("{INTERCEPTOR_PACKAGE}{TIMESTAMP_INTERCEPTOR}");
    let text = format!(
        "brokerDeleteInactiveTopicsEnabled=true\nbrokerEntryMetadataInterceptors={classes}"
    );
    assert_eq!(load(&text, None, &[]).unwrap().warnings.len(), 3);
    let classes = format!("{INTERCEPTOR_PACKAGE}{INDEX_INTERCEPTOR}");
    let text = format!("brokerEntryMetadataInterceptors={classes}");
    assert!(load(&text, None, &[]).unwrap().warnings.is_empty());
}

#[test]
fn every_default_of_the_table_is_legal_and_documented() {
    for setting in HostConfig::SETTINGS {
        assert!(!setting.doc.is_empty(), "{}", setting.key);
        if setting.default.is_empty() {
            continue;
        }
        load("", None, &[(setting.key, setting.default)]).unwrap();
    }
}

#[test]
fn a_missing_file_is_one_line() {
    let error = Sources::default()
        .file(Path::new("/none/x.conf"))
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("cannot read the configuration /none/x.conf: "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn the_embedded_broker_is_given_its_settings_in_its_units() {
    let text = "journalSyncData=false\nmaxMessageSize=2048\nmanagedLedgerMaxEntriesPerLedger=7\n\
                managedLedgerMaxSizePerLedgerMbytes=3\nmanagedLedgerMinLedgerRolloverTimeMinutes=2\n\
                managedLedgerMaxLedgerRolloverTimeMinutes=5\nclusterName=c\nadvertisedAddress=h\n\
                webServicePort=81";
    let embedded = load(text, Some("/d"), &[]).unwrap().embedded();
    assert_eq!(embedded.data_dir, PathBuf::from("/d"));
    assert_eq!(
        (embedded.cluster_name.as_str(), embedded.broker_id.as_str()),
        ("c", "h:81")
    );
    assert!(!embedded.sync_data);
    assert_eq!(embedded.max_message_size, 2048);
    assert_eq!(embedded.max_ledger_entries, 7);
    assert_eq!(embedded.max_ledger_bytes, 3 * 1024 * 1024);
    assert_eq!(
        (embedded.min_rollover_ms, embedded.max_rollover_ms),
        (120_000, 300_000)
    );
}
