//! Groups and committed offsets over the wire, on the simulated host (rows 47–58 and 61 of the behaviours).

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DeleteGroupsRequest, DeleteTopicsRequest,
    DescribeGroupsRequest, FetchRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest, MetadataRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kop_handler::coordinator::engine::shard_index;
use kop_handler::coordinator::record::{self, Record};
use kop_handler::wire::batch::Batches;
use support::{Client, Plugin};

const GROUP: &str = "readers";

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

async fn create(client: &mut Client, name: &str, partitions: i32) {
    let request = CreateTopicsRequest::default().with_topics(vec![
        CreatableTopic::default()
            .with_name(topic(name))
            .with_num_partitions(partitions)
            .with_replication_factor(1),
    ]);
    assert_eq!(client.call(5, &request).await.topics[0].error_code, 0);
}

fn commit_request(offsets: &[(&str, i32, i64)]) -> OffsetCommitRequest {
    let topics = offsets.iter().map(|(name, partition, offset)| {
        OffsetCommitRequestTopic::default()
            .with_name(topic(name))
            .with_partitions(vec![
                OffsetCommitRequestPartition::default()
                    .with_partition_index(*partition)
                    .with_committed_offset(*offset)
                    .with_committed_metadata(Some(text("m"))),
            ])
    });
    OffsetCommitRequest::default()
        .with_group_id(group(GROUP))
        .with_topics(topics.collect())
}

async fn commit(client: &mut Client, version: i16, offsets: &[(&str, i32, i64)]) -> Vec<i16> {
    let reply = client.call(version, &commit_request(offsets)).await;
    let topics = reply.topics.iter();
    topics
        .flat_map(|t| t.partitions.iter().map(|p| p.error_code))
        .collect()
}

async fn offset(client: &mut Client, name: &str, partition: i32) -> (i64, i16) {
    let wanted = OffsetFetchRequestTopic::default()
        .with_name(topic(name))
        .with_partition_indexes(vec![partition]);
    let request = OffsetFetchRequest::default()
        .with_group_id(group(GROUP))
        .with_topics(Some(vec![wanted]));
    let reply = client.call(5, &request).await;
    assert_eq!(reply.error_code, 0);
    let found = &reply.topics[0].partitions[0];
    (found.committed_offset, found.error_code)
}

fn join_request(member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(group(GROUP))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_member_id(text(member_id))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![
            JoinGroupRequestProtocol::default()
                .with_name(text("range"))
                .with_metadata(Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff")),
        ])
}

/// Joins as a new client does: asks, is given an id, comes back with it.
async fn join(client: &mut Client) -> JoinGroupResponse {
    let given = client.call(9, &join_request("")).await;
    assert_eq!(given.error_code, 79, "MEMBER_ID_REQUIRED");
    let joined = client.call(9, &join_request(&given.member_id)).await;
    assert_eq!(joined.error_code, 0);
    joined
}

fn sync_request(joined: &JoinGroupResponse, assignments: &[(&str, &str)]) -> SyncGroupRequest {
    let assignments = assignments.iter().map(|(member, bytes)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(Bytes::from((*bytes).to_owned()))
    });
    SyncGroupRequest::default()
        .with_group_id(group(GROUP))
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id)
        .with_protocol_type(Some(text("consumer")))
        .with_protocol_name(Some(text("range")))
        .with_assignments(assignments.collect())
}

async fn heartbeat(client: &mut Client, joined: &JoinGroupResponse) -> i16 {
    let request = HeartbeatRequest::default()
        .with_group_id(group(GROUP))
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id);
    client.call(4, &request).await.error_code
}

async fn state(client: &mut Client) -> String {
    let request = DescribeGroupsRequest::default().with_groups(vec![group(GROUP)]);
    client.call(5, &request).await.groups[0]
        .group_state
        .to_string()
}

