//! Committing, fetching, deleting and expiring offsets (behaviours rows 50, 53, 55, 61).

use kafka_protocol::error::ResponseError;
use uuid::Uuid;

use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::*;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

fn expire(h: &mut Harness) {
    while {
        let asked = h.ask(GROUP, Command::Expire);
        h.reply(asked) == Some(&Reply::Swept(true))
    } {}
}

#[test]
fn a_simple_consumer_commits_without_being_a_member() {
    let mut h = Harness::new();
    assert_eq!(
        h.offset("t", 0),
        -1,
        "an unknown group has no offset, and that is no error"
    );
    assert_eq!(h.commit(commit("", -1, "t", 0, 42)), Ok(vec![None]));
    assert_eq!(h.offset("t", 0), 42);
    assert_eq!(h.offset("t", 1), -1);
    assert_eq!(h.offset("u", 0), -1);
    let group = h.describe().unwrap();
    assert_eq!(
        (
            group.state,
            group.protocol_type.as_str(),
            group.members.len()
        ),
        ("Empty", "", 0)
    );
    h.crash();
    assert_eq!(h.offset("t", 0), 42);
}

#[test]
fn what_was_committed_is_fetched_with_epoch_and_metadata() {
    let mut h = Harness::new();
    h.commit(commit("", -1, "t", 3, 42)).unwrap();
    h.commit(commit("", -1, "u", 0, 1)).unwrap();
    let asked = h.ask(GROUP, Command::Fetch(FetchOffsets { topics: None }));
    let offset = |partition, offset| FetchedOffset {
        partition,
        offset,
        leader_epoch: 5,
        metadata: "m".into(),
    };
    let all = vec![
        FetchedTopic {
            topic: "t".into(),
            partitions: vec![offset(3, 42)],
        },
        FetchedTopic {
            topic: "u".into(),
            partitions: vec![offset(0, 1)],
        },
    ];
    assert_eq!(h.reply(asked), Some(&Reply::Fetch(all)));
}

#[test]
fn a_member_commits_in_its_generation_only() {
    let mut h = Harness::new();
    let ids = h.stable(&["a"]);
    assert_eq!(h.commit(commit(&ids[0], 1, "t", 0, 1)), Ok(vec![None]));
    for generation in [0, 2, -1] {
        let refused = h.commit(commit(&ids[0], generation, "t", 0, 9));
        assert_eq!(
            refused,
            Err(ResponseError::IllegalGeneration),
            "generation {generation}"
        );
    }
    assert_eq!(
        h.commit(commit("x", 1, "t", 0, 9)),
        Err(ResponseError::UnknownMemberId)
    );
    assert_eq!(
        h.commit(commit("", -1, "t", 0, 9)),
        Err(ResponseError::UnknownMemberId),
        "not while members are there"
    );
    assert_eq!(h.offset("t", 0), 1);
}

#[test]
fn a_commit_is_taken_while_members_rejoin_but_not_while_the_assignment_is_awaited() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    h.join(again(&ids[0]));
    assert_eq!(h.state(), "PreparingRebalance");
    assert_eq!(h.commit(commit(&ids[1], 1, "t", 0, 1)), Ok(vec![None]));
    h.join(again(&ids[1]));
    assert_eq!(h.state(), "CompletingRebalance");
    assert_eq!(
        h.commit(commit(&ids[1], 2, "t", 0, 2)),
        Err(ResponseError::RebalanceInProgress)
    );
    assert_eq!(
        h.commit(commit(&ids[1], 1, "t", 0, 2)),
        Err(ResponseError::IllegalGeneration)
    );
}

#[test]
fn a_commit_keeps_the_session() {
    let mut h = Harness::new();
    let ids = h.stable(&["a"]);
    for offset in 0..5 {
        h.pass_ms(9_000);
        h.commit(commit(&ids[0], 1, "t", 0, offset)).unwrap();
    }
    assert_eq!(h.state(), "Stable");
}

#[test]
fn a_generation_of_a_group_that_is_gone_is_refused_by_the_age_of_the_request() {
    let mut h = Harness::new();
    assert_eq!(
        h.commit(commit("a-1", 3, "t", 0, 1)),
        Err(ResponseError::GroupIdNotFound)
    );
    let old = Commit {
        knows_group_id_not_found: false,
        ..commit("a-1", 3, "t", 0, 1)
    };
    assert_eq!(h.commit(old), Err(ResponseError::IllegalGeneration));
    assert_eq!(h.state(), "Dead");
}

