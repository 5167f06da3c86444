//! Metadata, automatic creation, many topics.

use std::time::{Duration, Instant};

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{CreateTopicsRequest, DescribeClusterRequest, MetadataRequest};
use kop_tests::broker::{Broker, Options, is_reference};
use kop_tests::process::eventually;
use kop_tests::raw::Raw;
use uuid::Uuid;

use crate::kit::{
    METADATA, advertised, append, batch, create, describe, start, text, topic_name,
    wait_for_leaders,
};

/// "Not asked for" in a field of authorized operations.
const NO_OPERATIONS: i32 = i32::MIN;

/// Row 1.
#[test]
fn a_topic_that_metadata_makes_is_answered_retriably_and_can_then_be_produced_to() {
    let (_broker, mut raw) = start();
    let first = describe(&mut raw, "made-by-metadata", true);
    assert!(
        [0, 3, 5].contains(&first.error_code),
        "error {} is not retriable",
        first.error_code
    );
    wait_for_leaders(&mut raw, "made-by-metadata", 1);
    assert_eq!(
        append(&mut raw, "made-by-metadata", 0, batch(&["first"])),
        0
    );
}

/// Row 3.
#[test]
fn a_topic_that_metadata_makes_has_the_default_number_of_partitions() {
    let options = Options::default()
        .set("defaultNumPartitions", "3")
        .kafka("num.partitions", "3");
    let broker = Broker::with(options);
    let mut raw = Raw::connect(broker.address());
    describe(&mut raw, "three", true);
    wait_for_leaders(&mut raw, "three", 3);
}

/// Row 4.
#[test]
fn a_topic_that_metadata_makes_is_there_within_one_retry_of_a_client() {
    let (_broker, mut raw) = start();
    let begun = Instant::now();
    describe(&mut raw, "soon", true);
    wait_for_leaders(&mut raw, "soon", 1);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "took {:?}",
        begun.elapsed()
    );
}

#[test]
fn metadata_without_leave_to_make_topics_makes_none() {
    let (_broker, mut raw) = start();
    assert_eq!(describe(&mut raw, "absent", false).error_code, 3);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(describe(&mut raw, "absent", false).error_code, 3);
}

#[test]
fn a_name_that_no_topic_can_have_is_refused() {
    let (_broker, mut raw) = start();
    for name in ["no spaces", "slash/ed", "..", "umläut", &"x".repeat(250)] {
        assert_eq!(describe(&mut raw, name, true).error_code, 17, "{name}");
    }
}

/// Row 6.
#[test]
fn a_thousand_partitions_are_answered_at_once() {
    let (_broker, mut raw) = start();
    create(&mut raw, "wide", 1000, &[]);
    let begun = Instant::now();
    let topic = describe(&mut raw, "wide", false);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "took {:?}",
        begun.elapsed()
    );
    let mut indexes: Vec<_> = topic.partitions.iter().map(|p| p.partition_index).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..1000).collect::<Vec<_>>());
}

/// Row 6: ten thousand partitions of ten topics in one reply; in Apache Kafka, whose node takes minutes and gigabytes to
/// make so many, one thousand of one.
#[test]
fn ten_thousand_partitions_are_told_in_one_reply() {
    let (_broker, mut raw) = start();
    let topics = if is_reference() { 1 } else { 10 };
    for number in 0..topics {
        let topic = CreatableTopic::default()
            .with_name(topic_name(&format!("wide-{number}")))
            .with_num_partitions(1000)
            .with_replication_factor(-1);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(60_000);
        assert_eq!(raw.call(7, &request).topics[0].error_code, 0);
    }
    let all = MetadataRequest::default().with_topics(None);
    let (reply, took) = eventually("leaders of all", Duration::from_secs(120), || {
        let begun = Instant::now();
        let reply = raw.call(METADATA, &all);
        let took = begun.elapsed();
        let led = reply
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .filter(|p| p.error_code == 0 && p.leader_id.0 >= 0);
        (led.count() == topics * 1000).then_some((reply, took))
    });
    assert!(took < Duration::from_secs(5), "took {took:?}");
    for topic in &reply.topics {
        let mut indexes: Vec<_> = topic.partitions.iter().map(|p| p.partition_index).collect();
        indexes.sort_unstable();
        assert_eq!(indexes, (0..1000).collect::<Vec<_>>());
    }
}

/// Row 7.
#[test]
fn a_replication_factor_that_cannot_be_is_refused_and_minus_one_means_the_default() {
    let (_broker, mut raw) = start();
    for (factor, error) in [(-1, 0), (1, 0), (0, 38), (3, 38), (-2, 38)] {
        let topic = CreatableTopic::default()
            .with_name(topic_name(&format!("factor{factor}")))
            .with_num_partitions(1)
            .with_replication_factor(factor);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(30_000);
        let reply = raw.call(7, &request);
        assert_eq!(reply.topics[0].error_code, error, "factor {factor}");
        if error == 0 {
            assert_eq!(reply.topics[0].replication_factor, 1);
        }
    }
}

