//! Several brokers: who is named as what, what the wrong one answers, and what moves do to those who wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use handler_api::Owner;
use host_shim::sim::SimHost;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest, DescribeClusterRequest,
    DescribeGroupsRequest, FetchRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest,
    InitProducerIdRequest, JoinGroupRequest, ListGroupsRequest, ListOffsetsRequest,
    MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, ProduceRequest,
};
use tokio::time::{Instant, timeout};

use super::cluster_testing::{Cluster, id, name, node, text};
use crate::wire::batch::{BatchBuilder, Batches, NewRecord};

const OFFSET_OUT_OF_RANGE: i16 = 1;
const NOT_LEADER: i16 = 6;
const NOT_COORDINATOR: i16 = 16;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const GROUP: &str = "g";
/// Far below what anybody is told to wait in these tests.
const AT_ONCE: Duration = Duration::from_millis(500);

fn full(topic: &str, partition: i32) -> String {
    format!("persistent://public/default/{topic}-partition-{partition}")
}

fn offsets_partition() -> String {
    "persistent://public/__kafka/__consumer_offsets-partition-0".to_owned()
}

async fn cluster(count: u32) -> Arc<Cluster> {
    let settings = [("offsetsTopicNumPartitions", "1")];
    Cluster::start(SimHost::new(1), count, &settings).await
}

async fn create(cluster: &Cluster, topic: &str, partitions: i32) {
    let request = CreateTopicsRequest::default().with_topics(vec![
        CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1),
    ]);
    let reply = cluster.ask(1, 5, &request).await;
    assert_eq!(reply.topics[0].error_code, 0);
}

fn batch(value: &str) -> Bytes {
    let mut builder = BatchBuilder::new(1_000);
    let record = NewRecord::new(1_000, None, Some(value.as_bytes()));
    builder.push(record).unwrap();
    builder.build().unwrap()
}

async fn produce(cluster: &Cluster, broker: u32, topic: &str, value: &str) -> (i16, i64) {
    let data = PartitionProduceData::default()
        .with_index(0)
        .with_records(Some(batch(value)));
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(name(topic))
                .with_partition_data(vec![data]),
        ]);
    let reply = cluster.ask(broker, 9, &request).await;
    let partition = &reply.responses[0].partition_responses[0];
    (partition.error_code, partition.base_offset)
}

fn fetch_request(topic: &str, offset: i64, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    FetchRequest::default()
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(name(topic))
                .with_partitions(vec![partition]),
        ])
}

/// Error, offset and leader epoch of partition 0.
async fn list_offsets(cluster: &Cluster, broker: u32, topic: &str, target: i64) -> (i16, i64, i32) {
    let asked = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_timestamp(target);
    let request = ListOffsetsRequest::default().with_topics(vec![
        ListOffsetsTopic::default()
            .with_name(name(topic))
            .with_partitions(vec![asked]),
    ]);
    let reply = cluster.ask(broker, 5, &request).await;
    let found = &reply.topics[0].partitions[0];
    (found.error_code, found.offset, found.leader_epoch)
}

async fn find_coordinator(cluster: &Cluster, broker: u32) -> (i16, i32) {
    let request = FindCoordinatorRequest::default().with_key(text(GROUP));
    let reply = cluster.ask(broker, 3, &request).await;
    (reply.error_code, reply.node_id.0)
}

async fn commit(cluster: &Cluster, broker: u32, topic: &str, offset: i64) -> i16 {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text(GROUP)))
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(name(topic))
                .with_partitions(vec![partition]),
        ]);
    let reply = cluster.ask(broker, 8, &request).await;
    reply.topics[0].partitions[0].error_code
}

async fn committed(cluster: &Cluster, broker: u32, topic: &str) -> (i16, i64) {
    let wanted = OffsetFetchRequestTopic::default()
        .with_name(name(topic))
        .with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(text(GROUP)))
        .with_topics(Some(vec![wanted]));
    let reply = cluster.ask(broker, 5, &request).await;
    let offset = reply
        .topics
        .first()
        .map_or(-1, |topic| topic.partitions[0].committed_offset);
    (reply.error_code, offset)
}

