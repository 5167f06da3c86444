//! The log on the simulated host: what holds when everything works, when it is slow, when it fails and when it dies.

mod append;
mod clean;
mod embedded;
mod formats;
mod read;
mod reload;
mod search;
mod storm;
mod upkeep;
mod wait;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use handler_api::control::decode;
use handler_api::ledger::{HandleClosed, StartMoved};
use handler_api::{Event, Handle, Host, Position};
use host_shim::events::EventSink;
use host_shim::sim::{Faults, SimHost};
use parking_lot::Mutex;

use super::*;
use crate::clock::ManualClock;
use crate::wire::batch::{BatchBuilder, BatchHeader, Batches, NewRecord};

pub(super) const TOPIC: &str = "persistent://public/default/t";
pub(super) const NOW_MS: i64 = 1_700_000_000_000;
const PARTITIONS: u32 = 3;

/// A simulated broker with the log on top of it, and a runtime that only runs while a test waits.
pub(super) struct Bed {
    pub(super) sim: SimHost,
    pub(super) clock: Arc<ManualClock>,
    pub(super) logs: Arc<Logs>,
    pub(super) topic: Arc<TestTopic>,
    /// What the plugin is started with.
    pub(super) options: LogOptions,
    runtime: tokio::runtime::Runtime,
}

/// One topic with settings that a test changes.
#[derive(Default)]
pub(super) struct TestTopic {
    pub(super) settings: Mutex<TopicSettings>,
}

impl Directory for TestTopic {
    fn settings<'a>(&'a self, _partition: &'a str) -> Boxed<'a, Result<TopicSettings, Fault>> {
        Box::pin(async { Ok(self.settings.lock().clone()) })
    }

    fn partitions(&self) -> Boxed<'_, Result<Vec<String>, Fault>> {
        Box::pin(async { Ok((0..PARTITIONS).map(partition_name).collect()) })
    }
}

pub(super) fn partition_name(number: u32) -> String {
    format!("{TOPIC}-partition-{number}")
}

/// What the plugin does with the host's calls.
#[derive(Default)]
struct Ear {
    logs: OnceLock<Arc<Logs>>,
}

impl EventSink for Ear {
    fn event(&self, op: u32, payload: Bytes) {
        let Some(logs) = self.logs.get() else { return };
        if op == HandleClosed::OP {
            let closed: HandleClosed = decode(payload).expect("an event");
            logs.closed(closed.handle.expect("a handle").into());
        } else if op == StartMoved::OP {
            let moved: StartMoved = decode(payload).expect("an event");
            logs.start_moved(moved.handle.expect("a handle").into(), moved.start_index);
        }
    }

    fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        if let Some(logs) = self.logs.get() {
            logs.end_moved(handle, position, index);
        }
    }
}

