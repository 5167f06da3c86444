//! Connections: order, bounds, hostile bytes, closing. Raw protocol on the simulated host.

#![expect(
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use handler_api::{ErrorCode, Handle, Handler, Position};
use host_shim::sim::{Faults, SimHost};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, FetchRequest, MetadataRequest, ProduceRequest,
    SaslAuthenticateRequest, SaslHandshakeRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kop_handler::plugin::KafkaHandler;
use support::{Client, Plugin, batch, frame};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const TOPIC: TopicName = TopicName(StrBytes::from_static_str("t"));

async fn create(client: &mut Client) {
    let limit = CreatableTopicConfig::default()
        .with_name(StrBytes::from_static_str("max.message.bytes"))
        .with_value(Some(StrBytes::from_static_str("5000000")));
    let topic = CreatableTopic::default()
        .with_name(TOPIC)
        .with_num_partitions(1)
        .with_replication_factor(1)
        .with_configs(vec![limit]);
    let reply = client
        .call(5, &CreateTopicsRequest::default().with_topics(vec![topic]))
        .await;
    assert_eq!(reply.topics[0].error_code, 0);
}

fn produce(records: Bytes) -> ProduceRequest {
    let data = PartitionProduceData::default().with_records(Some(records));
    let topic = TopicProduceData::default()
        .with_name(TOPIC)
        .with_partition_data(vec![data]);
    ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(1_000)
        .with_topic_data(vec![topic])
}

fn fetch(offset: i64, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    FetchRequest::default()
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(TOPIC)
                .with_partitions(vec![partition]),
        ])
}

fn software() -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("raw"))
        .with_client_software_version(StrBytes::from_static_str("1"))
}

/// A header of any key and version: correlation id 9, client id "c".
fn head(key: i16, version: i16) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i32(11);
    bytes.put_i16(key);
    bytes.put_i16(version);
    bytes.put_i32(9);
    bytes.put_i16(1);
    bytes.put_u8(b'c');
    bytes.freeze()
}

#[tokio::test]
async fn replies_keep_the_order_of_requests_and_a_waiting_one_does_not_block_the_reader() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client).await;
    let waiting = client.send(12, &fetch(0, 30_000)).await;
    let quick = client.send(3, &software()).await;
    assert!(
        client.is_silent(Duration::from_millis(50)).await,
        "the quick reply must wait for its turn"
    );
    let append = client.send(9, &produce(batch(1, &["x"]))).await;
    let (first, fetched) = client.receive::<FetchRequest>(12).await;
    assert_eq!(first, waiting);
    assert_eq!(
        fetched.responses[0].partitions[0].high_watermark, 1,
        "the append behind it woke it"
    );
    assert_eq!(client.receive::<ApiVersionsRequest>(3).await.0, quick);
    assert_eq!(client.receive::<ProduceRequest>(9).await.0, append);
    assert!(plugin.metric("kop_server_RESPONSE_BLOCKED_TIMES") >= 1.0);
}

#[tokio::test]
async fn what_is_not_served_closes_the_connection_without_a_reply() {
    let plugin = Plugin::start(&[]).await;
    for (key, version) in [
        (0, 2),
        (0, 14),
        (1, 3),
        (1, 99),
        (2, 0),
        (3, 99),
        (3, -1),
        (4, 0),
        (55, 0),
        (999, 0),
        (-1, 0),
    ] {
        let mut client = plugin.connect().await;
        client.send_raw(&head(key, version)).await;
        client.expect_close().await;
    }
    assert_eq!(plugin.metric("kop_server_REQUEST_REFUSED"), 11.0);
    let told = plugin.sim.log_lines();
    assert!(
        told.iter()
            .any(|line| line.contains("version 99 of Metadata") && line.contains('c')),
        "{told:?}"
    );
}

#[tokio::test]
async fn requests_before_a_refused_one_are_answered_first() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client).await;
    let id = client.send(12, &fetch(0, 100)).await;
    client.send_raw(&head(3, 99)).await;
    assert_eq!(client.receive::<FetchRequest>(12).await.0, id);
    client.expect_close().await;
}

