//! LeaveGroup, DescribeGroups, DeleteGroups.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::*;

#[test]
fn the_last_member_to_leave_leaves_an_empty_group_behind() {
    let mut h = Harness::new();
    let ids = h.stable(&["a"]);
    assert_eq!(h.leave(&[(&ids[0], None)]), [None]);
    assert_eq!(h.state(), "Empty");
    let value = last_group(&h.log);
    assert_eq!(
        (value.generation, value.protocol_type.as_str()),
        (2, "consumer")
    );
    assert_eq!(
        (value.protocol, value.leader, value.members),
        (None, None, vec![])
    );
    let back = h.join(member("a"));
    assert!(h.waits(back), "and the next member waits for others again");
    h.pass_ms(6_000);
    assert_eq!(h.joined(back).generation, 3);
}

/// behaviours row 48.
#[test]
fn a_leave_during_a_rebalance_completes_it_at_once() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b", "c"]);
    let waiting = h.join(again(&ids[0]));
    let other = h.join(again(&ids[1]));
    assert!(h.waits(waiting));
    assert_eq!(h.leave(&[(&ids[2], None)]), [None]);
    assert_eq!(
        (h.joined(waiting).generation, h.joined(other).generation),
        (2, 2)
    );
    assert_eq!(h.joined(waiting).members.len(), 2);
}

#[test]
fn a_leave_from_a_stable_group_starts_a_rebalance() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    assert_eq!(h.leave(&[(&ids[0], None)]), [None]);
    assert_eq!(h.state(), "PreparingRebalance");
    assert_eq!(h.beat(&ids[1], 1), Some(ResponseError::RebalanceInProgress));
    let left = h.join(again(&ids[1]));
    assert_eq!(
        (h.joined(left).generation, h.joined(left).leader.as_str()),
        (2, ids[1].as_str())
    );
}

#[test]
fn each_member_of_a_leave_has_its_own_outcome() {
    let mut h = Harness::new();
    assert_eq!(
        h.leave(&[("x", None)]),
        [Some(ResponseError::UnknownMemberId)],
        "no such group"
    );
    let ids = h.stable(&["a", "b", "c"]);
    let outcome = h.leave(&[
        (&ids[0], None),
        ("x", None),
        (&ids[1], None),
        ("", Some("i")),
    ]);
    let unknown = Some(ResponseError::UnknownMemberId);
    assert_eq!(outcome, [None, unknown, None, unknown]);
    assert_eq!(h.describe().unwrap().members.len(), 1);
}

#[test]
fn an_id_that_was_given_out_can_be_given_back() {
    let mut h = Harness::new();
    let ids = h.stable(&["a"]);
    let refused = h.join(Join {
        require_known_member_id: true,
        ..member("b")
    });
    let pending = h.joined(refused).member_id;
    let waiting = h.join(again(&ids[0]));
    assert!(h.waits(waiting));
    assert_eq!(h.leave(&[(&pending, None)]), [None]);
    assert_eq!(h.joined(waiting).generation, 2);
}

#[test]
fn a_parked_join_of_a_member_that_leaves_is_answered() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    let waiting = h.join(again(&ids[0]));
    h.leave(&[(&ids[0], None)]);
    assert_eq!(
        h.joined(waiting).error,
        Some(ResponseError::UnknownMemberId)
    );
}

#[test]
fn a_description_shows_protocol_and_assignments_of_a_stable_group_only() {
    let mut h = Harness::new();
    assert_eq!(h.describe(), None);
    let ids = h.stable(&["a", "b"]);
    let stable = h.describe().unwrap();
    assert_eq!(
        (
            stable.state,
            stable.protocol_type.as_str(),
            stable.protocol.as_str()
        ),
        ("Stable", "consumer", "range")
    );
    assert_eq!(
        stable.members[0],
        DescribedMember {
            member_id: "a-1".into(),
            instance_id: None,
            client_id: "a".into(),
            client_host: "/127.0.0.1".into(),
            metadata: subscription(&["t"]),
            assignment: Bytes::from("a-1"),
        }
    );
    h.join(again(&ids[0]));
    let preparing = h.describe().unwrap();
    assert_eq!(
        (preparing.state, preparing.protocol.as_str()),
        ("PreparingRebalance", "")
    );
    assert!(
        preparing
            .members
            .iter()
            .all(|m| m.metadata.is_empty() && m.assignment.is_empty())
    );
    assert_eq!(preparing.members[1].client_id, "b");
}

#[test]
fn only_an_empty_group_can_be_deleted_and_its_offsets_go_with_it() {
    let mut h = Harness::new();
    assert_eq!(h.delete(), Err(ResponseError::GroupIdNotFound));
    let ids = h.stable(&["a"]);
    h.commit(commit(&ids[0], 1, "t", 0, 7)).unwrap();
    h.commit(commit(&ids[0], 1, "t", 1, 8)).unwrap();
    assert_eq!(h.delete(), Err(ResponseError::NonEmptyGroup));
    h.leave(&[(&ids[0], None)]);
    assert_eq!(h.delete(), Ok(false));
    assert_eq!(h.state(), "Dead");
    assert_eq!(tombstones(&h.log), 3);
    assert_eq!(h.offset("t", 0), -1);
    h.crash();
    assert_eq!(h.state(), "Dead");
}

#[test]
fn a_group_with_many_offsets_is_deleted_in_several_steps() {
    let mut h = Harness::with(GroupSettings {
        max_decision_records: 3,
        ..GroupSettings::default()
    });
    for partition in 0..7 {
        h.commit(commit("", -1, "t", partition, 1)).unwrap();
    }
    assert_eq!(
        (h.delete(), h.delete(), h.delete()),
        (Ok(true), Ok(true), Ok(false))
    );
    assert_eq!(h.state(), "Dead");
    assert_eq!(
        tombstones(&h.log),
        7,
        "a simple group has no record of its own"
    );
}

#[test]
fn groups_are_listed_with_state_and_type() {
    let mut h = Harness::new();
    h.stable(&["a"]);
    h.ask("simple", Command::Commit(commit("", -1, "t", 0, 1)));
    let listed: Vec<_> = h
        .shard
        .list()
        .into_iter()
        .map(|g| (g.group, g.protocol_type, g.state))
        .collect();
    assert_eq!(
        listed,
        [
            ("g".to_owned(), "consumer".to_owned(), "Stable"),
            ("simple".to_owned(), String::new(), "Empty"),
        ]
    );
}