#[tokio::test]
async fn two_members_share_a_group_and_rebalance_when_one_leaves() {
    let plugin = Plugin::start(&[]).await;
    let (mut a, mut b) = (plugin.connect().await, plugin.connect().await);
    let first = join(&mut a).await;
    assert_eq!((first.generation_id, &first.leader), (1, &first.member_id));
    let synced = a
        .call(5, &sync_request(&first, &[(&first.member_id, "all")]))
        .await;
    assert_eq!(&synced.assignment[..], b"all");

    let given = b.call(9, &join_request("")).await;
    b.send(9, &join_request(&given.member_id)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(heartbeat(&mut a, &first).await, 27, "REBALANCE_IN_PROGRESS");
    let leader = a.call(9, &join_request(&first.member_id)).await;
    let (_, follower) = b.receive::<JoinGroupRequest>(9).await;
    assert_eq!((leader.generation_id, follower.generation_id), (2, 2));
    assert_eq!((leader.members.len(), follower.members.len()), (2, 0));

    // The follower's SyncGroup waits for the leader's: there is no timer to answer it with nothing.
    b.send(5, &sync_request(&follower, &[])).await;
    assert!(b.is_silent(Duration::from_millis(300)).await);
    let shares = [
        (&*leader.member_id, "left"),
        (&*follower.member_id, "right"),
    ];
    let synced = a.call(5, &sync_request(&leader, &shares)).await;
    assert_eq!(&synced.assignment[..], b"left");
    let (_, synced) = b.receive::<SyncGroupRequest>(5).await;
    assert_eq!(&synced.assignment[..], b"right");

    let describe = DescribeGroupsRequest::default().with_groups(vec![group(GROUP)]);
    let described = a.call(6, &describe).await;
    let described = &described.groups[0];
    assert_eq!(
        (&*described.group_state, &*described.protocol_data),
        ("Stable", "range")
    );
    assert_eq!(described.members.len(), 2);
    assert_eq!(
        (
            &*described.members[0].client_id,
            &*described.members[0].client_host
        ),
        ("raw", "/127.0.0.1")
    );

    let leave = LeaveGroupRequest::default()
        .with_group_id(group(GROUP))
        .with_members(vec![
            MemberIdentity::default()
                .with_member_id(follower.member_id.clone())
                .with_reason(Some(text("done"))),
        ]);
    assert_eq!(b.call(5, &leave).await.members[0].error_code, 0);
    assert_eq!(heartbeat(&mut a, &leader).await, 27);
    assert_eq!(heartbeat(&mut b, &follower).await, 25, "UNKNOWN_MEMBER_ID");
    let alone = a.call(9, &join_request(&leader.member_id)).await;
    assert_eq!((alone.generation_id, alone.members.len()), (3, 1));
}

#[tokio::test]
async fn commits_outlive_the_plugin_and_the_topic_comes_into_being_by_them() {
    let plugin = Plugin::start(&[("offsetsTopicNumPartitions", "7")]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    assert_eq!(offset(&mut client, "t", 0).await, (-1, 0));
    assert_eq!(offset(&mut client, "nowhere", 0).await, (-1, 0), "row 53");
    let metadata = client
        .call(12, &MetadataRequest::default().with_topics(None))
        .await;
    assert!(
        metadata.topics.iter().all(|t| !t.is_internal),
        "reading creates nothing"
    );

    for version in 2..=9 {
        assert_eq!(
            commit(
                &mut client,
                version,
                &[("t", 0, i64::from(version)), ("t", 1, 42)]
            )
            .await,
            [0, 0]
        );
        assert_eq!(offset(&mut client, "t", 0).await, (i64::from(version), 0));
    }
    let metadata = client
        .call(12, &MetadataRequest::default().with_topics(None))
        .await;
    let internal = metadata.topics.iter().find(|t| t.is_internal).unwrap();
    assert_eq!(
        internal.name.as_ref().unwrap().as_str(),
        "__consumer_offsets"
    );
    assert_eq!(internal.partitions.len(), 7);

    plugin.handler.close().await.unwrap();
    let plugin = Plugin::start_on(plugin.sim, &[("offsetsTopicNumPartitions", "50")]).await;
    let mut client = plugin.connect().await;
    assert_eq!(
        offset(&mut client, "t", 0).await,
        (9, 0),
        "row 52; and the topic's own number of partitions counts"
    );
    assert_eq!(offset(&mut client, "t", 1).await, (42, 0));
}

#[tokio::test]
async fn partitions_that_do_not_exist_are_refused_alone() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let codes = commit(
        &mut client,
        9,
        &[("t", 1, 1), ("nowhere", 0, 1), ("t", 0, 5), ("a b", 0, 1)],
    )
    .await;
    assert_eq!(codes, [3, 3, 0, 3]);
    assert_eq!(offset(&mut client, "t", 0).await, (5, 0));
}

#[tokio::test]
async fn pipelined_commits_take_effect_in_their_order() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    for n in 1..=200 {
        client.send(8, &commit_request(&[("t", 0, n)])).await;
    }
    for _ in 1..=200 {
        let (_, reply) = client.receive::<OffsetCommitRequest>(8).await;
        assert_eq!(reply.topics[0].partitions[0].error_code, 0);
    }
    assert_eq!(offset(&mut client, "t", 0).await, (200, 0));
}

