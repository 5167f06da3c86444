//! The log on the durable host: real files, real ledgers, stops and starts.

use std::collections::BTreeMap;

use handler_api::topics::{CreateTopic, EnsureNamespace, Namespace, Topic};
use host_shim::embedded::{EmbeddedBroker, EmbeddedConfig};

use super::*;
use crate::clock::SystemClock;
use crate::log::clean::clean;
use crate::wire::batch::BatchView;

/// A broker on a directory with the log on top of it.
struct Real {
    broker: EmbeddedBroker,
    logs: Arc<Logs>,
    topic: Arc<TestTopic>,
    host: Host,
    runtime: tokio::runtime::Runtime,
}

impl Real {
    fn start(directory: &std::path::Path, sync_data: bool) -> Self {
        let mut config = EmbeddedConfig::new(directory);
        config.sync_data = sync_data;
        config.max_ledger_entries = 10;
        let broker = EmbeddedBroker::open(config).expect("a broker");
        let ear = Arc::new(Ear::default());
        let host = Host::of(broker.attach(String::new(), Arc::clone(&ear) as Arc<dyn EventSink>));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let topic = Arc::new(TestTopic::default());
        {
            let mut settings = topic.settings.lock();
            settings.retention_ms = -1;
            settings.min_cleanable_dirty_ratio = 0.0;
        }
        let logs = Logs::new(
            host.clone(),
            Arc::new(SystemClock::new()),
            Arc::clone(&topic) as Arc<dyn Directory>,
            LogOptions::default(),
            runtime.handle().clone(),
        );
        assert!(ear.logs.set(Arc::clone(&logs)).is_ok());
        Self {
            broker,
            logs,
            topic,
            host,
            runtime,
        }
    }

    fn create_topic(&self) {
        self.runtime.block_on(async {
            let namespace = "public/default".to_owned();
            let ensured = self
                .host
                .control::<EnsureNamespace>(&Namespace { namespace });
            ensured.await.expect("a namespace");
            let topic = Topic {
                name: TOPIC.to_owned(),
                partitions: PARTITIONS,
                ..Topic::default()
            };
            self.host
                .control::<CreateTopic>(&topic)
                .await
                .expect("a topic");
        });
    }

    /// Ends in order, or as a process that is killed: without the last snapshots.
    fn stop(self, in_order: bool) {
        if in_order {
            self.runtime.block_on(self.logs.close());
        }
        self.broker.close();
    }

    fn open(&self) -> Arc<Partition> {
        let name = partition_name(0);
        let opened = self.runtime.block_on(self.logs.open(&[&name])).remove(0);
        opened.expect("a partition")
    }

    fn append(&self, partition: &Arc<Partition>, records: Bytes) -> AppendInfo {
        let append = self.logs.append(vec![client(partition, records)]);
        self.runtime.block_on(append).remove(0).expect("an append")
    }

    /// Offset → key and value of everything, read in small steps.
    fn records(&self, partition: &Arc<Partition>) -> BTreeMap<i64, (String, String)> {
        let mut found = BTreeMap::new();
        let mut next = partition.log_start_offset();
        while next < partition.high_watermark() {
            let read = Read {
                partition: Arc::clone(partition),
                offset: next,
                max_bytes: 700,
                isolation: Isolation::ReadUncommitted,
            };
            let fetched = self.runtime.block_on(self.logs.read(vec![read], 700, true));
            let fetched = fetched
                .into_iter()
                .next()
                .expect("an answer")
                .expect("a read");
            for (header, bytes) in batches(&fetched) {
                assert!(header.last_offset() >= next);
                next = header.last_offset() + 1;
                let view = BatchView { header, bytes };
                for record in &view.records(1 << 20).expect("records") {
                    let record = record.expect("a record");
                    let text = |bytes: Option<&[u8]>| {
                        String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
                    };
                    found.insert(record.offset, (text(record.key), text(record.value)));
                }
            }
        }
        found
    }
}

