//! Facts about fetch sessions.

use super::*;

const OK: Outcome = Outcome {
    error: false,
    has_records: false,
    high_watermark: 5,
    log_start_offset: 0,
};

fn sessions(max: usize) -> FetchSessions {
    FetchSessions {
        max_sessions: max,
        max_partitions: 10,
        min_eviction_ms: 100,
        sessions: Mutex::default(),
    }
}

fn followed(partition: i32, offset: i64) -> Followed {
    Followed::new(TopicKey::Name("t".into()), partition, offset, 100, -1)
}

fn ask(id: i32, epoch: i32, partitions: &[i32]) -> Ask {
    Ask {
        id,
        epoch,
        by_id: false,
        partitions: partitions.iter().map(|p| followed(*p, 0)).collect(),
        forgotten: Vec::new(),
    }
}

fn plan(sessions: &FetchSessions, ask: Ask) -> Plan {
    sessions
        .plan(ask, 0)
        .unwrap_or_else(|fault| panic!("{fault}"))
}

/// Answers a plan with the same outcome for all; the new session's id, if one begins, is `new`.
fn answer(sessions: &FetchSessions, plan: Plan, outcome: Outcome, new: i32) -> (i32, Vec<bool>) {
    let outcomes = vec![outcome; plan.partitions().len()];
    sessions
        .answer(plan, false, &outcomes, || new, 0)
        .unwrap_or_else(|fault| panic!("{fault}"))
}

fn begin(sessions: &FetchSessions, partitions: &[i32], new: i32, now_ms: u64) -> i32 {
    let plan = plan(sessions, ask(NO_SESSION, INITIAL_EPOCH, partitions));
    let outcomes = vec![OK; partitions.len()];
    sessions
        .answer(plan, false, &outcomes, || new, now_ms)
        .map_or(-1, |(id, _)| id)
}

fn numbers(plan: &Plan) -> Vec<i32> {
    plan.partitions().iter().map(|p| p.partition).collect()
}

#[test]
fn a_session_answers_only_what_changed() {
    let sessions = sessions(10);
    assert_eq!(begin(&sessions, &[0, 1], 7, 0), 7);
    let same = plan(&sessions, ask(7, 1, &[]));
    assert_eq!(numbers(&same), [0, 1]);
    assert_eq!(answer(&sessions, same, OK, 0), (7, vec![false, false]));

    let moved = plan(&sessions, ask(7, 2, &[]));
    let outcomes = [
        OK,
        Outcome {
            high_watermark: 6,
            ..OK
        },
    ];
    assert_eq!(
        sessions.answer(moved, false, &outcomes, || 0, 0),
        Ok((7, vec![false, true]))
    );

    let trimmed = plan(&sessions, ask(7, 3, &[]));
    let outcomes = [
        Outcome {
            log_start_offset: 1,
            ..OK
        },
        Outcome {
            high_watermark: 6,
            ..OK
        },
    ];
    assert_eq!(
        sessions.answer(trimmed, false, &outcomes, || 0, 0),
        Ok((7, vec![true, false]))
    );
}

#[test]
fn an_error_is_answered_each_time_and_so_is_what_follows_it() {
    let sessions = sessions(10);
    begin(&sessions, &[0], 7, 0);
    let error = Outcome { error: true, ..OK };
    for (epoch, outcome, needed) in [
        (1, error, true),
        (2, error, true),
        (3, OK, true),
        (4, OK, false),
    ] {
        let plan = plan(&sessions, ask(7, epoch, &[]));
        assert_eq!(
            answer(&sessions, plan, outcome, 0),
            (7, vec![needed]),
            "epoch {epoch}"
        );
    }
}

#[test]
fn a_partition_that_gave_records_is_read_last_the_next_time() {
    let sessions = sessions(10);
    begin(&sessions, &[0, 1, 2], 7, 0);
    let first = plan(&sessions, ask(7, 1, &[]));
    let outcomes = [
        Outcome {
            has_records: true,
            ..OK
        },
        OK,
        OK,
    ];
    assert_eq!(
        sessions.answer(first, false, &outcomes, || 0, 0),
        Ok((7, vec![true, false, false]))
    );
    assert_eq!(numbers(&plan(&sessions, ask(7, 2, &[]))), [1, 2, 0]);
}

#[test]
fn requests_change_positions_add_and_forget_partitions() {
    let sessions = sessions(10);
    begin(&sessions, &[0, 1], 7, 0);
    let mut change = ask(7, 1, &[3]);
    change.partitions.push(followed(1, 44));
    change.forgotten.push((TopicKey::Name("t".into()), 0));
    change.forgotten.push((TopicKey::Name("other".into()), 9));
    let changed = plan(&sessions, change);
    assert_eq!(numbers(&changed), [1, 3]);
    assert_eq!(changed.partitions().first().map(|p| p.offset), Some(44));

    let mut rest = ask(7, 2, &[]);
    rest.forgotten = vec![
        (TopicKey::Name("t".into()), 1),
        (TopicKey::Name("t".into()), 3),
    ];
    assert!(
        matches!(plan(&sessions, rest), Plan::Sessionless(p) if p.is_empty()),
        "an empty session ends"
    );
    assert_eq!(sessions.len(), 0);
    assert_eq!(sessions.sessions.lock().partitions, 0);
}

