//! Random sequences of operations against a model, with stops and crashes in between.

use handler_api::ledger::{
    DescribeLedgers, ReplaceLedger, Replacement, ReplacementEntry, Rollover, Trim, TrimRequest,
};
use handler_api::topics::{DeleteTopic, TopicName};
use handler_api::{Handle, Position, ReadRequest};
use proptest::prelude::*;

use super::super::EmbeddedConfig;
use super::super::maintain::checkpoint;
use super::{Broker, TOPIC, config, image, start, wait};

const PARTITIONS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Append {
        partition: usize,
        entries: Vec<(u32, usize)>,
    },
    Read {
        partition: usize,
        at: u8,
        max_bytes: u64,
    },
    Find {
        partition: usize,
        at: u8,
    },
    Rollover {
        partition: usize,
    },
    Trim {
        partition: usize,
        at: u8,
    },
    Replace {
        partition: usize,
        ledger: u8,
        keep: u64,
    },
    Recreate,
    Checkpoint,
    Cold(bool),
    Stop,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let partition = 0..PARTITIONS;
    // Mostly small entries; some that are larger than the distance of marks.
    let size = prop_oneof![4 => 0..300usize, 1 => 20_000..90_000usize];
    let entry = (1..5u32, size);
    let append = (partition.clone(), prop::collection::vec(entry, 1..6))
        .prop_map(|(partition, entries)| Step::Append { partition, entries });
    let max_bytes = prop_oneof![Just(0), 1..2000u64, Just(1 << 20)];
    let step = prop_oneof![
        8 => append,
        4 => (partition.clone(), any::<u8>(), max_bytes)
            .prop_map(|(partition, at, max_bytes)| Step::Read { partition, at, max_bytes }),
        2 => (partition.clone(), any::<u8>()).prop_map(|(partition, at)| Step::Find { partition, at }),
        2 => partition.clone().prop_map(|partition| Step::Rollover { partition }),
        1 => (partition.clone(), any::<u8>()).prop_map(|(partition, at)| Step::Trim { partition, at }),
        2 => (partition, any::<u8>(), any::<u64>())
            .prop_map(|(partition, ledger, keep)| Step::Replace { partition, ledger, keep }),
        1 => Just(Step::Recreate),
        2 => Just(Step::Checkpoint),
        1 => any::<bool>().prop_map(Step::Cold),
        1 => Just(Step::Stop),
        2 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    base: i64,
    index: i64,
    payload: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Log {
    entries: Vec<Stored>,
    start: i64,
    next: i64,
}

impl Log {
    /// An index within what there is, and a little around it.
    fn pick(&self, at: u8) -> i64 {
        i64::from(at) * (self.next + 4) / 255 - 2
    }

    fn from(&self, index: i64) -> impl Iterator<Item = &Stored> {
        let index = index.max(self.start);
        self.entries
            .iter()
            .filter(move |entry| entry.index >= index)
    }
}

struct World {
    dir: tempfile::TempDir,
    broker: Option<Broker>,
    logs: Vec<Log>,
    appended: u32,
}

impl World {
    fn config(dir: &tempfile::TempDir) -> EmbeddedConfig {
        EmbeddedConfig {
            max_ledger_bytes: 200_000,
            max_ledger_entries: 40,
            max_open_files: 8,
            ..config(dir.path())
        }
    }

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let broker = start(Self::config(&dir));
        broker.create(TOPIC, PARTITIONS as u32);
        Self {
            dir,
            broker: Some(broker),
            logs: vec![Log::default(); PARTITIONS],
            appended: 0,
        }
    }

    fn broker(&self) -> &Broker {
        self.broker.as_ref().unwrap()
    }

    fn handle(&self, partition: usize) -> Handle {
        self.broker()
            .handle(&format!("{TOPIC}-partition-{partition}"))
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append { partition, entries } => self.append(partition, &entries),
            Step::Read {
                partition,
                at,
                max_bytes,
            } => self.read(partition, at, max_bytes),
            Step::Find { partition, at } => self.find(partition, at),
            Step::Rollover { partition } => {
                let handle = self.handle(partition).into();
                wait(self.broker().host.control::<Rollover>(&handle)).unwrap();
            }
            Step::Trim { partition, at } => self.trim(partition, at),
            Step::Replace {
                partition,
                ledger,
                keep,
            } => self.replace(partition, ledger, keep),
            Step::Recreate => {
                let name = TopicName { name: TOPIC.into() };
                wait(self.broker().host.control::<DeleteTopic>(&name)).unwrap();
                self.broker().create(TOPIC, PARTITIONS as u32);
                self.logs = vec![Log::default(); PARTITIONS];
            }
            Step::Checkpoint => checkpoint(&self.broker().broker.core).unwrap(),
            Step::Cold(cold) => {
                let faults = &self.broker().broker.core.files.faults;
                faults.cold.store(cold, std::sync::atomic::Ordering::SeqCst);
            }
            Step::Stop => {
                self.broker = None;
                self.broker = Some(start(Self::config(&self.dir)));
            }
            Step::Crash => {
                let crashed = image(self.dir.path());
                self.broker = None;
                self.broker = Some(start(Self::config(&crashed)));
                self.dir = crashed;
            }
        }
    }

    fn append(&mut self, partition: usize, entries: &[(u32, usize)]) {
        let handle = self.handle(partition);
        let mut expected = Vec::new();
        let requests = entries.iter().map(|(messages, size)| {
            self.appended += 1;
            let payload: Vec<u8> = self
                .appended
                .to_le_bytes()
                .into_iter()
                .cycle()
                .take(*size)
                .collect();
            expected.push((*messages, payload.clone()));
            handler_api::AppendRequest {
                handle,
                messages: *messages,
                flags: 0,
                segments: vec![payload.into()].into(),
            }
        });
        let requests = requests.collect();
        let results = wait(self.broker().host.append(requests)).unwrap();
        let log = &mut self.logs[partition];
        for (result, (messages, payload)) in results.into_iter().zip(expected) {
            let base = log.next;
            log.next += i64::from(messages);
            assert_eq!(result.unwrap().index, log.next - 1);
            log.entries.push(Stored {
                base,
                index: log.next - 1,
                payload,
            });
        }
    }

    fn read(&self, partition: usize, at: u8, max_bytes: u64) {
        let (log, handle) = (&self.logs[partition], self.handle(partition));
        let index = log.pick(at);
        let request = ReadRequest {
            handle,
            index,
            position: Position::UNKNOWN,
            max_entries: 7,
            flags: u32::from(at.is_multiple_of(2)),
            max_bytes,
        };
        let answer = wait(self.broker().host.read(vec![request], 1 << 20))
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(
            (answer.start_index, answer.end_index),
            (log.start, log.next - 1)
        );
        let mut left = max_bytes;
        let mut expected = Vec::new();
        for entry in log.from(index).take(7) {
            let length = entry.payload.len() as u64;
            let must = at.is_multiple_of(2) && expected.is_empty();
            if !must && (length > left || max_bytes == 0) {
                break;
            }
            left = left.saturating_sub(length);
            expected.push(entry);
            if left == 0 {
                break;
            }
        }
        let read: Vec<_> = answer.entries.iter().map(|entry| entry.index).collect();
        let indexes: Vec<_> = expected.iter().map(|entry| entry.index).collect();
        assert_eq!(
            read, indexes,
            "from {index} with {max_bytes} bytes of {log:?}"
        );
        for (entry, stored) in answer.entries.iter().zip(expected) {
            assert!(entry.segments[0].bytes[..] == stored.payload[..]);
        }
    }

    fn find(&self, partition: usize, at: u8) {
        let (log, handle) = (&self.logs[partition], self.handle(partition));
        let index = log.pick(at);
        let position = wait(self.broker().host.find(handle, index)).unwrap();
        let Some(expected) = log.from(index).next() else {
            return;
        };
        let request = ReadRequest {
            handle,
            index: expected.index,
            position,
            max_entries: 1,
            flags: ReadRequest::AT_LEAST_ONE,
            max_bytes: 1,
        };
        let answer = wait(self.broker().host.read(vec![request], 1))
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(
            (answer.entries[0].index, answer.entries[0].position),
            (expected.index, position)
        );
    }

    fn trim(&mut self, partition: usize, at: u8) {
        let handle = self.handle(partition);
        let before_index = self.logs[partition].pick(at);
        let request = TrimRequest {
            handle: Some(handle.into()),
            before_index,
        };
        let start = wait(self.broker().host.control::<Trim>(&request))
            .unwrap()
            .start_index;
        let log = &mut self.logs[partition];
        if before_index > log.start {
            let first = log.entries.iter().find(|entry| entry.index >= before_index);
            // The start never moves back, which it would in a gap before the first entry.
            log.start = first.map_or(log.next, |entry| entry.base).max(log.start);
        }
        assert_eq!(start, log.start);
        log.entries.retain(|entry| entry.index >= log.start);
    }

    fn replace(&mut self, partition: usize, ledger: u8, keep: u64) {
        let handle = self.handle(partition);
        let ledgers = wait(
            self.broker()
                .host
                .control::<DescribeLedgers>(&handle.into()),
        )
        .unwrap()
        .ledgers;
        let sealed: Vec<_> = ledgers.iter().filter(|ledger| ledger.sealed).collect();
        let Some(ledger) = sealed.get(usize::from(ledger) % sealed.len().max(1)) else {
            return;
        };
        let range = ledger.first_index..=ledger.last_index;
        let mut number = 0;
        self.logs[partition].entries.retain(|entry| {
            let inside = range.contains(&entry.index);
            number += u32::from(inside);
            !inside || keep >> (number % 64) & 1 == 1
        });
        let kept = self.logs[partition]
            .entries
            .iter()
            .filter(|entry| range.contains(&entry.index));
        let entries = kept.map(|entry| ReplacementEntry {
            index: entry.index,
            messages: u32::try_from(entry.index - entry.base + 1).unwrap(),
            payload: entry.payload.clone().into(),
        });
        let request = Replacement {
            handle: Some(handle.into()),
            ledger: ledger.id,
            replaced: ledger.replaced,
            entries: entries.collect(),
        };
        wait(self.broker().host.control::<ReplaceLedger>(&request)).unwrap();
    }

    fn check(&self) {
        for (partition, log) in self.logs.iter().enumerate() {
            let expected: Vec<_> = log
                .entries
                .iter()
                .map(|entry| (entry.index, entry.payload.clone()))
                .collect();
            let read = self.broker().read_all(self.handle(partition), 0);
            assert!(read == expected, "partition {partition}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_store_does_what_the_model_does(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.check();
        world.step(Step::Crash);
        world.check();
        world.step(Step::Stop);
        world.check();
    }
}
