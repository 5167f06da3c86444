//! What we know of a topic beside Pulsar: its id and its configurations hold for the topic's life, whoever changes it,
//! and not for the next topic of its name. Topics without partitions are one partition to Kafka's clients.

use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use kop_fetch::pulsar::Release;
use kop_tests::broker::{Broker, Flavour, Options};
use kop_tests::or_skip;
use kop_tests::process::eventually;
use kop_tests::pulsar::release;
use kop_tests::raw::Raw;
use kop_tests::rd::{self, PATIENCE};
use rdkafka::admin::{AlterConfig, NewPartitions, ResourceSpecifier};
use uuid::Uuid;

/// The first version of Metadata that names topics by their ids is 10.
const METADATA: i16 = 12;
const NONE: i16 = 0;
const UNKNOWN_TOPIC: i16 = 3;
/// `offsetsRetentionMinutes` where an operator has not set it: KoP's default.
const OFFSETS_RETENTION_MINUTES: i64 = 4_320;
/// How long "at once" may take on a machine that is busy with other tests.
const AT_ONCE: Duration = Duration::from_secs(5);

fn broker(release: Release) -> Broker {
    // The options of the default, but for a test that may run where the others do not.
    Broker::with(Options {
        flavour: Some(Flavour::Pulsar(release)),
        ..Options::default()
    })
}

fn metadata(broker: &Broker, topic: &str) -> MetadataResponseTopic {
    let name = TopicName(StrBytes::from_string(topic.to_owned()));
    let topic = MetadataRequestTopic::default().with_name(Some(name));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(false);
    let mut reply = Raw::connect(broker.address()).call(METADATA, &request);
    reply.topics.remove(0)
}

/// A topic's id and its number of partitions, once it has that many.
#[track_caller]
fn seen(broker: &Broker, topic: &str, partitions: usize) -> Uuid {
    eventually(&format!("{topic} with {partitions}"), AT_ONCE, || {
        let found = metadata(broker, topic);
        let fits = found.error_code == NONE && found.partitions.len() == partitions;
        fits.then_some(found.topic_id)
    })
}

#[track_caller]
fn is_gone(broker: &Broker, topic: &str) {
    eventually(&format!("{topic} to be gone"), AT_ONCE, || {
        (metadata(broker, topic).error_code == UNKNOWN_TOPIC).then_some(())
    });
}

/// What a topic is told to have for a configuration.
fn config(broker: &Broker, topic: &str, name: &str) -> Option<String> {
    let kafka = rd::admin(&broker.bootstrap());
    let resource = ResourceSpecifier::Topic(topic);
    let answer = rd::block_on(kafka.describe_configs([&resource], &rd::admin_options()));
    let described = answer.expect("an answer").remove(0).expect("configs");
    described.get(name).and_then(|entry| entry.value.clone())
}

fn alter(broker: &Broker, topic: &str, name: &str, value: &str) {
    let kafka = rd::admin(&broker.bootstrap());
    let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
    let answer = rd::block_on(kafka.alter_configs([&change], &rd::admin_options()));
    answer.expect("an answer").remove(0).expect("altered");
}

fn keeps_id_and_configs_when_expanded(broker: &Broker, topic: &str) {
    let (admin, bootstrap) = (broker.admin(), broker.bootstrap());
    let full = format!("public/default/{topic}");
    rd::create_topic_with(&bootstrap, topic, 2, &[("max.message.bytes", "7777")]);
    let id = seen(broker, topic, 2);
    assert!(!id.is_nil());
    for partitions in [4, 5] {
        admin.expand(&full, partitions).expect("expanded");
        assert_eq!(seen(broker, topic, partitions as usize), id);
        let kept = config(broker, topic, "max.message.bytes");
        assert_eq!(kept.as_deref(), Some("7777"));
    }
    // And by Kafka's clients, who expand through Pulsar as well.
    let more = NewPartitions::new(topic, 6);
    let kafka = rd::admin(&bootstrap);
    let grown = rd::block_on(kafka.create_partitions([&more], &rd::admin_options()));
    grown.expect("an answer")[0].as_ref().expect("grown");
    assert_eq!(seen(broker, topic, 6), id);
    let kept = config(broker, topic, "max.message.bytes");
    assert_eq!(kept.as_deref(), Some("7777"));

    admin.delete_partitioned(&full).expect("deleted");
    is_gone(broker, topic);
    admin.create_partitioned(&full, 1).expect("created");
    let next = seen(broker, topic, 1);
    assert!(!next.is_nil() && next != id, "{next} is another topic's");
    let kept = config(broker, topic, "max.message.bytes");
    assert_ne!(kept.as_deref(), Some("7777"), "of the topic before");
}