#[test]
fn metadata_that_is_too_long_refuses_its_partition_alone() {
    let mut h = Harness::with(GroupSettings {
        offset_metadata_max_size: 4,
        ..GroupSettings::default()
    });
    let mut both = commit("", -1, "t", 0, 1);
    let mut long = both.topics[0].partitions[0].clone();
    long.partition = 1;
    long.metadata = "12345".into();
    let mut wide = long.clone();
    wide.partition = 2;
    wide.metadata = "äöüß".into(); // four characters in eight bytes
    both.topics[0].partitions.extend([long, wide]);
    let outcome = h.commit(both);
    assert_eq!(
        outcome,
        Ok(vec![
            None,
            Some(ResponseError::OffsetMetadataTooLarge),
            None
        ])
    );
    assert_eq!(
        (h.offset("t", 0), h.offset("t", 1), h.offset("t", 2)),
        (1, -1, 1)
    );
}

#[test]
fn an_empty_commit_is_checked_like_any_other() {
    let mut h = Harness::new();
    h.stable(&["a"]);
    let empty = Commit {
        topics: Vec::new(),
        ..commit("x", 1, "t", 0, 1)
    };
    assert_eq!(h.commit(empty), Err(ResponseError::UnknownMemberId));
}

#[test]
fn offsets_of_an_empty_group_expire_when_it_has_been_empty_for_the_retention() {
    let mut h = Harness::new();
    let ids = h.stable(&["a"]);
    h.commit(commit(&ids[0], 1, "t", 0, 7)).unwrap();
    h.commit(commit(&ids[0], 1, "old", 0, 7)).unwrap();
    for _ in 0..10 * DAY_MS / 9_000 {
        h.now.mono_ms += 9_000; // the log of heartbeats would make the reload checks slow
        h.now.wall_ms += 9_000;
    }
    assert_eq!(h.beat(&ids[0], 1), None);
    h.leave(&[(&ids[0], None)]);
    expire(&mut h);
    assert_eq!(h.offset("t", 0), 7, "it was in use until now");
    h.pass_ms(7 * DAY_MS - 1);
    expire(&mut h);
    assert_eq!(h.offset("t", 0), 7);
    assert_eq!(
        h.state(),
        "Empty",
        "behaviours row 55: it stays while it has offsets"
    );
    h.pass_ms(1);
    expire(&mut h);
    assert_eq!(h.offset("t", 0), -1);
    assert_eq!(h.state(), "Dead", "the group goes with its last offset");
    assert_eq!(tombstones(&h.log), 3);
}

#[test]
fn offsets_of_topics_that_a_stable_group_reads_never_expire_those_of_others_do() {
    let mut h = Harness::new();
    let ids = h.stable(&["a"]);
    h.commit(commit(&ids[0], 1, "t", 0, 7)).unwrap();
    h.commit(commit(&ids[0], 1, "old", 0, 8)).unwrap();
    h.now.wall_ms += i64::try_from(7 * DAY_MS).unwrap();
    expire(&mut h);
    assert_eq!((h.offset("t", 0), h.offset("old", 0)), (7, -1));
    assert_eq!(h.state(), "Stable");
}

#[test]
fn offsets_of_a_rebalancing_group_or_of_another_kind_of_group_do_not_expire() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    h.commit(commit(&ids[0], 1, "old", 0, 8)).unwrap();
    h.join(again(&ids[0]));
    h.now.wall_ms += i64::try_from(9 * DAY_MS).unwrap();
    expire(&mut h);
    assert_eq!(h.offset("old", 0), 8);

    let mut h = Harness::new();
    let worker = |name| Join {
        protocol_type: "connect".into(),
        ..member(name)
    };
    let asked = h.join(worker("w"));
    h.pass_ms(6_000);
    let reply = h.joined(asked);
    h.settle(&[reply]);
    h.commit(commit("w-1", 1, "old", 0, 8)).unwrap();
    h.now.wall_ms += i64::try_from(9 * DAY_MS).unwrap();
    expire(&mut h);
    assert_eq!(h.offset("old", 0), 8, "nothing is known of what it reads");
}

#[test]
fn offsets_of_simple_consumers_expire_by_the_age_of_the_commit() {
    let mut h = Harness::new();
    h.commit(commit("", -1, "t", 0, 1)).unwrap();
    h.pass_ms(4 * DAY_MS);
    h.commit(commit("", -1, "t", 1, 1)).unwrap();
    h.pass_ms(4 * DAY_MS);
    expire(&mut h);
    assert_eq!((h.offset("t", 0), h.offset("t", 1)), (-1, 1));
    h.pass_ms(4 * DAY_MS);
    expire(&mut h);
    assert_eq!(h.state(), "Dead");
}

/// behaviours row 50: −1 is no age.
#[test]
fn a_retention_of_minus_one_is_the_brokers_and_another_one_is_its_own() {
    let mut h = Harness::new();
    h.commit(commit("", -1, "t", 0, 1)).unwrap();
    let short = Commit {
        retention_ms: 60_000,
        ..commit("", -1, "t", 1, 1)
    };
    h.commit(short).unwrap();
    let long = Commit {
        retention_ms: i64::try_from(30 * DAY_MS).unwrap(),
        ..commit("", -1, "t", 2, 1)
    };
    h.commit(long).unwrap();
    expire(&mut h);
    assert_eq!(
        (h.offset("t", 0), h.offset("t", 1), h.offset("t", 2)),
        (1, 1, 1)
    );
    h.pass_ms(600_000);
    h.crash();
    expire(&mut h);
    assert_eq!(
        (h.offset("t", 0), h.offset("t", 1), h.offset("t", 2)),
        (1, -1, 1)
    );
    h.pass_ms(8 * DAY_MS);
    expire(&mut h);
    assert_eq!((h.offset("t", 0), h.offset("t", 2)), (-1, 1));
}

