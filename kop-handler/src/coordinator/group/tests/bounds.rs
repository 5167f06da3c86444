//! What a client may ask for, what it may cost, and what is kept of its requests.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use crate::coordinator::engine::testing::next_random;
use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::*;

fn offering(name: &str, protocols: &[String]) -> Join {
    Join {
        protocols: protocols
            .iter()
            .map(|name| (name.clone(), Bytes::new()))
            .collect(),
        ..member(name)
    }
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("p{n}")).collect()
}

#[test]
fn a_member_offers_no_more_protocols_than_it_may() {
    let mut h = Harness::new();
    let max = h.settings.max_member_protocols;
    let refused = |h: &mut Harness, join: Join| {
        let asked = h.join(join);
        h.reply(asked).is_some_and(
            |reply| matches!(reply, Reply::Join(join) if join.error == Some(ResponseError::InvalidRequest)),
        )
    };
    assert!(
        refused(&mut h, offering("a", &numbered(max + 1))),
        "a first"
    );
    assert_eq!(h.state(), "Dead", "nothing is left of it");
    assert!(!refused(&mut h, offering("a", &numbered(max))));
    assert!(
        refused(&mut h, offering("b", &numbered(max + 1))),
        "another"
    );
    h.pass_ms(3_000);
    let back = Join {
        member_id: "a-1".into(),
        ..offering("a", &numbered(300_000))
    };
    assert!(refused(&mut h, back), "a known one");
    assert_eq!(h.state(), "CompletingRebalance", "which changes nothing");
}

/// Against the rule as it is written down: fit is what shares a protocol with all, chosen is what most vote for, where
/// each votes for its first one that all share, and the leader's order decides between equals.
#[test]
fn protocols_fit_and_are_chosen_by_kafkas_rule_whatever_members_offer() {
    let mut seed = 7;
    let mut refused = 0;
    for round in 0..500 {
        let mut h = Harness::new();
        let mut in_group: Vec<Vec<String>> = Vec::new();
        let mut asked = Vec::new();
        for name in ["a", "b", "c", "d"] {
            let count = next_random(&mut seed) % 5 + 1;
            let offers: Vec<String> = (0..count)
                .map(|_| format!("p{}", next_random(&mut seed) % 5)) // twice the same now and then
                .collect();
            let fits = offers
                .iter()
                .any(|p| in_group.iter().all(|other| other.contains(p)));
            let join = h.join(offering(name, &offers));
            if fits {
                assert!(h.waits(join), "round {round}: {offers:?} in {in_group:?}");
                in_group.push(offers);
                asked.push(join);
            } else {
                let error = h.joined(join).error;
                assert_eq!(error, Some(ResponseError::InconsistentGroupProtocol));
                refused += 1;
            }
        }
        h.pass_ms(60_000);
        let chosen = h.joined(asked[0]).protocol.unwrap();
        let shared = |p: &String| in_group.iter().all(|offers| offers.contains(p));
        let votes: Vec<&String> = in_group
            .iter()
            .map(|offers| offers.iter().find(|p| shared(p)).unwrap())
            .collect();
        let count = |p: &String| votes.iter().filter(|vote| **vote == p).count();
        let most = votes.iter().map(|vote| count(vote)).max().unwrap();
        let expected = in_group[0].iter().find(|p| count(p) == most);
        let expected = expected.or_else(|| {
            let winners: BTreeSet<&String> = votes.iter().copied().collect();
            winners.into_iter().find(|p| count(p) == most)
        });
        assert_eq!(Some(&chosen), expected, "round {round}: {in_group:?}");
    }
    assert!(refused > 100, "the rounds try both outcomes");
}

#[test]
fn each_member_gets_the_last_share_that_names_it_and_shares_of_strangers_are_dropped() {
    let mut h = Harness::new();
    let asked: Vec<Asked> = ["a", "b", "c"].map(|name| h.join(member(name))).to_vec();
    h.pass_ms(9_000);
    let leader = h.joined(asked[0]).leader;
    assert_eq!(leader, "a-1");
    let (b, c) = (h.sync("b-1", 1, &[]), h.sync("c-1", 1, &[]));
    let shares = [("b-1", "old"), ("x-1", "none"), ("a-1", "1"), ("b-1", "2")];
    let a = h.sync("a-1", 1, &shares);
    assert_eq!(h.synced(a), Ok("1".into()));
    assert_eq!(h.synced(b), Ok("2".into()));
    assert_eq!(h.synced(c), Ok(String::new()));
    let held = last_group(&h.log).members;
    assert_eq!(held.len(), 3);
}

/// A frame of megabytes must not stay in memory for the few bytes of it that a group keeps.
#[test]
fn a_group_keeps_nothing_of_the_frames_that_its_requests_came_in() {
    let frame = Bytes::from(vec![7; 1 << 20]);
    let part = |n: usize| frame.slice(n * 10..n * 10 + 10);
    let from_frame = |join: Join| Join {
        protocols: vec![("range".into(), part(1)), ("sticky".into(), part(2))],
        ..join
    };
    let mut h = Harness::new();
    h.join(from_frame(member("a")));
    h.join(from_frame(fixed("s", "1")));
    h.pass_ms(6_000);
    assert!(frame.is_unique(), "of first joins");
    let mut assigning = sync("a-1", 1, &[]);
    assigning.assignments = vec![("a-1".into(), part(3)), ("s-1".into(), part(4))];
    h.ask(GROUP, Command::Sync(assigning));
    assert_eq!(h.state(), "Stable");
    assert_eq!(last_group(&h.log).members[0].assignment, part(3));
    assert!(frame.is_unique(), "of an assignment");
    h.join(from_frame(fixed("s", "2")));
    assert!(frame.is_unique(), "of a static member that is back");
    h.join(from_frame(again("a-1")));
    assert!(frame.is_unique(), "of a member that joins again");
    assert_eq!(h.state(), "PreparingRebalance");
}