#[tokio::test]
async fn many_groups_are_fetched_at_once_and_all_offsets_of_one() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    commit(&mut client, 9, &[("t", 1, 7)]).await;
    let wanted = OffsetFetchRequestTopics::default()
        .with_name(topic("t"))
        .with_partition_indexes(vec![0, 1]);
    let request = OffsetFetchRequest::default()
        .with_require_stable(true)
        .with_groups(vec![
            OffsetFetchRequestGroup::default()
                .with_group_id(group(GROUP))
                .with_topics(Some(vec![wanted.clone()])),
            OffsetFetchRequestGroup::default()
                .with_group_id(group("nobody"))
                .with_topics(Some(vec![wanted])),
            OffsetFetchRequestGroup::default()
                .with_group_id(group(GROUP))
                .with_topics(None),
        ]);
    let reply = client.call(9, &request).await;
    let offsets = |group: usize| -> Vec<(i32, i64)> {
        let topics = reply.groups[group].topics.iter();
        topics
            .flat_map(|t| {
                t.partitions
                    .iter()
                    .map(|p| (p.partition_index, p.committed_offset))
            })
            .collect()
    };
    assert_eq!(offsets(0), [(0, -1), (1, 7)]);
    assert_eq!(offsets(1), [(0, -1), (1, -1)]);
    assert_eq!(offsets(2), [(1, 7)]);
}

/// Row 58: tools read the topic itself.
#[tokio::test]
async fn the_offsets_topic_can_be_read_like_any_other() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    commit(&mut client, 9, &[("t", 0, 1234)]).await;
    let joined = join(&mut client).await;
    client
        .call(5, &sync_request(&joined, &[(&joined.member_id, "x")]))
        .await;

    let shard = i32::try_from(shard_index(GROUP, 50)).unwrap();
    let wanted = FetchPartition::default()
        .with_partition(shard)
        .with_partition_max_bytes(1 << 20);
    let request = FetchRequest::default()
        .with_max_wait_ms(0)
        .with_max_bytes(1 << 20)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(topic("__consumer_offsets"))
                .with_partitions(vec![wanted]),
        ]);
    let reply = client.call(12, &request).await;
    let fetched = &reply.responses[0].partitions[0];
    assert_eq!(fetched.error_code, 0);
    let mut records = Vec::new();
    for batch in Batches::new(fetched.records.clone().unwrap()) {
        let batch = batch.unwrap();
        for record in &batch.records(1 << 20).unwrap() {
            let record = record.unwrap();
            records.push(
                record::decode(record.key.unwrap(), record.value)
                    .unwrap()
                    .unwrap(),
            );
        }
    }
    let Record::Offset {
        group,
        topic,
        value,
        ..
    } = &records[0]
    else {
        panic!("{records:?}");
    };
    assert_eq!(
        (
            group.as_str(),
            topic.as_str(),
            value.as_ref().unwrap().offset
        ),
        (GROUP, "t", 1234)
    );
    assert!(
        !value.as_ref().unwrap().topic_id.is_nil(),
        "row 61: kept with the topic's id"
    );
    let Record::Group {
        value: Some(stable),
        ..
    } = records.last().unwrap()
    else {
        panic!("{records:?}");
    };
    assert_eq!((stable.generation, stable.members.len()), (1, 1));
}

