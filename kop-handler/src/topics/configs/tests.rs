use std::collections::HashMap;

use super::definition::items;
use super::*;
use crate::error::Fault;
use crate::log::{Compression, EntryFormat, TimestampType, TopicSettings};

fn set(name: &str, value: &str) -> Result<String, String> {
    let mut overrides = Overrides::default();
    overrides.set(name, value).map_err(|fault| {
        assert!(matches!(fault, Fault::InvalidConfig(_)), "{fault:?}");
        fault.to_string()
    })?;
    Ok(overrides.get(name).unwrap().to_owned())
}

#[test]
fn the_table_is_sorted_and_every_default_is_legal() {
    assert!(DEFINITIONS.is_sorted_by(|a, b| a.name < b.name));
    for row in DEFINITIONS {
        assert_eq!(
            row.parse(row.default),
            Ok(row.default.to_owned()),
            "{}",
            row.name
        );
        assert!(std::ptr::eq(definition(row.name).unwrap(), row));
        assert!(row.doc.ends_with('.'), "{}", row.name);
        let says_so = row.documentation().contains("without effect");
        assert_eq!(says_so, row.effect != Effect::Built, "{}", row.name);
    }
    assert_eq!(DEFINITIONS.len(), 33);
    assert!(definition("nope").is_none());
}

/// Values and answers as seen from a Kafka 4.3.1 broker by CreateTopics.
#[test]
fn values_are_refused_in_kafkas_words() {
    let tiered = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.";
    let replicas = "Invalid value [x] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...";
    for (name, value, answer) in [
        ("foo", "1", "Unknown topic config name: foo"),
        (
            "retention.ms",
            "-2",
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            "retention.ms",
            "x",
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "retention.ms",
            "",
            "Invalid value  for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "retention.ms",
            "9223372036854775808",
            "Invalid value 9223372036854775808 for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "segment.bytes",
            "1024",
            "Invalid value 1024 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "segment.bytes",
            "99999999999",
            "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.ms",
            "0",
            "Invalid value 0 for configuration segment.ms: Value must be at least 1",
        ),
        (
            "max.message.bytes",
            "1.5",
            "Invalid value 1.5 for configuration max.message.bytes: Not a number of type INT",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "-1",
            "Invalid value -1.0 for configuration min.cleanable.dirty.ratio: Value must be at least 0",
        ),
        (
            "min.cleanable.dirty.ratio",
            "x",
            "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        (
            "cleanup.policy",
            "foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "cleanup.policy",
            "Compact",
            "Invalid value Compact for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "cleanup.policy",
            "delete,",
            "Configuration 'cleanup.policy' values must not be empty.",
        ),
        (
            "unclean.leader.election.enable",
            "yes",
            "Invalid value yes for configuration unclean.leader.election.enable: Expected value to be either true or false",
        ),
        (
            "min.insync.replicas",
            "0",
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
        (
            "compression.type",
            "foo",
            "Invalid value foo for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "compression.type",
            "GZIP",
            "Invalid value GZIP for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.lz4.level",
            "18",
            "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17",
        ),
        (
            "compression.zstd.level",
            "-131073",
            "Invalid value -131073 for configuration compression.zstd.level: Value must be at least -131072",
        ),
        (
            "message.timestamp.type",
            "foo",
            "Invalid value foo for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime",
        ),
        ("leader.replication.throttled.replicas", "x", replicas),
        ("remote.storage.enable", "true", tiered),
        (
            "local.retention.ms",
            "-3",
            "Invalid value -3 for configuration local.retention.ms: Value must be at least -2",
        ),
        (
            "message.format.version",
            "3.0",
            "Unknown topic config name: message.format.version",
        ),
    ] {
        assert_eq!(set(name, value), Err(answer.to_owned()), "{name}={value}");
    }
}

#[test]
fn legal_values_are_kept_in_one_form() {
    for (name, value, kept) in [
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "+5", "5"),
        ("retention.bytes", "-5", "-5"),
        ("preallocate", "TRUE", "true"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("cleanup.policy", "", ""),
        ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", "0.00001", "1.0E-5"),
        ("compression.gzip.level", "-1", "-1"),
        (
            "leader.replication.throttled.replicas",
            "0:1, 1:2",
            "0:1,1:2",
        ),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("remote.storage.enable", "false", "false"),
    ] {
        assert_eq!(set(name, value), Ok(kept.to_owned()), "{name}={value}");
    }
}

#[test]
fn lists_grow_and_shrink_by_items_and_only_lists() {
    let defaults = ServerDefaults::default();
    let mut topic = Overrides::default();
    topic
        .append("cleanup.policy", "compact", &defaults)
        .unwrap();
    assert_eq!(topic.get("cleanup.policy"), Some("delete,compact"));
    topic.append("cleanup.policy", "delete", &defaults).unwrap();
    assert_eq!(topic.get("cleanup.policy"), Some("delete,compact"));
    topic
        .subtract("cleanup.policy", "delete,other", &defaults)
        .unwrap();
    assert_eq!(topic.get("cleanup.policy"), Some("compact"));
    topic
        .subtract("cleanup.policy", "compact", &defaults)
        .unwrap();
    assert_eq!(topic.get("cleanup.policy"), Some(""));
    for (name, answer) in [
        (
            "retention.ms",
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            "foo",
            "Can't APPEND to key foo because its type is not LIST.",
        ),
    ] {
        let fault = topic.append(name, "1", &defaults).unwrap_err();
        assert_eq!(fault.to_string(), answer);
    }
    let fault = topic.subtract("retention.ms", "1", &defaults).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "Can't SUBTRACT to key retention.ms because its type is not LIST."
    );
}

