//! What a partition knows of its idempotent producers: the last five batches of each, from the log itself.
//!
//! ```text
//!             check ──> Accept ──> (append, in flight) ──durable──> replay
//!               │  └──> Duplicate(place)                 └─refused─> forgotten: nothing was replayed
//!               └─────> Fault (old epoch, gap)
//! ```
//!
//! Durable state changes only in [`Producers::replay`], for live appends and after a load alike; batches that are in
//! flight are looked at by `check` and forgotten if they are refused. Rules are those of Kafka's
//! `ProducerAppendInfo` and `ProducerStateEntry` for batches outside of transactions. No I/O, no clock.

use std::collections::{HashMap, VecDeque};

use super::limits::BATCHES_KEPT;
use crate::error::Fault;

/// What identifies a batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Whose batch.
    pub producer_id: i64,
    /// Epoch of the producer.
    pub epoch: i16,
    /// Sequence number of the first record.
    pub first: i32,
    /// Sequence number of the last record; smaller than `first` where the numbers wrapped.
    pub last: i32,
}

/// A batch that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Sequence number of the first record.
    pub first_sequence: i32,
    /// Sequence number of the last record.
    pub last_sequence: i32,
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Largest timestamp in it.
    pub timestamp_ms: i64,
}

/// What is known of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Its epoch.
    pub epoch: i16,
    /// When its last batch arrived here, in ms since the epoch.
    pub last_seen_ms: i64,
    /// Its last batches, oldest first; at most [`BATCHES_KEPT`].
    pub batches: VecDeque<StoredBatch>,
}

/// A batch on its way into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Names the append.
    pub ticket: u64,
    /// The batch.
    pub sequence: Sequence,
}

/// What to do with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next one: append it.
    Accept,
    /// It is in the log: answer with its place.
    Duplicate(StoredBatch),
    /// It is on its way into the log: answer when that append has ended.
    DuplicateInFlight(u64),
}

/// All producers of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    by_id: HashMap<i64, Producer>,
}

impl Producers {
    /// Decides about a batch of a client. `in_flight` are the batches of all producers on their way, oldest first.
    pub fn check<'a>(
        &self,
        batch: &Sequence,
        in_flight: impl DoubleEndedIterator<Item = &'a InFlight> + Clone,
    ) -> Result<Verdict, Fault> {
        let own = in_flight.filter(|other| other.sequence.producer_id == batch.producer_id);
        let known = self.by_id.get(&batch.producer_id);
        let newest = own.clone().next_back().map(|other| &other.sequence);
        let epoch = newest.map_or_else(|| known.map(|producer| producer.epoch), |s| Some(s.epoch));
        let Some(epoch) = epoch else {
            // Nothing is known, possibly because retention took it all: any number is a start.
            return Ok(Verdict::Accept);
        };
        if batch.epoch < epoch {
            return Err(Fault::InvalidProducerEpoch(format!(
                "producer {} has epoch {epoch}, the batch has {}",
                batch.producer_id, batch.epoch
            )));
        }
        if batch.epoch > epoch {
            return if batch.first == 0 {
                Ok(Verdict::Accept)
            } else {
                Err(Fault::OutOfOrderSequence(format!(
                    "producer {} starts epoch {} at sequence {} instead of 0",
                    batch.producer_id, batch.epoch, batch.first
                )))
            };
        }
        let same = |first: i32, last: i32| first == batch.first && last == batch.last;
        if let Some(other) = own.clone().rev().take(BATCHES_KEPT).find(|other| {
            other.sequence.epoch == batch.epoch && same(other.sequence.first, other.sequence.last)
        }) {
            return Ok(Verdict::DuplicateInFlight(other.ticket));
        }
        let stored = known.filter(|producer| producer.epoch == batch.epoch);
        let mut stored = stored.into_iter().flat_map(|producer| &producer.batches);
        let last = newest.map(|sequence| sequence.last).or_else(|| {
            stored
                .clone()
                .next_back()
                .map(|stored| stored.last_sequence)
        });
        if let Some(stored) =
            stored.find(|stored| same(stored.first_sequence, stored.last_sequence))
        {
            return Ok(Verdict::Duplicate(*stored));
        }
        if last.is_none_or(|last| follows(last, batch.first)) {
            Ok(Verdict::Accept)
        } else {
            Err(Fault::OutOfOrderSequence(format!(
                "producer {} sent sequence {} after {}",
                batch.producer_id,
                batch.first,
                last.unwrap_or(-1)
            )))
        }
    }

    /// Takes in a batch that is in the log, whoever checked it. `seen_ms` is when it arrived.
    pub fn replay(&mut self, producer_id: i64, epoch: i16, batch: StoredBatch, seen_ms: i64) {
        let producer = self.by_id.entry(producer_id).or_insert_with(|| Producer {
            epoch,
            last_seen_ms: seen_ms,
            batches: VecDeque::with_capacity(BATCHES_KEPT),
        });
        if producer.epoch != epoch {
            producer.batches.clear();
            producer.epoch = epoch;
        }
        if producer.batches.len() == BATCHES_KEPT {
            producer.batches.pop_front();
        }
        producer.batches.push_back(batch);
        producer.last_seen_ms = producer.last_seen_ms.max(seen_ms);
    }

    /// Takes in a producer from a snapshot, as far as its batches lie below `end_offset`; the rest was lost with the
    /// end of the log.
    pub fn restore(&mut self, producer_id: i64, mut producer: Producer, end_offset: i64) {
        producer
            .batches
            .retain(|batch| batch.last_offset < end_offset);
        if !producer.batches.is_empty() {
            self.by_id.insert(producer_id, producer);
        }
    }

    /// Forgets those that have not been seen since `before_ms`, and the longest unseen above `most`.
    pub fn expire(&mut self, before_ms: i64, most: usize) {
        self.by_id
            .retain(|_, producer| producer.last_seen_ms >= before_ms);
        let surplus = self.by_id.len().saturating_sub(most);
        if surplus == 0 {
            return;
        }
        let mut seen: Vec<(i64, i64)> = self
            .by_id
            .iter()
            .map(|(id, producer)| (producer.last_seen_ms, *id))
            .collect();
        seen.sort_unstable();
        for (_, id) in seen.into_iter().take(surplus) {
            self.by_id.remove(&id);
        }
    }

    /// All of them, by id.
    #[must_use]
    pub fn sorted(&self) -> Vec<(i64, &Producer)> {
        let mut all: Vec<(i64, &Producer)> = self.by_id.iter().map(|(id, p)| (*id, p)).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }

    /// At most so many, those seen last; by id.
    #[must_use]
    pub fn last_seen(&self, most: usize) -> Vec<(i64, &Producer)> {
        let mut all = self.sorted();
        if all.len() > most {
            all.sort_unstable_by_key(|(id, producer)| (-producer.last_seen_ms, *id));
            all.truncate(most);
            all.sort_unstable_by_key(|(id, _)| *id);
        }
        all
    }

    /// How many are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// Whether `next` is the number after `last`; they wrap from 2³¹ − 1 to 0.
