//! Short forms of the requests that most tests need. Everything goes through [`Raw`]; nothing is retried, except
//! waiting for a leader after a topic was made.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, CreateTopicsRequest, FetchRequest, ListOffsetsRequest,
    MetadataRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::{Request, StrBytes};
use kop_handler::wire::batch::{BatchBuilder, BatchView, Batches, Compression, NewRecord};
use kop_tests::broker::{Broker, Options, is_pulsar};
use kop_tests::process::eventually;
use kop_tests::raw::Raw;
use kop_tests::skip::inapplicable;
use uuid::Uuid;

/// Version of Produce and Fetch that most tests speak: the last ones that name topics.
pub const PRODUCE: i16 = 12;
pub const FETCH: i16 = 12;
pub const LIST_OFFSETS: i16 = 10;
pub const METADATA: i16 = 12;

/// A recent time, so that retention leaves the records alone, in ms.
pub fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_millis() as i64
}

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A broker and a connection to it.
pub fn start() -> (Broker, Raw) {
    let broker = Broker::start();
    let raw = Raw::connect(broker.address());
    (broker, raw)
}

/// Makes a topic and waits until it has leaders; gives its id.
#[track_caller]
pub fn create(raw: &mut Raw, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Uuid {
    let configs = configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(-1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let reply = raw.call(7, &request);
    let made = &reply.topics[0];
    assert_eq!(made.error_code, 0, "{name}: {:?}", made.error_message);
    wait_for_leaders(raw, name, partitions);
    made.topic_id
}

/// Waits until Metadata names a leader for each partition and the leaders answer: a broker may tell of its leadership
/// a moment before it takes it up.
pub fn wait_for_leaders(raw: &mut Raw, name: &str, partitions: i32) -> MetadataResponseTopic {
    let topic = eventually("leaders", Duration::from_secs(20), || {
        let topic = describe(raw, name, false);
        let ready = topic.error_code == 0
            && topic.partitions.len() == partitions as usize
            && topic
                .partitions
                .iter()
                .all(|p| p.error_code == 0 && p.leader_id.0 >= 0);
        ready.then_some(topic)
    });
    let mut request = list_offsets_request(name, -1, 0);
    let asked = &mut request.topics[0].partitions;
    *asked = (0..partitions)
        .map(|index| asked[0].clone().with_partition_index(index))
        .collect();
    eventually("leaders that answer", Duration::from_secs(60), || {
        let reply = raw.call(LIST_OFFSETS, &request);
        let ready = reply.topics[0].partitions.iter().all(|p| p.error_code == 0);
        ready.then_some(())
    });
    topic
}

/// What Metadata says of one topic.
#[track_caller]
pub fn describe(raw: &mut Raw, name: &str, auto_create: bool) -> MetadataResponseTopic {
    let request = MetadataRequest::default()
        .with_topics(Some(vec![
            MetadataRequestTopic::default().with_name(Some(topic_name(name))),
        ]))
        .with_allow_auto_topic_creation(auto_create);
    let mut reply = raw.call(METADATA, &request);
    assert_eq!(reply.topics.len(), 1);
    reply.topics.remove(0)
}

/// Versions that the broker advertises for an API, cut to what the codec knows; `None` if it does not offer it.
#[track_caller]
pub fn advertised<R: Request>(raw: &mut Raw) -> Option<(i16, i16)> {
    let reply = raw.call(
        3,
        &ApiVersionsRequest::default()
            .with_client_software_name(text("raw"))
            .with_client_software_version(text("1")),
    );
    let line = reply.api_keys.iter().find(|line| line.api_key == R::KEY)?;
    Some((
        line.min_version.max(R::VERSIONS.min),
        line.max_version.min(R::VERSIONS.max),
    ))
}

/// An uncompressed batch of records without keys, one per value.
pub fn batch(values: &[&str]) -> Bytes {
    let now = now_ms();
    let records: Vec<_> = values
        .iter()
        .map(|value| NewRecord::new(now, None, Some(value.as_bytes())))
        .collect();
    batch_of(Compression::None, &records)
}

pub fn batch_of(codec: Compression, records: &[NewRecord<'_>]) -> Bytes {
    let mut builder = BatchBuilder::new(records[0].timestamp).compression(codec);
    for record in records {
        builder.push(*record).expect("a record");
    }
    builder.build().expect("a batch")
}

/// A Produce request for one partition, acks all.
pub fn produce_request(
    version: i16,
    topic: &str,
    id: Uuid,
    partition: i32,
    records: Option<Bytes>,
) -> ProduceRequest {
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(records);
    let mut topic_data = TopicProduceData::default().with_partition_data(vec![data]);
    if version >= 13 {
        topic_data.topic_id = id;
    } else {
        topic_data.name = topic_name(topic);
    }
    ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic_data])
}

/// Produces to one partition, in the usual version.
#[track_caller]
pub fn produce(
    raw: &mut Raw,
    topic: &str,
    partition: i32,
    records: Bytes,
) -> PartitionProduceResponse {
    produce_in(raw, PRODUCE, topic, Uuid::nil(), partition, records)
}

#[track_caller]
pub fn produce_in(
    raw: &mut Raw,
    version: i16,
    topic: &str,
    id: Uuid,
    partition: i32,
    records: Bytes,
) -> PartitionProduceResponse {
    let mut reply = raw.call(
        version,
        &produce_request(version, topic, id, partition, Some(records)),
    );
    reply.responses.remove(0).partition_responses.remove(0)
}

/// Produces and gives the base offset; panics if it is refused.
#[track_caller]
pub fn append(raw: &mut Raw, topic: &str, partition: i32, records: Bytes) -> i64 {
    let answer = produce(raw, topic, partition, records);
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
    answer.base_offset
}

/// A Fetch request without session for partitions of one topic: (partition, offset, partition max bytes).
pub fn fetch_request(
    version: i16,
    topic: &str,
    id: Uuid,
    partitions: &[(i32, i64, i32)],
) -> FetchRequest {
    let partitions = partitions.iter().map(|(partition, offset, max_bytes)| {
        FetchPartition::default()
            .with_partition(*partition)
            .with_fetch_offset(*offset)
            .with_partition_max_bytes(*max_bytes)
    });
    let mut fetch_topic = FetchTopic::default().with_partitions(partitions.collect());
    if version >= 13 {
        fetch_topic.topic_id = id;
    } else {
        fetch_topic.topic = topic_name(topic);
    }
    let mut request = FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_topics(vec![fetch_topic]);
    if version >= 7 {
        request.session_epoch = -1;
    }
    if version < 15 {
        request.replica_id = BrokerId(-1);
    }
    request
}

/// Fetches one partition, in the usual version.
#[track_caller]
pub fn fetch(raw: &mut Raw, topic: &str, partition: i32, offset: i64) -> PartitionData {
    fetch_in(raw, FETCH, topic, Uuid::nil(), partition, offset)
}

#[track_caller]
pub fn fetch_in(
    raw: &mut Raw,
    version: i16,
    topic: &str,
    id: Uuid,
    partition: i32,
    offset: i64,
) -> PartitionData {
    let mut reply = raw.call(
        version,
        &fetch_request(version, topic, id, &[(partition, offset, 1 << 20)]),
    );
    assert_eq!(reply.error_code, 0);
    reply.responses.remove(0).partitions.remove(0)
}

/// The batches of a partition in a reply to Fetch.
#[track_caller]
pub fn batches(data: &PartitionData) -> Vec<BatchView> {
    let records = data.records.clone().expect("never null");
    Batches::new(records).filter_map(Result::ok).collect()
}

/// Offset and value of every record in a reply to Fetch, from `offset` on.
#[track_caller]
pub fn values(data: &PartitionData, offset: i64) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    for view in batches(data) {
        assert!(view.has_right_crc(), "the checksum of a batch is wrong");
        let records = view.records(64 << 20).expect("records");
        for record in &records {
            let record = record.expect("a record");
            let value = String::from_utf8_lossy(record.value.unwrap_or(b"(null)")).into_owned();
            found.push((record.offset, value));
        }
    }
    found.retain(|(at, _)| *at >= offset);
    found
}