#[test]
fn lags_that_contradict_each_other_are_refused() {
    let mut topic = Overrides::default();
    topic.set("min.compaction.lag.ms", "10").unwrap();
    assert_eq!(topic.check(&ServerDefaults::default()), Ok(()));
    topic.set("max.compaction.lag.ms", "5").unwrap();
    let fault = topic.check(&ServerDefaults::default()).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    );
}

#[test]
fn what_is_stored_comes_back_and_foreign_properties_are_left_alone() {
    let mut topic = Overrides::default();
    topic.set("retention.ms", "5").unwrap();
    topic.set("cleanup.policy", "compact").unwrap();
    let mut properties = topic.to_properties();
    assert_eq!(properties.get("kafkaConfig.retention.ms").unwrap(), "5");
    properties.extend(HashMap::from([
        ("kafkaConfig.of.tomorrow".to_owned(), "1".to_owned()),
        ("kafkaConfig.segment.ms".to_owned(), "no number".to_owned()),
        ("owner".to_owned(), "me".to_owned()),
    ]));
    assert_eq!(Overrides::from_properties(&properties), topic);
}

#[test]
fn a_change_names_what_it_relies_on() {
    let mut old = Overrides::default();
    old.set("retention.ms", "5").unwrap();
    old.set("segment.ms", "7").unwrap();
    let mut new = Overrides::default();
    new.set("segment.ms", "7").unwrap();
    new.set("flush.ms", "9").unwrap();
    let change = old.change_to(&new);
    let pair = |key: &str, value: &str| (format!("kafkaConfig.{key}"), value.to_owned());
    assert_eq!(change.set, HashMap::from([pair("flush.ms", "9")]));
    assert_eq!(change.remove, ["kafkaConfig.retention.ms"]);
    assert_eq!(
        change.expect,
        HashMap::from([pair("flush.ms", ""), pair("retention.ms", "5")])
    );
    assert_eq!(old.change_to(&old), Change::default());
}

#[test]
fn a_topic_without_configuration_has_the_logs_defaults() {
    let defaults = ServerDefaults::default();
    assert_eq!(
        Overrides::default().log_settings(&defaults),
        TopicSettings::default()
    );
}

#[test]
fn every_configuration_that_has_an_effect_reaches_the_log() {
    let mut topic = Overrides::default();
    for (name, value) in [
        ("max.message.bytes", "1"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", "2"),
        ("message.timestamp.after.max.ms", "3"),
        ("compression.type", "zstd"),
        ("cleanup.policy", "compact"),
        ("retention.ms", "4"),
        ("retention.bytes", "5"),
        ("segment.bytes", "2000000"),
        ("segment.ms", "6"),
        ("delete.retention.ms", "7"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("min.compaction.lag.ms", "8"),
        ("max.compaction.lag.ms", "9"),
    ] {
        topic.set(name, value).unwrap();
    }
    let built = DEFINITIONS.iter().filter(|row| row.effect == Effect::Built);
    for row in built {
        assert!(
            topic.get(row.name).is_some(),
            "{} is said to have an effect",
            row.name
        );
    }
    let expected = TopicSettings {
        max_message_bytes: 1,
        timestamp_type: TimestampType::LogAppendTime,
        timestamp_before_max_ms: 2,
        timestamp_after_max_ms: 3,
        compression: Some(Compression::Zstd),
        entry_format: EntryFormat::Kafka,
        delete: false,
        compact: true,
        retention_ms: 4,
        retention_bytes: 5,
        segment_bytes: 2_000_000,
        segment_ms: 6,
        delete_retention_ms: 7,
        min_cleanable_dirty_ratio: 0.25,
        min_compaction_lag_ms: 8,
        max_compaction_lag_ms: 9,
    };
    assert_eq!(topic.log_settings(&ServerDefaults::default()), expected);
}

#[test]
fn items_are_trimmed() {
    assert_eq!(items(" a , b "), ["a", "b"]);
    assert_eq!(items("  "), Vec::<&str>::new());
    assert_eq!(items("a,"), ["a", ""]);
}
