//! Groups of the classic protocol and their offsets.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest,
    DescribeGroupsRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest,
    OffsetFetchRequest, ShareGroupDescribeRequest, ShareGroupHeartbeatRequest, SyncGroupRequest,
};
use kop_tests::broker::{Broker, is_reference};
use kop_tests::process::eventually;
use kop_tests::raw::Raw;

use crate::kit::{
    advertised, append, batch, create, describe, read_to_end, start, text, topic_name,
};

const UNKNOWN_MEMBER: i16 = 25;
const ILLEGAL_GENERATION: i16 = 22;
const REBALANCE_IN_PROGRESS: i16 = 27;
const MEMBER_ID_REQUIRED: i16 = 79;

pub(crate) fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

pub(crate) fn join_request(name: &str, member: &str, instance: Option<&str>) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(&[
            0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
        ]));
    JoinGroupRequest::default()
        .with_group_id(group(name))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(20_000)
        .with_member_id(text(member))
        .with_group_instance_id(instance.map(text))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

/// A member id of a new dynamic member (KIP-394).
#[track_caller]
fn member_id(raw: &mut Raw, name: &str) -> String {
    let first = raw.call(5, &join_request(name, "", None));
    assert_eq!(first.error_code, MEMBER_ID_REQUIRED);
    assert!(!first.member_id.is_empty());
    first.member_id.to_string()
}

pub(crate) fn sync_request(
    name: &str,
    joined: &JoinGroupResponse,
    assignments: &[(&str, &str)],
) -> SyncGroupRequest {
    let assignments = assignments.iter().map(|(member, assignment)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(Bytes::copy_from_slice(assignment.as_bytes()))
    });
    SyncGroupRequest::default()
        .with_group_id(group(name))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_assignments(assignments.collect())
}

fn heartbeat(raw: &mut Raw, name: &str, joined: &JoinGroupResponse) -> i16 {
    let request = HeartbeatRequest::default()
        .with_group_id(group(name))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone());
    raw.call(3, &request).error_code
}

/// A group of one member that has its assignment.
#[track_caller]
fn group_of_one(raw: &mut Raw, name: &str) -> JoinGroupResponse {
    let id = member_id(raw, name);
    let joined = raw.call(5, &join_request(name, &id, None));
    assert_eq!(
        (joined.error_code, joined.leader.to_string()),
        (0, id.clone())
    );
    let synced = raw.call(3, &sync_request(name, &joined, &[(&id, "mine")]));
    assert_eq!(
        (synced.error_code, &synced.assignment[..]),
        (0, &b"mine"[..])
    );
    joined
}

pub(crate) fn commit_request(name: &str, topic: &str, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("note")));
    OffsetCommitRequest::default()
        .with_group_id(group(name))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(vec![partition]),
        ])
}

/// Commits without being a member, as simple consumers do.
#[track_caller]
pub(crate) fn commit(raw: &mut Raw, name: &str, topic: &str, offset: i64) {
    find_coordinator(raw, name);
    let reply = raw.call(8, &commit_request(name, topic, offset));
    assert_eq!(reply.topics[0].partitions[0].error_code, 0);
}

/// Offset, metadata and error of a group for partition 0 of a topic.
#[track_caller]
pub(crate) fn committed(
    raw: &mut Raw,
    version: i16,
    name: &str,
    topic: &str,
) -> (i64, Option<String>, i16) {
    if version >= 8 {
        let topics = OffsetFetchRequestTopics::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(vec![0]);
        let asked = OffsetFetchRequestGroup::default()
            .with_group_id(group(name))
            .with_topics(Some(vec![topics]));
        let reply = raw.call(
            version,
            &OffsetFetchRequest::default().with_groups(vec![asked]),
        );
        let found = &reply.groups[0];
        assert_eq!(found.error_code, 0);
        let p = &found.topics[0].partitions[0];
        return (
            p.committed_offset,
            p.metadata.as_ref().map(ToString::to_string),
            p.error_code,
        );
    }
    let topics = OffsetFetchRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default()
        .with_group_id(group(name))
        .with_topics(Some(vec![topics]));
    let reply = raw.call(version, &request);
    assert_eq!(reply.error_code, 0);
    let p = &reply.topics[0].partitions[0];
    (
        p.committed_offset,
        p.metadata.as_ref().map(ToString::to_string),
        p.error_code,
    )
}

