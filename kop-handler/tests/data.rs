//! Produce, Fetch, ListOffsets and their kin over the wire, on the simulated host.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod support;

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeProducersRequest, FetchRequest, FetchResponse,
    InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest,
    ProduceRequest, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use kop_handler::wire::batch::BatchBuilder;
use support::{Client, Plugin, batch, producer_batch};
use uuid::Uuid;

fn name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

async fn create(client: &mut Client, topic: &str, partitions: i32) {
    let request = CreateTopicsRequest::default().with_topics(vec![
        CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1),
    ]);
    let reply = client.call(5, &request).await;
    assert_eq!(reply.topics.first().unwrap().error_code, 0);
}

async fn topic_id(client: &mut Client, topic: &str) -> Uuid {
    let request = MetadataRequest::default()
        .with_topics(Some(vec![
            MetadataRequestTopic::default().with_name(Some(name(topic))),
        ]))
        .with_allow_auto_topic_creation(false);
    client
        .call(12, &request)
        .await
        .topics
        .first()
        .unwrap()
        .topic_id
}

fn produce_request(acks: i16, topic: &str, batches: &[(i32, Option<Bytes>)]) -> ProduceRequest {
    let data = batches
        .iter()
        .map(|(partition, records)| {
            PartitionProduceData::default()
                .with_index(*partition)
                .with_records(records.clone())
        })
        .collect();
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(1_000)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(name(topic))
                .with_partition_data(data),
        ])
}

async fn produce_as(
    client: &mut Client,
    version: i16,
    topic: &str,
    partition: i32,
    records: Bytes,
) -> PartitionProduceResponse {
    let request = produce_request(-1, topic, &[(partition, Some(records))]);
    let reply = client.call(version, &request).await;
    reply
        .responses
        .into_iter()
        .next()
        .unwrap()
        .partition_responses
        .into_iter()
        .next()
        .unwrap()
}

async fn produce(
    client: &mut Client,
    topic: &str,
    partition: i32,
    records: Bytes,
) -> PartitionProduceResponse {
    produce_as(client, 9, topic, partition, records).await
}

fn fetch_request(topic: &str, offsets: &[(i32, i64)]) -> FetchRequest {
    let partitions = offsets
        .iter()
        .map(|(partition, offset)| {
            FetchPartition::default()
                .with_partition(*partition)
                .with_fetch_offset(*offset)
                .with_partition_max_bytes(1 << 20)
        })
        .collect();
    FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(name(topic))
                .with_partitions(partitions),
        ])
}

fn partitions(response: &FetchResponse) -> Vec<&PartitionData> {
    response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .collect()
}

/// Base offset and record count of each batch in the bytes.
fn batches(records: Option<&Bytes>) -> Vec<(i64, i32)> {
    let mut rest = records.cloned().unwrap_or_default();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let base = i64::from_be_bytes(rest[..8].try_into().unwrap());
        let length = usize::try_from(i32::from_be_bytes(rest[8..12].try_into().unwrap())).unwrap();
        found.push((base, i32::from_be_bytes(rest[57..61].try_into().unwrap())));
        rest = rest.slice(12 + length..);
    }
    found
}

#[tokio::test]
async fn what_is_produced_is_fetched_with_its_offsets_in_every_version() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    let mut base = 0;
    for version in 3..=12 {
        let done = produce_as(&mut client, version, "t", 1, batch(1_000, &["a", "b", "c"])).await;
        assert_eq!(
            (done.error_code, done.base_offset),
            (0, base),
            "version {version}"
        );
        if version >= 5 {
            assert_eq!(done.log_start_offset, 0);
        }
        base += 3;
    }
    for version in 4..=12 {
        let reply = client.call(version, &fetch_request("t", &[(1, 3)])).await;
        let found = partitions(&reply);
        let data = found.first().unwrap();
        assert_eq!(
            (
                data.error_code,
                data.high_watermark,
                data.last_stable_offset
            ),
            (0, base, base)
        );
        let expected: Vec<(i64, i32)> = (1..10).map(|n| (n * 3, 3)).collect();
        assert_eq!(
            batches(data.records.as_ref()),
            expected,
            "version {version}"
        );
        if version >= 5 {
            assert_eq!(data.log_start_offset, 0);
        }
    }
    for (name, number) in [("MESSAGE_OUT", 9.0 * 27.0), ("ENTRIES_OUT", 9.0 * 9.0)] {
        let line = format!("kop_server_{name}{{cluster=\"test\",topic=\"t\",partition=\"1\"}}");
        assert_eq!(plugin.metric(&line), number, "{name}");
    }
    assert_eq!(
        plugin.metric("kop_server_MESSAGE_IN{cluster=\"test\",topic=\"t\",partition=\"1\"}"),
        30.0
    );
}

