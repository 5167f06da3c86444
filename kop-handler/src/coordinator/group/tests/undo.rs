//! A decision that is taken back leaves no trace, whatever it was.

use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::*;
use crate::coordinator::group::{Shard, Undo};

/// Decides and applies, as the engine does before an append is durable.
fn apply(shard: &mut Shard, now: Now, token: Token, command: Command) -> Vec<Undo> {
    let decision = shard.decide(now, GROUP, token, command);
    let mut undo: Vec<Undo> = decision
        .records
        .into_iter()
        .map(|r| shard.replay(r))
        .collect();
    undo.extend(shard.soften(now, GROUP, decision.soft));
    undo
}

fn commands(ids: &[String]) -> Vec<Command> {
    vec![
        Command::Commit(commit(&ids[0], 1, "t", 0, 99)),
        Command::Commit(commit("", -1, "t", 5, 99)),
        Command::Join(member("new")),
        Command::Join(again(&ids[0])),
        Command::Join(again(&ids[1])),
        Command::Join(fixed("new", "9")),
        Command::Sync(sync(&ids[0], 2, &[(&ids[0], "X")])),
        Command::Leave(vec![Leaving {
            member_id: ids[0].clone(),
            instance_id: None,
        }]),
        Command::Leave(vec![Leaving {
            member_id: ids[1].clone(),
            instance_id: None,
        }]),
        Command::Tick,
        Command::Delete,
        Command::DeleteOffsets(vec![partitions("u", &[0])]),
        Command::TopicDeleted {
            topic: "t".into(),
            topic_id: uuid::Uuid::nil(),
        },
        Command::Expire,
    ]
}

/// Every pair of commands, at a moment when all deadlines have passed and at one when none has.
#[test]
fn undoing_in_reverse_order_restores_everything() {
    for late in [false, true] {
        for first in 0..14 {
            for second in 0..14 {
                let mut h = Harness::new();
                let ids = h.stable(&["a", "b"]);
                h.commit(commit(&ids[0], 1, "t", 0, 1)).unwrap();
                h.commit(commit(&ids[0], 1, "u", 0, 2)).unwrap();
                let mut now = h.now;
                if late {
                    now.mono_ms += 100_000;
                    now.wall_ms += 30 * 24 * 60 * 60 * 1000;
                }
                let durable = h.shard.durable();
                let mut living = h.describe();
                let mut undo = apply(&mut h.shard, now, 1001, commands(&ids).swap_remove(first));
                undo.extend(apply(
                    &mut h.shard,
                    now,
                    1002,
                    commands(&ids).swap_remove(second),
                ));
                while let Some(change) = undo.pop() {
                    h.shard.undo(now, change);
                }
                assert_eq!(
                    h.shard.durable(),
                    durable,
                    "{first} then {second}, late: {late}"
                );
                assert_eq!(
                    h.describe(),
                    living.take(),
                    "{first} then {second}, late: {late}"
                );
            }
        }
    }
}

#[test]
fn a_group_that_came_into_being_by_what_is_undone_is_gone() {
    let mut h = Harness::new();
    for command in [
        Command::Commit(commit("", -1, "t", 0, 1)),
        Command::Join(member("a")),
        Command::Join(Join {
            require_known_member_id: true,
            ..member("a")
        }),
    ] {
        let undo = apply(&mut h.shard, h.now, 1, command);
        assert_eq!(h.shard.group_ids().count(), 1);
        for change in undo.into_iter().rev() {
            h.shard.undo(h.now, change);
        }
        assert_eq!(h.shard.group_ids().count(), 0);
    }
}

/// While an append hung and was refused in the end, heartbeats could only reach the state that is now taken back.
#[test]
fn sessions_begin_again_when_a_decision_is_taken_back() {
    let mut h = Harness::new();
    let ids = h.stable(&["a", "b"]);
    let leave = Command::Leave(vec![Leaving {
        member_id: ids[0].clone(),
        instance_id: None,
    }]);
    let mut undo = apply(&mut h.shard, h.now, 1001, leave);
    let mut now = h.now;
    now.mono_ms += 20_000;
    while let Some(change) = undo.pop() {
        h.shard.undo(now, change);
    }
    assert_eq!(h.shard.next_deadline_ms(GROUP), Some(now.mono_ms + 10_000));
}