/// Waits until the group has a coordinator: the log of groups is made on first use.
pub(crate) fn find_coordinator(raw: &mut Raw, name: &str) -> (i32, i32) {
    let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(name)]);
    let found = eventually("a coordinator", Duration::from_secs(30), || {
        let reply = raw.call(4, &request).coordinators.remove(0);
        assert!(
            [0, 14, 15].contains(&reply.error_code),
            "error {}",
            reply.error_code
        );
        (reply.error_code == 0).then_some(reply)
    });
    // Kafka answers with the coordinator before that has loaded its part of the log.
    let probe = DescribeGroupsRequest::default().with_groups(vec![group(name)]);
    eventually("a loaded coordinator", Duration::from_secs(30), || {
        let error = raw.call(5, &probe).groups[0].error_code;
        (![14, 15, 16].contains(&error)).then_some(())
    });
    (found.node_id.0, found.port)
}

pub(crate) fn state(raw: &mut Raw, name: &str) -> (String, usize) {
    let request = DescribeGroupsRequest::default().with_groups(vec![group(name)]);
    let reply = raw.call(5, &request).groups.remove(0);
    (reply.group_state.to_string(), reply.members.len())
}

#[test]
fn the_coordinator_of_a_group_is_found_in_every_version() {
    let (broker, mut raw) = start();
    let (node, port) = find_coordinator(&mut raw, "found");
    assert_eq!(port, i32::from(broker.address().port()));
    for version in 0..=3 {
        let reply = raw.call(
            version,
            &FindCoordinatorRequest::default().with_key(text("found")),
        );
        assert_eq!(
            (reply.error_code, reply.node_id.0, reply.port),
            (0, node, port),
            "version {version}"
        );
    }
    for version in 4..=6 {
        let request = FindCoordinatorRequest::default()
            .with_coordinator_keys(vec![text("found"), text("another")]);
        let reply = raw.call(version, &request);
        let keys: Vec<_> = reply
            .coordinators
            .iter()
            .map(|c| (c.key.to_string(), c.error_code, c.node_id.0))
            .collect();
        assert_eq!(
            keys,
            [
                ("found".to_owned(), 0, node),
                ("another".to_owned(), 0, node)
            ]
        );
    }
}

/// Row 47.
#[test]
fn a_follower_waits_for_its_leaders_assignment_without_a_timer_of_its_own() {
    let (broker, mut leader) = start();
    find_coordinator(&mut leader, "sync");
    let mut follower = Raw::connect(broker.address());
    let first = member_id(&mut leader, "sync");
    let second = member_id(&mut follower, "sync");
    let joined = leader.call(5, &join_request("sync", &first, None));
    assert_eq!(joined.error_code, 0);
    // The second member makes the group gather again.
    let waiting = follower.send(5, &join_request("sync", &second, None));
    eventually("the rebalance is told", Duration::from_secs(10), || {
        (heartbeat(&mut leader, "sync", &joined) == REBALANCE_IN_PROGRESS).then_some(())
    });
    let lead = leader.call(5, &join_request("sync", &first, None));
    let follow = follower.receive::<JoinGroupRequest>(5, waiting);
    assert_eq!((lead.error_code, follow.error_code), (0, 0));
    assert_eq!(lead.generation_id, follow.generation_id);
    assert_eq!(
        (lead.members.len(), follow.members.len()),
        (2, 0),
        "only the leader sees the members"
    );
    let waiting = follower.send(3, &sync_request("sync", &follow, &[]));
    assert!(
        follower.is_silent_for(Duration::from_secs(2)),
        "it waits for the leader"
    );
    let mine = leader.call(
        3,
        &sync_request(
            "sync",
            &lead,
            &[(&first, "to the leader"), (&second, "to the follower")],
        ),
    );
    assert_eq!(&mine.assignment[..], b"to the leader");
    let theirs = follower.receive::<SyncGroupRequest>(3, waiting);
    assert_eq!(
        (theirs.error_code, &theirs.assignment[..]),
        (0, &b"to the follower"[..])
    );
    assert_eq!(state(&mut leader, "sync"), ("Stable".to_owned(), 2));
}

