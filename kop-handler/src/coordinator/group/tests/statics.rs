//! Static members: KIP-345 and KIP-814 (behaviours row 49).

use kafka_protocol::error::ResponseError;

use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::*;

/// A stable group of static members `i` (leader) and `j`.
fn pair() -> (Harness, Vec<String>) {
    let mut h = Harness::new();
    let asked = [h.join(fixed("i", "1")), h.join(fixed("j", "1"))];
    h.pass_ms(6_000);
    let replies = asked.map(|a| h.joined(a));
    let ids = h.settle(&replies);
    assert_eq!(ids, ["i-1", "j-1"]);
    (h, ids)
}

#[test]
fn a_static_member_that_comes_back_keeps_its_assignment_without_a_rebalance() {
    let (mut h, _) = pair();
    let back = h.join(fixed("j", "2"));
    let reply = h.joined(back);
    assert_eq!(
        (reply.error, reply.generation, reply.member_id.as_str()),
        (None, 1, "j-2")
    );
    assert!(!reply.skip_assignment);
    assert_eq!(h.state(), "Stable");
    let asked = h.sync("j-2", 1, &[]);
    assert_eq!(
        h.synced(asked),
        Ok("j-1".into()),
        "what was assigned to its former self"
    );
    assert_eq!(h.beat("j-2", 1), None);
    h.crash();
    assert_eq!(h.beat("j-2", 1), None, "the new id is durable");
}

#[test]
fn a_static_leader_that_comes_back_skips_the_assignment_if_it_can() {
    let (mut h, _) = pair();
    let back = h.join(fixed("i", "2"));
    let reply = h.joined(back);
    assert!(reply.skip_assignment);
    assert_eq!((reply.leader.as_str(), reply.members.len()), ("i-2", 2));

    let back = h.join(Join {
        supports_skipping_assignment: false,
        ..fixed("i", "3")
    });
    let reply = h.joined(back);
    assert!(!reply.skip_assignment);
    assert_eq!(
        (reply.leader.as_str(), reply.members.len()),
        ("i-2", 0),
        "it must not believe that it leads"
    );
    assert_eq!(last_group(&h.log).leader.as_deref(), Some("i-3"));
}

#[test]
fn the_former_self_is_fenced_everywhere() {
    let (mut h, _) = pair();
    h.join(fixed("j", "2"));
    let fenced = ResponseError::FencedInstanceId;
    let old = || Some("j".to_owned());

    let asked = h.join(Join {
        member_id: "j-1".into(),
        ..fixed("j", "x")
    });
    assert_eq!(h.joined(asked).error, Some(fenced));
    let mut stale = sync("j-1", 1, &[]);
    stale.instance_id = old();
    let asked = h.ask(GROUP, Command::Sync(stale));
    assert_eq!(h.synced(asked), Err(fenced));
    let asked = h.ask(
        GROUP,
        Command::Heartbeat(Heartbeat {
            member_id: "j-1".into(),
            instance_id: old(),
            generation: 1,
        }),
    );
    assert_eq!(h.reply(asked), Some(&Reply::Heartbeat(Some(fenced))));
    let mut stale = commit("j-1", 1, "t", 0, 1);
    stale.instance_id = old();
    assert_eq!(h.commit(stale), Err(fenced));
    assert_eq!(h.leave(&[("j-1", Some("j"))]), [Some(fenced)]);
    assert_eq!(h.state(), "Stable");
}

#[test]
fn an_instance_id_that_nobody_holds_is_unknown() {
    let (mut h, ids) = pair();
    let asked = h.ask(
        GROUP,
        Command::Heartbeat(Heartbeat {
            member_id: ids[0].clone(),
            instance_id: Some("k".into()),
            generation: 1,
        }),
    );
    assert_eq!(
        h.reply(asked),
        Some(&Reply::Heartbeat(Some(ResponseError::UnknownMemberId)))
    );
}

#[test]
fn parked_requests_of_the_former_self_are_fenced_at_once() {
    let mut h = Harness::new();
    let first = h.join(fixed("i", "1"));
    let second = h.join(fixed("i", "2"));
    let reply = h.joined(first);
    assert_eq!(
        (reply.error, reply.member_id.as_str()),
        (Some(ResponseError::FencedInstanceId), "i-1")
    );
    h.pass_ms(6_000);
    assert_eq!(h.joined(second).member_id, "i-2");

    let (mut h, ids) = pair();
    h.join(again(&ids[0])); // dynamic request of the leader: rebalance
    let waiting = h.join(Join {
        member_id: ids[1].clone(),
        ..fixed("j", "x")
    });
    assert_eq!(h.state(), "CompletingRebalance");
    assert_eq!(h.joined(waiting).error, None);
    let parked = h.sync(&ids[1], 2, &[]);
    let back = h.join(fixed("j", "2"));
    assert_eq!(h.synced(parked), Err(ResponseError::FencedInstanceId));
    assert!(
        h.waits(back),
        "the leader may be assigning to the old id: all join again"
    );
    assert_eq!(h.state(), "PreparingRebalance");
}