#[test]
fn an_empty_group_without_offsets_goes_at_the_next_search() {
    let mut h = Harness::new();
    let ids = h.stable(&["a"]);
    h.leave(&[(&ids[0], None)]);
    expire(&mut h);
    assert_eq!(h.state(), "Dead");

    let refused = h.join(Join {
        require_known_member_id: true,
        ..member("b")
    });
    expire(&mut h);
    let given = h.joined(refused).member_id;
    let asked = h.join(again(&given));
    assert!(h.waits(asked), "but not while someone is about to join");
}

#[test]
fn offsets_are_deleted_unless_their_topic_is_in_use() {
    let mut h = Harness::new();
    let delete = |h: &mut Harness, topics| {
        let asked = h.ask(GROUP, Command::DeleteOffsets(topics));
        match h.reply(asked) {
            Some(Reply::DeleteOffsets(outcome)) => outcome.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delete(&mut h, vec![]), Err(ResponseError::GroupIdNotFound));
    let ids = h.stable(&["a"]);
    for topic in ["t", "old"] {
        h.commit(commit(&ids[0], 1, topic, 0, 1)).unwrap();
    }
    let outcome = delete(
        &mut h,
        vec![partitions("t", &[0]), partitions("old", &[0, 5])],
    );
    let expected = vec![
        TopicOutcome {
            topic: "t".into(),
            partitions: vec![(0, Some(ResponseError::GroupSubscribedToTopic))],
        },
        TopicOutcome {
            topic: "old".into(),
            partitions: vec![(0, None), (5, None)],
        },
    ];
    assert_eq!(outcome, Ok(expected));
    assert_eq!((h.offset("t", 0), h.offset("old", 0)), (1, -1));
    assert_eq!(tombstones(&h.log), 1);

    let mut h = Harness::new();
    let asked = h.join(Join {
        protocol_type: "connect".into(),
        ..member("w")
    });
    h.pass_ms(6_000);
    assert_eq!(h.joined(asked).error, None);
    assert_eq!(
        delete(&mut h, vec![partitions("t", &[0])]),
        Err(ResponseError::NonEmptyGroup)
    );
}

#[test]
fn a_deleted_topic_takes_its_offsets_with_it_but_not_those_of_its_successor() {
    let (old, new) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let with_id = |partition, id| {
        let mut commit = commit("", -1, "t", partition, 5);
        commit.topics[0].topic_id = id;
        commit
    };
    let mut h = Harness::new();
    for (partition, id) in [(0, Uuid::nil()), (1, old), (2, new)] {
        h.commit(with_id(partition, id)).unwrap();
    }
    h.commit(commit("", -1, "other", 0, 5)).unwrap();
    assert_eq!(h.shard.groups_reading("t").len(), 1);
    h.ask(
        GROUP,
        Command::TopicDeleted {
            topic: "t".into(),
            topic_id: old,
        },
    );
    assert_eq!([0, 1, 2].map(|p| h.offset("t", p)), [-1, -1, 5]);
    h.ask(
        GROUP,
        Command::TopicDeleted {
            topic: "t".into(),
            topic_id: Uuid::nil(),
        },
    );
    assert_eq!((h.offset("t", 2), h.offset("other", 0)), (-1, 5));
    assert!(h.shard.groups_reading("t").is_empty());
}

#[test]
fn an_offset_of_a_topic_that_was_made_again_is_not_found_under_the_new_id() {
    let mut h = Harness::new();
    let mut first = commit("", -1, "t", 0, 5);
    first.topics[0].topic_id = Uuid::from_u128(1);
    h.commit(first).unwrap();
    h.commit(commit("", -1, "t", 1, 6)).unwrap();
    let mut fetch = |id| {
        let mut topic = partitions("t", &[0, 1]);
        topic.topic_id = id;
        let asked = h.ask(
            GROUP,
            Command::Fetch(FetchOffsets {
                topics: Some(vec![topic]),
            }),
        );
        match h.reply(asked) {
            Some(Reply::Fetch(topics)) => [0, 1].map(|p| topics[0].partitions[p].offset),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fetch(Uuid::from_u128(1)), [5, 6]);
    assert_eq!(
        fetch(Uuid::from_u128(2)),
        [-1, 6],
        "one that was committed without an id counts for any"
    );
    assert_eq!(fetch(Uuid::nil()), [5, 6]);
}
