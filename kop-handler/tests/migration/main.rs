//! A cluster that KoP filled, served by this plugin: topics and committed offsets, and the way back to KoP.
//!
//! The entries are those of `tests/data/kop`, at the indexes that they had.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;

use bytes::Bytes;
use handler_api::ledger::OpenLedgers;
use handler_api::topics::TopicNames;
use handler_api::{AppendRequest, Handle};
use host_shim::sim::SimHost;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    FetchRequest, GroupId, OffsetCommitRequest, OffsetFetchRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kop_handler::format;
use kop_handler::wire::batch::{BatchView, Batches};
use serde_json::{Value, json};
use support::{Client, Plugin, producer_batch};

const FORMATS: [&str; 3] = ["pulsar", "kafka", "mixed_kafka"];
const OFFSETS: &str = "persistent://public/__kafka/__consumer_offsets";

fn data(format: &str, file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/kop");
    std::fs::read_to_string(path.join(format).join(file)).unwrap_or_default()
}

fn unbase64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::new();
    for chunk in text.chunks(4) {
        let group = chunk
            .iter()
            .fold(0u32, |group, byte| (group << 6) | u32::from(digit(*byte)));
        let group = group << (6 * (4 - chunk.len()));
        bytes.extend_from_slice(&group.to_be_bytes()[1..chunk.len()]);
    }
    bytes
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let at = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let group = (at(0) << 16) | (at(1) << 8) | at(2);
        for place in 0..4 {
            let digit = (group >> (18 - 6 * place)) & 63;
            let is_there = place <= chunk.len();
            text.push(if is_there {
                char::from(ALPHABET[digit as usize])
            } else {
                '='
            });
        }
    }
    text
}

/// The entries of a partition with the index of each, without the broker entry metadata that held it.
fn entries(format: &str, partition: &str) -> Vec<(i64, Bytes)> {
    data(format, &format!("{partition}.jsonl"))
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let bytes = unbase64(line["bytes"].as_str().unwrap());
            let size = u32::from_be_bytes(bytes[2..6].try_into().unwrap()) as usize;
            let index = bytes[7..6 + size]
                .iter()
                .rev()
                .fold(0i64, |index, byte| (index << 7) | i64::from(byte & 0x7f));
            (index, Bytes::copy_from_slice(&bytes[6 + size..]))
        })
        .collect()
}

