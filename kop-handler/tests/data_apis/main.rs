//! Produce, Fetch, ListOffsets and their kin over the wire, on the simulated host.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

#[path = "../support/mod.rs"]
mod support;

mod fetch;
mod offsets;
mod produce;
mod producers;

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

/// Produces, which must succeed.
async fn append(client: &mut Client, topic: &str, partition: i32, records: Bytes) {
    let answer = produce(client, topic, partition, records).await;
    assert_eq!(answer.error_code, 0);
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
