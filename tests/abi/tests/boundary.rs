//! What crosses the boundary of a real `.so`, and what does not: bytes keep their address, panics stay on their side,
//! two plugins live in one process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use handler_api::{
    ApiError, AppendRequest, Appended, ErrorCode, Handle, Handler, HostServices, Level, Owner,
    Position, ReadAnswer, ReadRequest, Reply,
};
use host_shim::config::HostConfig;
use host_shim::embedded::{EmbeddedBroker, EmbeddedConfig};
use host_shim::events::EventSink;
use host_shim::host::{Broker, BrokerHost, BrokerServices};
use host_shim::loader;
use host_shim::sim::SimHost;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    FetchRequest, MetadataRequest, ProduceRequest, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use probe_handler::{Ask, PARTITION, Question, Said};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[path = "../../../examples/embed/memory.rs"]
mod memory;

/// A directory with copies of some plugins, which cargo built beside this test.
fn protocols(names: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    for name in names {
        let file = format!("lib{name}.so");
        let built = test.parent().unwrap().join(&file);
        std::fs::copy(&built, directory.path().join(&file))
            .unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    }
    directory
}

fn probe(directory: &Path) -> Arc<Handler> {
    let plugins = loader::load(directory, &["probe".to_owned()]).unwrap();
    Arc::new(plugins.into_iter().next().unwrap().handler)
}

async fn ask(handler: &Handler, task: &str) -> Result<Said, ApiError> {
    let question = Question {
        task: task.to_owned(),
        times: 1,
    };
    handler.control::<Ask>(&question).await
}

/// Services that remember where the bytes of appends lie, and panic when told to.
struct Recording {
    inner: Arc<dyn HostServices>,
    appended: Arc<Mutex<Vec<u64>>>,
    panics: &'static str,
}

impl Recording {
    fn maybe_panic(&self, call: &str) {
        assert_ne!(self.panics, call, "{call} panics as asked");
    }
}

impl HostServices for Recording {
    fn capabilities(&self) -> u64 {
        self.inner.capabilities()
    }
    fn log_enabled(&self, level: Level) -> bool {
        self.maybe_panic("log_enabled");
        self.inner.log_enabled(level)
    }
    fn log(&self, level: Level, target: &str, message: &str) {
        self.maybe_panic("log");
        self.inner.log(level, target, message);
    }
    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        self.inner.lookup(topics)
    }
    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        self.maybe_panic("append");
        let segments = requests.iter().flat_map(|request| &request.segments);
        let addresses = segments.map(|bytes| bytes.as_ptr() as u64);
        self.appended.lock().unwrap().extend(addresses);
        self.inner.append(requests)
    }
    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        if self.panics == "read later" {
            return Reply::pending(async { panic!("read panics later, as asked") });
        }
        self.inner.read(requests, max_bytes)
    }
    fn find(&self, handle: Handle, index: i64) -> Reply<Position> {
        self.inner.find(handle, index)
    }
    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        self.maybe_panic("watch");
        self.inner.watch(handle, after_index)
    }
    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
        self.inner.call(op, version, request)
    }
}

async fn start(panics: &'static str) -> (Arc<Handler>, Arc<Mutex<Vec<u64>>>, SimHost) {
    let directory = protocols(&["probe_handler"]);
    let handler = probe(directory.path());
    let sim = SimHost::new(1);
    let sink: Arc<dyn EventSink> = handler.clone();
    let appended = Arc::default();
    let services = Arc::new(Recording {
        inner: sim.attach("probe://", Some(sink)),
        appended: Arc::clone(&appended),
        panics,
    });
    handler.start(services).await.unwrap();
    (handler, appended, sim)
}

#[tokio::test]
async fn bytes_of_the_plugin_have_the_same_address_in_the_host_and_when_read_back() {
    let (handler, appended, _sim) = start("").await;
    let made = ask(&handler, "append").await.unwrap().numbers;
    assert_eq!(*appended.lock().unwrap(), made);
    let read = ask(&handler, "read").await.unwrap().numbers;
    assert_eq!(read, made);
}

#[tokio::test]
async fn bytes_of_the_host_have_the_same_address_in_the_plugin() {
    let (handler, _, sim) = start("").await;
    // Opened by the plugin, written by the host.
    ask(&handler, "read").await.unwrap();
    let host = sim.host();
    let names = handler_api::topics::TopicNames {
        names: vec![PARTITION.to_owned()],
    };
    let opened = host.control::<handler_api::ledger::OpenLedgers>(&names);
    let handle = opened.await.unwrap().ledgers[0].handle.unwrap().into();
    let bytes = Bytes::from(b"made by the host".to_vec());
    let address = bytes.as_ptr() as u64;
    let request = AppendRequest {
        handle,
        messages: 1,
        flags: 0,
        segments: vec![bytes.into()].into(),
    };
    host.append(vec![request]).await.unwrap().remove(0).unwrap();
    let read = ask(&handler, "read").await.unwrap().numbers;
    assert_eq!(read, [address]);
}