/// Row 47, its second half.
#[test]
fn a_follower_that_waits_is_told_of_a_new_rebalance() {
    let (broker, mut leader) = start();
    find_coordinator(&mut leader, "resync");
    let mut follower = Raw::connect(broker.address());
    let first = member_id(&mut leader, "resync");
    let second = member_id(&mut follower, "resync");
    let joined = leader.call(5, &join_request("resync", &first, None));
    let waiting = follower.send(5, &join_request("resync", &second, None));
    eventually("the rebalance is told", Duration::from_secs(10), || {
        (heartbeat(&mut leader, "resync", &joined) == REBALANCE_IN_PROGRESS).then_some(())
    });
    leader.call(5, &join_request("resync", &first, None));
    let follow = follower.receive::<JoinGroupRequest>(5, waiting);
    let waiting = follower.send(3, &sync_request("resync", &follow, &[]));
    // The leader does not assign, it leaves: the follower has to join again.
    let leave = LeaveGroupRequest::default()
        .with_group_id(group("resync"))
        .with_members(vec![MemberIdentity::default().with_member_id(text(&first))]);
    assert_eq!(leader.call(4, &leave).error_code, 0);
    let told = follower.receive::<SyncGroupRequest>(3, waiting);
    assert_eq!(told.error_code, REBALANCE_IN_PROGRESS);
}

/// Row 48.
#[test]
fn a_member_that_leaves_while_the_group_gathers_does_not_hold_it_up() {
    let (broker, mut first) = start();
    find_coordinator(&mut first, "leave");
    let one = group_of_one(&mut first, "leave");
    let mut second = Raw::connect(broker.address());
    let id = member_id(&mut second, "leave");
    let waiting = second.send(5, &join_request("leave", &id, None));
    assert!(
        second.is_silent_for(Duration::from_millis(500)),
        "it waits for the first member"
    );
    let begun = Instant::now();
    let leave = LeaveGroupRequest::default()
        .with_group_id(group("leave"))
        .with_member_id(one.member_id.clone());
    assert_eq!(first.call(2, &leave).error_code, 0);
    let joined = second.receive::<JoinGroupRequest>(5, waiting);
    assert_eq!((joined.error_code, joined.leader.to_string()), (0, id));
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "took {:?}",
        begun.elapsed()
    );
}

#[test]
fn strangers_and_old_generations_are_refused() {
    let (_broker, mut raw) = start();
    find_coordinator(&mut raw, "known");
    let joined = group_of_one(&mut raw, "known");
    assert_eq!(heartbeat(&mut raw, "known", &joined), 0);
    let stranger = joined.clone().with_member_id(text("stranger"));
    assert_eq!(heartbeat(&mut raw, "known", &stranger), UNKNOWN_MEMBER);
    let old = joined.clone().with_generation_id(joined.generation_id - 1);
    assert_eq!(heartbeat(&mut raw, "known", &old), ILLEGAL_GENERATION);
    let sync = raw.call(3, &sync_request("known", &stranger, &[]));
    assert_eq!(sync.error_code, UNKNOWN_MEMBER);
    create(&mut raw, "topic", 1, &[]);
    for (member, generation, error) in [
        ("stranger", joined.generation_id, UNKNOWN_MEMBER),
        (
            &joined.member_id,
            joined.generation_id - 1,
            ILLEGAL_GENERATION,
        ),
        (&joined.member_id, joined.generation_id, 0),
    ] {
        let request = commit_request("known", "topic", 1)
            .with_member_id(text(member))
            .with_generation_id_or_member_epoch(generation);
        assert_eq!(
            raw.call(8, &request).topics[0].partitions[0].error_code,
            error
        );
    }
    // A commit from outside while the group has members is refused as well.
    let outside = raw.call(8, &commit_request("known", "topic", 2));
    assert_eq!(outside.topics[0].partitions[0].error_code, UNKNOWN_MEMBER);
}

/// Rows 52 and 50.
#[test]
fn what_was_committed_is_there_after_a_kill() {
    let mut broker = Broker::start();
    let mut raw = Raw::connect(broker.address());
    create(&mut raw, "durable", 1, &[]);
    for offset in 1..=20 {
        commit(&mut raw, "keeper", "durable", offset);
    }
    let forever = commit_request("keeper-2", "durable", 5).with_retention_time_ms(-1);
    assert_eq!(raw.call(2, &forever).topics[0].partitions[0].error_code, 0);
    broker.kill();
    broker.restart();
    let mut raw = Raw::connect(broker.address());
    find_coordinator(&mut raw, "keeper");
    find_coordinator(&mut raw, "keeper-2");
    for version in [1, 5, 7, 8, 9] {
        assert_eq!(
            committed(&mut raw, version, "keeper", "durable"),
            (20, Some("note".to_owned()), 0)
        );
    }
    assert_eq!(committed(&mut raw, 7, "keeper-2", "durable").0, 5);
}