/// Row 9.
#[test]
fn every_advertised_version_of_metadata_tells_the_same() {
    let (broker, mut raw) = start();
    create(&mut raw, "told", 2, &[]);
    let (min, max) = advertised::<MetadataRequest>(&mut raw).expect("Metadata is offered");
    assert_eq!((min, max), (0, 13));
    for version in min..=max {
        let topic = MetadataRequestTopic::default().with_name(Some(topic_name("told")));
        let reply = raw.call(
            version,
            &MetadataRequest::default().with_topics(Some(vec![topic])),
        );
        let topic = &reply.topics[0];
        assert_eq!(topic.error_code, 0, "version {version}");
        assert_eq!(topic.partitions.len(), 2, "version {version}");
        assert_eq!(
            topic.topic_id == Uuid::nil(),
            version < 10,
            "version {version}"
        );
        let leader = topic.partitions[0].leader_id;
        let node = reply
            .brokers
            .iter()
            .find(|b| b.node_id == leader)
            .expect("the leader is among the brokers");
        assert_eq!(node.port, i32::from(broker.address().port()));
        assert_eq!(
            topic.topic_authorized_operations, NO_OPERATIONS,
            "version {version}"
        );
        if version >= 2 {
            assert!(
                reply.cluster_id.as_ref().is_some_and(|id| !id.is_empty()),
                "version {version}"
            );
        }
    }
}

#[test]
fn all_topics_are_null_since_version_1_and_an_empty_list_in_version_0() {
    let (_broker, mut raw) = start();
    create(&mut raw, "one", 1, &[]);
    create(&mut raw, "two", 1, &[]);
    for version in 0..=13 {
        let all = if version == 0 { Some(vec![]) } else { None };
        let reply = raw.call(version, &MetadataRequest::default().with_topics(all));
        let names: Vec<_> = reply.topics.iter().filter_map(|t| t.name.clone()).collect();
        assert!(
            names.contains(&topic_name("one")) && names.contains(&topic_name("two")),
            "version {version}"
        );
        if version > 0 {
            let none = raw.call(
                version,
                &MetadataRequest::default().with_topics(Some(vec![])),
            );
            assert!(none.topics.is_empty(), "version {version}");
        }
    }
}

#[test]
fn topics_are_found_by_id_and_an_unknown_id_is_told_as_such() {
    let (_broker, mut raw) = start();
    let id = create(&mut raw, "by-id", 1, &[]);
    assert_ne!(id, Uuid::nil());
    for version in 12..=13 {
        for (asked, error, name) in [
            (id, 0, Some(topic_name("by-id"))),
            (Uuid::from_u128(7), 100, None),
        ] {
            let topic = MetadataRequestTopic::default()
                .with_topic_id(asked)
                .with_name(None);
            let reply = raw.call(
                version,
                &MetadataRequest::default().with_topics(Some(vec![topic])),
            );
            assert_eq!(reply.topics[0].error_code, error);
            assert_eq!(reply.topics[0].topic_id, asked);
            assert_eq!(reply.topics[0].name, name);
        }
    }
}

/// Row 61: ids are stable for the life of a topic.
#[test]
fn a_topic_keeps_its_id_over_a_restart() {
    let mut broker = Broker::start();
    let mut raw = Raw::connect(broker.address());
    let id = create(&mut raw, "stable", 1, &[]);
    drop(raw);
    broker.stop().expect("a clean stop");
    broker.restart();
    let mut raw = Raw::connect(broker.address());
    assert_eq!(wait_for_leaders(&mut raw, "stable", 1).topic_id, id);
}

/// Row 79.
#[test]
fn the_cluster_is_described_and_operations_only_when_asked() {
    let (broker, mut raw) = start();
    for version in 0..=2 {
        let reply = raw.call(version, &DescribeClusterRequest::default());
        assert_eq!(reply.error_code, 0);
        assert_eq!(reply.cluster_authorized_operations, NO_OPERATIONS);
        assert_eq!(reply.brokers.len(), 1);
        assert_eq!(reply.brokers[0].port, i32::from(broker.address().port()));
        assert_eq!(reply.brokers[0].broker_id, reply.controller_id);
        let asked =
            DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
        assert_ne!(
            raw.call(version, &asked).cluster_authorized_operations,
            NO_OPERATIONS
        );
    }
    let reply = raw.call(
        METADATA,
        &MetadataRequest::default().with_topics(Some(vec![])),
    );
    let described = raw.call(2, &DescribeClusterRequest::default());
    assert_eq!(reply.cluster_id, Some(text(&described.cluster_id)));
}