/// A record as a reader gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

impl Got {
    /// Offset, key and value, for records of text.
    pub fn text(&self) -> (i64, String, Option<String>) {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let key = self.key.as_ref().map(text).unwrap_or_default();
        (self.offset, key, self.value.as_ref().map(text))
    }
}

/// Reads a partition from an offset to its end as a consumer does: from the end of each reply on. Panics where that
/// gets it nowhere.
#[track_caller]
pub fn read_to_end(raw: &mut Raw, topic: &str, partition: i32, from: i64) -> Vec<Got> {
    let mut found = Vec::new();
    let mut next = from;
    loop {
        let mut request = fetch_request(FETCH, topic, Uuid::nil(), &[(partition, next, 1 << 20)]);
        request.max_wait_ms = 0;
        let reply = raw.call(FETCH, &request);
        let data = &reply.responses[0].partitions[0];
        assert_eq!(data.error_code, 0, "{topic}-{partition} at {next}");
        for view in batches(data) {
            assert!(view.has_right_crc(), "the checksum of a batch is wrong");
            for record in &view.records(64 << 20).expect("records") {
                let record = record.expect("a record");
                if record.offset >= next {
                    found.push(Got {
                        offset: record.offset,
                        timestamp: record.timestamp,
                        key: record.key.map(<[u8]>::to_vec),
                        value: record.value.map(<[u8]>::to_vec),
                    });
                }
            }
            let end = view.header.last_offset() + 1;
            next = next.max(end);
        }
        if next >= data.high_watermark {
            return found;
        }
        let came = data.records.as_ref().map_or(0, Bytes::len);
        assert!(came > 0, "{topic}-{partition}: no way on from {next}");
    }
}