#[tokio::test]
async fn a_topic_that_is_made_again_begins_without_offsets() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    create(&mut client, "u", 1).await;
    commit(&mut client, 9, &[("t", 0, 5), ("u", 0, 6)]).await;
    let request = DeleteTopicsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(vec![
            DeleteTopicState::default().with_name(Some(topic("t"))),
        ]);
    assert_eq!(client.call(6, &request).await.responses[0].error_code, 0);
    create(&mut client, "t", 1).await;
    assert_eq!(offset(&mut client, "t", 0).await, (-1, 0));
    assert_eq!(offset(&mut client, "u", 0).await, (6, 0));
}

#[tokio::test]
async fn groups_are_listed_and_deleted_and_so_are_offsets() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    assert_eq!(
        client
            .call(5, &ListGroupsRequest::default())
            .await
            .groups
            .len(),
        0
    );
    commit(&mut client, 9, &[("t", 0, 5)]).await;
    for version in 0..=5 {
        let listed = client.call(version, &ListGroupsRequest::default()).await;
        assert_eq!(listed.groups[0].group_id.as_str(), GROUP);
        assert_eq!(
            &*listed.groups[0].group_state,
            if version >= 4 { "Empty" } else { "" }
        );
        assert_eq!(
            &*listed.groups[0].group_type,
            if version >= 5 { "classic" } else { "" }
        );
    }
    let stable = ListGroupsRequest::default().with_states_filter(vec![text("Stable")]);
    assert_eq!(client.call(5, &stable).await.groups.len(), 0);

    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let delete = OffsetDeleteRequest::default()
        .with_group_id(group(GROUP))
        .with_topics(
            ["t", "nowhere"]
                .map(|name| {
                    OffsetDeleteRequestTopic::default()
                        .with_name(topic(name))
                        .with_partitions(vec![partition.clone()])
                })
                .into(),
        );
    let reply = client.call(0, &delete).await;
    let codes: Vec<i16> = reply
        .topics
        .iter()
        .map(|t| t.partitions[0].error_code)
        .collect();
    assert_eq!((reply.error_code, codes), (0, vec![0, 3]));
    assert_eq!(offset(&mut client, "t", 0).await, (-1, 0));

    commit(&mut client, 9, &[("t", 0, 5)]).await;
    let joined = join(&mut client).await;
    let delete =
        DeleteGroupsRequest::default().with_groups_names(vec![group(GROUP), group("nobody")]);
    let codes = async |client: &mut Client| -> Vec<i16> {
        client
            .call(2, &delete)
            .await
            .results
            .iter()
            .map(|r| r.error_code)
            .collect()
    };
    assert_eq!(
        codes(&mut client).await,
        [68, 69],
        "NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND"
    );
    let leave = LeaveGroupRequest::default()
        .with_group_id(group(GROUP))
        .with_member_id(joined.member_id.clone());
    assert_eq!(client.call(2, &leave).await.error_code, 0);
    assert_eq!(state(&mut client).await, "Empty");
    assert_eq!(codes(&mut client).await, [0, 69]);
    assert_eq!(state(&mut client).await, "Dead");
    assert_eq!(offset(&mut client, "t", 0).await, (-1, 0));
}

#[tokio::test]
async fn coordinators_are_found_by_every_version() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let brokers = client
        .call(12, &MetadataRequest::default().with_topics(None))
        .await
        .brokers;
    let port = i32::from(plugin.address.port());
    for version in 0..=6 {
        let request = if version < 4 {
            FindCoordinatorRequest::default().with_key(text(GROUP))
        } else {
            FindCoordinatorRequest::default()
                .with_coordinator_keys(vec![text(GROUP), text("other")])
        };
        let reply = client.call(version, &request).await;
        if version < 4 {
            assert_eq!(
                (reply.error_code, reply.node_id, reply.port),
                (0, brokers[0].node_id, port)
            );
            continue;
        }
        let keys: Vec<&str> = reply.coordinators.iter().map(|c| &*c.key).collect();
        assert_eq!(keys, [GROUP, "other"]);
        assert!(
            reply
                .coordinators
                .iter()
                .all(|c| c.error_code == 0 && c.port == port)
        );
    }
}

