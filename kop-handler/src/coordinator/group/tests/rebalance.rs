//! Joining, syncing, electing, choosing protocols, waiting.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::*;

#[test]
fn a_first_member_waits_for_others_and_then_leads() {
    let mut h = Harness::new();
    let first = h.join(member("a"));
    assert!(h.waits(first));
    assert_eq!(h.state(), "PreparingRebalance");
    h.pass_ms(2_999);
    assert!(h.waits(first));
    h.pass_ms(1);
    let reply = h.joined(first);
    assert_eq!(reply.error, None);
    assert_eq!((reply.generation, reply.leader.as_str()), (1, "a-1"));
    assert_eq!(reply.protocol.as_deref(), Some("range"));
    assert_eq!(reply.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(reply.members.len(), 1);
    assert!(!reply.skip_assignment);
    assert_eq!(h.state(), "CompletingRebalance");
    let synced = h.sync("a-1", 1, &[("a-1", "mine")]);
    assert_eq!(h.synced(synced), Ok("mine".into()));
    assert_eq!(h.state(), "Stable");
    assert_eq!(
        last_group(&h.log).members[0].assignment,
        Bytes::from("mine")
    );
}

#[test]
fn only_the_leader_learns_of_all_members() {
    let mut h = Harness::new();
    let a = h.join(member("a"));
    let b = h.join(member("b"));
    h.pass_ms(6_000);
    let (leader, follower) = (h.joined(a), h.joined(b));
    assert_eq!(leader.leader, leader.member_id);
    assert_eq!(follower.leader, leader.member_id);
    let ids: Vec<_> = leader
        .members
        .iter()
        .map(|m| m.member_id.as_str())
        .collect();
    assert_eq!(ids, ["a-1", "b-1"]);
    assert_eq!(leader.members[1].metadata, subscription(&["t"]));
    assert_eq!(follower.members, []);
}

/// KIP-394.
#[test]
fn a_new_member_is_given_an_id_to_come_back_with() {
    let mut h = Harness::new();
    let known = Join {
        require_known_member_id: true,
        ..member("a")
    };
    let refused = h.join(known.clone());
    let reply = h.joined(refused);
    assert_eq!(reply.error, Some(ResponseError::MemberIdRequired));
    assert_eq!(reply.member_id, "a-1");
    assert_eq!(
        h.describe().map(|d| (d.state, d.members.len())),
        Some(("Empty", 0))
    );
    let joined = h.join(Join {
        member_id: "a-1".into(),
        ..known
    });
    h.pass_ms(6_000);
    assert_eq!(h.joined(joined).member_id, "a-1");
}

#[test]
fn joining_with_a_member_id_that_is_not_known_is_refused() {
    let mut h = Harness::new();
    let nobody = h.join(again("x-1"));
    let reply = h.joined(nobody);
    assert_eq!(reply.error, Some(ResponseError::UnknownMemberId));
    assert_eq!((reply.generation, reply.member_id.as_str()), (-1, "x-1"));
    assert_eq!(h.state(), "Dead", "no group comes into being");
    h.stable(&["a"]);
    let stranger = h.join(again("x-1"));
    assert_eq!(
        h.joined(stranger).error,
        Some(ResponseError::UnknownMemberId)
    );
}

#[test]
fn protocols_that_do_not_fit_are_refused() {
    let with = |kind: &str, names: &[&str]| Join {
        protocol_type: kind.into(),
        protocols: names
            .iter()
            .map(|n| ((*n).to_owned(), Bytes::new()))
            .collect(),
        ..member("b")
    };
    let mut h = Harness::new();
    for bad in [with("", &["range"]), with("consumer", &[])] {
        let asked = h.join(bad);
        assert_eq!(
            h.joined(asked).error,
            Some(ResponseError::InconsistentGroupProtocol)
        );
    }
    h.stable(&["a"]);
    for bad in [
        with("connect", &["range"]),
        with("consumer", &["sticky"]),
        with("consumer", &[]),
    ] {
        let asked = h.join(bad);
        assert_eq!(
            h.joined(asked).error,
            Some(ResponseError::InconsistentGroupProtocol)
        );
    }
    let fits = h.join(with("consumer", &["sticky", "range"]));
    assert!(h.waits(fits));
}

#[test]
fn the_protocol_that_most_members_prefer_among_the_common_ones_is_chosen() {
    let with = |name: &str, names: &[&str]| Join {
        protocols: names
            .iter()
            .map(|n| ((*n).to_owned(), Bytes::new()))
            .collect(),
        ..member(name)
    };
    let choose = |all: &[&[&str]]| {
        let mut h = Harness::new();
        let names = ["a", "b", "c"];
        let asked: Vec<_> = all
            .iter()
            .zip(names)
            .map(|(p, name)| h.join(with(name, p)))
            .collect();
        h.pass_ms(3_000 * asked.len() as u64);
        h.joined(asked[0]).protocol
    };
    assert_eq!(
        choose(&[&["x", "y"], &["y", "x"], &["y", "x"]]).as_deref(),
        Some("y")
    );
    assert_eq!(
        choose(&[&["x", "y"], &["y", "x"]]).as_deref(),
        Some("x"),
        "the leader breaks ties"
    );
    assert_eq!(
        choose(&[&["x", "y", "z"], &["z", "y"], &["q", "y"]]).as_deref(),
        Some("y")
    );
}

/// behaviours row 47.
#[test]
fn a_follower_waits_for_the_leaders_assignment_however_long_it_takes() {
    let mut h = Harness::new();
    let long = |name| Join {
        rebalance_timeout_ms: 300_000,
        session_timeout_ms: 6_000,
        ..member(name)
    };
    let a = h.join(long("a"));
    let b = h.join(long("b"));
    h.pass_ms(6_000);
    assert_eq!((h.joined(a).generation, h.joined(b).generation), (1, 1));
    let follower = h.sync("b-1", 1, &[]);
    for _ in 0..40 {
        h.pass_ms(5_000); // longer than any session in all; the leader is alive but slow
        assert_eq!(h.beat("a-1", 1), None);
        assert!(h.waits(follower));
    }
    let leader = h.sync("a-1", 1, &[("a-1", "A"), ("b-1", "B")]);
    assert_eq!(
        (h.synced(leader), h.synced(follower)),
        (Ok("A".into()), Ok("B".into()))
    );
    h.pass_ms(5_999);
    assert_eq!(
        h.beat("b-1", 1),
        None,
        "its session began again with its assignment"
    );
}

#[test]
fn a_new_rebalance_sends_waiting_followers_back_to_join() {
    let mut h = Harness::new();
    h.join(member("a"));
    h.join(member("b"));
    h.pass_ms(6_000);
    let follower = h.sync("b-1", 1, &[]);
    let newcomer = h.join(member("c"));
    assert_eq!(h.synced(follower), Err(ResponseError::RebalanceInProgress));
    assert!(h.waits(newcomer));
    assert_eq!(h.beat("a-1", 1), Some(ResponseError::RebalanceInProgress));
    let sync = h.sync("a-1", 1, &[]);
    assert_eq!(h.synced(sync), Err(ResponseError::RebalanceInProgress));
    let rejoined = [h.join(again("a-1")), h.join(again("b-1"))];
    assert_eq!(h.joined(newcomer).generation, 2);
    assert!(
        rejoined
            .iter()
            .all(|asked| h.joined(*asked).generation == 2)
    );
}

#[test]
fn a_sync_is_refused_for_what_is_wrong_with_it() {
    let mut h = Harness::new();
    let refused = h.sync("a-1", 1, &[]);
    assert_eq!(
        h.synced(refused),
        Err(ResponseError::UnknownMemberId),
        "no such group"
    );
    let ids = h.stable(&["a", "b"]);
    let refused = h.sync("x-1", 1, &[]);
    assert_eq!(h.synced(refused), Err(ResponseError::UnknownMemberId));
    for generation in [0, 2, -1] {
        let refused = h.sync(&ids[0], generation, &[]);
        assert_eq!(h.synced(refused), Err(ResponseError::IllegalGeneration));
    }
    let mut other = sync(&ids[0], 1, &[]);
    other.protocol = Some("sticky".into());
    let refused = h.ask(GROUP, Command::Sync(other.clone()));
    assert_eq!(
        h.synced(refused),
        Err(ResponseError::InconsistentGroupProtocol)
    );
    other.protocol = Some("range".into());
    other.protocol_type = Some("connect".into());
    let refused = h.ask(GROUP, Command::Sync(other.clone()));
    assert_eq!(
        h.synced(refused),
        Err(ResponseError::InconsistentGroupProtocol)
    );
    other.protocol_type = Some("consumer".into());
    let again = h.ask(GROUP, Command::Sync(other));
    assert_eq!(
        h.synced(again),
        Ok(ids[0].clone()),
        "a stable group answers a repeated sync"
    );
}

#[test]
fn only_assignments_of_the_leader_count_and_members_it_forgot_get_an_empty_one() {
    let mut h = Harness::new();
    let asked = [h.join(member("a")), h.join(member("b"))];
    h.pass_ms(6_000);
    assert_eq!(h.joined(asked[0]).leader, "a-1");
    let follower = h.sync("b-1", 1, &[("b-1", "stolen"), ("a-1", "nothing")]);
    let leader = h.sync("a-1", 1, &[("a-1", "A"), ("stranger", "S")]);
    assert_eq!(
        (h.synced(leader), h.synced(follower)),
        (Ok("A".into()), Ok(String::new()))
    );
}

#[test]
fn a_leader_that_joins_again_forces_a_rebalance_a_follower_does_not() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    let follower = h.join(again(&ids[1]));
    let reply = h.joined(follower);
    assert_eq!(
        (reply.error, reply.generation, reply.leader),
        (None, 1, ids[0].clone())
    );
    assert_eq!(h.state(), "Stable");
    let changed = h.join(Join {
        protocols: vec![("range".into(), subscription(&["t", "u"]))],
        ..again(&ids[1])
    });
    assert!(
        h.waits(changed),
        "a follower with another subscription does"
    );
    assert_eq!(h.state(), "PreparingRebalance");
    let leader = h.join(again(&ids[0]));
    assert_eq!(
        (h.joined(changed).generation, h.joined(leader).generation),
        (2, 2)
    );
    let replies = [h.joined(leader), h.joined(changed)];
    h.settle(&replies);
    let leader = h.join(again(&ids[0]));
    assert!(h.waits(leader));
    assert_eq!(h.state(), "PreparingRebalance");
}

