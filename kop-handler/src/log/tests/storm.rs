//! Seeded storms: delays, refused and lost appends, moved ownership, crashes, while idempotent producers retry as
//! Kafka's clients do and readers follow; then an auditor looks at what lies on the disk.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;

use super::*;

/// Batches that each producer must get in.
const BATCHES: usize = 40;
/// Batches that a producer has in flight, as Kafka's clients by default.
const WINDOW: usize = 5;

type Call = Pin<Box<dyn Future<Output = Vec<Result<AppendInfo, Rejection>>> + Send>>;

struct Outgoing {
    value: String,
    count: usize,
    sequence: i32,
    call: Option<Call>,
}

impl Outgoing {
    fn records(&self, id: i64, epoch: i16) -> Bytes {
        let mut builder = BatchBuilder::new(NOW_MS).producer(id, epoch, self.sequence);
        for _ in 0..self.count {
            let (key, value) = (key(&self.value), self.value.as_bytes());
            builder
                .push(NewRecord::new(NOW_MS, Some(key.as_bytes()), Some(value)))
                .expect("a record");
        }
        builder.build().expect("a batch")
    }
}

/// One of five keys per producer.
fn key(value: &str) -> String {
    let (producer, made) = value.split_once('-').expect("a producer and a number");
    format!("{producer}-{}", made.parse::<u32>().expect("a number") % 5)
}

/// An idempotent producer of one partition.
struct Producer {
    id: i64,
    epoch: i16,
    number: u32,
    partition: Option<Arc<Partition>>,
    next_sequence: i32,
    made: usize,
    window: VecDeque<Outgoing>,
    /// Value of each acknowledged batch, and where it is.
    acknowledged: BTreeMap<String, (i64, i64)>,
    bumps: usize,
}

