//! Deadlines: sessions, rebalance timeouts, ids that nobody uses; and what a reload makes of them.

use kafka_protocol::error::ResponseError;

use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::*;

#[test]
fn the_first_rebalance_waits_longer_while_members_keep_coming_but_not_beyond_their_timeout() {
    let mut h = Harness::new();
    let mut asked = vec![h.join(member("a"))];
    for name in ["b", "c", "d"] {
        h.pass_ms(2_000);
        asked.push(h.join(member(name)));
    }
    // Joined at 0, 2, 4 and 6 s: the phase was prolonged at 3 and 6 s, and once more at 9 s for the one at 6 s.
    h.pass_ms(5_999);
    assert!(asked.iter().all(|a| h.waits(*a)), "{}", h.now.mono_ms);
    h.pass_ms(1);
    assert!(asked.iter().all(|a| h.joined(*a).generation == 1));

    let mut h = Harness::new();
    let short = |name| Join {
        rebalance_timeout_ms: 5_000,
        ..member(name)
    };
    let first = h.join(short("a"));
    h.pass_ms(2_000);
    h.join(short("b"));
    h.pass_ms(2_000);
    h.join(short("c"));
    h.pass_ms(999);
    assert!(h.waits(first));
    h.pass_ms(1);
    assert_eq!(
        h.joined(first).generation,
        1,
        "5 s after the first join, the longest rebalance timeout"
    );
}

#[test]
fn an_id_that_is_not_used_within_its_session_is_forgotten_and_a_rebalance_does_not_wait_for_it() {
    let mut h = Harness::new();
    let ids = h.stable(&["a"]);
    let refused = h.join(Join {
        require_known_member_id: true,
        ..member("ghost")
    });
    let ghost = h.joined(refused).member_id;
    let rejoined = h.join(again(&ids[0])); // the leader forces a rebalance, which now waits for the ghost
    assert!(h.waits(rejoined));
    h.pass_ms(9_999);
    assert!(h.waits(rejoined));
    h.pass_ms(1);
    assert_eq!(h.joined(rejoined).generation, 2);
    let late = h.join(again(&ghost));
    assert_eq!(h.joined(late).error, Some(ResponseError::UnknownMemberId));
}

#[test]
fn a_group_of_ids_that_nobody_used_goes_without_a_trace() {
    let mut h = Harness::new();
    h.join(Join {
        require_known_member_id: true,
        ..member("a")
    });
    assert_eq!(h.state(), "Empty");
    h.pass_ms(10_000);
    assert_eq!(h.state(), "Dead");
    assert!(h.log.is_empty());
}

#[test]
fn session_timeouts_out_of_bounds_are_refused() {
    for (session_timeout_ms, allowed) in [
        (5_999, false),
        (6_000, true),
        (1_800_000, true),
        (1_800_001, false),
    ] {
        let mut h = Harness::new();
        let asked = h.join(Join {
            session_timeout_ms,
            ..member("a")
        });
        assert_eq!(h.waits(asked), allowed, "{session_timeout_ms}");
        if !allowed {
            assert_eq!(
                h.joined(asked).error,
                Some(ResponseError::InvalidSessionTimeout)
            );
        }
    }
}

#[test]
fn members_that_never_sync_are_out_after_the_rebalance_timeout() {
    let mut h = Harness::new();
    h.join(member("a"));
    h.join(member("b"));
    h.pass_ms(6_000);
    let leader = h.sync("a-1", 1, &[("a-1", "A"), ("b-1", "B")]);
    assert_eq!(h.synced(leader), Ok("A".into()));
    for _ in 0..11 {
        h.pass_ms(5_000);
        assert_eq!(
            (h.beat("a-1", 1), h.beat("b-1", 1)),
            (None, None),
            "alive, yet it never asks for its share"
        );
    }
    h.pass_ms(5_000);
    assert_eq!(h.beat("a-1", 1), Some(ResponseError::RebalanceInProgress));
    assert_eq!(h.beat("b-1", 1), Some(ResponseError::UnknownMemberId));
}