#[test]
fn a_member_that_lost_its_join_reply_gets_it_again() {
    let mut h = Harness::new();
    h.join(member("a"));
    h.join(member("b"));
    h.pass_ms(6_000);
    for (id, members) in [("a-1", 2), ("b-1", 0)] {
        let asked = h.join(again(id));
        let reply = h.joined(asked);
        assert_eq!(
            (reply.error, reply.generation, reply.members.len()),
            (None, 1, members)
        );
    }
    assert_eq!(h.state(), "CompletingRebalance");
}

#[test]
fn a_second_join_of_a_waiting_member_takes_the_place_of_the_first() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    let first = h.join(again(&ids[0]));
    let second = h.join(again(&ids[0]));
    assert_eq!(
        h.joined(first).error,
        Some(ResponseError::RebalanceInProgress)
    );
    assert!(h.waits(second));
    h.join(again(&ids[1]));
    assert_eq!(h.joined(second).generation, 2);
}

#[test]
fn heartbeats_are_answered_by_state() {
    let mut h = Harness::new();
    assert_eq!(h.beat("a-1", 1), Some(ResponseError::UnknownMemberId));
    h.join(member("a"));
    assert_eq!(h.beat("a-1", 0), Some(ResponseError::RebalanceInProgress));
    h.pass_ms(6_000);
    assert_eq!(h.beat("a-1", 1), None, "while the assignment is awaited");
    h.sync("a-1", 1, &[]);
    assert_eq!(h.beat("a-1", 1), None);
    assert_eq!(h.beat("a-1", 0), Some(ResponseError::IllegalGeneration));
    assert_eq!(h.beat("a-2", 1), Some(ResponseError::UnknownMemberId));
}

