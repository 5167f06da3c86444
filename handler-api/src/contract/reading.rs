//! Facts about reads and searches.

use super::{Bench, PARTITION, Subject, contents, entry, from};
use crate::{Position, ReadRequest};

/// The index asked for lies within the first entry, or before it in a gap.
pub fn a_read_starts_with_the_entry_that_holds_the_index(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    for messages in [3u32, 1, 4] {
        bench.append(handle, messages, &[messages as u8]).unwrap();
    }
    // Entries hold 0–2, 3, 4–7.
    for (index, first) in [(0, 2), (1, 2), (2, 2), (3, 3), (4, 7), (6, 7), (7, 7)] {
        let answer = bench.read(from(handle, index), 1 << 20).unwrap();
        assert_eq!(answer.entries[0].index, first, "from {index}");
        assert_eq!((answer.start_index, answer.end_index), (0, 7));
    }
}

/// `next` is where the following read finds the following entry, also one that comes later.
pub fn reads_go_on_from_the_position_that_was_answered(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let expected = bench.fill(handle, 10);
    let first = ReadRequest {
        max_entries: 4,
        ..from(handle, 0)
    };
    let answer = bench.read(first, 1 << 20).unwrap();
    assert_eq!(contents(&answer), expected[..4]);
    let rest = ReadRequest {
        position: answer.next,
        ..from(handle, expected[3].0 + 1)
    };
    let answer = bench.read(rest, 1 << 20).unwrap();
    assert_eq!(contents(&answer), expected[4..]);
    let end = expected[9].0 + 1;
    let beyond = ReadRequest {
        position: answer.next,
        ..from(handle, end)
    };
    assert!(bench.read(beyond, 1 << 20).unwrap().entries.is_empty());
    let appended = bench.append(handle, 2, b"later").unwrap();
    let answer = bench.read(beyond, 1 << 20).unwrap();
    assert_eq!(contents(&answer), [(end + 1, b"later".to_vec())]);
    assert_eq!(answer.entries[0].position, appended.position);
}

/// The index counts; a position is only a hint.
pub fn a_wrong_position_does_no_harm(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let expected = bench.fill(handle, 12);
    let known = bench.read(from(handle, 0), 1 << 20).unwrap();
    let mut hints: Vec<Position> = known.entries.iter().map(|entry| entry.position).collect();
    hints.extend([
        Position::UNKNOWN,
        Position::new(0, 0),
        Position::new(i64::MAX, 3),
        Position::new(known.entries[0].position.ledger, i64::MAX),
        Position::new(known.entries[0].position.ledger, -5),
    ]);
    for hint in hints {
        for at in [0, 5, 11] {
            let request = ReadRequest {
                position: hint,
                ..from(handle, expected[at].0)
            };
            let answer = bench.read(request, 1 << 20).unwrap();
            assert_eq!(contents(&answer), expected[at..], "hint {hint:?}");
        }
    }
}

/// Entries, bytes of a request, bytes of the call.
pub fn reads_stop_at_every_limit(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let other = bench.open(&PARTITION.replace("-0", "-1")).unwrap();
    for _ in 0..10 {
        bench.append(handle, 1, &[0; 100]).unwrap();
        bench.append(other, 1, &[0; 100]).unwrap();
    }
    let read =
        |request: ReadRequest, max_bytes| bench.read(request, max_bytes).unwrap().entries.len();
    assert_eq!(read(from(handle, 0), 1 << 20), 10);
    let few = ReadRequest {
        max_entries: 3,
        ..from(handle, 0)
    };
    assert_eq!(read(few, 1 << 20), 3);
    let small = ReadRequest {
        max_bytes: 450,
        ..from(handle, 0)
    };
    assert_eq!(read(small, 1 << 20), 4);
    assert_eq!(read(from(handle, 0), 250), 2);
    assert_eq!(read(from(handle, 0), 99), 0);
    let none = ReadRequest {
        max_entries: 0,
        ..from(handle, 0)
    };
    assert_eq!(read(none, 1 << 20), 0);
    let both = vec![from(handle, 0), from(other, 0)];
    let answers = bench.wait(bench.host.read(both, 1250)).unwrap();
    let counts: Vec<usize> = answers
        .iter()
        .map(|answer| answer.as_ref().unwrap().entries.len())
        .collect();
    assert_eq!(
        counts,
        [10, 2],
        "the budget of the call is spent in the order of requests"
    );
}

/// `AT_LEAST_ONE` makes progress possible, and no more.
pub fn only_the_first_entry_of_a_call_may_exceed_its_limits(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let other = bench.open(&PARTITION.replace("-0", "-1")).unwrap();
    for _ in 0..3 {
        bench.append(handle, 1, &[1; 5000]).unwrap();
        bench.append(other, 1, &[2; 5000]).unwrap();
    }
    let eager = |handle| ReadRequest {
        flags: ReadRequest::AT_LEAST_ONE,
        max_bytes: 10,
        ..from(handle, 0)
    };
    let answers = bench
        .wait(bench.host.read(vec![eager(handle), eager(other)], 10))
        .unwrap();
    let counts: Vec<usize> = answers
        .iter()
        .map(|answer| answer.as_ref().unwrap().entries.len())
        .collect();
    assert_eq!(counts, [1, 0]);
    let empty_first = vec![
        ReadRequest {
            index: 3,
            ..eager(handle)
        },
        eager(other),
    ];
    let answers = bench.wait(bench.host.read(empty_first, 10)).unwrap();
    let counts: Vec<usize> = answers
        .iter()
        .map(|answer| answer.as_ref().unwrap().entries.len())
        .collect();
    assert_eq!(counts, [0, 1], "the first request with entries is the one");
}

/// Before the start and past the end are places, not errors.
pub fn reads_outside_of_what_there_is_answer_the_bounds(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let empty = bench.read(from(handle, 0), 1 << 20).unwrap();
    assert_eq!(
        (empty.start_index, empty.end_index, empty.entries.len()),
        (0, -1, 0)
    );
    bench.append(handle, 5, b"x").unwrap();
    for index in [5, 6, i64::MAX] {
        let answer = bench.read(from(handle, index), 1 << 20).unwrap();
        assert_eq!(
            (answer.start_index, answer.end_index, answer.entries.len()),
            (0, 4, 0)
        );
    }
    for index in [-1, i64::MIN] {
        let answer = bench.read(from(handle, index), 1 << 20).unwrap();
        assert_eq!(answer.entries.len(), 1, "from {index}");
    }
}

/// Also for indexes that do not exist: before the start the first entry, past the end the place of the next.
pub fn find_answers_the_entry_that_holds_an_index(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let mut placed = Vec::new();
    for n in 0..200u32 {
        let appended = bench.append(handle, n % 4 + 1, &[0; 700]).unwrap();
        placed.push((appended.index - i64::from(n % 4), appended));
    }
    let find = |index| bench.wait(bench.host.find(handle, index)).unwrap();
    for (base, appended) in &placed {
        for index in *base..=appended.index {
            assert_eq!(find(index), appended.position, "index {index}");
        }
    }
    assert_eq!(find(-7), placed[0].1.position);
    let end = placed[199].1.index + 1;
    let promised = find(end);
    let next = bench.wait(bench.host.append(vec![entry(handle, 1, b"next")]));
    let next = next.unwrap().remove(0).unwrap().position;
    // The host may have rolled over meanwhile.
    assert!(next == promised || (next.ledger > promised.ledger && next.entry == 0));
}