impl Producer {
    fn new(id: i64, number: u32) -> Self {
        Self {
            id,
            epoch: 0,
            number,
            partition: None,
            next_sequence: 0,
            made: 0,
            window: VecDeque::new(),
            acknowledged: BTreeMap::new(),
            bumps: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.made == BATCHES && self.window.is_empty()
    }

    fn act(&mut self, bed: &Bed) {
        self.hear(bed);
        if self.window.len() < WINDOW && self.made < BATCHES {
            let count = 1 + usize::try_from(bed.clock.random() % 3).expect("small");
            self.window.push_back(Outgoing {
                value: format!("{}-{}", self.id, self.made),
                count,
                sequence: self.next_sequence,
                call: None,
            });
            self.made += 1;
            self.next_sequence += i32::try_from(count).expect("small");
        }
        self.send(bed);
    }

    /// Sends what is not under way, in order: nothing overtakes a batch that waits to be sent again.
    fn send(&mut self, bed: &Bed) {
        if self
            .partition
            .as_ref()
            .is_none_or(|partition| !partition.is_alive())
        {
            self.partition = bed.try_open(self.number).ok();
        }
        let Some(partition) = &self.partition else {
            return;
        };
        for outgoing in self
            .window
            .iter_mut()
            .filter(|outgoing| outgoing.call.is_none())
        {
            let records = outgoing.records(self.id, self.epoch);
            outgoing.call = Some(Box::pin(bed.logs.append(vec![client(partition, records)])));
        }
    }

    fn hear(&mut self, bed: &Bed) {
        let mut kept = VecDeque::new();
        let mut out_of_order = 0;
        for mut outgoing in self.window.drain(..) {
            let answer = outgoing
                .call
                .as_mut()
                .and_then(|call| bed.poll(call.as_mut()));
            match answer.map(|mut answers| answers.remove(0)) {
                None => kept.push_back(outgoing),
                Some(Ok(info)) => {
                    let count = i64::try_from(outgoing.count).expect("small");
                    assert_eq!(info.last_offset - info.base_offset + 1, count);
                    let place = (info.base_offset, info.last_offset);
                    self.acknowledged.insert(outgoing.value, place);
                }
                Some(Err(rejection)) => {
                    match rejection.fault {
                        // Behind one that was refused; or refused itself, and learned so when a later one was in.
                        Fault::OutOfOrderSequence(_) => out_of_order += 1,
                        Fault::StorageRefused(_)
                        | Fault::NotLeader(_)
                        | Fault::StorageUnknown(_)
                        | Fault::LeaderNotAvailable(_) => {}
                        other => panic!("{other:?}"),
                    }
                    outgoing.call = None;
                    kept.push_back(outgoing);
                }
            }
        }
        if out_of_order > 0 && out_of_order == kept.len() {
            // What Kafka's producers do: a new epoch, numbers from 0. No batch of the window is in the log, or it
            // would be one of the last five and a duplicate.
            self.epoch += 1;
            self.bumps += 1;
            self.next_sequence = 0;
            for outgoing in &mut kept {
                outgoing.sequence = self.next_sequence;
                self.next_sequence += i32::try_from(outgoing.count).expect("small");
            }
        }
        self.window = kept;
    }
}

/// Reads a partition from its start; what it has seen must be there in the end.
struct Reader {
    number: u32,
    partition: Option<Arc<Partition>>,
    next: i64,
    seen: Vec<(i64, Bytes)>,
    waiter: Option<Waiter>,
    /// Compaction leaves gaps.
    may_skip: bool,
}

impl Reader {
    fn act(&mut self, bed: &Bed) {
        if let Some(waiter) = &mut self.waiter {
            if bed.poll(Pin::new(waiter)).is_none() {
                return;
            }
            self.waiter = None;
        }
        if self
            .partition
            .as_ref()
            .is_none_or(|partition| !partition.is_alive())
        {
            self.partition = bed.try_open(self.number).ok();
        }
        let Some(partition) = &self.partition else {
            return;
        };
        let Ok(fetched) = bed.read(partition, self.next, 300) else {
            return;
        };
        for (header, bytes) in batches(&fetched) {
            let is_next = header.base_offset == self.next;
            assert!(is_next || (self.may_skip && header.base_offset > self.next));
            self.next = header.last_offset() + 1;
            self.seen.push((header.base_offset, bytes.slice(17..)));
        }
        if self.next == fetched.high_watermark {
            self.waiter = Some(bed.logs.wait(&[(Arc::clone(partition), self.next)]));
        }
    }
}

fn storm(seed: u64, faults: Faults, crashes: u64, compact: bool) -> usize {
    let mut bed = Bed::new(seed, faults);
    bed.change_settings(|settings| {
        settings.retention_ms = -1;
        settings.compact = compact;
        settings.min_cleanable_dirty_ratio = 0.3;
    });
    let mut producers: Vec<Producer> = (0..4)
        .map(|id| Producer::new(i64::from(id), id % 2))
        .collect();
    let mut readers: Vec<Reader> = (0..2)
        .map(|number| Reader {
            number,
            partition: None,
            next: 0,
            seen: Vec::new(),
            waiter: None,
            may_skip: compact,
        })
        .collect();
    let mut ticks = 0;
    while producers.iter().any(|producer| !producer.is_done()) {
        ticks += 1;
        assert!(ticks < 200_000, "seed {seed}: no end");
        let draw = bed.clock.random() % 1000;
        if draw < crashes {
            bed.sim.crash();
            bed.restart();
            for producer in &mut producers {
                producer.partition = None;
                for outgoing in producer.window.iter_mut().filter(|o| o.call.is_some()) {
                    // Nobody answers any more: whether it is in the log is found out by sending it again.
                    outgoing.call = None;
                }
            }
            for reader in &mut readers {
                reader.partition = None;
                reader.waiter = None;
            }
        } else if draw < 20 {
            bed.run(bed.logs.save_due(draw < 15));
        } else if draw < 25 {
            bed.run(bed.logs.check());
        } else if draw < 500 {
            let which = usize::try_from(bed.clock.random()).unwrap_or(0) % producers.len();
            producers[which].act(&bed);
        } else if draw < 600 {
            let which = usize::try_from(bed.clock.random()).unwrap_or(0) % readers.len();
            readers[which].act(&bed);
        } else {
            bed.sim.step();
        }
        bed.clock.advance_ms(1);
    }
    bed.sim.set_faults(Faults::none());
    bed.sim.settle();
    if compact {
        bed.run(bed.logs.check());
        audit_compacted(&bed, seed, &producers);
    } else {
        audit(&bed, seed, &producers, &mut readers);
    }
    producers.iter().map(|producer| producer.bumps).sum()
}

fn audit(bed: &Bed, seed: u64, producers: &[Producer], readers: &mut [Reader]) {
    for number in 0..2 {
        let entries = bed.sim.entries(&partition_name(number));
        let mut next = 0;
        for (index, messages, _) in &entries {
            assert_eq!(
                index - i64::from(*messages) + 1,
                next,
                "seed {seed}: offsets are dense"
            );
            next = index + 1;
        }
        let partition = bed.open(number);
        assert_eq!(partition.high_watermark(), next);
        let mut places: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (offset, value) in bed.records(&partition, 0) {
            let value = String::from_utf8(value.to_vec()).expect("text");
            places.entry(value).or_default().push(offset);
        }
        for producer in producers
            .iter()
            .filter(|producer| producer.number == number)
        {
            assert_eq!(producer.acknowledged.len(), BATCHES);
            let mut order = Vec::new();
            for (value, (base, last)) in &producer.acknowledged {
                let expected: Vec<i64> = (*base..=*last).collect();
                assert_eq!(
                    places.remove(value),
                    Some(expected),
                    "seed {seed}: {value} once, where it was acknowledged"
                );
                let made: usize = value
                    .split('-')
                    .nth(1)
                    .and_then(|n| n.parse().ok())
                    .expect("a number");
                order.push((made, *base));
            }
            order.sort_unstable();
            let in_order = order.is_sorted_by_key(|(_, base)| *base);
            assert!(in_order || producer.bumps > 0, "seed {seed}: out of order");
        }
        assert_eq!(places.len(), 0, "seed {seed}: nobody sent these");
        let reader = &mut readers[usize::try_from(number).expect("small")];
        reader.waiter = None;
        reader.partition = None;
        while reader.next < next {
            reader.act(bed);
            reader.waiter = None;
        }
        let all = batches(&bed.read(&partition, 0, 1 << 24).expect("a read"));
        let all: Vec<(i64, Bytes)> = all
            .into_iter()
            .map(|(header, bytes)| (header.base_offset, bytes.slice(17..)))
            .collect();
        assert_eq!(
            reader.seen, all,
            "seed {seed}: what was read is what is there"
        );
    }
}

#[test]
fn nothing_acknowledged_is_lost_doubled_or_moved_when_everything_fails_now_and_then() {
    for seed in 0..30 {
        storm(seed, Faults::stormy(), 2, false);
    }
}

#[test]
fn without_late_refusals_no_producer_ever_needs_a_new_epoch() {
    let faults = Faults {
        refused: 0,
        ..Faults::stormy()
    };
    for seed in 100..115 {
        assert_eq!(storm(seed, faults, 3, false), 0);
    }
    let at_once = Faults {
        delay: 0,
        ..Faults::stormy()
    };
    for seed in 200..215 {
        assert_eq!(
            storm(seed, at_once, 3, false),
            0,
            "a host that refuses within the call"
        );
    }
}

/// Of every key the newest record is where it was acknowledged; whatever else is left was acknowledged there too.
fn audit_compacted(bed: &Bed, seed: u64, producers: &[Producer]) {
    for number in 0..2 {
        let partition = bed.open(number);
        assert!(
            partition.lock().clean_end > 0,
            "seed {seed}: it was cleaned"
        );
        let mut acknowledged: BTreeMap<i64, &str> = BTreeMap::new();
        let mut newest: BTreeMap<String, i64> = BTreeMap::new();
        for producer in producers
            .iter()
            .filter(|producer| producer.number == number)
        {
            for (value, (base, last)) in &producer.acknowledged {
                for offset in *base..=*last {
                    assert_eq!(
                        acknowledged.insert(offset, value),
                        None,
                        "seed {seed}: two at {offset}"
                    );
                    let newest = newest.entry(key(value)).or_insert(offset);
                    *newest = (*newest).max(offset);
                }
            }
        }
        let left: BTreeMap<i64, String> = bed
            .records(&partition, 0)
            .into_iter()
            .map(|(offset, value)| (offset, String::from_utf8(value.to_vec()).expect("text")))
            .collect();
        for (offset, value) in &left {
            assert_eq!(
                acknowledged.get(offset),
                Some(&value.as_str()),
                "seed {seed}: {offset}"
            );
        }
        for (key, offset) in newest {
            assert!(
                left.contains_key(&offset),
                "seed {seed}: the newest of {key} at {offset}"
            );
        }
        assert!(left.len() < acknowledged.len(), "seed {seed}: nothing went");
    }
}

#[test]
fn cleaning_in_a_storm_never_takes_the_newest_record_of_a_key() {
    let faults = Faults {
        ledger_entries: 6,
        ..Faults::stormy()
    };
    for seed in 300..315 {
        storm(seed, faults, 2, true);
    }
}