/// Keeps a broker's upkeep (retention, compaction) busy, so that a test need not wait for it for minutes.
pub fn busy_upkeep() -> Options {
    Options::default()
        .set("kopLogRetentionCheckIntervalMs", "200")
        .kafka("log.retention.check.interval.ms", "200")
        .kafka("log.initial.task.delay.ms", "200")
        .kafka("log.cleaner.backoff.ms", "200")
}

/// Skips a test of compaction where the host cannot replace ledgers; whether it did.
pub fn skips_compaction() -> bool {
    if is_pulsar() {
        inapplicable(
            "Pulsar cannot replace a ledger's entries, so that nothing is compacted there",
        );
    }
    is_pulsar()
}

/// A batch of one record with a key.
pub fn keyed(key: &str, value: Option<&str>) -> Bytes {
    let record = NewRecord::new(now_ms(), Some(key.as_bytes()), value.map(str::as_bytes));
    batch_of(Compression::None, &[record])
}

/// What ListOffsets says of one partition.
#[track_caller]
pub fn list_offset(
    raw: &mut Raw,
    version: i16,
    topic: &str,
    timestamp: i64,
) -> ListOffsetsPartitionResponse {
    let mut reply = raw.call(version, &list_offsets_request(topic, timestamp, 0));
    reply.topics.remove(0).partitions.remove(0)
}

pub fn list_offsets_request(topic: &str, timestamp: i64, isolation: i8) -> ListOffsetsRequest {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_timestamp(timestamp);
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation)
        .with_topics(vec![
            ListOffsetsTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(vec![partition]),
        ])
}

/// End of a partition.
#[track_caller]
pub fn end_offset(raw: &mut Raw, topic: &str) -> i64 {
    let answer = list_offset(raw, LIST_OFFSETS, topic, -1);
    assert_eq!(answer.error_code, 0);
    answer.offset
}