/// A host with what KoP wrote.
async fn filled(format: &str) -> SimHost {
    let sim = SimHost::new(1);
    let topic = format!("persistent://public/default/fix-{format}");
    assert!(sim.create_topic(&topic, 2));
    assert!(sim.create_topic(OFFSETS, 8));
    let host = sim.host();
    for (full_name, partitions) in [(topic.as_str(), 2), (OFFSETS, 8)] {
        for number in 0..partitions {
            let name = format!("{full_name}-partition-{number}");
            let (_, local) = name.rsplit_once('/').unwrap();
            let stored = entries(format, local);
            if stored.is_empty() {
                continue;
            }
            let names = vec![name.clone()];
            let opened = host
                .control::<OpenLedgers>(&TopicNames { names })
                .await
                .unwrap();
            let handle = Handle::from(opened.ledgers[0].handle.unwrap());
            let mut last = -1;
            for (index, entry) in stored {
                let request = AppendRequest {
                    handle,
                    messages: u32::try_from(index - last).unwrap(),
                    flags: 0,
                    segments: [entry.into()].into_iter().collect(),
                };
                let appended = host.append(vec![request]).await.unwrap();
                assert_eq!(appended[0].as_ref().unwrap().index, index);
                last = index;
            }
        }
    }
    sim
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// All records of a partition, as `expected.json` has them.
async fn fetch_all(client: &mut Client, topic: &str, partition: i32) -> (Vec<Value>, i64) {
    let (mut rows, mut next) = (Vec::new(), 0);
    loop {
        let wanted = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(next)
            .with_partition_max_bytes(300);
        let request = FetchRequest::default()
            .with_max_wait_ms(0)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_topics(vec![
                FetchTopic::default()
                    .with_topic(TopicName(text(topic)))
                    .with_partitions(vec![wanted]),
            ]);
        let reply = client.call(11, &request).await;
        let answer = &reply.responses[0].partitions[0];
        assert_eq!(answer.error_code, 0);
        for batch in Batches::new(answer.records.clone().unwrap_or_default()) {
            let batch = batch.unwrap();
            assert!(batch.has_right_crc());
            assert_eq!(batch.header.base_offset, next, "offsets are dense");
            next = batch.header.last_offset() + 1;
            rows.extend(rows_of(&batch, partition));
        }
        if next == answer.high_watermark {
            return (rows, next);
        }
    }
}

fn rows_of(batch: &BatchView, partition: i32) -> Vec<Value> {
    if batch.header.attributes.is_control() {
        return Vec::new();
    }
    let records = batch.records(1 << 20).unwrap();
    records
        .iter()
        .map(|record| {
            let record = record.unwrap();
            let headers: Vec<Value> = record
                .headers
                .map(|header| {
                    json!([
                        String::from_utf8_lossy(header.key),
                        header.value.map(base64)
                    ])
                })
                .collect();
            json!({
                "partition": partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestamp_type": "CREATE_TIME",
                "key": record.key.map(base64),
                "value": record.value.map(base64),
                "headers": headers,
            })
        })
        .collect()
}

async fn committed(client: &mut Client, group: &str, topic: &str) -> Vec<(i64, String)> {
    let wanted = OffsetFetchRequestTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partition_indexes(vec![0, 1]);
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(Some(vec![wanted]));
    let reply = client.call(5, &request).await;
    assert_eq!(reply.error_code, 0);
    let partitions = reply.topics[0].partitions.iter();
    partitions
        .map(|p| {
            assert_eq!(p.error_code, 0);
            let metadata = p.metadata.as_ref().map(ToString::to_string);
            (p.committed_offset, metadata.unwrap_or_default())
        })
        .collect()
}

fn expected_commits(expected: &Value, group: &str) -> Vec<(i64, String)> {
    let rows = expected["committed_offsets"][group].as_array().unwrap();
    rows.iter()
        .map(|row| {
            let metadata = row["metadata"].as_str().unwrap().to_owned();
            (row["kop_answer"]["offset"].as_i64().unwrap(), metadata)
        })
        .collect()
}

#[tokio::test]
async fn clients_read_what_kop_wrote_and_where_they_stood() {
    for format in FORMATS {
        let expected: Value = serde_json::from_str(&data(format, "expected.json")).unwrap();
        let topic = format!("fix-{format}");
        for written_as in FORMATS {
            let settings = [("entryFormat", written_as)];
            let plugin = Plugin::start_on(filled(format).await, &settings).await;
            let mut client = plugin.connect().await;
            let mut rows = Vec::new();
            for partition in [0, 1] {
                let (of_partition, end) = fetch_all(&mut client, &topic, partition).await;
                rows.extend(of_partition);
                let at = usize::try_from(partition).unwrap();
                assert_eq!(expected["partitions"][at]["high_watermark"], json!(end));
            }
            assert_eq!(json!(rows), expected["read_uncommitted"], "{format}");
            for group in ["grp-fix", "grp-fix-txn"] {
                let found = committed(&mut client, group, &topic).await;
                assert_eq!(
                    found,
                    expected_commits(&expected, group),
                    "{format} {group}"
                );
            }
            plugin.handler.close().await.unwrap();
        }
    }
}

async fn produce(client: &mut Client, topic: &str, records: Bytes) -> i64 {
    let data = PartitionProduceData::default()
        .with_index(0)
        .with_records(Some(records));
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(1_000)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(TopicName(text(topic)))
                .with_partition_data(vec![data]),
        ]);
    let reply = client.call(9, &request).await;
    let answer = &reply.responses[0].partition_responses[0];
    assert_eq!(answer.error_code, 0);
    answer.base_offset
}

async fn commit(client: &mut Client, group: &str, topic: &str, offset: i64) {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("ours")));
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(TopicName(text(topic)))
                .with_partitions(vec![partition]),
        ]);
    let reply = client.call(8, &request).await;
    assert_eq!(reply.topics[0].partitions[0].error_code, 0);
}

/// A message of the offsets topic as a reader of KoP finds it: its key, then key and value of each record.
type KopMessage = (Bytes, Vec<(Bytes, Option<Bytes>)>);

/// What a reader of KoP finds in an entry of the offsets topic; it cannot read a null value.
fn as_kop_reads(entry: Bytes) -> Vec<KopMessage> {
    let own = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    let outer = format::decode([entry]).unwrap().contiguous();
    let messages = BatchView::parse(&outer).unwrap().records(1 << 20).unwrap();
    messages
        .iter()
        .map(|message| {
            let message = message.unwrap();
            let mut records = Vec::new();
            for batch in Batches::new(own(message.value.unwrap())) {
                let inner = batch.unwrap().records(1 << 20).unwrap();
                records.extend(inner.iter().map(|record| {
                    let record = record.unwrap();
                    (own(record.key.unwrap()), record.value.map(own))
                }));
            }
            (own(message.key.unwrap()), records)
        })
        .collect()
}