fn join_request(member: &str) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(GroupId(text(GROUP)))
        .with_session_timeout_ms(60_000)
        .with_rebalance_timeout_ms(60_000)
        .with_member_id(text(member))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![
            JoinGroupRequestProtocol::default()
                .with_name(text("range"))
                .with_metadata(Bytes::from_static(b"\0\0\0\0\0\0\xff\xff\xff\xff")),
        ])
}

#[tokio::test(start_paused = true)]
async fn every_broker_names_the_same_owners_no_epoch_and_the_same_controller() {
    let cluster = cluster(3).await;
    create(&cluster, "t", 3).await;
    cluster.sim.set_bundles(64);
    for (partition, owner) in [(0, 1), (1, 2), (2, 3)] {
        cluster
            .sim
            .move_bundle(&full("t", partition), Some(&id(owner)));
    }
    let mut ids = Vec::new();
    for asked in 1..=3 {
        let reply = cluster.metadata(asked, "t").await.unwrap();
        let topic = &reply.topics[0];
        let leaders: Vec<i32> = topic.partitions.iter().map(|p| p.leader_id.0).collect();
        assert_eq!(leaders, [node(1), node(2), node(3)], "asked {asked}");
        assert!(topic.partitions.iter().all(|p| p.leader_epoch == -1));
        assert_eq!(reply.controller_id.0, node(1));
        assert_eq!(reply.brokers.len(), 3);
        ids.push(topic.topic_id);
        let cluster_reply = cluster
            .ask(asked, 0, &DescribeClusterRequest::default())
            .await;
        assert_eq!(cluster_reply.controller_id.0, node(1));
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "one topic id");
    cluster.kill(1);
    assert!(cluster.sim.expire(&id(1)));
    for asked in 2..=3 {
        let reply = cluster.metadata(asked, "t").await.unwrap();
        assert_eq!(reply.controller_id.0, node(2), "asked {asked}");
        assert_eq!(reply.brokers.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_serves_no_kafka_clients_is_no_leader() {
    let cluster = cluster(1).await;
    create(&cluster, "t", 1).await;
    let owner = Owner {
        local: false,
        broker: "plain:8080".into(),
        protocol_data: "".into(),
    };
    cluster.sim.set_owner(&full("t", 0), Some(owner));
    let reply = cluster.metadata(1, "t").await.unwrap();
    let partition = &reply.topics[0].partitions[0];
    assert_eq!((partition.error_code, partition.leader_id.0), (5, -1));
    assert_eq!(produce(&cluster, 1, "t", "x").await.0, NOT_LEADER);
}

#[tokio::test(start_paused = true)]
async fn only_what_is_owned_here_is_remembered_and_only_until_it_moves() {
    let cluster = cluster(3).await;
    create(&cluster, "t", 1).await;
    let partition = full("t", 0);
    cluster.sim.move_bundle(&partition, Some(&id(1)));
    let lookups = async |broker: u32| {
        let before = cluster.sim.lookups();
        let leader = cluster.leader(broker, "t", 0).await;
        (leader, cluster.sim.lookups() - before)
    };
    assert_eq!(lookups(1).await, (Some(1), 1));
    assert_eq!(lookups(1).await, (Some(1), 0), "its own");
    assert_eq!(lookups(2).await, (Some(1), 1));
    assert_eq!(
        lookups(2).await,
        (Some(1), 1),
        "another's holds for the moment"
    );
    // Broker 2 hears nothing of a move between 1 and 3.
    cluster.sim.move_bundle(&partition, Some(&id(3)));
    assert_eq!(lookups(2).await, (Some(3), 1));
    assert_eq!(
        lookups(1).await,
        (Some(3), 1),
        "it was told that it lost it"
    );
    assert_eq!(lookups(3).await, (Some(3), 1));
    assert_eq!(lookups(3).await, (Some(3), 0));
}

#[tokio::test(start_paused = true)]
async fn the_wrong_broker_sends_clients_on() {
    let cluster = cluster(2).await;
    create(&cluster, "t", 1).await;
    cluster.sim.move_bundle(&full("t", 0), Some(&id(1)));
    assert_eq!(produce(&cluster, 1, "t", "x").await, (0, 0));
    assert_eq!(produce(&cluster, 2, "t", "x").await.0, NOT_LEADER);
    let reply = cluster.ask(2, 11, &fetch_request("t", 0, 0)).await;
    assert_eq!(reply.responses[0].partitions[0].error_code, NOT_LEADER);
    assert_eq!(list_offsets(&cluster, 1, "t", LATEST).await, (0, 1, -1));
    assert_eq!(list_offsets(&cluster, 2, "t", LATEST).await.0, NOT_LEADER);

    find_coordinator(&cluster, 1).await;
    cluster.sim.move_bundle(&offsets_partition(), Some(&id(2)));
    for asked in 1..=2 {
        assert_eq!(find_coordinator(&cluster, asked).await, (0, node(2)));
    }
    assert_eq!(commit(&cluster, 2, "t", 1).await, 0);
    assert_eq!(commit(&cluster, 1, "t", 1).await, NOT_COORDINATOR);
    assert_eq!(committed(&cluster, 1, "t").await.0, NOT_COORDINATOR);
    let joined = cluster.ask(1, 3, &join_request("")).await;
    assert_eq!(joined.error_code, NOT_COORDINATOR);
    let beat = HeartbeatRequest::default()
        .with_group_id(GroupId(text(GROUP)))
        .with_member_id(text("m"));
    assert_eq!(cluster.ask(1, 3, &beat).await.error_code, NOT_COORDINATOR);
    let describe = DescribeGroupsRequest::default().with_groups(vec![GroupId(text(GROUP))]);
    let described = cluster.ask(1, 5, &describe).await;
    assert_eq!(described.groups[0].error_code, NOT_COORDINATOR);
    // Each broker lists its own groups.
    let listed = async |broker| {
        let reply = cluster.ask(broker, 4, &ListGroupsRequest::default()).await;
        (reply.error_code, reply.groups.len())
    };
    assert_eq!((listed(1).await, listed(2).await), ((0, 0), (0, 1)));
}

#[tokio::test(start_paused = true)]
async fn batches_are_handed_out_without_a_leader_epoch() {
    let cluster = cluster(2).await;
    create(&cluster, "t", 1).await;
    cluster.sim.move_bundle(&full("t", 0), Some(&id(2)));
    produce(&cluster, 2, "t", "x").await;
    let reply = cluster.ask(2, 11, &fetch_request("t", 0, 0)).await;
    let records = reply.responses[0].partitions[0].records.clone().unwrap();
    let batch = Batches::new(records).next().unwrap().unwrap();
    assert_eq!(batch.header.leader_epoch, -1);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_fetch_is_told_at_once_when_its_partition_moves() {
    let cluster = cluster(2).await;
    create(&cluster, "t", 1).await;
    let partition = full("t", 0);
    cluster.sim.move_bundle(&partition, Some(&id(1)));
    produce(&cluster, 1, "t", "x").await;
    let waiting = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.ask(1, 11, &fetch_request("t", 1, 60_000)).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    let moved = Instant::now();
    cluster.sim.move_bundle(&partition, Some(&id(2)));
    let reply = timeout(AT_ONCE, waiting).await.expect("at once").unwrap();
    assert!(moved.elapsed() < AT_ONCE);
    assert_eq!(reply.responses[0].partitions[0].error_code, NOT_LEADER);
    assert_eq!(cluster.leader(1, "t", 0).await, Some(2));
    assert_eq!(produce(&cluster, 2, "t", "y").await, (0, 1));
    // And back, where it is opened anew.
    cluster.sim.move_bundle(&partition, Some(&id(1)));
    assert_eq!(produce(&cluster, 2, "t", "z").await.0, NOT_LEADER);
    assert_eq!(produce(&cluster, 1, "t", "z").await, (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_join_is_told_at_once_when_its_coordinator_moves() {
    let cluster = cluster(2).await;
    create(&cluster, "t", 1).await;
    find_coordinator(&cluster, 1).await;
    cluster.sim.move_bundle(&offsets_partition(), Some(&id(1)));
    assert_eq!(commit(&cluster, 1, "t", 7).await, 0);
    let first = cluster.ask(1, 3, &join_request("")).await;
    assert_eq!(first.error_code, 0);
    // The first member does not come back, so that the second waits for the whole rebalance.
    let waiting = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.ask(1, 3, &join_request("")).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    cluster.sim.move_bundle(&offsets_partition(), Some(&id(2)));
    let reply = timeout(AT_ONCE, waiting).await.expect("at once").unwrap();
    assert_eq!(reply.error_code, NOT_COORDINATOR);
    assert_eq!(find_coordinator(&cluster, 1).await, (0, node(2)));
    assert_eq!(committed(&cluster, 2, "t").await, (0, 7));
    // Its life goes on there, and again here when it comes back, without a pause.
    assert_eq!(commit(&cluster, 2, "t", 8).await, 0);
    assert_eq!(commit(&cluster, 1, "t", 9).await, NOT_COORDINATOR);
    cluster.sim.move_bundle(&offsets_partition(), Some(&id(1)));
    tokio::task::yield_now().await;
    assert_eq!(committed(&cluster, 1, "t").await, (0, 8));
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_broker_owned_is_served_by_others_once_its_session_has_ended() {
    let cluster = cluster(3).await;
    create(&cluster, "t", 1).await;
    find_coordinator(&cluster, 1).await;
    for partition in [full("t", 0), offsets_partition()] {
        cluster.sim.move_bundle(&partition, Some(&id(3)));
    }
    assert_eq!(produce(&cluster, 3, "t", "x").await, (0, 0));
    assert_eq!(commit(&cluster, 3, "t", 1).await, 0);
    cluster.kill(3);
    assert_eq!(cluster.leader(1, "t", 0).await, Some(3), "nobody knows yet");
    assert!(cluster.sim.expire(&id(3)));
    let leader = cluster.leader(1, "t", 0).await.unwrap();
    assert_eq!(produce(&cluster, leader, "t", "y").await, (0, 1));
    let (error, coordinator) = find_coordinator(&cluster, 2).await;
    assert_eq!(error, 0);
    let coordinator = (1..=2).find(|broker| node(*broker) == coordinator).unwrap();
    assert_eq!(committed(&cluster, coordinator, "t").await, (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_deleted_anywhere_loses_its_offsets_everywhere() {
    let cluster = cluster(2).await;
    create(&cluster, "t", 1).await;
    find_coordinator(&cluster, 1).await;
    cluster.sim.move_bundle(&offsets_partition(), Some(&id(2)));
    assert_eq!(commit(&cluster, 2, "t", 5).await, 0);
    let request = DeleteTopicsRequest::default().with_topic_names(vec![name("t")]);
    assert_eq!(cluster.ask(1, 5, &request).await.responses[0].error_code, 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(committed(&cluster, 2, "t").await, (0, -1));
}

#[tokio::test(start_paused = true)]
async fn deleted_records_stay_deleted_wherever_the_partition_goes() {
    let cluster = cluster(2).await;
    create(&cluster, "t", 1).await;
    let partition = full("t", 0);
    cluster.sim.move_bundle(&partition, Some(&id(1)));
    for value in ["a", "b", "c"] {
        produce(&cluster, 1, "t", value).await;
    }
    let request = DeleteRecordsRequest::default()
        .with_timeout_ms(1_000)
        .with_topics(vec![
            DeleteRecordsTopic::default()
                .with_name(name("t"))
                .with_partitions(vec![
                    DeleteRecordsPartition::default()
                        .with_partition_index(0)
                        .with_offset(2),
                ]),
        ]);
    let delete = async |broker| {
        let reply = cluster.ask(broker, 1, &request).await;
        let answer = reply.topics[0].partitions[0].clone();
        (answer.error_code, answer.low_watermark)
    };
    assert_eq!(delete(2).await.0, NOT_LEADER);
    assert_eq!(delete(1).await, (0, 2));
    for owner in [1, 2] {
        cluster.sim.move_bundle(&partition, Some(&id(owner)));
        assert_eq!(
            list_offsets(&cluster, owner, "t", EARLIEST).await,
            (0, 2, -1)
        );
        let fetch = async |offset| {
            let reply = cluster.ask(owner, 11, &fetch_request("t", offset, 0)).await;
            let answer = &reply.responses[0].partitions[0];
            (answer.error_code, answer.log_start_offset)
        };
        assert_eq!(fetch(1).await.0, OFFSET_OUT_OF_RANGE);
        assert_eq!(fetch(2).await, (0, 2));
    }
    // The host holds all of it still: it cannot cut a ledger.
    assert_eq!(cluster.sim.entries(&partition).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_topic_without_partitions_is_one_partition_that_moves_too() {
    let cluster = cluster(2).await;
    let topic = "persistent://public/default/plain";
    assert!(cluster.sim.create_topic(topic, 0));
    for (owner, offset) in [(1, 0), (2, 1)] {
        cluster.sim.move_bundle(topic, Some(&id(owner)));
        assert_eq!(cluster.leader(1, "plain", 0).await, Some(owner));
        assert_eq!(produce(&cluster, owner, "plain", "x").await, (0, offset));
        assert_eq!(
            produce(&cluster, 3 - owner, "plain", "x").await.0,
            NOT_LEADER
        );
        assert_eq!(
            list_offsets(&cluster, owner, "plain", LATEST).await,
            (0, offset + 1, -1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn no_producer_id_is_given_by_two_brokers() {
    let cluster = cluster(2).await;
    let request = InitProducerIdRequest::default().with_transactional_id(None);
    let mut ids = Vec::new();
    for _ in 0..3 {
        for broker in 1..=2 {
            let reply = cluster.ask(broker, 4, &request).await;
            assert_eq!(reply.error_code, 0);
            ids.push(reply.producer_id.0);
        }
    }
    assert_eq!(ids, [0, 1000, 1, 1001, 2, 1002]);
}

/// Ten thousand partitions, two thirds of them elsewhere.
#[tokio::test]
async fn metadata_of_ten_thousand_partitions_takes_one_lookup_and_no_time() {
    let cluster = cluster(3).await;
    for topic in 0..100 {
        assert!(
            cluster
                .sim
                .create_topic(&format!("persistent://public/default/t{topic}"), 100)
        );
    }
    let request = MetadataRequest::default().with_topics(None);
    let warm = cluster.ask(1, 12, &request).await;
    let partitions: usize = warm.topics.iter().map(|topic| topic.partitions.len()).sum();
    assert_eq!(partitions, 10_000);
    let before = cluster.sim.lookups();
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let started = std::time::Instant::now();
        cluster.ask(1, 12, &request).await;
        best = best.min(started.elapsed());
    }
    assert_eq!(
        cluster.sim.lookups() - before,
        5,
        "one for all that others own"
    );
    println!("Metadata of 10,000 partitions: {best:?}, decoding included");
    // Unoptimised, and with other tests beside it; a release build is asked for a tenth of it.
    let bound = if cfg!(debug_assertions) { 1_000 } else { 100 };
    assert!(best < Duration::from_millis(bound), "{best:?}");
}