#[test]
fn a_wrong_id_a_wrong_epoch_and_another_way_of_naming_topics_are_refused() {
    let sessions = sessions(10);
    begin(&sessions, &[0], 7, 0);
    let refused = |ask| {
        sessions
            .plan(ask, 0)
            .map(|plan| numbers(&plan))
            .map_err(|fault| fault.code())
    };
    assert_eq!(refused(ask(8, 1, &[])), Err(70));
    assert_eq!(refused(ask(7, 2, &[])), Err(71));
    assert_eq!(
        refused(Ask {
            by_id: true,
            ..ask(7, 1, &[])
        }),
        Err(106)
    );
    assert_eq!(
        refused(ask(7, 1, &[])),
        Ok(vec![0]),
        "a refusal changes nothing"
    );
    assert_eq!(refused(ask(7, 1, &[])), Err(71), "an epoch is used once");
}

#[test]
fn a_session_that_moved_on_while_a_request_waited_refuses_its_answer() {
    let sessions = sessions(10);
    begin(&sessions, &[0], 7, 0);
    let slow = plan(&sessions, ask(7, 1, &[]));
    let fast = plan(&sessions, ask(7, 2, &[]));
    assert_eq!(answer(&sessions, fast, OK, 0).0, 7);
    assert_eq!(
        sessions
            .answer(slow, false, &[OK], || 0, 0)
            .map_err(|f| f.code()),
        Err(71)
    );
}

#[test]
fn a_full_session_takes_new_offsets_and_replacements_but_not_one_more() {
    let sessions = sessions(10);
    let all: Vec<i32> = (0..10).collect();
    assert_eq!(begin(&sessions, &all, 7, 0), 7);
    // The same partitions again, twice each, as a client that moved on names them.
    let again: Vec<i32> = all.iter().chain(&all).copied().collect();
    assert_eq!(numbers(&plan(&sessions, ask(7, 1, &again))), all);
    // One goes, another comes.
    let mut swap = ask(7, 2, &[10]);
    swap.forgotten = vec![(TopicKey::Name("t".into()), 0)];
    assert_eq!(plan(&sessions, swap).partitions().len(), 10);
    assert_eq!(
        sessions
            .plan(ask(7, 3, &[11]), 0)
            .map(|plan| numbers(&plan)),
        Err(Fault::FetchSessionIdNotFound(String::new()))
    );
    assert_eq!(sessions.len(), 0);
    // All its room is free again.
    assert_eq!(begin(&sessions, &all, 8, 0), 8);
}

#[test]
fn a_full_request_ends_the_old_session_and_a_final_one_begins_none() {
    let sessions = sessions(10);
    begin(&sessions, &[0], 7, 0);
    let again = plan(&sessions, ask(7, INITIAL_EPOCH, &[0, 1]));
    assert_eq!(sessions.len(), 0);
    assert_eq!(answer(&sessions, again, OK, 9), (9, vec![true, true]));
    let last = plan(&sessions, ask(9, FINAL_EPOCH, &[0]));
    assert_eq!(answer(&sessions, last, OK, 11), (NO_SESSION, vec![true]));
    assert_eq!(sessions.len(), 0);
}

#[test]
fn a_full_cache_gives_way_to_larger_sessions_once_old_and_to_any_once_stale() {
    let sessions = sessions(2);
    assert_eq!(begin(&sessions, &[0], 1, 0), 1);
    assert_eq!(begin(&sessions, &[0, 1], 2, 50), 2);
    assert_eq!(
        begin(&sessions, &[0, 1, 2], 3, 60),
        NO_SESSION,
        "nothing is old enough"
    );
    // Session 2 is used at 120, session 1 is old and small.
    assert!(sessions.plan(ask(1, 1, &[]), 90).is_ok());
    assert_eq!(
        begin(&sessions, &[0, 1, 2], 3, 120),
        3,
        "the smallest old one goes"
    );
    assert!(sessions.plan(ask(1, 2, &[]), 120).is_err());
    assert_eq!(
        begin(&sessions, &[0], 4, 121),
        NO_SESSION,
        "a small one does not displace a larger one"
    );
    assert_eq!(begin(&sessions, &[0], 4, 200), 4, "the stale one goes");
    assert!(sessions.plan(ask(2, 1, &[]), 200).is_err());
}

#[test]
fn sessions_are_bounded_by_their_partitions_too() {
    let sessions = sessions(100);
    let many: Vec<i32> = (0..10).collect();
    assert_eq!(begin(&sessions, &many, 1, 0), 1);
    assert_eq!(begin(&sessions, &[0], 2, 0), NO_SESSION);
    assert_eq!(
        sessions
            .plan(ask(1, 1, &[11]), 0)
            .map(|p| numbers(&p))
            .map_err(|f| f.code()),
        Err(70)
    );
    assert_eq!(sessions.sessions.lock().partitions, 0);
    assert_eq!(begin(&sessions, &[0], 3, 0), 3);
}

#[test]
fn epochs_wrap_around_the_reserved_ones() {
    assert_eq!(
        [
            next_epoch(0),
            next_epoch(1),
            next_epoch(i32::MAX),
            next_epoch(-1)
        ],
        [1, 2, 1, -1]
    );
}