#[tokio::test]
async fn topics_are_named_by_id_from_version_13_on() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let id = topic_id(&mut client, "t").await;
    assert!(!id.is_nil());

    let by_id = |id: Uuid| {
        let mut request = produce_request(-1, "", &[(0, Some(batch(5, &["x"])))]);
        for topic in &mut request.topic_data {
            topic.topic_id = id;
        }
        request
    };
    let done = client.call(13, &by_id(id)).await;
    let response = done.responses.first().unwrap();
    assert_eq!(
        (
            response.topic_id,
            response.partition_responses.first().unwrap().error_code
        ),
        (id, 0)
    );
    let unknown = client.call(13, &by_id(Uuid::from_u128(7))).await;
    assert_eq!(
        unknown
            .responses
            .first()
            .unwrap()
            .partition_responses
            .first()
            .unwrap()
            .error_code,
        100
    );

    for version in 13..=18 {
        let fetch = |id: Uuid| {
            let mut request = fetch_request("", &[(0, 0)]);
            for topic in &mut request.topics {
                topic.topic_id = id;
            }
            request
        };
        let reply = client.call(version, &fetch(id)).await;
        assert_eq!(reply.responses.first().unwrap().topic_id, id);
        assert_eq!(
            batches(partitions(&reply).first().unwrap().records.as_ref()),
            [(0, 1)],
            "version {version}"
        );
        let reply = client.call(version, &fetch(Uuid::from_u128(7))).await;
        assert_eq!(
            (
                reply.error_code,
                partitions(&reply).first().unwrap().error_code
            ),
            (0, 100)
        );
    }
}

#[tokio::test]
async fn what_is_wrong_with_one_partition_does_not_touch_the_others() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    let good = || Some(batch(1, &["x"]));
    let request = produce_request(-1, "t", &[(0, good()), (7, good()), (1, None), (1, good())]);
    let reply = client.call(9, &request).await;
    let answers: Vec<(i32, i16, i64)> = reply
        .responses
        .first()
        .unwrap()
        .partition_responses
        .iter()
        .map(|p| (p.index, p.error_code, p.base_offset))
        .collect();
    assert_eq!(answers, [(0, 0, 0), (7, 3, -1), (1, 87, -1), (1, 0, 0)]);
    let unknown = produce(&mut client, "nope", 0, batch(1, &["x"])).await;
    assert_eq!(
        (
            unknown.error_code,
            unknown.base_offset,
            unknown.log_append_time_ms
        ),
        (3, -1, -1)
    );
    assert!(unknown.error_message.is_some());
}

#[tokio::test]
async fn bad_batches_are_refused_as_kafka_refuses_them_and_nothing_is_appended() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let good = batch(1, &["x", "y"]);
    let change = |at: usize, byte: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        Bytes::from(bytes)
    };
    let twice = Bytes::from([good.clone(), good.clone()].concat());
    for (what, bytes, code) in [
        ("a flipped byte", change(good.len() - 1, 0x55), 2),
        ("magic 1", change(16, 1), 87),
        ("two batches", twice, 87),
        (
            "a transactional batch",
            {
                let mut builder = BatchBuilder::new(1).producer(4, 0, 0).transactional();
                builder
                    .push(kop_handler::wire::batch::NewRecord::new(
                        1,
                        None,
                        Some(b"x"),
                    ))
                    .unwrap();
                builder.build().unwrap()
            },
            87,
        ),
    ] {
        let answer = produce(&mut client, "t", 0, bytes).await;
        assert_eq!(
            answer.error_code, code,
            "{what}: {:?}",
            answer.error_message
        );
    }
    let reply = client.call(12, &fetch_request("t", &[(0, 0)])).await;
    assert_eq!(partitions(&reply).first().unwrap().high_watermark, 0);
}