#[test]
fn a_topic_keeps_its_id_and_configs_when_pulsar_admin_expands_it() {
    let broker = broker(or_skip!(release()));
    keeps_id_and_configs_when_expanded(&broker, "expanded");
}

/// This release drops all properties of a topic when it is given partitions.
#[test]
fn a_topic_keeps_its_id_and_configs_when_pulsar_2_10_expands_it() {
    or_skip!(release());
    let broker = broker(Release::V2_10);
    keeps_id_and_configs_when_expanded(&broker, "expanded-on-2.10");
}

#[test]
fn a_topic_that_pulsar_made_gets_one_id_for_its_life() {
    let broker = broker(or_skip!(release()));
    let admin = broker.admin();
    admin
        .create_partitioned("public/default/found", 3)
        .expect("created");
    let id = seen(&broker, "found", 3);
    assert!(!id.is_nil());
    assert_eq!(seen(&broker, "found", 3), id);
    // It is written down where KoP has it, too.
    let path = "/admin/v2/persistent/public/default/found/partitions";
    let stored = admin.json(path).expect("metadata");
    let property = stored["properties"]["kafkaTopicUUID"].as_str();
    assert_eq!(property, Some(id.to_string().as_str()), "{stored}");
}

#[test]
fn a_topic_without_partitions_is_one_partition_to_kafka_clients() {
    let broker = broker(or_skip!(release()));
    let (admin, bootstrap) = (broker.admin(), broker.bootstrap());
    let path = "/admin/v2/persistent/public/default/whole";
    admin.must("PUT", path, "").expect("created");
    let id = seen(&broker, "whole", 1);
    assert!(!id.is_nil());
    let placed = rd::produce(&bootstrap, "whole", &[], &rd::numbered(0, 0..10));
    assert_eq!(placed.last(), Some(&(0, 9)));
    assert_eq!(rd::read_all(&bootstrap, "whole", 1).len(), 10);

    alter(&broker, "whole", "max.message.bytes", "8888");
    let bytes = || config(&broker, "whole", "max.message.bytes");
    assert_eq!(bytes().as_deref(), Some("8888"));
    alter(&broker, "whole", "max.message.bytes", "9999");
    assert_eq!(bytes().as_deref(), Some("9999"));
    // Pulsar cannot give it partitions.
    let more = NewPartitions::new("whole", 2);
    let kafka = rd::admin(&bootstrap);
    let grown = rd::block_on(kafka.create_partitions([&more], &rd::admin_options()));
    assert!(grown.expect("an answer")[0].is_err());
    // A reload of the topic forgets nothing.
    admin
        .must("PUT", &format!("{path}/unload"), "")
        .expect("unloaded");
    assert_eq!(seen(&broker, "whole", 1), id);
    assert_eq!(bytes().as_deref(), Some("9999"));
    let placed = rd::produce(&bootstrap, "whole", &[], &rd::numbered(0, 10..12));
    assert_eq!(placed, [(0, 10), (0, 11)]);

    let gone = rd::block_on(kafka.delete_topics(&["whole"], &rd::admin_options()));
    gone.expect("an answer")[0].as_ref().expect("deleted");
    is_gone(&broker, "whole");
    admin.must("PUT", path, "").expect("created");
    assert_ne!(seen(&broker, "whole", 1), id);
    assert_ne!(bytes().as_deref(), Some("9999"), "of the topic before");
}

/// Nobody's subscription holds committed offsets back, and Pulsar's default is to keep nothing.
#[test]
fn the_system_namespace_keeps_data_for_as_long_as_offsets_are_kept() {
    let broker = broker(or_skip!(release()));
    let admin = broker.admin();
    let retention = eventually("the retention of the system topics", PATIENCE, || {
        let path = "/admin/v2/namespaces/public/__kafka/retention";
        let policy = admin.json(path).ok()?;
        policy["retentionTimeInMinutes"].as_i64()
    });
    assert!(
        retention == -1 || retention >= OFFSETS_RETENTION_MINUTES,
        "{retention} minutes"
    );
}