#[tokio::test]
async fn coordinators_that_are_not_built_are_refused_for_good() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let asked = |kind: i8| {
        FindCoordinatorRequest::default()
            .with_key_type(kind)
            .with_coordinator_keys(vec![text("x")])
    };
    let transaction = client.call(6, &asked(1)).await.coordinators.remove(0);
    assert_eq!(
        transaction.error_code, 53,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients do not retry"
    );
    assert!(!transaction.error_message.unwrap().is_empty());
    for (version, kind) in [(6, 2), (6, 9), (5, 2)] {
        let refused = client
            .call(version, &asked(kind))
            .await
            .coordinators
            .remove(0);
        assert_eq!(refused.error_code, 42, "INVALID_REQUEST");
    }
}

#[tokio::test]
async fn a_sync_of_v5_must_name_the_protocol() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let joined = join(&mut client).await;
    let nameless = sync_request(&joined, &[]).with_protocol_name(None);
    assert_eq!(
        client.call(5, &nameless).await.error_code,
        23,
        "INCONSISTENT_GROUP_PROTOCOL"
    );
    let older = nameless.with_protocol_type(None);
    assert_eq!(client.call(4, &older).await.error_code, 0);
}

#[tokio::test]
async fn a_full_disk_refuses_commits_and_reads_go_on() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    commit(&mut client, 9, &[("t", 0, 5)]).await;
    plugin.sim.set_disk_full(true);
    assert_eq!(
        commit(&mut client, 9, &[("t", 0, 6)]).await,
        [15],
        "COORDINATOR_NOT_AVAILABLE"
    );
    assert_eq!(offset(&mut client, "t", 0).await, (5, 0));
    plugin.sim.set_disk_full(false);
    assert_eq!(commit(&mut client, 9, &[("t", 0, 7)]).await, [0]);
    assert_eq!(offset(&mut client, "t", 0).await, (7, 0));
}

/// The partition of the offsets topic is unloaded, as when a broker gives it up and takes it again.
#[tokio::test]
async fn a_shard_that_is_unloaded_comes_back_with_everything() {
    let plugin = Plugin::start(&[]).await;
    let (mut client, mut waiting) = (plugin.connect().await, plugin.connect().await);
    create(&mut client, "t", 1).await;
    commit(&mut client, 9, &[("t", 0, 5)]).await;
    let joined = join(&mut client).await;
    client
        .call(5, &sync_request(&joined, &[(&joined.member_id, "x")]))
        .await;
    let given = waiting.call(9, &join_request("")).await;
    waiting.send(9, &join_request(&given.member_id)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;

    let shard = shard_index(GROUP, 50);
    let name = format!("persistent://public/__kafka/__consumer_offsets-partition-{shard}");
    assert!(plugin.sim.unload(&name));
    let (_, told) = waiting.receive::<JoinGroupRequest>(9).await;
    assert_eq!(told.error_code, 16, "NOT_COORDINATOR: look for it again");

    let mut tries = 0;
    while heartbeat(&mut client, &joined).await != 0 {
        tries += 1;
        assert!(tries < 100, "it does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(offset(&mut client, "t", 0).await, (5, 0));
    assert_eq!(state(&mut client).await, "Stable");
}

#[tokio::test]
async fn every_group_api_is_advertised_to_the_version_that_works() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let reply = client
        .call(
            3,
            &ApiVersionsRequest::default()
                .with_client_software_name(text("t"))
                .with_client_software_version(text("1")),
        )
        .await;
    let range = |key: i16| {
        let found = reply.api_keys.iter().find(|k| k.api_key == key).unwrap();
        (found.min_version, found.max_version)
    };
    let expected = [
        (8, (2, 9)),
        (9, (1, 9)),
        (10, (0, 6)),
        (11, (0, 9)),
        (12, (0, 4)),
        (13, (0, 5)),
        (14, (0, 5)),
        (15, (0, 6)),
        (16, (0, 5)),
        (42, (0, 2)),
        (47, (0, 0)),
    ];
    for (key, versions) in expected {
        assert_eq!(range(key), versions, "key {key}");
    }
}