/// Row 53.
#[test]
fn an_offset_that_was_never_committed_is_minus_one_and_no_error() {
    let (_broker, mut raw) = start();
    find_coordinator(&mut raw, "empty");
    let (min, max) = advertised::<OffsetFetchRequest>(&mut raw).expect("OffsetFetch is offered");
    for version in min..=max.min(9) {
        let (offset, _, error) = committed(&mut raw, version, "empty", "no-such-topic");
        assert_eq!((offset, error), (-1, 0), "version {version}");
    }
}

/// Row 55.
#[test]
fn a_group_whose_members_are_gone_stays_empty_while_it_has_offsets() {
    let (_broker, mut raw) = start();
    create(&mut raw, "kept", 1, &[]);
    find_coordinator(&mut raw, "gone");
    let id = member_id(&mut raw, "gone");
    let joined = raw.call(
        5,
        &join_request("gone", &id, None).with_session_timeout_ms(6_000),
    );
    raw.call(3, &sync_request("gone", &joined, &[(&id, "mine")]));
    let request = commit_request("gone", "kept", 7)
        .with_member_id(joined.member_id.clone())
        .with_generation_id_or_member_epoch(joined.generation_id);
    assert_eq!(raw.call(8, &request).topics[0].partitions[0].error_code, 0);
    assert_eq!(state(&mut raw, "gone"), ("Stable".to_owned(), 1));
    eventually("the session runs out", Duration::from_secs(20), || {
        (state(&mut raw, "gone") == ("Empty".to_owned(), 0)).then_some(())
    });
    assert_eq!(heartbeat(&mut raw, "gone", &joined), UNKNOWN_MEMBER);
    assert_eq!(committed(&mut raw, 7, "gone", "kept").0, 7);
    // A tool may now reset its offsets.
    commit(&mut raw, "gone", "kept", 0);
    assert_eq!(committed(&mut raw, 7, "gone", "kept").0, 0);
}

/// Key of the record that holds a group's offset of partition 0 of a topic (Kafka's OffsetCommitKey, version 1).
pub(crate) fn offset_key(group: &str, topic: &str) -> Vec<u8> {
    let mut key = vec![0, 1];
    for text in [group, topic] {
        key.extend(i16::try_from(text.len()).expect("short").to_be_bytes());
        key.extend(text.as_bytes());
    }
    key.extend(0_i32.to_be_bytes());
    key
}

/// Row 58.
#[test]
fn the_log_of_groups_is_a_topic_that_clients_can_read() {
    let (_broker, mut raw) = start();
    create(&mut raw, "any", 1, &[]);
    commit(&mut raw, "logged", "any", 3);
    let topic = describe(&mut raw, "__consumer_offsets", false);
    assert_eq!(topic.error_code, 0);
    assert!(topic.is_internal);
    assert_eq!(topic.partitions.len(), 50);
    let key = offset_key("logged", "any");
    let mut offsets = Vec::new();
    // Kafka and KoP place groups whose hash is negative differently; clients do not compute the place.
    for partition in 0..50 {
        let records = read_to_end(&mut raw, "__consumer_offsets", partition, 0);
        for record in records.iter().filter(|r| r.key.as_ref() == Some(&key)) {
            let value = record.value.as_ref().expect("a value");
            offsets.push(i64::from_be_bytes(
                value[2..10].try_into().expect("eight bytes"),
            ));
        }
    }
    assert_eq!(offsets, [3]);
}

#[test]
fn clients_may_not_write_to_the_log_of_groups() {
    let (_broker, mut raw) = start();
    find_coordinator(&mut raw, "any");
    let answer = crate::kit::produce(&mut raw, "__consumer_offsets", 0, batch(&["forged"]));
    assert_eq!(answer.error_code, 17, "INVALID_TOPIC_EXCEPTION");
}

/// Whether an API that not every broker has is offered; one that is not closes the connection.
fn is_offered_or_closes<R: kafka_protocol::protocol::Request>(
    broker: &Broker,
    raw: &mut Raw,
    request: &R,
) -> bool {
    let offered = advertised::<R>(raw);
    let mut other = Raw::connect(broker.address());
    // 0 or 1: a version that the codec has, and that would be served if any were.
    other.send(offered.map_or(R::VERSIONS.min, |(min, _)| min), request);
    if offered.is_some() {
        assert!(other.receive_frame().is_some(), "key {}", R::KEY);
    } else {
        other.expect_closed();
    }
    offered.is_some()
}

