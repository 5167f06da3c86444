//! Which records may carry a timestamp: per ledger a short list of (running maximum, offset).
//!
//! Timestamps of records go up and down, so no search may bisect on them; the running maximum only grows. A point says:
//! up to this offset no record is later than this time. A ledger keeps at most [`POINTS_KEPT`] points: when there are
//! more, every second one goes and the distance between points doubles, so what a search still has to read is a small
//! part of the ledger, whatever its size. No I/O, no clock; it must not know where batches lie.

use std::collections::BTreeMap;

use super::limits::{LEDGERS_KEPT, LEDGERS_WITH_POINTS, POINTS_KEPT, POINTS_OF_SEALED};

/// Bytes of batches between two points, at first.
const FIRST_INTERVAL: u64 = 64 * 1024;

/// Up to an offset no record is later than a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The running maximum, in ms since the epoch.
    pub max_timestamp_ms: i64,
    /// Last offset that it covers.
    pub offset: i64,
}

/// The times of one ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerTimes {
    /// First offset that is covered.
    pub first_offset: i64,
    /// Last offset that is covered.
    pub last_offset: i64,
    /// Largest timestamp of all, in ms since the epoch; −1 if no batch has one.
    pub max_timestamp_ms: i64,
    /// Base offset of the first batch that has it.
    pub max_at: i64,
    /// Bytes between two points.
    pub interval: u64,
    /// Growing in both fields; at most [`POINTS_KEPT`].
    pub points: Vec<Point>,
    /// Bytes since the last point.
    pub since_point: u64,
}

impl LedgerTimes {
    fn new(first_offset: i64) -> Self {
        Self {
            first_offset,
            last_offset: first_offset - 1,
            max_timestamp_ms: -1,
            max_at: first_offset,
            interval: FIRST_INTERVAL,
            points: Vec::new(),
            since_point: 0,
        }
    }

    fn add(&mut self, batch: &BatchTimes) {
        if batch.max_timestamp_ms > self.max_timestamp_ms {
            self.max_timestamp_ms = batch.max_timestamp_ms;
            self.max_at = batch.base_offset;
        }
        self.last_offset = batch.last_offset;
        self.since_point += batch.bytes;
        if self.since_point >= self.interval {
            self.since_point = 0;
            self.points.push(Point {
                max_timestamp_ms: self.max_timestamp_ms,
                offset: batch.last_offset,
            });
            self.thin(POINTS_KEPT);
        }
    }

    /// Drops every second point until there are at most `most`.
    fn thin(&mut self, most: usize) {
        while self.points.len() > most {
            let mut odd = false;
            self.points.retain(|_| {
                odd = !odd;
                !odd
            });
            self.interval = self.interval.saturating_mul(2);
        }
    }

    /// The first offset that may be at `timestamp_ms` or later, if the ledger has any.
    fn candidate(&self, timestamp_ms: i64) -> Option<i64> {
        if self.max_timestamp_ms < timestamp_ms {
            return None;
        }
        let earlier = self
            .points
            .partition_point(|point| point.max_timestamp_ms < timestamp_ms);
        let point = earlier.checked_sub(1).and_then(|at| self.points.get(at));
        Some(point.map_or(self.first_offset, |point| point.offset + 1))
    }
}

/// What the index is told of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTimes {
    /// Ledger that it lies in.
    pub ledger: i64,
    /// Offset of its first record.
    pub base_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
    /// Largest timestamp in it; −1 for none, and for a control batch, which no search may find.
    pub max_timestamp_ms: i64,
    /// Its size.
    pub bytes: u64,
}

/// The times of a partition, by ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeIndex {
    ledgers: BTreeMap<i64, LedgerTimes>,
}

/// Where a search by time must read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First offset to look at.
    pub from: i64,
    /// Last offset to look at.
    pub to: i64,
}

impl TimeIndex {
    /// Takes in a batch. Batches come in the order of their offsets; what was taken in already is passed over.
    /// Answers the ledgers whose times became fewer, because this batch began another.
    pub fn add(&mut self, batch: &BatchTimes) -> Vec<i64> {
        let mut thinned = Vec::new();
        if !self.ledgers.contains_key(&batch.ledger) {
            thinned = self.make_room();
            self.ledgers
                .insert(batch.ledger, LedgerTimes::new(batch.base_offset));
        }
        if let Some(times) = self.ledgers.get_mut(&batch.ledger)
            && batch.last_offset > times.last_offset
        {
            times.add(batch);
        }
        thinned
    }

    /// The ledgers so far are sealed, or about to be: they keep less.
    fn make_room(&mut self) -> Vec<i64> {
        let mut changed = Vec::new();
        let with_points = self.ledgers.len().saturating_sub(LEDGERS_WITH_POINTS);
        for (place, (ledger, times)) in self.ledgers.iter_mut().enumerate() {
            let most = if place < with_points {
                0
            } else {
                POINTS_OF_SEALED
            };
            if times.points.len() > most {
                times.thin(most);
                changed.push(*ledger);
            }
        }
        while self.ledgers.len() >= LEDGERS_KEPT
            && let Some((ledger, _)) = self.ledgers.pop_first()
        {
            changed.push(ledger);
        }
        changed
    }

