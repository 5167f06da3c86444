//! Groups and committed offsets over the wire, on the simulated host (rows 47–58 and 61 of the behaviours).

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod members;
mod offsets;

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