#[tokio::test]
async fn a_plugin_uses_every_service() {
    let (handler, ..) = start("").await;
    assert_eq!(ask(&handler, "do it all").await.unwrap().text, "done");
}

#[tokio::test]
async fn panics_of_the_plugin_are_answered_and_both_sides_live() {
    let (handler, _, sim) = start("").await;
    for (task, text) in [
        ("panic now", "call panicked: the probe panics as asked"),
        (
            "panic later",
            "call panicked: the probe panics later, as asked",
        ),
    ] {
        let error = ask(&handler, task).await.unwrap_err();
        assert_eq!(error.kind(), ErrorCode::Internal);
        assert_eq!(error.to_string(), text);
    }
    let settings = [("probeInitialize".to_owned(), "panic".to_owned())];
    let error = handler.initialize(&settings.into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "initialize panicked: initialize panics as asked"
    );

    ask(&handler, "panic everywhere").await.unwrap();
    assert_eq!(handler.metrics(), "");
    handler.raw_event(0x7e7e, Bytes::new());
    // The plugin watches, appends, and panics when it is woken within its own append.
    let done = ask(&handler, "do it all").await.unwrap();
    assert!(
        done.text.starts_with("wrong") || done.text == "done",
        "{}",
        done.text
    );
    assert!(!sim.entries(PARTITION).is_empty());
    assert_eq!(handler.protocol_name(), "probe");
    // Its destructor panics too.
    drop(handler);
}

#[tokio::test]
async fn panics_of_the_host_are_answered_and_both_sides_live() {
    for (panics, task, text) in [
        ("append", "append", "append panicked: "),
        (
            "read later",
            "read",
            "read panicked: read panics later, as asked",
        ),
        ("watch", "do it all", "watch panicked: "),
    ] {
        let (handler, ..) = start(panics).await;
        let error = ask(&handler, task).await.unwrap_err();
        assert_eq!(error.kind(), ErrorCode::Internal, "{panics}");
        assert!(error.to_string().starts_with(text), "{error}");
        ask(&handler, "nothing").await.unwrap();
    }
    // A log that panics is no reason for the plugin to fail.
    let (handler, ..) = start("log").await;
    assert_eq!(ask(&handler, "do it all").await.unwrap().text, "done");
}

async fn broker(
    plugins: &[&str],
    services: Arc<dyn BrokerServices>,
    more: &[(&str, &str)],
) -> (Broker, tempfile::TempDir) {
    let directory = protocols(plugins);
    let path = directory.path().display().to_string();
    let mut pairs = vec![
        ("protocolHandlerDirectory", path.as_str()),
        ("webServicePort", "0"),
        ("bindAddress", "127.0.0.1"),
        ("kafkaListeners", "PLAINTEXT://127.0.0.1:0"),
        ("echoListener", "127.0.0.1:0"),
    ];
    pairs.extend_from_slice(more);
    let config = HostConfig::of(pairs).unwrap();
    let host = BrokerHost::builder(config).prepare().unwrap();
    let broker = host.start(services).await.unwrap();
    (broker, directory)
}