#[test]
fn a_static_member_that_changes_the_chosen_protocol_causes_a_rebalance() {
    let mut h = Harness::new();
    let both = |instance: &str, fresh: &str, first: &str, second: &str| Join {
        protocols: vec![
            (first.into(), subscription(&["t"])),
            (second.into(), subscription(&["t"])),
        ],
        ..fixed(instance, fresh)
    };
    let asked = [
        h.join(both("i", "1", "x", "y")),
        h.join(both("j", "1", "x", "y")),
    ];
    h.pass_ms(6_000);
    let replies = asked.map(|a| h.joined(a));
    h.settle(&replies);
    let back = h.join(Join {
        protocols: vec![("y".into(), subscription(&["t"]))],
        ..fixed("j", "2")
    });
    assert!(h.waits(back));
    assert_eq!(h.state(), "PreparingRebalance");
    let other = h.join(Join {
        member_id: "i-1".into(),
        ..both("i", "x", "x", "y")
    });
    assert_eq!(
        (
            h.joined(back).protocol.as_deref(),
            h.joined(other).generation
        ),
        (Some("y"), 2)
    );
}

#[test]
fn static_members_are_kept_through_a_rebalance_that_they_miss_until_their_session_ends() {
    let mut h = Harness::new();
    let asked = [
        h.join(Join {
            session_timeout_ms: 300_000,
            ..fixed("i", "1")
        }),
        h.join(member("a")),
    ];
    h.pass_ms(6_000);
    let replies = asked.map(|a| h.joined(a));
    h.settle(&replies);
    let newcomer = h.join(member("b"));
    let back = h.join(again("a-1"));
    for _ in 0..12 {
        h.pass_ms(5_000);
    }
    assert_eq!(h.joined(back).generation, 2);
    assert_eq!(h.joined(newcomer).generation, 2);
    let members = &h.describe().unwrap().members;
    assert!(
        members
            .iter()
            .any(|m| m.instance_id.as_deref() == Some("i")),
        "it is at work, though silent"
    );
}

#[test]
fn a_group_of_silent_static_members_waits_for_one_of_them() {
    let (mut h, ids) = pair();
    assert_eq!(
        h.leave(&[("", Some("i"))]),
        [None],
        "an administrator removes one by its instance id"
    );
    assert_eq!(h.state(), "PreparingRebalance");
    for _ in 0..13 {
        h.pass_ms(5_000);
        h.beat(&ids[1], 1);
    }
    assert_eq!(
        h.state(),
        "PreparingRebalance",
        "nobody has joined: the phase goes on"
    );
    let back = h.join(Join {
        member_id: ids[1].clone(),
        ..fixed("j", "x")
    });
    assert_eq!(
        (h.joined(back).generation, h.joined(back).leader.as_str()),
        (2, "j-1")
    );
}

#[test]
fn a_static_member_needs_no_id_round_trip_and_a_given_id_is_not_for_static_members() {
    let mut h = Harness::new();
    let asked = h.join(Join {
        require_known_member_id: true,
        ..fixed("i", "1")
    });
    assert!(h.waits(asked));

    let refused = h.join(Join {
        require_known_member_id: true,
        ..member("a")
    });
    let given = h.joined(refused).member_id;
    let asked = h.join(Join {
        member_id: given,
        ..fixed("k", "1")
    });
    assert_eq!(h.joined(asked).error, Some(ResponseError::UnknownMemberId));
}

#[test]
fn names_that_cannot_be_stored_are_refused() {
    let long = "x".repeat(40_000);
    for bad in [
        fixed(&long, "1"),
        Join {
            protocol_type: long.clone(),
            ..member("a")
        },
        Join {
            protocols: vec![(long.clone(), subscription(&["t"]))],
            ..member("a")
        },
    ] {
        let mut h = Harness::new();
        let asked = h.join(bad);
        assert_eq!(h.joined(asked).error, Some(ResponseError::InvalidRequest));
    }
}