#[tokio::test]
async fn what_we_write_over_kops_a_broker_of_kop_can_take_over_again() {
    for format in FORMATS {
        let topic = format!("fix-{format}");
        let sim = filled(format).await;
        let plugin = Plugin::start_on(sim, &[("entryFormat", format)]).await;
        let mut client = plugin.connect().await;
        let full_name = format!("persistent://public/default/{topic}");
        let before = plugin.sim.entries(&format!("{full_name}-partition-0"));
        let end = before.last().unwrap().0 + 1;
        let base = produce(&mut client, &topic, producer_batch(70, 0, 0, &["a", "b"])).await;
        assert_eq!(base, end, "nothing jumps");
        commit(&mut client, "grp-fix", &topic, base + 1).await;
        let found = committed(&mut client, "grp-fix", &topic).await;
        assert_eq!(found[0], (base + 1, "ours".to_owned()));
        assert_eq!(found[1].0, 12, "what KoP committed stands beside it");

        // grp-fix lies in partition 5 of 8.
        let offsets = plugin.sim.entries(&format!("{OFFSETS}-partition-5"));
        let (index, messages, entry) = offsets.last().unwrap().clone();
        assert_eq!(
            (index, messages),
            (i64::try_from(offsets.len()).unwrap() - 1, 1)
        );
        let read = as_kop_reads(entry);
        assert_eq!(read.len(), 1);
        let (key, records) = &read[0];
        assert_eq!(records.len(), 1);
        assert_eq!(key, &records[0].0, "a key of its own");
        assert_eq!(key[..2], [0, 1], "a version that KoP knows");
        assert!(
            key.windows(full_name.len())
                .any(|part| part == full_name.as_bytes())
        );
        let value = records[0].1.clone().unwrap();
        assert_eq!(
            value[..10],
            [&[0, 1][..], &(base + 1).to_be_bytes()].concat()
        );

        plugin.handler.close().await.unwrap();
        let plugin = Plugin::start_on(plugin.sim, &[("entryFormat", format)]).await;
        let mut client = plugin.connect().await;
        let found = committed(&mut client, "grp-fix", &topic).await;
        assert_eq!(found[0].0, base + 1, "and so can a broker of ours");
        let again = produce(&mut client, &topic, producer_batch(70, 0, 0, &["a", "b"])).await;
        assert_eq!(again, base, "the producer is still known, in every format");
    }
}

#[tokio::test]
async fn damaged_entries_keep_no_coordinator_from_loading_and_no_reader_from_reading() {
    let sim = filled("pulsar").await;
    let host = sim.host();
    for partition in [
        format!("{OFFSETS}-partition-5"),
        "persistent://public/default/fix-pulsar-partition-0".to_owned(),
    ] {
        let names = vec![partition];
        let opened = host
            .control::<OpenLedgers>(&TopicNames { names })
            .await
            .unwrap();
        let handle = Handle::from(opened.ledgers[0].handle.unwrap());
        for junk in [&b""[..], b"junk", b"\x0e\x01\0\0\0\0\0\0\0\x02\x58\x05"] {
            let request = AppendRequest {
                handle,
                messages: 5,
                flags: 0,
                segments: [Bytes::copy_from_slice(junk).into()].into_iter().collect(),
            };
            assert!(host.append(vec![request]).await.unwrap()[0].is_ok());
        }
    }
    let plugin = Plugin::start_on(sim, &[]).await;
    let mut client = plugin.connect().await;
    let found = committed(&mut client, "grp-fix", "fix-pulsar").await;
    assert_eq!(found[0].0, 13);
    commit(&mut client, "grp-fix", "fix-pulsar", 14).await;
    let base = produce(
        &mut client,
        "fix-pulsar",
        producer_batch(71, 0, 0, &["behind"]),
    )
    .await;
    assert_eq!(base, 58 + 15);
    let wanted = FetchPartition::default()
        .with_fetch_offset(58)
        .with_partition_max_bytes(1 << 20);
    let request = FetchRequest::default()
        .with_max_bytes(1 << 20)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(TopicName(text("fix-pulsar")))
                .with_partitions(vec![wanted]),
        ]);
    let reply = client.call(11, &request).await;
    let records = reply.responses[0].partitions[0].records.clone().unwrap();
    let batches: Vec<BatchView> = Batches::new(records).map(Result::unwrap).collect();
    assert_eq!(batches.len(), 4);
    for (batch, last) in batches.iter().zip([62, 67, 72, 73]) {
        assert_eq!(batch.header.last_offset(), last);
        assert_eq!(batch.header.attributes.is_control(), last != 73);
    }
}
