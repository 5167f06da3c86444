//! Metadata, topics, configurations and the cluster over the wire, on the simulated host.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod configs;
mod create;
mod metadata;
mod topics;

use std::time::{Duration, Instant};

use handler_api::topics::{CreateTopic, Topic};
use host_shim::sim::SimHost;
use kafka_protocol::messages::alter_configs_request;
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use support::{Client, PATIENCE, Plugin, batch};
use uuid::Uuid;

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const INVALID_TOPIC: i16 = 17;
const TOPIC_EXISTS: i16 = 36;
const INVALID_PARTITIONS: i16 = 37;
const INVALID_REPLICATION_FACTOR: i16 = 38;
const INVALID_ASSIGNMENT: i16 = 39;
const INVALID_CONFIG: i16 = 40;
const INVALID_REQUEST: i16 = 42;
const POLICY_VIOLATION: i16 = 44;
const NOT_ASKED: i32 = i32::MIN;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn name(name: &str) -> TopicName {
    TopicName(text(name))
}

fn new_topic(topic: &str, partitions: i32, factor: i16) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(factor)
}

fn with_configs(topic: CreatableTopic, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
    let configs = configs.iter().map(|(key, value)| {
        CreatableTopicConfig::default()
            .with_name(text(key))
            .with_value(value.map(text))
    });
    topic.with_configs(configs.collect())
}

async fn create_all(
    client: &mut Client,
    validate: bool,
    topics: Vec<CreatableTopic>,
) -> Vec<CreatableTopicResult> {
    let request = CreateTopicsRequest::default()
        .with_topics(topics)
        .with_validate_only(validate)
        .with_timeout_ms(20_000);
    client.call(7, &request).await.topics
}

async fn create(client: &mut Client, topic: CreatableTopic) -> CreatableTopicResult {
    create_all(client, false, vec![topic]).await.remove(0)
}

fn asked(names: &[&str]) -> MetadataRequest {
    let topics = names
        .iter()
        .map(|topic| MetadataRequestTopic::default().with_name(Some(name(topic))));
    MetadataRequest::default()
        .with_topics(Some(topics.collect()))
        .with_allow_auto_topic_creation(false)
}

async fn metadata(client: &mut Client, topic: &str) -> MetadataResponseTopic {
    client.call(12, &asked(&[topic])).await.topics.remove(0)
}

async fn names(client: &mut Client) -> Vec<String> {
    let reply = client
        .call(12, &MetadataRequest::default().with_topics(None))
        .await;
    let mut names: Vec<String> = reply
        .topics
        .iter()
        .map(|topic| topic.name.as_ref().unwrap().to_string())
        .collect();
    names.sort();
    names
}

async fn describe(client: &mut Client, kind: i8, resource: &str) -> DescribeConfigsResult {
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![
            DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(resource))
                .with_configuration_keys(None),
        ])
        .with_include_synonyms(true)
        .with_include_documentation(true);
    client.call(4, &request).await.results.remove(0)
}

async fn topic_config(
    client: &mut Client,
    topic: &str,
    key: &str,
) -> DescribeConfigsResourceResult {
    let result = describe(client, TOPIC, topic).await;
    assert_eq!(result.error_code, 0);
    result
        .configs
        .into_iter()
        .find(|config| config.name.as_str() == key)
        .unwrap()
}

/// Alters by (key, operation, value); gives code and message.
async fn alter(
    client: &mut Client,
    kind: i8,
    resource: &str,
    operations: &[(&str, i8, Option<&str>)],
) -> (i16, Option<String>) {
    let configs = operations.iter().map(|(key, operation, value)| {
        AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(*operation)
            .with_value(value.map(text))
    });
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![
        AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(resource))
            .with_configs(configs.collect()),
    ]);
    let reply = client.call(1, &request).await.responses.remove(0);
    (
        reply.error_code,
        reply.error_message.map(|message| message.to_string()),
    )
}

async fn node_id(client: &mut Client) -> i32 {
    client.call(12, &asked(&[])).await.controller_id.0
}

async fn produce(client: &mut Client, topic: &str, batch: bytes::Bytes) -> i16 {
    let data = TopicProduceData::default()
        .with_name(name(topic))
        .with_partition_data(vec![
            PartitionProduceData::default()
                .with_index(0)
                .with_records(Some(batch)),
        ]);
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(10_000)
        .with_topic_data(vec![data]);
    let reply = client.call(9, &request).await;
    reply
        .responses
        .first()
        .unwrap()
        .partition_responses
        .first()
        .unwrap()
        .error_code
}
