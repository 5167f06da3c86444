//! Writing what still holds again, so that a log may lose its oldest part.

use std::sync::Arc;

use crate::coordinator::group::Shard;
use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::*;
use crate::coordinator::record;

/// Everything that is older than now, step by step; answers how many steps it took.
fn refresh(h: &mut Harness, before_ms: i64) -> usize {
    let (mut after, mut steps) = (None, 0);
    loop {
        let asked = h.ask(GROUP, Command::Refresh { before_ms, after });
        steps += 1;
        match h.reply(asked) {
            Some(Reply::Refreshed(None)) => return steps,
            Some(Reply::Refreshed(next)) => after = next.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// What a log says that lost everything before one of its records.
fn tail(h: &Harness, from: usize) -> Durable {
    let mut shard = Shard::new(Arc::clone(&h.settings));
    for stored in &h.log[from..] {
        let record = record::decode(&stored.key, stored.value.as_deref());
        shard.replay(record.unwrap().unwrap());
    }
    shard.durable()
}

#[test]
fn the_end_of_the_log_holds_all_after_a_refresh_in_as_many_steps_as_it_needs() {
    for (most, steps) in [(5_000, 1), (2, 4), (1, 7)] {
        let mut h = Harness::with(GroupSettings {
            max_decision_records: most,
            ..GroupSettings::default()
        });
        for topic in ["a", "b"] {
            for partition in 0..3 {
                h.commit(commit("", -1, topic, partition, 42)).unwrap();
            }
        }
        h.stable(&["m1", "m2"]);
        h.pass_ms(1_000);
        let now_ms = h.now.wall_ms;
        let before = (h.shard.durable(), h.log.len());
        assert_eq!(refresh(&mut h, now_ms), steps);
        assert_eq!(h.shard.durable(), before.0, "nothing changes");
        assert_eq!(tail(&h, before.1), before.0);
        assert_eq!(h.log.len() - before.1, 7, "each once");
    }
}

#[test]
fn what_was_written_lately_is_left_alone() {
    let mut h = Harness::new();
    h.commit(commit("", -1, "t", 0, 1)).unwrap();
    h.pass_ms(1_000);
    let since = h.now.wall_ms;
    h.commit(commit("", -1, "t", 1, 2)).unwrap();
    let length = h.log.len();
    refresh(&mut h, since);
    assert_eq!(h.log.len(), length + 1);
    assert_eq!(h.offset("t", 0), 1);
}

#[test]
fn a_group_that_is_not_there_needs_nothing() {
    let mut h = Harness::new();
    assert_eq!(refresh(&mut h, i64::MAX), 1);
    assert!(h.log.is_empty());
}