/// Appends batches of an idempotent producer, two records each over ten keys; answers what is there then.
fn fill(
    real: &Real,
    partition: &Arc<Partition>,
    all: &mut BTreeMap<i64, (String, String)>,
    numbers: std::ops::Range<i32>,
) {
    for n in numbers {
        let mut builder = BatchBuilder::new(NOW_MS + i64::from(n)).producer(77, 0, n * 2);
        let records: Vec<(String, String)> = (0..2)
            .map(|place| {
                (
                    format!("key-{}", (n * 2 + place) % 10),
                    format!("{n}.{place}"),
                )
            })
            .collect();
        for (key, value) in &records {
            let record = NewRecord::new(
                NOW_MS + i64::from(n),
                Some(key.as_bytes()),
                Some(value.as_bytes()),
            );
            builder.push(record).expect("a record");
        }
        let info = real.append(partition, builder.build().expect("a batch"));
        all.extend((info.base_offset..).zip(records));
    }
}

#[test]
fn state_and_records_survive_stops_and_kills_on_real_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut all = BTreeMap::new();
    for (round, in_order) in [(0, true), (1, false), (2, true), (3, false)] {
        let real = Real::start(directory.path(), round % 2 == 1);
        if round == 0 {
            real.create_topic();
        }
        let partition = real.open();
        assert_eq!(real.records(&partition), all);
        fill(&real, &partition, &mut all, round * 25..(round + 1) * 25);
        assert_eq!(real.records(&partition), all);
        let again = sequenced(77, 0, round * 50 + 48, 2, "a retry");
        assert_eq!(
            real.append(&partition, again).base_offset,
            i64::from(round) * 50 + 48
        );
        for n in [0, round * 25 + 3] {
            let found = real
                .runtime
                .block_on(partition.offset_for_time(NOW_MS + i64::from(n)));
            let first = TimestampOffset {
                timestamp_ms: NOW_MS + i64::from(n),
                offset: i64::from(n) * 2,
            };
            assert_eq!(found, Ok(Some(first)));
        }
        let before = reload::state(&partition);
        real.stop(in_order);
        let real = Real::start(directory.path(), true);
        assert_eq!(reload::state(&real.open()), before, "round {round}");
        real.stop(true);
    }
}

#[test]
fn rolling_cleaning_trimming_and_deleting_work_on_real_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let real = Real::start(directory.path(), false);
    real.create_topic();
    real.topic.settings.lock().compact = true;
    real.topic.settings.lock().delete = false;
    let partition = real.open();
    let mut all = BTreeMap::new();
    for round in 0..3 {
        fill(&real, &partition, &mut all, round * 40..(round + 1) * 40);
        real.runtime.block_on(clean(&partition)).expect("cleaned");
        let end = partition.lock().clean_end;
        assert!(end > i64::from(round) * 80);
        let newest: BTreeMap<String, i64> = all
            .iter()
            .filter(|(offset, _)| **offset < end)
            .map(|(offset, (key, _))| (key.clone(), *offset))
            .collect();
        all.retain(|offset, (key, _)| *offset >= end || newest.get(key) == Some(offset));
        assert_eq!(real.records(&partition), all);
    }
    let before = reload::state(&partition);
    real.stop(true);

    let real = Real::start(directory.path(), false);
    let partition = real.open();
    assert_eq!(reload::state(&partition), before);
    assert_eq!(real.records(&partition), all);
    assert_eq!(
        real.runtime.block_on(partition.delete_records(200)),
        Ok(200)
    );
    all.retain(|offset, _| *offset >= 200);
    let left: BTreeMap<i64, (String, String)> = real
        .records(&partition)
        .into_iter()
        .filter(|(offset, _)| *offset >= 200)
        .collect();
    assert_eq!(left, all);
    let handle = handler_api::ledger::HandleRef::from(partition.handle());
    let roll = real.host.control::<handler_api::ledger::Rollover>(&handle);
    real.runtime.block_on(roll).expect("rolled");
    {
        let mut settings = real.topic.settings.lock();
        settings.compact = false;
        settings.delete = true;
        settings.retention_bytes = 0;
    }
    real.runtime.block_on(real.logs.check());
    let end = partition.high_watermark();
    assert_eq!((partition.log_start_offset(), end), (240, 240));
    fill(&real, &partition, &mut all, 120..121);
    assert_eq!(real.records(&partition).len(), 2);
    real.stop(false);
    let real = Real::start(directory.path(), false);
    let partition = real.open();
    assert_eq!(
        (partition.log_start_offset(), partition.high_watermark()),
        (240, 242)
    );
    real.stop(true);
}