/// Rows 59 and 60: what is not built is not advertised, and closes the connection; the features that would make
/// clients ask for it are in the handshake's tests.
#[test]
fn newer_group_protocols_are_offered_only_if_they_work() {
    let (broker, mut raw) = start();
    find_coordinator(&mut raw, "new");
    let consumer = ConsumerGroupHeartbeatRequest::default().with_group_id(group("new"));
    let described = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group("new")]);
    assert_eq!(
        is_offered_or_closes(&broker, &mut raw, &consumer),
        is_offered_or_closes(&broker, &mut raw, &described),
        "both or neither"
    );
    let share = ShareGroupHeartbeatRequest::default().with_group_id(group("new"));
    let described = ShareGroupDescribeRequest::default().with_group_ids(vec![group("new")]);
    assert_eq!(
        is_offered_or_closes(&broker, &mut raw, &share),
        is_offered_or_closes(&broker, &mut raw, &described),
        "both or neither"
    );
}

/// Row 59b.
#[test]
fn groups_are_listed_with_state_and_type_and_described_until_they_are_deleted() {
    let (_broker, mut raw) = start();
    create(&mut raw, "listed", 1, &[]);
    find_coordinator(&mut raw, "stable-one");
    group_of_one(&mut raw, "stable-one");
    commit(&mut raw, "empty-one", "listed", 1);
    let (min, max) = advertised::<ListGroupsRequest>(&mut raw).expect("ListGroups is offered");
    for version in min..=max {
        let reply = raw.call(version, &ListGroupsRequest::default());
        let mut names: Vec<_> = reply
            .groups
            .iter()
            .map(|g| g.group_id.to_string())
            .collect();
        names.sort();
        assert_eq!(names, ["empty-one", "stable-one"], "version {version}");
        for listed in &reply.groups {
            if version >= 4 {
                let expected = if *listed.group_id == text("empty-one") {
                    "Empty"
                } else {
                    "Stable"
                };
                assert_eq!(&*listed.group_state, expected);
            }
            if version >= 5 {
                assert_eq!(&*listed.group_type, "classic");
            }
        }
    }
    let filtered = ListGroupsRequest::default().with_states_filter(vec![text("Empty")]);
    assert_eq!(raw.call(4, &filtered).groups.len(), 1);
    let request = DeleteGroupsRequest::default().with_groups_names(vec![
        group("stable-one"),
        group("empty-one"),
        group("absent"),
    ]);
    let reply = raw.call(2, &request);
    for (name, error) in [("stable-one", 68), ("empty-one", 0), ("absent", 69)] {
        let answer = reply.results.iter().find(|r| r.group_id == group(name));
        assert_eq!(answer.map(|r| r.error_code), Some(error), "{name}");
    }
    assert_eq!(committed(&mut raw, 7, "empty-one", "listed").0, -1);
    if !is_reference() {
        assert_eq!(state(&mut raw, "absent"), ("Dead".to_owned(), 0));
    }
}

#[test]
fn a_member_that_does_not_fit_the_group_is_refused() {
    let (broker, mut raw) = start();
    find_coordinator(&mut raw, "picky");
    group_of_one(&mut raw, "picky");
    let mut other = Raw::connect(broker.address());
    let mut odd = join_request("picky", "", None);
    odd.protocols[0].name = text("another");
    assert_eq!(other.call(3, &odd).error_code, 23, "no protocol in common");
    let other_type = join_request("picky", "", None).with_protocol_type(text("connect"));
    assert_eq!(other.call(3, &other_type).error_code, 23);
    let short = join_request("fresh", "", None).with_session_timeout_ms(1);
    assert_eq!(
        other.call(3, &short).error_code,
        26,
        "a session timeout out of bounds"
    );
    assert_eq!(
        other.call(3, &join_request("", "", None)).error_code,
        24,
        "a group without a name"
    );
    append_is_untouched(&mut raw);
}

/// The connection of the group's member still works.
fn append_is_untouched(raw: &mut Raw) {
    create(raw, "after", 1, &[]);
    assert_eq!(append(raw, "after", 0, batch(&["v"])), 0);
}