impl Bed {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let sim = SimHost::new(seed);
        assert!(sim.create_topic(TOPIC, PARTITIONS));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let clock = Arc::new(ManualClock::new(NOW_MS, seed));
        let topic = Arc::new(TestTopic::default());
        let options = LogOptions::default();
        let logs = attach(&sim, &clock, &topic, &options, &runtime);
        sim.set_faults(faults);
        Self {
            sim,
            clock,
            logs,
            topic,
            options,
            runtime,
        }
    }

    pub(super) fn quiet() -> Self {
        Self::new(1, Faults::none())
    }

    /// A new life of the plugin on the same broker; what it has open is gone.
    pub(super) fn restart(&mut self) {
        self.logs = attach(
            &self.sim,
            &self.clock,
            &self.topic,
            &self.options,
            &self.runtime,
        );
    }

    pub(super) fn change_settings(&self, change: impl FnOnce(&mut TopicSettings)) {
        let mut settings = self.topic.settings.lock();
        change(&mut settings);
        let names: Vec<String> = (0..PARTITIONS).map(partition_name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.logs.apply_settings(&names, &settings);
    }

    /// Waits for an answer, stepping the simulated broker.
    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut idle = 0;
        loop {
            if let Some(value) = self.poll(future.as_mut()) {
                return value;
            }
            idle = if self.sim.step() { 0 } else { idle + 1 };
            assert!(idle < 100, "nothing is under way, and still no answer");
        }
    }

    /// Polls once, and lets spawned tasks have a turn.
    pub(super) fn poll<T>(
        &self,
        mut future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Option<T> {
        self.runtime.block_on(async {
            tokio::task::yield_now().await;
            let polled = future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            tokio::task::yield_now().await;
            match polled {
                Poll::Ready(value) => Some(value),
                Poll::Pending => None,
            }
        })
    }

    pub(super) fn try_open(&self, number: u32) -> Result<Arc<Partition>, Fault> {
        let name = partition_name(number);
        self.run(self.logs.open(&[&name])).remove(0)
    }

    pub(super) fn open(&self, number: u32) -> Arc<Partition> {
        self.try_open(number).expect("an open partition")
    }

    pub(super) fn append(
        &self,
        partition: &Arc<Partition>,
        records: Bytes,
    ) -> Result<AppendInfo, Rejection> {
        self.run(self.logs.append(vec![client(partition, records)]))
            .remove(0)
    }

    /// Appends records with these timestamps as one batch; answers its base offset.
    pub(super) fn put(&self, partition: &Arc<Partition>, timestamps: &[i64]) -> i64 {
        self.append(partition, batch(timestamps))
            .expect("an append")
            .base_offset
    }

    pub(super) fn read(
        &self,
        partition: &Arc<Partition>,
        offset: i64,
        max_bytes: usize,
    ) -> Result<Fetched, Fault> {
        let read = Read {
            partition: Arc::clone(partition),
            offset,
            max_bytes,
            isolation: Isolation::ReadUncommitted,
        };
        self.run(self.logs.read(vec![read], max_bytes, true))
            .remove(0)
    }

    /// Everything from an offset on: offset and value of each record.
    pub(super) fn records(&self, partition: &Arc<Partition>, from: i64) -> Vec<(i64, Bytes)> {
        let mut found = Vec::new();
        let mut next = from;
        loop {
            let fetched = self.read(partition, next, 1 << 20).expect("a read");
            let batches = batches(&fetched);
            let Some((last, _)) = batches.last() else {
                return found;
            };
            next = last.last_offset() + 1;
            for (header, bytes) in batches {
                let records = crate::wire::batch::Records::new(
                    header,
                    crate::wire::batch::decompress(
                        header.attributes.compression().expect("a codec"),
                        &bytes.slice(61..),
                        1 << 20,
                    )
                    .expect("records"),
                );
                for record in &records {
                    let record = record.expect("a record");
                    if record.offset >= from {
                        found.push((
                            record.offset,
                            Bytes::copy_from_slice(record.value.unwrap_or_default()),
                        ));
                    }
                }
            }
        }
    }
}

fn attach(
    sim: &SimHost,
    clock: &Arc<ManualClock>,
    topic: &Arc<TestTopic>,
    options: &LogOptions,
    runtime: &tokio::runtime::Runtime,
) -> Arc<Logs> {
    let ear = Arc::new(Ear::default());
    let host: Host = sim.host_for(Arc::clone(&ear) as Arc<dyn EventSink>);
    let logs = Logs::new(
        host,
        Arc::clone(clock) as Arc<dyn Clock>,
        Arc::clone(topic) as Arc<dyn Directory>,
        options.clone(),
        runtime.handle().clone(),
    );
    assert!(ear.logs.set(Arc::clone(&logs)).is_ok());
    logs
}

pub(super) fn client(partition: &Arc<Partition>, records: Bytes) -> Append {
    Append {
        partition: Arc::clone(partition),
        records,
        origin: Origin::Client { version: 9 },
    }
}

/// A batch of records with these timestamps; the value of each is its place.
pub(super) fn batch(timestamps: &[i64]) -> Bytes {
    build(BatchBuilder::new(timestamps[0]), timestamps)
}

pub(super) fn build(mut builder: BatchBuilder, timestamps: &[i64]) -> Bytes {
    for (place, timestamp) in timestamps.iter().enumerate() {
        let value = place.to_string();
        builder
            .push(NewRecord::new(
                *timestamp,
                Some(b"key"),
                Some(value.as_bytes()),
            ))
            .expect("a record");
    }
    builder.build().expect("a batch")
}

/// A batch of an idempotent producer: `count` records from a sequence number on, their value given.
pub(super) fn sequenced(id: i64, epoch: i16, first: i32, count: usize, value: &str) -> Bytes {
    let mut builder = BatchBuilder::new(NOW_MS).producer(id, epoch, first);
    for _ in 0..count {
        builder
            .push(NewRecord::new(NOW_MS, Some(b"key"), Some(value.as_bytes())))
            .expect("a record");
    }
    builder.build().expect("a batch")
}

/// The batches of a read, each whole, with the headers that a client sees.
pub(super) fn batches(fetched: &Fetched) -> Vec<(BatchHeader, Bytes)> {
    let bytes: Bytes = fetched.records.concat().into();
    assert_eq!(bytes.len(), fetched.size);
    Batches::new(bytes)
        .map(|batch| {
            let batch = batch.expect("a batch");
            assert!(batch.has_right_crc());
            (batch.header, batch.bytes)
        })
        .collect()
}