#[tokio::test]
async fn acks_decide_whether_there_is_a_reply() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let silent = produce_request(0, "t", &[(0, Some(batch(1, &["x"])))]);
    client.send(9, &silent).await;
    // The next reply is that of the next request.
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["y"]))
            .await
            .base_offset,
        1
    );
    let wrong = client
        .call(9, &produce_request(2, "t", &[(0, Some(batch(1, &["x"])))]))
        .await;
    assert_eq!(
        wrong
            .responses
            .first()
            .unwrap()
            .partition_responses
            .first()
            .unwrap()
            .error_code,
        21
    );

    client
        .send(
            9,
            &produce_request(0, "nope", &[(0, Some(batch(1, &["x"])))]),
        )
        .await;
    client.expect_close().await;
}

#[tokio::test]
async fn batches_of_one_connection_keep_their_order_though_the_partition_opens_slowly() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    plugin.sim.set_faults(host_shim::sim::Faults::slow());
    let sim = plugin.sim.clone();
    let driver = tokio::spawn(async move {
        loop {
            sim.settle();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    for n in 0..50_i64 {
        client
            .send(9, &produce_request(-1, "t", &[(0, Some(batch(n, &["x"])))]))
            .await;
    }
    for n in 0..50_i64 {
        let (_, reply) = client.receive::<ProduceRequest>(9).await;
        let answer = reply
            .responses
            .first()
            .unwrap()
            .partition_responses
            .first()
            .unwrap()
            .clone();
        assert_eq!((answer.error_code, answer.base_offset), (0, n));
    }
    driver.abort();
}

#[tokio::test]
async fn an_idempotent_producers_repeat_is_answered_with_its_first_offset_and_a_gap_is_refused() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let ids = client
        .call(
            4,
            &InitProducerIdRequest::default()
                .with_transactional_id(None)
                .with_transaction_timeout_ms(-1)
                .with_producer_id((-1).into())
                .with_producer_epoch(-1),
        )
        .await;
    assert_eq!((ids.error_code, ids.producer_epoch), (0, 0));
    let id = ids.producer_id.0;
    assert_eq!(
        produce(&mut client, "t", 0, producer_batch(id, 0, 0, &["a", "b"]))
            .await
            .base_offset,
        0
    );
    assert_eq!(
        produce(&mut client, "t", 0, producer_batch(id, 0, 2, &["c"]))
            .await
            .base_offset,
        2
    );
    let again = produce(&mut client, "t", 0, producer_batch(id, 0, 0, &["a", "b"])).await;
    assert_eq!((again.error_code, again.base_offset), (0, 0));
    assert_eq!(
        produce(&mut client, "t", 0, producer_batch(id, 0, 9, &["z"]))
            .await
            .error_code,
        45
    );
}

#[tokio::test]
async fn producers_of_a_partition_are_described() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    for (id, sequence) in [(9, 0), (4, 0), (9, 2)] {
        let done = produce(
            &mut client,
            "t",
            0,
            producer_batch(id, 3, sequence, &["a", "b"]),
        )
        .await;
        assert_eq!(done.error_code, 0);
    }
    let asked = TopicRequest::default()
        .with_name(name("t"))
        .with_partition_indexes(vec![0, 1]);
    let unknown = TopicRequest::default()
        .with_name(name("nope"))
        .with_partition_indexes(vec![0]);
    let request = DescribeProducersRequest::default().with_topics(vec![asked, unknown]);
    let reply = client.call(0, &request).await;
    let described = &reply.topics[0].partitions;
    let seen: Vec<(i64, i32, i32, i64, i64)> = described[0]
        .active_producers
        .iter()
        .map(|p| {
            (
                p.producer_id.0,
                p.producer_epoch,
                p.last_sequence,
                p.last_timestamp,
                p.current_txn_start_offset,
            )
        })
        .collect();
    assert_eq!(seen, [(4, 3, 1, 1_001, -1), (9, 3, 3, 1_001, -1)]);
    assert_eq!((described[0].error_code, described[1].error_code), (0, 3));
    assert_eq!(reply.topics[1].partitions[0].error_code, 3);
}