async fn echo(address: &str, line: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(line.as_bytes()).await.unwrap();
    let mut answer = vec![0; line.len()];
    socket.read_exact(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Asks a Kafka listener for its versions (ApiVersions v0) and returns correlation id and error code.
async fn api_versions(address: &str) -> (i32, i16) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 77, 0xff, 0xff];
    socket.write_all(&request).await.unwrap();
    let length = socket.read_i32().await.unwrap();
    assert!(length > 10);
    let correlation = socket.read_i32().await.unwrap();
    (correlation, socket.read_i16().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_and_echo_live_in_one_process() {
    let sim: Arc<dyn BrokerServices> = Arc::new(SimHost::new(1));
    let plugins = ["kop_handler", "echo_handler", "probe_handler"];
    let named = [("messagingProtocols", "kafka,echo")];
    let (broker, _directory) = broker(&plugins, sim, &named).await;
    let protocols: Vec<String> = broker.endpoints().into_iter().map(|e| e.protocol).collect();
    assert_eq!(protocols, ["kafka", "echo", "http"]);
    let (kafka, echo_address) = (
        broker.address("kafka").unwrap(),
        broker.address("echo").unwrap(),
    );
    assert_eq!(echo(&echo_address, "hello\n").await, "hello\n");
    assert_eq!(api_versions(&kafka).await, (77, 0));
    let metrics = broker.metrics();
    for metric in ["process_threads ", "echo_lines_total 1\n", "# TYPE kop_"] {
        assert!(metrics.contains(metric), "no {metric} in\n{metrics}");
    }
    assert!(broker.stop().await);
    for address in [kafka, echo_address] {
        assert!(
            TcpStream::connect(&address).await.is_err(),
            "{address} is still open"
        );
    }
}

/// Sends one request and decodes its reply.
async fn call<R: Request>(address: &str, version: i16, request: R) -> R::Response {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(1);
    let mut bytes = BytesMut::new();
    let header_version = R::header_version(version);
    header.encode(&mut bytes, header_version).unwrap();
    request.encode(&mut bytes, version).unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_i32(bytes.len() as i32).await.unwrap();
    socket.write_all(&bytes).await.unwrap();
    let length = socket.read_i32().await.unwrap();
    let mut reply = vec![0; length as usize];
    socket.read_exact(&mut reply).await.unwrap();
    let mut reply = Bytes::from(reply);
    let header_version = R::Response::header_version(version);
    ResponseHeader::decode(&mut reply, header_version).unwrap();
    let response = R::Response::decode(&mut reply, version).unwrap();
    assert!(reply.is_empty());
    response
}

/// One record, as a client would send it.
fn batch(value: &'static str) -> Bytes {
    let record = Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 0,
        producer_id: -1,
        producer_epoch: -1,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        sequence: -1,
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(Bytes::from_static(value.as_bytes())),
        headers: Default::default(),
    };
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut bytes = BytesMut::new();
    RecordBatchEncoder::encode(&mut bytes, [&record], &options).unwrap();
    bytes.freeze()
}

/// Creates a topic by asking for it, appends two batches and reads them back.
async fn produce_and_fetch(address: &str) {
    let name = TopicName(StrBytes::from_static_str("t"));
    for attempt in 0.. {
        let topic = MetadataRequestTopic::default().with_name(Some(name.clone()));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(true);
        let response = call(address, 4, request).await;
        if response.topics[0].error_code == 0 {
            break;
        }
        assert!(attempt < 100, "{response:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (offset, value) in [(0, "one"), (1, "two")] {
        let partition = PartitionProduceData::default().with_records(Some(batch(value)));
        let topic = TopicProduceData::default()
            .with_name(name.clone())
            .with_partition_data(vec![partition]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(10_000)
            .with_topic_data(vec![topic]);
        let response = call(address, 7, request).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (0, offset));
    }
    let partition = FetchPartition::default()
        .with_fetch_offset(0)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default()
        .with_topic(name)
        .with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_max_wait_ms(1000)
        .with_min_bytes(1)
        .with_topics(vec![topic]);
    let response = call(address, 4, request).await;
    let partition = &response.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.high_watermark), (0, 2));
    let mut records = partition.records.clone().unwrap();
    let mut values = Vec::new();
    while !records.is_empty() {
        let set = RecordBatchDecoder::decode(&mut records).unwrap();
        let found = set.records.into_iter();
        values.extend(found.map(|record| (record.offset, record.value.unwrap())));
    }
    let expected = [
        (0, Bytes::from_static(b"one")),
        (1, Bytes::from_static(b"two")),
    ];
    assert_eq!(values, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_runs_on_the_services_of_an_embedding_program() {
    let memory: Arc<dyn BrokerServices> = Arc::new(memory::Memory::default());
    let named = [("messagingProtocols", "kafka")];
    let (broker, _directory) = broker(&["kop_handler"], memory, &named).await;
    produce_and_fetch(&broker.address("kafka").unwrap()).await;
    assert!(broker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_runs_on_the_embedded_store_and_on_the_simulated_one() {
    let data = tempfile::tempdir().unwrap();
    let store = EmbeddedBroker::open(EmbeddedConfig::new(data.path())).unwrap();
    let sim = SimHost::new(1);
    for services in [Arc::new(store) as Arc<dyn BrokerServices>, Arc::new(sim)] {
        let named = [("messagingProtocols", "kafka")];
        let (broker, _directory) = broker(&["kop_handler"], services, &named).await;
        produce_and_fetch(&broker.address("kafka").unwrap()).await;
        assert!(broker.stop().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_broker_leaves_its_services_to_their_owner() {
    let memory = Arc::new(memory::Memory::default());
    let services = Arc::clone(&memory) as Arc<dyn BrokerServices>;
    let named = [("messagingProtocols", "echo")];
    let (broker, _directory) = broker(&["echo_handler"], services, &named).await;
    let address = broker.address("echo").unwrap();
    assert_eq!(echo(&address, "hello\n").await, "hello\n");
    assert!(memory.holders() > 1);
    assert!(broker.stop().await);
    assert_eq!(memory.holders(), 1, "a plugin still holds the services");
}

fn prepare_error(plugins: &[&str], extra: &[(&str, &[u8])], pairs: &[(&str, &str)]) -> String {
    let directory = protocols(plugins);
    for (name, content) in extra {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let path = directory.path().display().to_string();
    let mut all = vec![("protocolHandlerDirectory", path.as_str())];
    all.extend_from_slice(pairs);
    let config = HostConfig::of(all).unwrap();
    let error = BrokerHost::builder(config)
        .prepare()
        .unwrap_err()
        .to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error.replace(&path, "DIR")
}

#[test]
fn a_missing_plugin_is_one_line_that_lists_what_there_is() {
    let error = prepare_error(
        &["echo_handler"],
        &[("cut.so", b"\x7fELF"), ("notes.txt", b"")],
        &[("messagingProtocols", "kafka")],
    );
    assert_eq!(
        error,
        "messagingProtocols names kafka, but no plugin in DIR offers it; found there: \
         cut.so (is no shared library (no ELF file)), libecho_handler.so (echo)"
    );
}

#[test]
fn two_plugins_of_one_protocol_are_refused() {
    let directory = protocols(&["echo_handler"]);
    let file = directory.path().join("libecho_handler.so");
    std::fs::copy(&file, directory.path().join("old.so")).unwrap();
    let error = loader::load(directory.path(), &["echo".to_owned()]).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("offer echo; remove one of them"), "{text}");
}

#[test]
fn protocols_are_named_without_regard_to_case() {
    let directory = protocols(&["echo_handler"]);
    let plugins = loader::load(directory.path(), &["ECHO".to_owned()]).unwrap();
    assert_eq!(plugins[0].protocol, "ECHO");
    assert_eq!(plugins[0].abi_version, handler_api::ABI_VERSION);
    let expected: PathBuf = directory.path().join("libecho_handler.so");
    assert_eq!(plugins[0].path, expected);
}

#[test]
fn a_setting_that_a_plugin_refuses_stops_the_start() {
    let error = prepare_error(
        &["echo_handler"],
        &[],
        &[("messagingProtocols", "echo"), ("echoListener", "nowhere")],
    );
    assert_eq!(
        error,
        "echo: echoListener=nowhere: give an address and a port, such as 127.0.0.1:7007 \
         (--set)"
    );
}

#[test]
fn a_kafka_port_in_use_names_its_key() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let kafka = format!("PLAINTEXT://{address}");
    let error = prepare_error(
        &["kop_handler"],
        &[],
        &[("messagingProtocols", "kafka"), ("kafkaListeners", &kafka)],
    );
    assert!(error.starts_with("kafka: kafkaListeners"), "{error}");
    assert!(error.contains(&address), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_cannot_start_closes_those_that_had() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (taken, address)).unwrap();
    let directory = protocols(&["echo_handler", "kop_handler"]);
    let path = directory.path().display().to_string();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let kafka_address = free.local_addr().unwrap().to_string();
    drop(free);
    let config = HostConfig::of([
        ("messagingProtocols", "kafka,echo"),
        ("protocolHandlerDirectory", path.as_str()),
        ("webServicePort", ""),
        ("kafkaListeners", &format!("PLAINTEXT://{kafka_address}")),
        ("echoListener", &taken.1.to_string()),
    ])
    .unwrap();
    let host = BrokerHost::builder(config).prepare().unwrap();
    let services = Arc::new(SimHost::new(1));
    let error = host.start(services).await.unwrap_err().to_string();
    let start = format!("echo cannot start: echoListener={}: ", taken.1);
    assert!(error.starts_with(&start), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let connected = TcpStream::connect(&kafka_address).await;
    assert!(connected.is_err(), "kafka still serves");
}

#[tokio::test]
async fn a_web_port_in_use_names_its_key() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let config = HostConfig::of([
        ("webServicePort", port.as_str()),
        ("bindAddress", "127.0.0.1"),
    ])
    .unwrap();
    let host = BrokerHost::builder(config).prepare().unwrap();
    let error = host
        .start(Arc::new(SimHost::new(1)))
        .await
        .unwrap_err()
        .to_string();
    let start = format!("webServicePort={port}: cannot listen on 127.0.0.1:{port}: ");
    assert!(error.starts_with(&start), "{error}");
}
