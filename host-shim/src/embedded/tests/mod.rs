//! The embedded store from the outside, through the services.

mod crash;
mod damage;
mod faults;
mod fixture;
mod metrics;
mod model;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use handler_api::ledger::{OpenLedgers, Opened};
use handler_api::topics::{CreateTopic, Topic, TopicChange, TopicNames, UpdateTopic};
use handler_api::{
    ApiError, AppendRequest, Appended, ErrorCode, Handle, Host, Position, ReadAnswer, ReadRequest,
};

use super::{EmbeddedBroker, EmbeddedConfig};
use crate::events::NoEvents;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future without any runtime.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

pub(super) struct Broker {
    pub(super) broker: EmbeddedBroker,
    pub(super) host: Host,
}

pub(super) fn config(dir: &Path) -> EmbeddedConfig {
    EmbeddedConfig {
        sync_data: false,
        ..EmbeddedConfig::new(dir)
    }
}

pub(super) fn start(config: EmbeddedConfig) -> Broker {
    let broker = EmbeddedBroker::open(config).unwrap();
    let host = Host::of(broker.attach(String::new(), Arc::new(NoEvents)));
    Broker { broker, host }
}

impl Broker {
    pub(super) fn create(&self, name: &str, partitions: u32) {
        let topic = Topic {
            name: name.into(),
            partitions,
            ..Topic::default()
        };
        wait(self.host.control::<CreateTopic>(&topic)).unwrap();
    }

    pub(super) fn open(&self, name: &str) -> Opened {
        let names = TopicNames {
            names: vec![name.into()],
        };
        wait(self.host.control::<OpenLedgers>(&names))
            .unwrap()
            .ledgers
            .remove(0)
    }

    pub(super) fn handle(&self, name: &str) -> Handle {
        self.open(name).handle.unwrap().into()
    }

    pub(super) fn append(
        &self,
        handle: Handle,
        messages: u32,
        payload: &[u8],
    ) -> Result<Appended, ApiError> {
        let request = AppendRequest {
            handle,
            messages,
            flags: 0,
            segments: vec![payload.to_vec().into()].into(),
        };
        wait(self.host.append(vec![request])).unwrap().remove(0)
    }

    pub(super) fn read(
        &self,
        handle: Handle,
        index: i64,
        position: Position,
        max_bytes: u64,
    ) -> Result<ReadAnswer, ApiError> {
        let request = ReadRequest {
            handle,
            index,
            position,
            max_entries: u32::MAX,
            flags: ReadRequest::AT_LEAST_ONE,
            max_bytes,
        };
        wait(self.host.read(vec![request], max_bytes))
            .unwrap()
            .remove(0)
    }

    /// Index and payload of all entries from `index` on.
    pub(super) fn read_all(&self, handle: Handle, mut index: i64) -> Vec<(i64, Vec<u8>)> {
        let mut all = Vec::new();
        let mut position = Position::UNKNOWN;
        loop {
            let answer = self.read(handle, index, position, 100_000).unwrap();
            let Some(last) = answer.entries.last() else {
                return all;
            };
            index = last.index + 1;
            position = answer.next;
            for entry in &answer.entries {
                let bytes = entry
                    .segments
                    .iter()
                    .flat_map(|segment| segment.bytes.to_vec());
                all.push((entry.index, bytes.collect()));
            }
        }
    }
}

pub(super) const TOPIC: &str = "persistent://public/default/t";

/// What a crash at this moment would leave: a copy of the directory as it is.
pub(crate) fn image(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("ledgers")).unwrap();
    for name in ["FORMAT", "catalog.redb"] {
        std::fs::copy(dir.join(name), copy.path().join(name)).unwrap();
    }
    for file in std::fs::read_dir(dir.join("ledgers")).unwrap() {
        let file = file.unwrap();
        // A file may be removed in the background meanwhile.
        let _ = std::fs::copy(
            file.path(),
            copy.path().join("ledgers").join(file.file_name()),
        );
    }
    copy
}

