//! Waiting: woken by what moves, by nothing else, and leaving nothing behind.

use super::*;
use futures_util::FutureExt;

fn rung(waiter: &mut Waiter) -> Option<Wake> {
    waiter.now_or_never()
}

#[test]
fn a_waiter_is_woken_by_an_append_to_any_of_its_partitions() {
    let bed = Bed::quiet();
    let all: Vec<Arc<Partition>> = (0..PARTITIONS).map(|n| bed.open(n)).collect();
    for moved in &all {
        let places: Vec<_> = all
            .iter()
            .map(|p| (Arc::clone(p), p.high_watermark()))
            .collect();
        let mut waiter = bed.logs.wait(&places);
        assert_eq!(rung(&mut waiter), None);
        bed.put(moved, &[NOW_MS]);
        assert_eq!(rung(&mut waiter), Some(Wake::Moved));
    }
}

#[test]
fn who_is_not_watched_for_is_told_so_with_all_who_wait_there() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let mut first = bed.logs.wait(&[(Arc::clone(&partition), 5)]);
    assert_eq!(rung(&mut first), None);
    bed.sim.crash();
    // A smaller offset needs a watch of its own, which a broker that is gone does not take.
    let mut second = bed.logs.wait(&[(Arc::clone(&partition), 0)]);
    assert_eq!(rung(&mut second), Some(Wake::Unwatched));
    assert_eq!(rung(&mut first), Some(Wake::Unwatched));
}

#[test]
fn what_moved_before_the_wait_is_not_missed() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let seen = partition.high_watermark();
    bed.put(&partition, &[NOW_MS]);
    let mut waiter = bed.logs.wait(&[(Arc::clone(&partition), seen)]);
    assert_eq!(rung(&mut waiter), Some(Wake::Moved));
}

#[test]
fn an_append_that_is_not_durable_wakes_nobody() {
    let bed = Bed::new(2, Faults::slow());
    let partition = bed.open(0);
    let mut waiter = bed.logs.wait(&[(Arc::clone(&partition), 0)]);
    let append = bed.logs.append(vec![client(&partition, batch(&[NOW_MS]))]);
    assert_eq!(rung(&mut waiter), None);
    assert!(bed.run(append).remove(0).is_ok());
    assert_eq!(rung(&mut waiter), Some(Wake::Moved));
}

#[test]
fn waiters_with_different_offsets_share_one_watch() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    bed.put(&partition, &[NOW_MS; 5]);
    let mut at_end = bed.logs.wait(&[(Arc::clone(&partition), 5)]);
    let mut inside = bed.logs.wait(&[(Arc::clone(&partition), 3)]);
    assert_eq!(rung(&mut inside), Some(Wake::Moved));
    let mut late = bed.logs.wait(&[(Arc::clone(&partition), 5)]);
    bed.put(&partition, &[NOW_MS]);
    assert_eq!(rung(&mut at_end), Some(Wake::Moved));
    assert_eq!(rung(&mut late), Some(Wake::Moved));
}

#[test]
fn a_waiter_is_woken_when_its_partition_dies_and_one_that_comes_late_too() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let mut waiter = bed.logs.wait(&[(Arc::clone(&partition), 0)]);
    bed.sim.unload(&partition_name(0));
    assert_eq!(rung(&mut waiter), Some(Wake::Moved));
    let mut late = bed.logs.wait(&[(Arc::clone(&partition), 0)]);
    assert_eq!(rung(&mut late), Some(Wake::Moved));
}

#[test]
fn a_dropped_waiter_leaves_nothing_behind() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let kept = bed.logs.wait(&[(Arc::clone(&partition), 0)]);
    for _ in 0..100 {
        drop(bed.logs.wait(&[(Arc::clone(&partition), 0)]));
    }
    assert_eq!(partition.waiting.lock().len(), 1);
    assert_eq!(
        bed.logs
            .shared
            .waiters
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
    drop(kept);
    assert_eq!(partition.waiting.lock().len(), 0);
}

#[test]
fn too_many_waiters_are_told_so() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    bed.logs
        .shared
        .waiters
        .store(usize::MAX / 2, std::sync::atomic::Ordering::Relaxed);
    let mut waiter = bed.logs.wait(&[(Arc::clone(&partition), 0)]);
    assert_eq!(rung(&mut waiter), Some(Wake::Overloaded));
}

#[test]
fn who_waits_behind_what_is_there_does_not_leave_later_ones_asleep() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    for _ in 0..3 {
        bed.put(&partition, &[NOW_MS]);
    }
    let mut behind = bed.logs.wait(&[(Arc::clone(&partition), 1)]);
    assert_eq!(rung(&mut behind), Some(Wake::Moved));
    drop(behind);
    let end = partition.high_watermark();
    let mut waiter = bed.logs.wait(&[(Arc::clone(&partition), end)]);
    assert_eq!(rung(&mut waiter), None);
    bed.put(&partition, &[NOW_MS]);
    assert_eq!(rung(&mut waiter), Some(Wake::Moved));
}
