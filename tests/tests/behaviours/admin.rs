//! Administration: topics, configurations, log directories.

use std::time::Duration;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest, IncrementalAlterConfigsRequest,
};
use kop_tests::process::eventually;
use kop_tests::raw::Raw;
use uuid::Uuid;

use crate::kit::{append, batch, create, describe, start, text, topic_name, wait_for_leaders};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
pub(crate) const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;
const INVALID_CONFIG: i16 = 40;

/// All configurations of a resource.
#[track_caller]
fn configs(
    raw: &mut Raw,
    version: i16,
    kind: i8,
    name: &str,
) -> Vec<DescribeConfigsResourceResult> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(None);
    let mut request = DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(true);
    if version >= 3 {
        request.include_documentation = true;
    }
    let mut reply = raw.call(version, &request);
    assert_eq!(
        reply.results[0].error_code, 0,
        "{:?}",
        reply.results[0].error_message
    );
    reply.results.remove(0).configs
}

#[track_caller]
fn topic_config(raw: &mut Raw, topic: &str, key: &str) -> (String, i8) {
    let all = configs(raw, 4, TOPIC, topic);
    let found = all
        .iter()
        .find(|c| &*c.name == key)
        .expect("the configuration is described");
    (
        found.value.clone().expect("a value").to_string(),
        found.config_source,
    )
}

#[track_caller]
pub(crate) fn alter(
    raw: &mut Raw,
    topic: &str,
    key: &str,
    operation: i8,
    value: Option<&str>,
) -> i16 {
    let config = AlterableConfig::default()
        .with_name(text(key))
        .with_config_operation(operation)
        .with_value(value.map(text));
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(topic))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    raw.call(1, &request).responses[0].error_code
}

fn create_request(
    name: &str,
    partitions: i32,
    config: Option<(&str, &str)>,
) -> CreateTopicsRequest {
    let configs = config.iter().map(|(key, value)| {
        CreatableTopicConfig::default()
            .with_name(text(key))
            .with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.collect());
    CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000)
}

/// Row 64.
#[test]
fn cleanup_policies_are_accepted_told_back_and_checked() {
    let (_broker, mut raw) = start();
    for (name, policy) in [
        ("c", "compact"),
        ("d", "delete"),
        ("cd", "compact,delete"),
        ("dc", "delete,compact"),
    ] {
        create(&mut raw, name, 1, &[("cleanup.policy", policy)]);
        let (value, source) = eventually("the configuration", Duration::from_secs(5), || {
            let found = topic_config(&mut raw, name, "cleanup.policy");
            (found.0 == policy).then_some(found)
        });
        assert_eq!((value.as_str(), source), (policy, 1), "of the topic itself");
    }
    let reply = raw.call(
        7,
        &create_request("bad", 1, Some(("cleanup.policy", "shred"))),
    );
    assert_eq!(reply.topics[0].error_code, INVALID_CONFIG);
    let reply = raw.call(7, &create_request("bad", 1, Some(("no.such.key", "1"))));
    assert_eq!(reply.topics[0].error_code, INVALID_CONFIG);
    assert_eq!(
        describe(&mut raw, "bad", false).error_code,
        3,
        "nothing was made"
    );
}