#[tokio::test]
async fn an_unknown_version_of_api_versions_is_answered_and_the_connection_lives() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    for version in [5, 99, -3] {
        client.send_raw(&head(18, version)).await;
        let reply = client.receive_bytes().await.unwrap();
        assert_eq!(
            reply[..],
            [0, 0, 0, 9, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4]
        );
    }
    let reply = client.call(4, &software()).await;
    let range = |key: i16| {
        reply
            .api_keys
            .iter()
            .find(|api| api.api_key == key)
            .map(|api| (api.min_version, api.max_version))
    };
    assert_eq!(
        range(0),
        Some((0, 13)),
        "librdkafka switches compression off when Produce begins later"
    );
    assert_eq!(range(1), Some((4, 18)));
    assert_eq!(range(17), None, "SASL is not offered");
    assert_eq!(
        client
            .call(3, &ApiVersionsRequest::default())
            .await
            .error_code,
        42,
        "an empty software name"
    );
}

#[tokio::test]
async fn sasl_on_a_plaintext_listener_is_an_illegal_state() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    for version in [0, 1] {
        let request =
            SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
        assert_eq!(client.call(version, &request).await.error_code, 34);
    }
    for version in 0..=2 {
        let request =
            SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from_static(b"\0u\0p"));
        assert_eq!(client.call(version, &request).await.error_code, 34);
    }
    assert_eq!(
        client
            .call(1, &MetadataRequest::default())
            .await
            .brokers
            .len(),
        1
    );
}

#[tokio::test]
async fn impossible_lengths_close_at_once() {
    let plugin = Plugin::start(&[]).await;
    let large = |key: i16, length: i32| {
        let mut bytes = BytesMut::new();
        bytes.put_i32(length);
        bytes.put_i16(key);
        bytes.freeze()
    };
    for bytes in [
        large(3, -1),
        large(3, 0),
        large(3, 7),
        large(3, i32::MAX),
        large(3, 3 << 20),
        large(0, 101 << 20),
        large(0, i32::MIN),
    ] {
        let mut client = plugin.connect().await;
        client.send_raw(&bytes).await;
        client.expect_close().await;
    }
}