#[test]
fn a_full_group_turns_newcomers_away_and_keeps_its_members() {
    let settings = GroupSettings {
        max_group_size: 2,
        ..GroupSettings::default()
    };
    let mut h = Harness::with(settings.clone());
    let ids = h.stable(&["a", "b"]);
    let third = h.join(member("c"));
    let reply = h.joined(third);
    assert_eq!(
        (reply.error, reply.member_id.as_str()),
        (Some(ResponseError::GroupMaxSizeReached), "")
    );
    assert_eq!(h.state(), "Stable");
    let back = h.join(again(&ids[0]));
    assert!(h.waits(back), "a member is accepted");

    // While members gather, the first to come are in.
    let mut h = Harness::with(settings);
    let asked: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| h.join(member(name)))
        .collect();
    assert_eq!(
        h.joined(asked[2]).error,
        Some(ResponseError::GroupMaxSizeReached)
    );
    h.pass_ms(6_000);
    assert_eq!(h.joined(asked[0]).members.len(), 2);
}

#[test]
fn a_shard_takes_no_more_groups_than_it_may() {
    let mut h = Harness::with(GroupSettings {
        max_groups_per_shard: 1,
        ..GroupSettings::default()
    });
    h.stable(&["a"]);
    let asked = h.ask("other", Command::Join(member("a")));
    let busy = Reply::Unavailable(ResponseError::CoordinatorNotAvailable);
    assert_eq!(h.reply(asked), Some(&busy));
    let asked = h.ask("other", Command::Commit(commit("", -1, "t", 0, 1)));
    assert_eq!(h.reply(asked), Some(&busy));
}