#[tokio::test]
async fn producer_ids_are_fresh_and_transactional_ones_are_refused_for_good() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let plain = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(-1)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let mut seen = std::collections::HashSet::new();
    for version in 0..=5 {
        let reply = client.call(version, &plain).await;
        assert_eq!((reply.error_code, reply.producer_epoch), (0, 0));
        assert!(seen.insert(reply.producer_id.0), "an id is given out once");
    }
    let transactional = |id: &str| {
        plain
            .clone()
            .with_transactional_id(Some(TransactionalId(StrBytes::from_string(id.to_owned()))))
    };
    let refused = client.call(4, &transactional("x")).await;
    assert_eq!(
        (
            refused.error_code,
            refused.producer_id.0,
            refused.producer_epoch
        ),
        (53, -1, -1)
    );
    assert_eq!(client.call(4, &transactional("")).await.error_code, 42);
    assert_eq!(
        client
            .call(4, &plain.clone().with_producer_id(5.into()))
            .await
            .error_code,
        42
    );
}

#[tokio::test]
async fn a_fetch_waits_for_records_and_is_woken_by_an_append() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let started = std::time::Instant::now();
    let reply = client
        .call(12, &fetch_request("t", &[(0, 0)]).with_max_wait_ms(200))
        .await;
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(195), "waited {waited:?}");
    assert_eq!(
        partitions(&reply)
            .first()
            .unwrap()
            .records
            .as_ref()
            .map(Bytes::len),
        Some(0),
        "records are never null"
    );

    client
        .send(12, &fetch_request("t", &[(0, 0)]).with_max_wait_ms(30_000))
        .await;
    assert!(client.is_silent(Duration::from_millis(50)).await);
    let mut other = plugin.connect().await;
    let started = std::time::Instant::now();
    assert_eq!(
        produce(&mut other, "t", 0, batch(1, &["x"]))
            .await
            .error_code,
        0
    );
    let (_, reply) = client.receive::<FetchRequest>(12).await;
    assert_eq!(
        batches(partitions(&reply).first().unwrap().records.as_ref()),
        [(0, 1)]
    );
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(plugin.metric("kop_server_WAITING_FETCHES_TRIGGERED"), 1.0);
}

#[tokio::test]
async fn a_fetch_waits_until_min_bytes_are_there() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let mut other = plugin.connect().await;
    client
        .send(
            12,
            &fetch_request("t", &[(0, 0)])
                .with_max_wait_ms(30_000)
                .with_min_bytes(200),
        )
        .await;
    assert_eq!(
        produce(&mut other, "t", 0, batch(1, &["x"]))
            .await
            .error_code,
        0
    );
    assert!(
        client.is_silent(Duration::from_millis(100)).await,
        "one small batch is not enough"
    );
    for _ in 0..3 {
        assert_eq!(
            produce(&mut other, "t", 0, batch(1, &["x"]))
                .await
                .error_code,
            0
        );
    }
    let (_, reply) = client.receive::<FetchRequest>(12).await;
    assert!(
        partitions(&reply)
            .first()
            .unwrap()
            .records
            .as_ref()
            .unwrap()
            .len()
            >= 200
    );
}

#[tokio::test]
async fn limits_of_a_fetch_hold_and_the_first_batch_comes_whatever_its_size() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    let long = "v".repeat(1_000);
    for partition in [0, 1] {
        for _ in 0..10 {
            assert_eq!(
                produce(&mut client, "t", partition, batch(1, &[&long]))
                    .await
                    .error_code,
                0
            );
        }
    }
    let sizes = |reply: &FetchResponse| -> Vec<usize> {
        partitions(reply)
            .iter()
            .map(|p| batches(p.records.as_ref()).len())
            .collect()
    };
    let both = fetch_request("t", &[(0, 0), (1, 0)]);
    assert_eq!(
        sizes(&client.call(12, &both.clone().with_max_bytes(1)).await),
        [1, 0]
    );
    assert_eq!(
        sizes(&client.call(12, &both.clone().with_max_bytes(3_500)).await),
        [3, 0]
    );
    let mut per_partition = both.clone();
    for partition in per_partition
        .topics
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions)
    {
        partition.partition_max_bytes = 2_500;
    }
    assert_eq!(sizes(&client.call(12, &per_partition).await), [2, 2]);
    assert_eq!(sizes(&client.call(12, &both).await), [10, 10]);
}

