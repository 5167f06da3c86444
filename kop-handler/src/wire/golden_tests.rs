//! Bytes that Kafka wrote, read and written again. See `testdata/README.md`.

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, CreateTopicsRequest, FetchRequest, JoinGroupRequest,
    ListOffsetsRequest, MetadataRequest, OffsetCommitRequest, ProduceRequest,
};
use kafka_protocol::protocol::{Request, StrBytes};
use uuid::Uuid;

use super::batch::{
    BatchBuilder, BatchView, ControlType, MAX_UNPACKED_BYTES, ProduceRules, validate_produce,
};
use super::fetch::{FetchEndpoint, FetchPartition, FetchReply, FetchTopic};
use super::request::{self, RequestHead};

const MESSAGES: &str = include_str!("testdata/kafka-4.3.1-messages.txt");
const VERDICTS: &str = include_str!("testdata/kafka-4.3.1-produce-verdicts.txt");

pub(super) fn unhex(text: &str) -> Bytes {
    let digit = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks(2).map(digit).collect()
}

/// Versions and bytes of one kind of message.
fn messages(kind: &str) -> impl Iterator<Item = (i16, Bytes)> {
    MESSAGES.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0] == kind).then(|| (words[1].parse().unwrap(), unhex(words[2])))
    })
}

fn batch(name: &str) -> Bytes {
    let line = VERDICTS
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap();
    unhex(line.rsplit(' ').next().unwrap())
}

#[test]
fn requests_of_the_java_client_are_read_whole_and_written_again_the_same() {
    fn again<R: Request>(head: &RequestHead) -> Vec<u8> {
        let request: R = request::decode(head.version, &head.body).unwrap();
        let mut out = Vec::new();
        request.encode(&mut out, head.version).unwrap();
        out
    }
    let mut count = 0;
    for (version, bytes) in messages("request") {
        let head = RequestHead::parse(bytes).unwrap();
        assert_eq!((head.version, head.correlation_id), (version, 4711));
        assert_eq!(head.client_id.as_deref(), Some("golden"));
        let written = match ApiKey::try_from(head.key).unwrap() {
            ApiKey::Produce => again::<ProduceRequest>(&head),
            ApiKey::Fetch => again::<FetchRequest>(&head),
            ApiKey::ListOffsets => again::<ListOffsetsRequest>(&head),
            ApiKey::Metadata => again::<MetadataRequest>(&head),
            ApiKey::OffsetCommit => again::<OffsetCommitRequest>(&head),
            ApiKey::JoinGroup => again::<JoinGroupRequest>(&head),
            ApiKey::ApiVersions => again::<ApiVersionsRequest>(&head),
            ApiKey::CreateTopics => again::<CreateTopicsRequest>(&head),
            other => panic!("no golden of {other:?}"),
        };
        assert_eq!(written, head.body, "key {} version {version}", head.key);
        count += 1;
    }
    assert_eq!(count, 34);
}

#[test]
fn fetch_replies_are_the_bytes_that_kafka_sends() {
    let records = batch("good_none ");
    for (version, bytes) in messages("fetch") {
        let first = FetchPartition {
            partition: 2,
            high_watermark: 900,
            last_stable_offset: 800,
            log_start_offset: 100,
            aborted: Some(vec![(5, 700)]),
            preferred_read_replica: if version >= 11 { 7 } else { -1 },
            records: vec![records.slice(..61), records.slice(61..)],
            ..FetchPartition::default()
        };
        let second = FetchPartition {
            partition: 3,
            error_code: 6,
            diverging_epoch: Some((3, 44)),
            current_leader: Some((8, 9)),
            ..FetchPartition::default()
        };
        let topic = FetchTopic {
            name: StrBytes::from_static_str("test"),
            topic_id: Uuid::from_u128(0x1122_3344_5566_7788_99aa_bbcc_ddee_ff01),
            partitions: vec![first, second],
        };
        let endpoint = FetchEndpoint {
            node_id: 8,
            host: StrBytes::from_static_str("h8"),
            port: 9092,
            rack: None,
        };
        let reply = FetchReply {
            throttle_time_ms: 11,
            session_id: if version >= 7 { 1234 } else { 0 },
            topics: vec![topic],
            node_endpoints: vec![endpoint],
            ..FetchReply::default()
        };
        let ours = reply.encode(4711, version).unwrap().segments.concat();
        assert_eq!(&ours[4..], &bytes[..], "version {version}");
    }
}

#[test]
fn batches_of_the_java_client_hold_what_it_put_in_whatever_the_codec() {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let bytes = batch(&format!("good_{codec} "));
        let view = BatchView::parse(&bytes).unwrap();
        assert!(view.has_right_crc(), "{codec}");
        let records = view.records(MAX_UNPACKED_BYTES).unwrap();
        let all: Vec<_> = records.iter().collect::<Result<_, _>>().unwrap();
        let fields: Vec<_> = all
            .iter()
            .map(|r| (r.offset, r.timestamp, r.key, r.value))
            .collect();
        let now = 1_700_000_000_000;
        let longer = &b"a longer value a longer value"[..];
        assert_eq!(
            fields,
            [
                (0, now, Some(&b"k1"[..]), Some(&b"v1"[..])),
                (1, now + 5, Some(b"k2"), None),
                (2, now + 2, Some(b""), Some(longer)),
            ],
            "{codec}"
        );
        let headers: Vec<_> = all[0].headers.map(|h| (h.key, h.value)).collect();
        assert_eq!(
            headers,
            [(&b"h"[..], None), (b"h", Some(&b"x"[..]))],
            "{codec}"
        );
        assert!(validate_produce(Some(&bytes), &ProduceRules::new(13, now)).is_ok());
    }
}

#[test]
fn transaction_markers_are_the_bytes_that_kafka_writes() {
    for (name, kind) in [
        ("commit", ControlType::Commit),
        ("abort", ControlType::Abort),
    ] {
        let (_, theirs) = messages(name).next().unwrap();
        let ours = BatchBuilder::end_transaction(kind, 42, 3, 17, 1_700_000_000_000).unwrap();
        assert_eq!(ours, theirs, "{name}");
    }
}