/// Row 75.
#[test]
fn configurations_are_set_deleted_appended_to_and_subtracted_from() {
    let (_broker, mut raw) = start();
    create(&mut raw, "altered", 1, &[]);
    let expect = |raw: &mut Raw, key: &str, value: &str, source: i8| {
        eventually(&format!("{key}={value}"), Duration::from_secs(5), || {
            (topic_config(raw, "altered", key) == (value.to_owned(), source)).then_some(())
        });
    };
    assert_eq!(
        alter(&mut raw, "altered", "retention.ms", SET, Some("12345")),
        0
    );
    expect(&mut raw, "retention.ms", "12345", 1);
    assert_eq!(alter(&mut raw, "altered", "retention.ms", DELETE, None), 0);
    expect(&mut raw, "retention.ms", "604800000", 5);
    assert_eq!(
        alter(
            &mut raw,
            "altered",
            "cleanup.policy",
            APPEND,
            Some("compact")
        ),
        0
    );
    expect(&mut raw, "cleanup.policy", "delete,compact", 1);
    assert_eq!(
        alter(
            &mut raw,
            "altered",
            "cleanup.policy",
            SUBTRACT,
            Some("delete")
        ),
        0
    );
    expect(&mut raw, "cleanup.policy", "compact", 1);
    assert_eq!(
        alter(&mut raw, "altered", "retention.ms", SET, Some("soon")),
        INVALID_CONFIG
    );
    assert_eq!(
        alter(&mut raw, "altered", "retention.ms", APPEND, Some("1")),
        INVALID_CONFIG,
        "not a list"
    );
    assert_eq!(
        alter(&mut raw, "altered", "no.such.key", SET, Some("1")),
        INVALID_CONFIG
    );
    assert_eq!(alter(&mut raw, "absent", "retention.ms", SET, Some("1")), 3);
}

/// Row 75: an alteration works at once.
#[test]
fn an_altered_limit_holds_for_the_next_batch() {
    let (_broker, mut raw) = start();
    create(&mut raw, "effect", 1, &[]);
    let large = "x".repeat(5000);
    append(&mut raw, "effect", 0, batch(&[&large]));
    assert_eq!(
        alter(&mut raw, "effect", "max.message.bytes", SET, Some("1000")),
        0
    );
    eventually("the limit holds", Duration::from_secs(5), || {
        let answer = crate::kit::produce(&mut raw, "effect", 0, batch(&[&large]));
        (answer.error_code == 10).then_some(())
    });
}

/// Row 77.
#[test]
fn a_brokers_configuration_is_described_in_every_version_and_secrets_are_null() {
    let (_broker, mut raw) = start();
    create(&mut raw, "t", 1, &[]);
    let topic = describe(&mut raw, "t", false);
    let node = topic.partitions[0].leader_id.0.to_string();
    for version in 1..=4 {
        let all = configs(&mut raw, version, BROKER, &node);
        assert!(!all.is_empty(), "version {version}");
        let value = |key: &str| {
            all.iter()
                .find(|c| &*c.name == key)
                .and_then(|c| c.value.clone())
        };
        assert!(value("num.partitions").is_some(), "version {version}");
        for config in all.iter().filter(|c| c.is_sensitive) {
            assert_eq!(config.value, None, "{}", config.name);
        }
        if version >= 3 {
            assert!(
                all.iter()
                    .any(|c| c.documentation.as_ref().is_some_and(|d| !d.is_empty()))
            );
        }
    }
    let resource = DescribeConfigsResource::default()
        .with_resource_type(BROKER)
        .with_resource_name(text("123456"))
        .with_configuration_keys(None);
    let reply = raw.call(
        4,
        &DescribeConfigsRequest::default().with_resources(vec![resource]),
    );
    assert_ne!(
        reply.results[0].error_code, 0,
        "another broker's cannot be told"
    );
}

/// Row 78.
#[test]
fn log_directories_are_described_with_the_size_of_each_partition() {
    let (_broker, mut raw) = start();
    create(&mut raw, "sizes", 2, &[]);
    append(&mut raw, "sizes", 1, batch(&[&"x".repeat(20_000)]));
    for version in 1..=4 {
        let reply = raw.call(
            version,
            &DescribeLogDirsRequest::default().with_topics(None),
        );
        assert_eq!(reply.results.len(), 1, "version {version}");
        let dir = &reply.results[0];
        assert_eq!(dir.error_code, 0);
        let topic = dir
            .topics
            .iter()
            .find(|t| t.name == topic_name("sizes"))
            .expect("the topic is there");
        let mut sizes: Vec<_> = topic
            .partitions
            .iter()
            .map(|p| (p.partition_index, p.partition_size))
            .collect();
        sizes.sort_unstable();
        assert_eq!(
            sizes.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
            [0, 1]
        );
        assert_eq!(sizes[0].1, 0);
        assert!((20_000..30_000).contains(&sizes[1].1), "{sizes:?}");
        if version >= 4 {
            assert!(dir.total_bytes > dir.usable_bytes && dir.usable_bytes > 0);
        }
    }
}