#[tokio::test]
async fn errors_of_a_fetch_are_answered_at_once_and_per_partition() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["x"]))
            .await
            .error_code,
        0
    );
    let codes = |reply: &FetchResponse| -> Vec<i16> {
        partitions(reply).iter().map(|p| p.error_code).collect()
    };
    let slow = |request: FetchRequest| request.with_max_wait_ms(30_000);
    assert_eq!(
        codes(
            &client
                .call(12, &slow(fetch_request("t", &[(0, 2), (1, 0)])))
                .await
        ),
        [1, 0]
    );
    assert_eq!(
        codes(&client.call(12, &slow(fetch_request("t", &[(0, -1)]))).await),
        [1]
    );
    assert_eq!(
        codes(&client.call(12, &slow(fetch_request("t", &[(5, 0)]))).await),
        [3]
    );
    assert_eq!(
        codes(
            &client
                .call(12, &slow(fetch_request("nope", &[(0, 0)])))
                .await
        ),
        [3]
    );
    let with_epoch = |epoch: i32| {
        let mut request = slow(fetch_request("t", &[(0, 0)]));
        for partition in request
            .topics
            .iter_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            partition.current_leader_epoch = epoch;
        }
        request
    };
    assert_eq!(codes(&client.call(12, &with_epoch(0)).await), [0]);
    assert_eq!(codes(&client.call(12, &with_epoch(1)).await), [75]);
    assert_eq!(
        codes(
            &client
                .call(
                    12,
                    &slow(fetch_request("t", &[(0, 0)]).with_replica_id(3.into()))
                )
                .await
        ),
        [6]
    );
}

#[tokio::test]
async fn committed_readers_get_an_aborted_list_and_others_null() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["x"]))
            .await
            .error_code,
        0
    );
    let committed = client
        .call(12, &fetch_request("t", &[(0, 0)]).with_isolation_level(1))
        .await;
    let data = partitions(&committed)[0].clone();
    assert_eq!(
        (data.aborted_transactions, data.last_stable_offset),
        (Some(Vec::new()), 1)
    );
    assert_eq!(batches(data.records.as_ref()), [(0, 1)]);
    let uncommitted = client.call(12, &fetch_request("t", &[(0, 0)])).await;
    assert_eq!(partitions(&uncommitted)[0].aborted_transactions, None);
}

#[tokio::test]
async fn an_incremental_session_answers_only_what_is_new() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 3).await;
    let full = client
        .call(
            12,
            &fetch_request("t", &[(0, 0), (1, 0), (2, 0)]).with_session_epoch(0),
        )
        .await;
    let id = full.session_id;
    assert_ne!(id, 0);
    assert_eq!(partitions(&full).len(), 3);
    let next = |epoch: i32| {
        FetchRequest::default()
            .with_max_wait_ms(0)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_session_id(id)
            .with_session_epoch(epoch)
    };
    assert_eq!(partitions(&client.call(12, &next(1)).await).len(), 0);
    assert_eq!(
        produce(&mut client, "t", 1, batch(1, &["x"]))
            .await
            .error_code,
        0
    );
    let reply = client.call(12, &next(2)).await;
    assert_eq!(
        partitions(&reply)
            .iter()
            .map(|p| p.partition_index)
            .collect::<Vec<_>>(),
        [1]
    );

    let forget = next(3).with_forgotten_topics_data(vec![
        ForgottenTopic::default()
            .with_topic(name("t"))
            .with_partitions(vec![1]),
    ]);
    assert_eq!(partitions(&client.call(12, &forget).await).len(), 0);
    assert_eq!(client.call(12, &next(3)).await.error_code, 71);
    assert_eq!(
        client
            .call(12, &next(4).with_session_id(id ^ 1))
            .await
            .error_code,
        70
    );
    let ended = client
        .call(
            12,
            &fetch_request("t", &[(0, 0)])
                .with_session_id(id)
                .with_session_epoch(-1),
        )
        .await;
    assert_eq!((ended.session_id, partitions(&ended).len()), (0, 1));
    assert_eq!(client.call(12, &next(4)).await.error_code, 70);
    assert_eq!(plugin.metric("kop_server_FETCH_SESSION_COUNT"), 0.0);
}