#[tokio::test]
async fn garbage_never_stops_the_plugin() {
    let plugin = Plugin::start(&[]).await;
    let mut seed = 42_u64;
    let mut random = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    for round in 0..200 {
        let mut client = plugin.connect().await;
        let mut body: Vec<u8> = (0..random() % 300).map(|_| random() as u8).collect();
        if round % 2 == 0 {
            // A head that is served, and a body that is not.
            let (key, version) =
                [(0, 9), (1, 12), (2, 7), (3, 12), (19, 7), (22, 4), (32, 4)][random() % 7];
            let mut framed = BytesMut::new();
            framed.put_i32(i32::try_from(body.len() + 10).unwrap());
            framed.put_i16(key);
            framed.put_i16(version);
            framed.put_i32(1);
            framed.put_i16(-1);
            framed.put_slice(&body);
            body = framed.to_vec();
        }
        client.send_raw(&body).await;
        let _ = client.stream.shutdown().await;
    }
    let mut client = plugin.connect().await;
    assert_eq!(client.call(3, &software()).await.error_code, 0);
    let deadline = Instant::now() + support::PATIENCE;
    while plugin.metric("kop_server_ALIVE_CHANNEL_COUNT") > 1.0 {
        assert!(Instant::now() < deadline, "connections are left open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(plugin.metric("kop_server_REQUEST_QUEUE_SIZE"), 0.0);
    assert_eq!(plugin.metric("kop_server_REQUEST_BYTES_IN_FLIGHT"), 0.0);
}

#[tokio::test]
async fn a_request_may_come_one_byte_at_a_time_or_many_in_one_packet() {
    let plugin = Plugin::start(&[("maxQueuedRequests", "3")]).await;
    let mut client = plugin.connect().await;
    create(&mut client).await;
    for byte in frame(3, 77, &software()) {
        client.send_raw(&[byte]).await;
    }
    assert_eq!(client.receive::<ApiVersionsRequest>(3).await.0, 77);
    let many: Vec<u8> = (0..100)
        .flat_map(|n| frame(9, n, &produce(batch(1, &["x"]))))
        .collect();
    client.send_raw(&many).await;
    for n in 0..100 {
        let (id, reply) = client.receive::<ProduceRequest>(9).await;
        assert_eq!(
            (id, reply.responses[0].partition_responses[0].base_offset),
            (n, i64::from(n))
        );
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_holds_up_only_itself() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client).await;
    let value = "v".repeat(900_000);
    assert_eq!(
        client
            .call(9, &produce(batch(1, &[&value])))
            .await
            .responses[0]
            .partition_responses[0]
            .error_code,
        0
    );
    let mut stubborn = plugin.connect().await;
    for n in 0..300 {
        stubborn.send_raw(&frame(12, n, &fetch(0, 0))).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let sent = plugin.metric("kop_server_NETWORK_TOTAL_BYTES_OUT");
    assert!(
        sent < 100e6,
        "replies wait in the plugin, not in memory: {sent}"
    );
    assert_eq!(
        client.call(3, &software()).await.error_code,
        0,
        "others are served"
    );
    for n in 0..300 {
        let (id, reply) = stubborn.receive::<FetchRequest>(12).await;
        assert_eq!(id, n);
        assert!(
            reply.responses[0].partitions[0]
                .records
                .as_ref()
                .unwrap()
                .len()
                > 900_000
        );
    }
}

#[tokio::test]
async fn requests_in_flight_are_bounded_in_bytes_over_all_connections() {
    let plugin = Plugin::start(&[("maxMessagePublishBufferSizeInMB", "1")]).await;
    let mut client = plugin.connect().await;
    create(&mut client).await;
    plugin.sim.set_faults(Faults {
        delay: 5,
        ..Faults::none()
    });
    let value = "v".repeat(4_000_000);
    let request = produce(batch(1, &[&value]));
    let mut clients = Vec::new();
    for _ in 0..8 {
        let client = plugin.connect().await;
        let bytes = frame(9, 1, &request);
        let (reader, mut writer) = client.stream.into_split();
        let writing = tokio::spawn(async move {
            writer.write_all(&bytes).await.unwrap();
            writer
        });
        clients.push((reader, writing));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let in_flight = plugin.metric("kop_server_REQUEST_BYTES_IN_FLIGHT");
    // 16 MiB is the largest frame, which must always fit: four of these requests, and one that goes on beyond it.
    assert!(
        in_flight > 4e6 && in_flight <= 16_777_216.0 + 4_001_000.0,
        "{in_flight}"
    );
    let sim = plugin.sim.clone();
    let driver = tokio::spawn(async move {
        loop {
            sim.settle();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    for (reader, writing) in clients {
        let stream = reader.reunite(writing.await.unwrap()).unwrap();
        let mut client = Client::over(stream);
        let (_, reply) = client.receive::<ProduceRequest>(9).await;
        assert_eq!(reply.responses[0].partition_responses[0].error_code, 0);
    }
    driver.abort();
}

#[tokio::test]
async fn a_silent_connection_is_closed_and_a_waiting_one_is_not() {
    let plugin = Plugin::start(&[("connectionMaxIdleMs", "300")]).await;
    let mut waiting = plugin.connect().await;
    create(&mut waiting).await;
    waiting.send(12, &fetch(0, 1_000)).await;
    let mut silent = plugin.connect().await;
    let started = Instant::now();
    silent.expect_close().await;
    assert!(started.elapsed() >= Duration::from_millis(290));
    let (_, reply) = waiting.receive::<FetchRequest>(12).await;
    assert_eq!(reply.error_code, 0);
    assert!(started.elapsed() >= Duration::from_millis(900));
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_at_once() {
    let plugin = Plugin::start(&[("kopMaxConnections", "2")]).await;
    let (mut first, mut second) = (plugin.connect().await, plugin.connect().await);
    for client in [&mut first, &mut second] {
        assert_eq!(client.call(3, &software()).await.error_code, 0);
    }
    plugin.connect().await.expect_close().await;
    assert_eq!(plugin.metric("kop_server_CONNECTION_REFUSED"), 1.0);
    drop(first);
    let deadline = Instant::now() + support::PATIENCE;
    while plugin.metric("kop_server_ALIVE_CHANNEL_COUNT") > 1.0 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        plugin.connect().await.call(3, &software()).await.error_code,
        0
    );
}

#[tokio::test]
async fn closing_answers_what_is_in_flight_and_refuses_what_is_new() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client).await;
    plugin.sim.set_faults(Faults {
        delay: 5,
        ..Faults::none()
    });
    let mut waiting = plugin.connect().await;
    waiting.send(12, &fetch(0, 30_000)).await;
    client.send(9, &produce(batch(1, &["x"]))).await;
    let sim = plugin.sim.clone();
    let driver = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        loop {
            sim.settle();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let started = Instant::now();
    plugin.handler.close().await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    let (_, reply) = client.receive::<ProduceRequest>(9).await;
    assert_eq!(
        reply.responses[0].partition_responses[0].error_code, 0,
        "appended and acknowledged"
    );
    client.expect_close().await;
    assert_eq!(
        waiting.receive::<FetchRequest>(12).await.1.error_code,
        0,
        "the long poll ends early"
    );
    waiting.expect_close().await;
    assert!(
        TcpStream::connect(plugin.address).await.is_err(),
        "nobody listens any more"
    );
    driver.abort();
}

#[tokio::test]
async fn a_closed_plugin_keeps_nothing_of_its_host() {
    let mut kept = None;
    let plugin = Plugin::start_over(SimHost::new(1), &[], |services| {
        kept = Some(Arc::clone(&services));
        services
    })
    .await;
    let mut client = plugin.connect().await;
    create(&mut client).await;
    client.call(9, &produce(batch(1, &["x"]))).await;
    client.send(12, &fetch(1, 30_000)).await;
    let services = kept.unwrap();
    assert!(Arc::strong_count(&services) > 1, "it is in use");
    plugin.handler.close().await.unwrap();
    assert_eq!(Arc::strong_count(&services), 1);
    // Calls that come too late do no harm.
    let handle = Handle {
        id: 0,
        generation: 1,
    };
    plugin.handler.end_moved(handle, Position::UNKNOWN, 1);
    assert!(plugin.handler.metrics().is_empty());
}

#[tokio::test]
async fn a_taken_port_refuses_the_start_and_names_its_key() {
    let plugin = Plugin::start(&[]).await;
    let taken = format!("PLAINTEXT://{}", plugin.address);
    let configuration = HashMap::from([("kafkaListeners".to_owned(), taken.clone())]);
    let error = Handler::of(KafkaHandler::new())
        .initialize(&configuration)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorCode::InvalidConfiguration);
    assert!(
        error.to_string().contains("kafkaListeners") && error.to_string().contains(&taken),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_advertised_is_known_before_the_start_and_true_after_it() {
    let handler = Arc::new(Handler::of(KafkaHandler::new()));
    let configuration = HashMap::from([
        (
            "kafkaListeners".to_owned(),
            "in://127.0.0.1:0,out://127.0.0.1:0".to_owned(),
        ),
        (
            "kafkaAdvertisedListeners".to_owned(),
            "in://localhost:0,out://kafka.example.org:443".to_owned(),
        ),
        (
            "kafkaProtocolMap".to_owned(),
            "in:PLAINTEXT,out:PLAINTEXT".to_owned(),
        ),
    ]);
    handler.initialize(&configuration).unwrap();
    let advertised = handler.protocol_data_to_advertise();
    assert!(
        handler.listeners().is_empty(),
        "nothing listens before the start"
    );
    let sim = host_shim::sim::SimHost::new(1);
    handler.start(sim.attach(&advertised, None)).await.unwrap();
    let listeners = handler.listeners();
    let port = |n: usize| listeners[n].address.rsplit(':').next().unwrap().to_owned();
    assert_eq!(
        advertised,
        format!("in://localhost:{},out://kafka.example.org:443", port(0))
    );
    for (n, host, expected) in [
        (0, "localhost", port(0)),
        (1, "kafka.example.org", "443".to_owned()),
    ] {
        let mut client = Client::connect(listeners[n].address.parse().unwrap()).await;
        let brokers = client.call(1, &MetadataRequest::default()).await.brokers;
        assert_eq!(
            (brokers[0].host.as_str(), brokers[0].port.to_string()),
            (host, expected)
        );
    }
    handler.close().await.unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_leaves_nothing_behind() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client).await;
    for cut in [1, 5, 20] {
        let mut leaving = plugin.connect().await;
        leaving.send(12, &fetch(0, 30_000)).await;
        let bytes = frame(12, 1, &fetch(0, 0));
        leaving.send_raw(&bytes[..cut]).await;
    }
    let deadline = Instant::now() + support::PATIENCE;
    while plugin.metric("kop_server_ALIVE_CHANNEL_COUNT") > 1.0
        || plugin.metric("kop_server_REQUEST_QUEUE_SIZE") > 0.0
    {
        assert!(Instant::now() < deadline, "something is left behind");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_broker_whose_topics_others_share_does_not_start_where_they_would_be_lost() {
    let configuration = [
        ("kafkaListeners", "PLAINTEXT://127.0.0.1:0"),
        ("brokerDeleteInactiveTopicsEnabled", "true"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let handler = Handler::of(KafkaHandler::new());
    handler.initialize(&configuration).unwrap();
    let refused = handler.start(SimHost::new(1).services()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::InvalidConfiguration);
    assert!(
        refused
            .message
            .starts_with("brokerDeleteInactiveTopicsEnabled=true: "),
        "{refused}"
    );
    // A broker that is alone never deletes a topic for being unused.
    let alone = Plugin::start(&[("brokerDeleteInactiveTopicsEnabled", "true")]).await;
    alone.connect().await;
}