    /// Puts a ledger's stored times in, as far as they lie below `end_offset`. Times that reach beyond it are of a log
    /// that lost its end: they are dropped, and the ledger is taken in anew.
    pub fn restore(&mut self, ledger: i64, times: LedgerTimes, end_offset: i64) {
        if times.last_offset < end_offset {
            self.ledgers.insert(ledger, times);
        }
    }

    /// Replaces a ledger's times by those of its new content; the offsets that it covers stay.
    pub fn replace(&mut self, ledger: i64, batches: &[BatchTimes]) {
        let Some(old) = self.ledgers.get_mut(&ledger) else {
            return;
        };
        let mut new = LedgerTimes::new(old.first_offset);
        for batch in batches {
            new.add(batch);
        }
        new.thin(POINTS_OF_SEALED);
        new.last_offset = old.last_offset;
        *old = new;
    }

    /// Forgets the ledgers that end before an offset; returns which.
    pub fn trim(&mut self, start_offset: i64) -> Vec<i64> {
        let gone: Vec<i64> = self
            .ledgers
            .iter()
            .filter(|(_, times)| times.last_offset < start_offset)
            .map(|(ledger, _)| *ledger)
            .collect();
        for ledger in &gone {
            self.ledgers.remove(ledger);
        }
        gone
    }

    /// The times of a ledger.
    #[must_use]
    pub fn ledger(&self, ledger: i64) -> Option<&LedgerTimes> {
        self.ledgers.get(&ledger)
    }

    /// All ledgers, oldest first.
    pub fn ledgers(&self) -> impl Iterator<Item = (i64, &LedgerTimes)> {
        self.ledgers.iter().map(|(ledger, times)| (*ledger, times))
    }

    /// What must be read, in order, to find the first record in `start..end` whose timestamp is `timestamp_ms` or
    /// later: ranges that may hold one, and ranges of which nothing is known.
    #[must_use]
    pub fn search(&self, timestamp_ms: i64, start: i64, end: i64) -> Vec<Range> {
        let mut ranges = Vec::new();
        let mut next = start;
        for times in self.ordered() {
            if times.last_offset < next {
                continue;
            }
            push(&mut ranges, next, times.first_offset - 1);
            if let Some(candidate) = times.candidate(timestamp_ms) {
                push(&mut ranges, candidate.max(next), times.last_offset);
            }
            next = times.last_offset + 1;
        }
        push(&mut ranges, next, end - 1);
        ranges
    }

    /// What must be read to find the record in `start..end` with the largest timestamp: the batch that has it
    /// (a range of one offset), or ranges to look through.
    #[must_use]
    pub fn latest(&self, start: i64, end: i64) -> Vec<Range> {
        let mut ranges = Vec::new();
        let mut best: Option<&LedgerTimes> = None;
        let mut next = start;
        for times in self.ordered() {
            if times.last_offset < next {
                continue;
            }
            push(&mut ranges, next, times.first_offset - 1);
            if times.max_at < start {
                // The batch with the maximum is gone; what is left of the ledger may be anything below it.
                push(&mut ranges, start.max(next), times.last_offset);
            } else if times.max_timestamp_ms >= 0
                && best.is_none_or(|best| times.max_timestamp_ms > best.max_timestamp_ms)
            {
                best = Some(times);
            }
            next = times.last_offset + 1;
        }
        push(&mut ranges, next, end - 1);
        if let Some(best) = best {
            push(&mut ranges, best.max_at, best.max_at);
        }
        ranges.sort_unstable_by_key(|range| range.from);
        ranges
    }

    /// Ledgers in the order of their offsets; ids need not be in that order.
    fn ordered(&self) -> Vec<&LedgerTimes> {
        let mut all: Vec<&LedgerTimes> = self.ledgers.values().collect();
        all.sort_unstable_by_key(|times| times.first_offset);
        all
    }
}