async fn list(client: &mut Client, version: i16, targets: &[(i32, i64)]) -> Vec<(i16, i64, i64)> {
    let asked = targets
        .iter()
        .map(|(partition, timestamp)| {
            ListOffsetsPartition::default()
                .with_partition_index(*partition)
                .with_timestamp(*timestamp)
        })
        .collect();
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![
            ListOffsetsTopic::default()
                .with_name(name("t"))
                .with_partitions(asked),
        ]);
    let reply = client.call(version, &request).await;
    reply.topics[0]
        .partitions
        .iter()
        .map(|p| (p.error_code, p.offset, p.timestamp))
        .collect()
}

#[tokio::test]
async fn offsets_are_found_by_time_to_the_record() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    for start in [100, 200] {
        assert_eq!(
            produce(&mut client, "t", 0, batch(start, &["a", "b", "c"]))
                .await
                .error_code,
            0
        );
    }
    for version in 1..=10 {
        let mut at = async |target| list(&mut client, version, &[(0, target)]).await[0];
        assert_eq!(at(-1).await, (0, 6, -1));
        assert_eq!(at(-2).await, (0, 0, -1));
        assert_eq!(at(0).await, (0, 0, 100));
        assert_eq!(at(102).await, (0, 2, 102), "a record inside of a batch");
        assert_eq!(at(103).await, (0, 3, 200), "between two batches");
        assert_eq!(at(202).await, (0, 5, 202));
        assert_eq!(at(203).await, (0, -1, -1), "none is no error");
        assert_eq!(
            at(-3).await,
            if version >= 7 {
                (0, 5, 202)
            } else {
                (35, -1, -1)
            }
        );
        assert_eq!(
            at(-4).await,
            if version >= 8 {
                (0, 0, -1)
            } else {
                (35, -1, -1)
            }
        );
        assert_eq!(
            at(-5).await,
            if version >= 9 {
                (0, -1, -1)
            } else {
                (35, -1, -1)
            }
        );
        assert_eq!(at(-6).await, (35, -1, -1));
    }
    assert_eq!(
        list(&mut client, 7, &[(0, -1), (0, -2), (4, -1)]).await,
        [(42, -1, -1), (42, -1, -1), (3, -1, -1)]
    );
}

#[tokio::test]
async fn the_only_leader_epoch_ends_at_the_high_watermark() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["a", "b"]))
            .await
            .error_code,
        0
    );
    for version in 2..=4 {
        let mut ask = async |topic: &str, current: i32, epoch: i32| {
            let partition = OffsetForLeaderPartition::default()
                .with_partition(0)
                .with_current_leader_epoch(current)
                .with_leader_epoch(epoch);
            let request = OffsetForLeaderEpochRequest::default().with_topics(vec![
                OffsetForLeaderTopic::default()
                    .with_topic(name(topic))
                    .with_partitions(vec![partition]),
            ]);
            let reply = client.call(version, &request).await;
            let end = &reply.topics[0].partitions[0];
            (end.error_code, end.leader_epoch, end.end_offset)
        };
        assert_eq!(ask("t", -1, 0).await, (0, 0, 2));
        assert_eq!(ask("t", 0, 1).await, (0, -1, -1));
        assert_eq!(ask("t", 5, 0).await, (75, -1, -1));
        assert_eq!(ask("nope", -1, 0).await, (3, -1, -1));
    }
}

#[tokio::test]
async fn a_full_disk_is_a_storage_error_and_reads_go_on() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["x"]))
            .await
            .error_code,
        0
    );
    plugin.sim.set_disk_full(true);
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["y"]))
            .await
            .error_code,
        56
    );
    let reply = client.call(12, &fetch_request("t", &[(0, 0)])).await;
    assert_eq!(batches(partitions(&reply)[0].records.as_ref()), [(0, 1)]);
    plugin.sim.set_disk_full(false);
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["y"]))
            .await
            .base_offset,
        1
    );
}

#[tokio::test]
async fn a_partition_that_moved_away_and_back_is_opened_again() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["x"]))
            .await
            .error_code,
        0
    );
    assert!(
        plugin
            .sim
            .unload("persistent://public/default/t-partition-0")
    );
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["y"]))
            .await
            .base_offset,
        1
    );
    let reply = client.call(12, &fetch_request("t", &[(0, 0)])).await;
    assert_eq!(
        batches(partitions(&reply)[0].records.as_ref()),
        [(0, 1), (1, 1)]
    );
}