/// The ledger files of a directory, by name.
pub(crate) fn ledger_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir.join("ledgers"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

#[test]
fn what_is_appended_is_read_back_in_order_and_after_a_restart() {
    for sync_data in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let config = EmbeddedConfig {
            sync_data,
            ..config(dir.path())
        };
        let broker = start(config.clone());
        broker.create(TOPIC, 2);
        let handle = broker.handle(&format!("{TOPIC}-partition-1"));
        let mut expected = Vec::new();
        let mut index = -1;
        for n in 0..1000u32 {
            let payload = vec![n as u8; n as usize];
            let appended = broker.append(handle, n % 3 + 1, &payload).unwrap();
            index += i64::from(n % 3 + 1);
            assert_eq!(appended.index, index);
            expected.push((index, payload));
        }
        assert_eq!(broker.read_all(handle, 0), expected);
        drop(broker);
        let broker = start(config);
        let opened = broker.open(&format!("{TOPIC}-partition-1"));
        assert_eq!((opened.start_index, opened.end_index), (0, index));
        let handle = opened.handle.unwrap().into();
        assert_eq!(broker.read_all(handle, 0), expected);
        assert_eq!(broker.append(handle, 1, b"next").unwrap().index, index + 1);
        assert!(
            broker
                .read_all(broker.handle(&format!("{TOPIC}-partition-0")), 0)
                .is_empty()
        );
    }
}

#[test]
fn a_topic_changes_only_while_its_properties_are_as_expected() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let change = |expected: &str, value: &str| {
        let change = TopicChange {
            name: TOPIC.into(),
            set: [("id".to_owned(), value.to_owned())].into(),
            expect: [("id".to_owned(), expected.to_owned())].into(),
            ..TopicChange::default()
        };
        wait(broker.host.control::<UpdateTopic>(&change))
    };
    assert_eq!(change("", "first").unwrap().properties["id"], "first");
    let error = change("", "second").unwrap_err();
    assert_eq!(error.kind(), ErrorCode::Conflict);
    assert_eq!(change("first", "third").unwrap().properties["id"], "third");
}

#[test]
fn many_partitions_cost_no_files_until_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 10_000);
    let names: Vec<String> = (0..10_000)
        .map(|n| format!("{TOPIC}-partition-{n}"))
        .collect();
    let request = TopicNames { names };
    let opened = wait(broker.host.control::<OpenLedgers>(&request))
        .unwrap()
        .ledgers;
    assert_eq!(opened.len(), 10_000);
    assert!(opened.iter().all(|opened| opened.handle.is_some()));
    assert!(ledger_files(dir.path()).is_empty());
    assert_eq!(broker.broker.core.files.open_count(), 0);
    assert!(
        size_of::<super::partition::Partition>() <= 400,
        "an idle partition is small"
    );
}

#[test]
fn open_files_stay_within_their_bound() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(EmbeddedConfig {
        max_open_files: 16,
        ..config(dir.path())
    });
    broker.create(TOPIC, 100);
    let handles: Vec<_> = (0..100)
        .map(|n| broker.handle(&format!("{TOPIC}-partition-{n}")))
        .collect();
    for round in 0..3u8 {
        for handle in &handles {
            broker.append(*handle, 1, &[round]).unwrap();
            assert!(broker.broker.core.files.open_count() <= 16);
        }
    }
    for handle in handles {
        assert_eq!(broker.read_all(handle, 0).len(), 3);
    }
    assert!(broker.broker.core.files.open_count() <= 16);
}

#[test]
fn old_ledgers_are_sealed_whether_or_not_they_are_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(EmbeddedConfig {
        max_rollover_ms: 100,
        ..config(dir.path())
    });
    broker.create(TOPIC, 1);
    let handle = broker.handle(&format!("{TOPIC}-partition-0"));
    broker.append(handle, 1, b"x").unwrap();
    let partition = broker.broker.core.handles.get(handle).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !partition.view.lock().ledgers[0].row.sealed {
        assert!(std::time::Instant::now() < deadline, "never sealed");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(broker.append(handle, 1, b"y").unwrap().index, 1);
    assert_eq!(partition.view.lock().ledgers.len(), 2);
}

#[test]
fn a_closed_broker_answers_that_it_closes_and_gives_its_directory_up() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let handle = broker.handle(&format!("{TOPIC}-partition-0"));
    broker.append(handle, 1, b"x").unwrap();
    assert!(matches!(
        EmbeddedBroker::open(config(dir.path())),
        Err(super::OpenError::InUse { .. })
    ));
    broker.broker.close();
    let closing = handler_api::ErrorCode::Closing;
    assert_eq!(broker.append(handle, 1, b"x").unwrap_err().kind(), closing);
    assert_eq!(
        broker
            .read(handle, 0, Position::UNKNOWN, 10)
            .unwrap_err()
            .kind(),
        closing
    );
    let again = start(config(dir.path()));
    assert_eq!(again.open(&format!("{TOPIC}-partition-0")).end_index, 0);
}
