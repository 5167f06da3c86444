//! The embedded store from the outside, through the services.

use std::future::Future;
use std::path::Path;
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
pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
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