#[test]
fn topics_are_made_once_and_validation_alone_makes_none() {
    let (_broker, mut raw) = start();
    for version in 2..=7 {
        let name = format!("made-{version}");
        let only = create_request(&name, 2, None).with_validate_only(true);
        assert_eq!(
            raw.call(version, &only).topics[0].error_code,
            0,
            "version {version}"
        );
        assert_eq!(describe(&mut raw, &name, false).error_code, 3);
        let reply = raw.call(version, &create_request(&name, 2, None));
        assert_eq!(reply.topics[0].error_code, 0, "version {version}");
        if version >= 5 {
            assert_eq!(reply.topics[0].num_partitions, 2);
            assert!(
                reply.topics[0]
                    .configs
                    .as_ref()
                    .is_some_and(|all| !all.is_empty())
            );
        }
        wait_for_leaders(&mut raw, &name, 2);
        assert_eq!(
            raw.call(version, &create_request(&name, 2, None)).topics[0].error_code,
            36
        );
    }
    for (partitions, error) in [(0, 37), (-2, 37), (-1, 0)] {
        let reply = raw.call(7, &create_request("counted", partitions, None));
        assert_eq!(reply.topics[0].error_code, error, "{partitions} partitions");
    }
    assert_eq!(
        raw.call(7, &create_request("bad name", 1, None)).topics[0].error_code,
        17
    );
}

#[test]
fn topics_are_deleted_by_name_and_by_id() {
    let (_broker, mut raw) = start();
    for version in 1..=6 {
        create(&mut raw, "victim", 1, &[]);
        let mut request = DeleteTopicsRequest::default().with_timeout_ms(30_000);
        if version >= 6 {
            request.topics =
                vec![DeleteTopicState::default().with_name(Some(topic_name("victim")))];
        } else {
            request.topic_names = vec![topic_name("victim"), topic_name("absent")];
        }
        let reply = raw.call(version, &request);
        for answer in &reply.responses {
            let expected = if answer.name == Some(topic_name("victim")) {
                0
            } else {
                3
            };
            assert_eq!(answer.error_code, expected, "version {version}");
        }
        eventually("the topic goes", Duration::from_secs(20), || {
            (describe(&mut raw, "victim", false).error_code == 3).then_some(())
        });
    }
    let id = create(&mut raw, "by-id", 1, &[]);
    for (id, error) in [(Uuid::from_u128(5), 100), (id, 0)] {
        let state = DeleteTopicState::default()
            .with_name(None)
            .with_topic_id(id);
        let request = DeleteTopicsRequest::default()
            .with_topics(vec![state])
            .with_timeout_ms(30_000);
        assert_eq!(raw.call(6, &request).responses[0].error_code, error);
    }
}

#[test]
fn partitions_are_only_ever_added() {
    let (_broker, mut raw) = start();
    create(&mut raw, "growing", 2, &[]);
    append(&mut raw, "growing", 1, batch(&["kept"]));
    let grow = |raw: &mut Raw, name: &str, count: i32| {
        let topic = CreatePartitionsTopic::default()
            .with_name(topic_name(name))
            .with_count(count)
            .with_assignments(None);
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(30_000);
        raw.call(3, &request).results[0].error_code
    };
    assert_eq!(grow(&mut raw, "growing", 2), 37);
    assert_eq!(grow(&mut raw, "growing", 1), 37);
    assert_eq!(grow(&mut raw, "absent", 5), 3);
    assert_eq!(grow(&mut raw, "growing", 5), 0);
    wait_for_leaders(&mut raw, "growing", 5);
    assert_eq!(append(&mut raw, "growing", 4, batch(&["new"])), 0);
    assert_eq!(append(&mut raw, "growing", 1, batch(&["kept as well"])), 1);
}