#[test]
fn members_that_do_not_rejoin_are_out_when_the_rebalance_timeout_is_over() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b", "c"]);
    let back = h.join(again(&ids[1]));
    assert_eq!(
        h.joined(back).error,
        None,
        "a follower alone changes nothing"
    );
    let newcomer = h.join(member("d"));
    let back = h.join(again(&ids[1]));
    for _ in 0..11 {
        h.pass_ms(5_000);
        assert_eq!(
            h.beat(&ids[0], 1),
            Some(ResponseError::RebalanceInProgress),
            "alive, yet it does not rejoin"
        );
        assert_eq!(h.beat(&ids[2], 1), Some(ResponseError::RebalanceInProgress));
        assert!(h.waits(newcomer));
    }
    h.pass_ms(5_000);
    let reply = h.joined(back);
    assert_eq!(
        (reply.generation, reply.leader.as_str()),
        (2, ids[1].as_str()),
        "a leader that joined"
    );
    assert_eq!(reply.members.len(), 2);
    assert_eq!(h.joined(newcomer).generation, 2);
    assert_eq!(h.beat(&ids[0], 1), Some(ResponseError::UnknownMemberId));
}

#[test]
fn sessions_end_without_heartbeats_and_the_others_rebalance() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    h.pass_ms(9_999);
    assert_eq!(h.beat(&ids[0], 1), None);
    h.pass_ms(1);
    assert_eq!(h.beat(&ids[0], 1), Some(ResponseError::RebalanceInProgress));
    let back = h.join(again(&ids[0]));
    assert_eq!(
        (h.joined(back).generation, h.joined(back).members.len()),
        (2, 1)
    );
    h.settle(&[h.joined(back)]);
    h.pass_ms(10_000);
    assert_eq!(h.state(), "Empty");
    assert_eq!(last_group(&h.log).members, []);
    assert_eq!(last_group(&h.log).generation, 3);
}

#[test]
fn a_new_member_may_wait_longer_than_its_session_but_not_for_ever() {
    let mut h = Harness::new();
    let slow = Join {
        rebalance_timeout_ms: 600_000,
        ..member("a")
    };
    let ids = {
        let asked = h.join(slow);
        h.pass_ms(6_000);
        let reply = h.joined(asked);
        h.settle(&[reply])
    };
    let newcomer = h.join(member("b"));
    for _ in 0..59 {
        h.pass_ms(5_000);
        h.beat(&ids[0], 1);
        assert!(h.waits(newcomer));
    }
    h.pass_ms(5_000);
    assert_eq!(
        h.joined(newcomer).error,
        Some(ResponseError::UnknownMemberId),
        "after five minutes"
    );
}

#[test]
fn after_a_reload_members_keep_their_place_with_fresh_sessions() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    h.pass_ms(9_000);
    h.crash();
    assert_eq!(h.state(), "Stable");
    h.pass_ms(9_999);
    for id in &ids {
        assert_eq!(h.beat(id, 1), None);
        let asked = h.sync(id, 1, &[]);
        assert_eq!(h.synced(asked), Ok(id.clone()));
    }
    h.pass_ms(10_000);
    assert_eq!(h.state(), "Empty", "and lose it when they are gone");
}

#[test]
fn a_crash_in_the_middle_of_a_rebalance_goes_back_to_the_last_generation() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    h.join(again(&ids[0]));
    h.join(again(&ids[1]));
    assert_eq!(h.state(), "CompletingRebalance");
    h.crash();
    assert_eq!(h.state(), "Stable");
    assert_eq!(h.beat(&ids[0], 2), Some(ResponseError::IllegalGeneration));
    let back = h.join(again(&ids[0]));
    assert!(h.waits(back));
    let other = h.join(again(&ids[1]));
    assert_eq!(
        (h.joined(back).generation, h.joined(other).generation),
        (2, 2)
    );
}
