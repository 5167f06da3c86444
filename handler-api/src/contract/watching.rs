//! Facts about the wake-up and about the life of handles.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Bench, PARTITION, Subject, TOPIC, from, kind};
use crate::ErrorCode;
use crate::ledger::HandleClosed;
use crate::topics::{DeleteTopic, TopicName};

/// One call per watch, with an index beyond the one that was named.
pub fn a_watch_is_told_once_and_only_when_the_end_moved(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    assert_eq!(bench.host.watch(handle, -1).unwrap(), -1);
    assert!(bench.witness.ends(handle).is_empty());
    bench.append(handle, 3, b"x").unwrap();
    bench.until("the wake-up", || bench.witness.ends(handle) == [2]);
    bench.append(handle, 1, b"x").unwrap();
    // Already beyond: answered, and nobody is called.
    assert_eq!(bench.host.watch(handle, 1).unwrap(), 3);
    bench.append(handle, 1, b"x").unwrap();
    assert_eq!(bench.host.watch(handle, 10).unwrap(), 4);
    bench.append(handle, 1, b"x").unwrap();
    assert_eq!(bench.witness.ends(handle), [2], "11 is not reached");
    bench.append(handle, 10, b"x").unwrap();
    bench.until("the second wake-up", || {
        bench.witness.ends(handle) == [2, 15]
    });
}

/// The later watch is the one that counts.
pub fn a_second_watch_replaces_the_first(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    bench.host.watch(handle, 0).unwrap();
    bench.host.watch(handle, 4).unwrap();
    bench.append(handle, 3, b"x").unwrap();
    assert_eq!(bench.host.watch(handle, 4).unwrap(), 2);
    assert!(bench.witness.ends(handle).is_empty());
    bench.append(handle, 3, b"x").unwrap();
    bench.until("one wake-up", || bench.witness.ends(handle) == [5]);
    // And one that is answered at once leaves nothing armed.
    bench.host.watch(handle, 7).unwrap();
    assert_eq!(bench.host.watch(handle, 0).unwrap(), 5);
    bench.append(handle, 9, b"x").unwrap();
    assert_eq!(bench.host.watch(handle, i64::MAX).unwrap(), 14);
    assert_eq!(bench.witness.ends(handle), [5]);
}

/// A reader that always watches before it sleeps sees every entry, while another thread appends.
pub fn no_wake_up_is_lost_between_threads(subject: &dyn Subject) {
    const ENTRIES: i64 = 500;
    let (bench, handle) = Bench::with_topic(subject);
    let bench = &bench;
    let failed = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..ENTRIES {
                if failed.load(Ordering::SeqCst) {
                    return;
                }
                assert_eq!(bench.append(handle, 1, b"x").unwrap().index, n);
            }
        });
        let reader = scope.spawn(move || {
            let mut seen = -1;
            while seen < ENTRIES - 1 {
                let told = bench.witness.ends(handle).len();
                let end = bench.host.watch(handle, seen).unwrap();
                if end > seen {
                    seen = end;
                    continue;
                }
                bench.until("a wake-up", || bench.witness.ends(handle).len() > told);
            }
            seen
        });
        let seen = reader.join();
        failed.store(seen.is_err(), Ordering::SeqCst);
        assert_eq!(seen.unwrap(), ENTRIES - 1);
    });
}

/// A dead handle is an ordinary error everywhere, and the plugin is told.
pub fn handles_die_with_their_topic_and_never_come_back(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    bench.append(handle, 1, b"x").unwrap();
    let name = TopicName { name: TOPIC.into() };
    bench.control::<DeleteTopic>(&name).unwrap();
    bench.until("the event", || {
        let events = bench.witness.events::<HandleClosed>();
        events
            .iter()
            .any(|event| event.topic == PARTITION && event.handle == Some(handle.into()))
    });
    assert_eq!(kind(bench.append(handle, 1, b"x")), ErrorCode::HandleClosed);
    assert_eq!(
        kind(bench.read(from(handle, 0), 100)),
        ErrorCode::HandleClosed
    );
    assert_eq!(
        kind(bench.wait(bench.host.find(handle, 0))),
        ErrorCode::HandleClosed
    );
    assert_eq!(kind(bench.host.watch(handle, 0)), ErrorCode::HandleClosed);
    assert_eq!(kind(bench.open(PARTITION)), ErrorCode::NotFound);
    for _ in 0..3 {
        bench.create(TOPIC, 1).unwrap();
        let fresh = bench.opened(PARTITION).unwrap();
        assert_eq!(
            (fresh.start_index, fresh.end_index),
            (0, -1),
            "another life, another log"
        );
        let fresh = fresh.handle.unwrap().into();
        assert_ne!(handle, fresh);
        bench.append(fresh, 1, b"y").unwrap();
        assert_eq!(kind(bench.append(handle, 1, b"x")), ErrorCode::HandleClosed);
        bench.control::<DeleteTopic>(&name).unwrap();
    }
}

/// By any number of callers.
pub fn opening_twice_gives_the_same_handle(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    assert_eq!(bench.open(PARTITION).unwrap(), handle);
    let other = PARTITION.replace("-0", "-1");
    let bench = &bench;
    let handles: Vec<_> = std::thread::scope(|scope| {
        let other = &other;
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(move || bench.open(other).unwrap()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(handles.iter().all(|opened| *opened == handles[0]));
    assert_ne!(handles[0], handle);
    for unknown in [
        "persistent://public/default/nothing",
        &PARTITION.replace("-0", "-2"),
    ] {
        assert_eq!(kind(bench.open(unknown)), ErrorCode::NotFound, "{unknown}");
    }
}