fn push(ranges: &mut Vec<Range>, from: i64, to: i64) {
    if from <= to {
        ranges.push(Range { from, to });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(ledger: i64, base_offset: i64, max_timestamp_ms: i64, bytes: u64) -> BatchTimes {
        BatchTimes {
            ledger,
            base_offset,
            last_offset: base_offset + 9,
            max_timestamp_ms,
            bytes,
        }
    }

    /// Ledgers of 100 batches of 10 records, timestamps from a generator that jumps back and forth.
    fn jumpy(ledgers: i64) -> (TimeIndex, Vec<BatchTimes>) {
        let mut index = TimeIndex::default();
        let mut all = Vec::new();
        let mut state = 12_345u64;
        for n in 0..ledgers * 100 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let jitter = i64::try_from(state >> 54).unwrap_or(0);
            let batch = batch(n / 100, n * 10, n * 5 + jitter, 40_000);
            index.add(&batch);
            all.push(batch);
        }
        (index, all)
    }

    #[test]
    fn a_search_always_covers_the_first_batch_that_is_late_enough() {
        let (index, all) = jumpy(3);
        for target in (0..4000).step_by(7) {
            let first = all.iter().find(|batch| batch.max_timestamp_ms >= target);
            let ranges = index.search(target, 0, 3000);
            match first {
                None => assert_eq!(ranges, []),
                Some(batch) => {
                    let range = ranges.first().expect("a range");
                    assert!(range.from <= batch.base_offset && batch.last_offset <= range.to);
                }
            }
        }
    }

    #[test]
    fn a_search_reads_a_small_part_of_a_large_ledger() {
        let mut index = TimeIndex::default();
        for n in 0..20_000 {
            index.add(&batch(1, n * 10, n, 60_000));
        }
        let times = index.ledger(1).expect("the ledger");
        assert!(times.points.len() <= POINTS_KEPT);
        assert!(times.interval > FIRST_INTERVAL);
        for target in [0, 1, 777, 10_000, 19_999] {
            let ranges = index.search(target, 0, 200_000);
            let from = ranges.first().expect("a range").from;
            let distance = target * 10 - from;
            assert!(
                (0..=20_000 * 10 / 100).contains(&distance),
                "{target}: {distance}"
            );
        }
    }

    #[test]
    fn what_is_not_covered_is_read_and_what_is_gone_is_not() {
        let mut index = TimeIndex::default();
        index.add(&batch(1, 100, 50, 10));
        index.add(&batch(2, 200, 60, 10));
        let range = |from, to| Range { from, to };
        assert_eq!(
            index.search(55, 0, 300),
            [
                range(0, 99),
                range(110, 199),
                range(200, 209),
                range(210, 299)
            ]
        );
        assert_eq!(index.search(55, 205, 210), [range(205, 209)]);
        assert_eq!(index.trim(150), [1]);
        assert_eq!(index.search(70, 200, 210), []);
    }

    #[test]
    fn the_latest_record_is_one_batch_unless_the_head_is_gone() {
        let mut index = TimeIndex::default();
        index.add(&batch(1, 0, 90, 10));
        index.add(&batch(1, 10, 80, 10));
        index.add(&batch(2, 20, 90, 10));
        let range = |from, to| Range { from, to };
        assert_eq!(
            index.latest(0, 30),
            [range(0, 0)],
            "the first of equal ones"
        );
        assert_eq!(index.latest(10, 30), [range(10, 19), range(20, 20)]);
        assert_eq!(TimeIndex::default().latest(5, 5), []);
    }

    #[test]
    fn ledgers_that_are_not_written_to_keep_less_and_searches_still_find() {
        let mut index = TimeIndex::default();
        let all = i64::try_from(LEDGERS_KEPT).unwrap_or(0) + 50;
        let mut thinned = Vec::new();
        for ledger in 0..all {
            for n in 0..50 {
                let base = (ledger * 50 + n) * 10;
                thinned.extend(index.add(&batch(ledger, base, base, 70_000)));
            }
        }
        let points = |ledger| index.ledger(ledger).map(|times| times.points.len());
        assert_eq!(points(49), None);
        assert_eq!(points(50), Some(0));
        assert!(points(all - 2).is_some_and(|points| points > 0 && points <= POINTS_OF_SEALED));
        assert_eq!(points(all - 1), Some(50));
        assert!(thinned.contains(&3) && !thinned.contains(&(all - 1)));
        for ledger in [49, 50, 500, all - 2, all - 1] {
            let target = ledger * 500 + 255;
            let ranges = index.search(target, 0, all * 500);
            let batch = (target + 9) / 10 * 10;
            assert!(
                ranges
                    .iter()
                    .any(|range| range.from <= batch && batch <= range.to),
                "{ledger}"
            );
        }
    }

    #[test]
    fn a_replaced_ledger_covers_the_same_offsets() {
        let (mut index, all) = jumpy(2);
        index.replace(0, &all[40..42]);
        let times = index.ledger(0).expect("the ledger");
        assert_eq!((times.first_offset, times.last_offset), (0, 999));
        assert_eq!(index.search(i64::MAX, 0, 2000), []);
        assert!(
            all[40..42]
                .iter()
                .any(|batch| batch.base_offset == times.max_at)
        );
    }

    #[test]
    fn control_batches_are_covered_but_never_found() {
        let mut index = TimeIndex::default();
        index.add(&batch(1, 0, -1, 10));
        assert_eq!(index.search(0, 0, 10), []);
        assert_eq!(index.latest(0, 10), []);
    }

    #[test]
    fn times_beyond_the_end_of_the_log_are_dropped_whole() {
        let (index, _) = jumpy(2);
        let mut restored = TimeIndex::default();
        for (ledger, times) in index.ledgers() {
            restored.restore(ledger, times.clone(), 1500);
        }
        assert!(restored.ledger(0).is_some() && restored.ledger(1).is_none());
    }
}
