//! The plugin on a host of which one service fails for long: what clients are told, and how often the host is asked.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use handler_api::control::Operation;
use handler_api::topics::{DescribeTopics, ListTopics};
use handler_api::{
    ApiError, AppendRequest, Appended, ErrorCode, Handle, HostServices, Level, Owner, Position,
    ReadAnswer, ReadRequest, Reply,
};
use host_shim::sim::SimHost;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{CreateTopicsRequest, FetchRequest, MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use support::Plugin;

/// A host whose watches and listings can be made to fail, and that counts what it is asked.
struct Spoilt {
    inner: Arc<dyn HostServices>,
    is_spoilt: AtomicBool,
    reads: AtomicUsize,
    calls: Mutex<BTreeMap<u32, usize>>,
}

impl Spoilt {
    fn fault(&self) -> Option<ApiError> {
        let fault = || ApiError::new(ErrorCode::NotReady, "not now");
        self.is_spoilt.load(Ordering::Relaxed).then(fault)
    }

    fn calls(&self, op: u32) -> usize {
        self.calls.lock().get(&op).copied().unwrap_or(0)
    }
}

impl HostServices for Spoilt {
    fn capabilities(&self) -> u64 {
        self.inner.capabilities()
    }

    fn log_enabled(&self, level: Level) -> bool {
        self.inner.log_enabled(level)
    }

    fn log(&self, level: Level, target: &str, message: &str) {
        self.inner.log(level, target, message);
    }

    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        self.inner.lookup(topics)
    }

    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        self.inner.append(requests)
    }

    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read(requests, max_bytes)
    }

    fn find(&self, handle: Handle, index: i64) -> Reply<Position> {
        self.inner.find(handle, index)
    }

    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        match self.fault() {
            Some(fault) => Err(fault),
            None => self.inner.watch(handle, after_index),
        }
    }

    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
        *self.calls.lock().entry(op).or_default() += 1;
        match self.fault() {
            Some(fault) if op == ListTopics::OP => Reply::err(fault),
            _ => self.inner.call(op, version, request),
        }
    }
}

async fn start() -> (Plugin, Arc<Spoilt>) {
    let mut kept = None;
    let plugin = Plugin::start_over(SimHost::new(1), &[], |inner| {
        let spoilt = Arc::new(Spoilt {
            inner,
            is_spoilt: AtomicBool::new(false),
            reads: AtomicUsize::new(0),
            calls: Mutex::default(),
        });
        kept = Some(Arc::clone(&spoilt));
        spoilt
    })
    .await;
    (plugin, kept.unwrap())
}

fn creation(names: impl IntoIterator<Item = String>) -> CreateTopicsRequest {
    let topic = |name| {
        CreatableTopic::default()
            .with_name(TopicName(StrBytes::from_string(name)))
            .with_num_partitions(1)
            .with_replication_factor(1)
    };
    CreateTopicsRequest::default()
        .with_topics(names.into_iter().map(topic).collect())
        .with_timeout_ms(10_000)
}

#[tokio::test]
async fn topics_that_cannot_be_listed_are_an_error_and_never_none() {
    let (plugin, host) = start().await;
    plugin
        .connect()
        .await
        .call(7, &creation(["t".to_owned()]))
        .await;
    host.is_spoilt.store(true, Ordering::Relaxed);
    for version in 0..=13 {
        let mut client = plugin.connect().await;
        let all = MetadataRequest::default().with_topics((version == 0).then(Vec::new));
        if version >= 13 {
            let reply = client.call(version, &all).await;
            assert_ne!(reply.error_code, 0);
            assert!(reply.topics.is_empty());
        } else {
            client.send(version, &all).await;
            client.expect_close().await;
        }
    }
    // Whoever names none is told of none.
    let none = MetadataRequest::default().with_topics(Some(Vec::new()));
    let reply = plugin.connect().await.call(12, &none).await;
    assert_eq!(reply.brokers.len(), 1);
    host.is_spoilt.store(false, Ordering::Relaxed);
    let all = MetadataRequest::default().with_topics(None);
    let reply = plugin.connect().await.call(12, &all).await;
    assert_eq!(reply.topics.len(), 1);
}

#[tokio::test]
async fn a_fetch_that_the_host_does_not_watch_for_asks_now_and_then() {
    let (plugin, host) = start().await;
    let mut client = plugin.connect().await;
    client.call(7, &creation(["t".to_owned()])).await;
    let fetch = |max_wait_ms| {
        FetchRequest::default()
            .with_max_wait_ms(max_wait_ms)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_topics(vec![
                FetchTopic::default()
                    .with_topic(TopicName(StrBytes::from_static_str("t")))
                    .with_partitions(vec![
                        FetchPartition::default().with_partition_max_bytes(1 << 20),
                    ]),
            ])
    };
    client.call(12, &fetch(0)).await;
    host.is_spoilt.store(true, Ordering::Relaxed);
    let reads = host.reads.load(Ordering::Relaxed);
    let started = Instant::now();
    let reply = client.call(12, &fetch(600)).await;
    assert_eq!(reply.responses[0].partitions[0].error_code, 0);
    assert!(started.elapsed() >= Duration::from_millis(590));
    let reads = host.reads.load(Ordering::Relaxed) - reads;
    assert!((2..=12).contains(&reads), "{reads} reads");
}

#[tokio::test]
async fn many_names_that_can_collide_are_created_with_one_look_at_all_topics() {
    let (plugin, host) = start().await;
    let mut client = plugin.connect().await;
    client.call(7, &creation(["be.fore".to_owned()])).await;
    let mut described = Vec::new();
    for start in ["plain-", "many."] {
        let before = host.calls(DescribeTopics::OP) + host.calls(ListTopics::OP);
        let names = (0..60).map(|number| format!("{start}{number}"));
        let reply = client.call(7, &creation(names)).await;
        let made = reply.topics.iter().filter(|topic| topic.error_code == 0);
        assert_eq!(made.count(), 60);
        described.push(host.calls(DescribeTopics::OP) + host.calls(ListTopics::OP) - before);
    }
    let [plain, many] = described[..] else {
        panic!("two rounds")
    };
    assert!(
        many <= plain + 10,
        "asked {many} times, {plain} for plain names"
    );
    let names = ["be_fore", "many_7", "many.x"].map(str::to_owned);
    let reply = client.call(7, &creation(names)).await;
    let codes: Vec<i16> = reply.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(
        codes,
        [17, 17, 0],
        "INVALID_TOPIC_EXCEPTION where names collide"
    );
}