fn follows(last: i32, next: i32) -> bool {
    i64::from(next) == i64::from(last) + 1 || (next == 0 && last == i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: i64 = 7;

    fn sequence(epoch: i16, first: i32, last: i32) -> Sequence {
        Sequence {
            producer_id: P,
            epoch,
            first,
            last,
        }
    }

    fn in_flight(ticket: u64, epoch: i16, first: i32, last: i32) -> InFlight {
        InFlight {
            ticket,
            sequence: sequence(epoch, first, last),
        }
    }

    fn replay(producers: &mut Producers, epoch: i16, first: i32, last: i32, base_offset: i64) {
        let count = i64::from(last) - i64::from(first) + 1;
        let batch = StoredBatch {
            first_sequence: first,
            last_sequence: last,
            base_offset,
            last_offset: base_offset + count.rem_euclid(1 << 31) - 1,
            timestamp_ms: 5,
        };
        producers.replay(P, epoch, batch, 100);
    }

    fn check(producers: &Producers, flying: &[InFlight], batch: Sequence) -> Result<Verdict, i16> {
        producers
            .check(&batch, flying.iter())
            .map_err(|fault| fault.code())
    }

    const OUT_OF_ORDER: i16 = 45;
    const OLD_EPOCH: i16 = 47;

    #[test]
    fn an_unknown_producer_may_start_anywhere() {
        for first in [0, 17] {
            assert_eq!(
                check(&Producers::default(), &[], sequence(3, first, first + 4)),
                Ok(Verdict::Accept)
            );
        }
    }

    #[test]
    fn the_last_five_batches_are_duplicates_and_older_ones_out_of_order() {
        let mut producers = Producers::default();
        for n in 0..7 {
            assert_eq!(
                check(&producers, &[], sequence(0, n, n)),
                Ok(Verdict::Accept)
            );
            replay(&mut producers, 0, n, n, i64::from(n) + 100);
        }
        for n in 2..7 {
            let Ok(Verdict::Duplicate(batch)) = check(&producers, &[], sequence(0, n, n)) else {
                panic!("batch {n} is no duplicate");
            };
            assert_eq!(batch.base_offset, i64::from(n) + 100);
        }
        assert_eq!(check(&producers, &[], sequence(0, 1, 1)), Err(OUT_OF_ORDER));
        assert_eq!(check(&producers, &[], sequence(0, 8, 8)), Err(OUT_OF_ORDER));
        assert_eq!(
            check(&producers, &[], sequence(0, 6, 7)),
            Err(OUT_OF_ORDER),
            "another range is no duplicate"
        );
        assert_eq!(
            check(&producers, &[], sequence(0, 7, 9)),
            Ok(Verdict::Accept)
        );
    }

    #[test]
    fn batches_in_flight_count_as_if_they_were_stored() {
        let mut producers = Producers::default();
        replay(&mut producers, 0, 0, 0, 0);
        let flying = [in_flight(11, 0, 1, 3), in_flight(12, 0, 4, 4)];
        assert_eq!(
            check(&producers, &flying, sequence(0, 1, 3)),
            Ok(Verdict::DuplicateInFlight(11))
        );
        assert_eq!(
            check(&producers, &flying, sequence(0, 5, 5)),
            Ok(Verdict::Accept)
        );
        assert_eq!(
            check(&producers, &flying, sequence(0, 6, 6)),
            Err(OUT_OF_ORDER)
        );
        assert!(matches!(
            check(&producers, &flying, sequence(0, 0, 0)),
            Ok(Verdict::Duplicate(_))
        ));
    }

    #[test]
    fn a_refused_batch_leaves_no_trace() {
        let mut producers = Producers::default();
        replay(&mut producers, 0, 0, 0, 0);
        let before = producers.clone();
        let flying = [in_flight(11, 1, 0, 0)];
        assert_eq!(
            check(&producers, &flying, sequence(0, 1, 1)),
            Err(OLD_EPOCH)
        );
        assert_eq!(producers, before);
        assert_eq!(
            check(&producers, &[], sequence(0, 1, 1)),
            Ok(Verdict::Accept)
        );
    }

    #[test]
    fn an_old_epoch_is_fenced_and_a_new_one_starts_at_zero() {
        let mut producers = Producers::default();
        replay(&mut producers, 5, 0, 9, 0);
        assert_eq!(check(&producers, &[], sequence(4, 10, 10)), Err(OLD_EPOCH));
        assert_eq!(
            check(&producers, &[], sequence(6, 10, 10)),
            Err(OUT_OF_ORDER)
        );
        assert_eq!(
            check(&producers, &[], sequence(6, 0, 0)),
            Ok(Verdict::Accept)
        );
        replay(&mut producers, 6, 0, 0, 10);
        assert_eq!(check(&producers, &[], sequence(5, 0, 9)), Err(OLD_EPOCH));
        assert!(matches!(
            check(&producers, &[], sequence(6, 0, 0)),
            Ok(Verdict::Duplicate(_))
        ));
    }

    #[test]
    fn numbers_wrap_to_zero() {
        let mut producers = Producers::default();
        replay(&mut producers, 0, i32::MAX - 1, i32::MAX, 0);
        assert_eq!(
            check(&producers, &[], sequence(0, 0, 3)),
            Ok(Verdict::Accept)
        );
        assert_eq!(check(&producers, &[], sequence(0, 1, 3)), Err(OUT_OF_ORDER));
        let mut inside = Producers::default();
        replay(&mut inside, 0, i32::MAX, 1, 0);
        assert_eq!(check(&inside, &[], sequence(0, 2, 2)), Ok(Verdict::Accept));
        assert!(matches!(
            check(&inside, &[], sequence(0, i32::MAX, 1)),
            Ok(Verdict::Duplicate(_))
        ));
    }

    #[test]
    fn another_producers_batches_do_not_count() {
        let producers = Producers::default();
        let flying = [InFlight {
            ticket: 1,
            sequence: Sequence {
                producer_id: P + 1,
                ..sequence(0, 0, 0)
            },
        }];
        assert_eq!(
            check(&producers, &flying, sequence(0, 9, 9)),
            Ok(Verdict::Accept)
        );
    }

    #[test]
    fn the_unseen_expire_and_the_longest_unseen_make_room() {
        let mut producers = Producers::default();
        let batch = StoredBatch {
            first_sequence: 0,
            last_sequence: 0,
            base_offset: 0,
            last_offset: 0,
            timestamp_ms: 0,
        };
        for id in 0..10 {
            producers.replay(id, 0, batch, id * 10);
        }
        producers.expire(30, 5);
        let ids: Vec<i64> = producers.sorted().iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [5, 6, 7, 8, 9]);
    }

    #[test]
    fn what_a_snapshot_knows_beyond_the_end_of_the_log_is_dropped() {
        let mut known = Producers::default();
        for n in 0..3 {
            replay(&mut known, 0, n, n, i64::from(n));
        }
        let mut restored = Producers::default();
        for (id, producer) in known.sorted() {
            restored.restore(id, producer.clone(), 2);
        }
        assert_eq!(
            check(&restored, &[], sequence(0, 2, 2)),
            Ok(Verdict::Accept)
        );
        let mut none = Producers::default();
        for (id, producer) in known.sorted() {
            none.restore(id, producer.clone(), 0);
        }
        assert!(none.is_empty());
    }
}
