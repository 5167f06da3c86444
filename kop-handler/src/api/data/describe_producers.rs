//! DescribeProducers (key 61), version 0: the idempotent producers that a partition remembers (KIP-664).
//!
//! Without transactions no producer has a coordinator or an open transaction: both are −1.

use std::sync::Arc;

use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse};
use kafka_protocol::protocol::StrBytes;

use super::partitions;
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::log::ActiveProducer;

pub(crate) async fn handle(
    server: &Arc<Server>,
    _call: &Call,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let asked: Vec<(&str, Vec<i32>)> = request
        .topics
        .iter()
        .map(|topic| (topic.name.as_str(), topic.partition_indexes.clone()))
        .collect();
    let opened = partitions::open_named(server, &asked).await;
    let topics = request
        .topics
        .into_iter()
        .zip(opened)
        .map(|(asked, opened)| {
            let answers = asked
                .partition_indexes
                .iter()
                .zip(opened)
                .map(|(index, found)| answer(*index, found.map(|found| found.active_producers())));
            let answers = answers.collect();
            TopicResponse::default()
                .with_name(asked.name)
                .with_partitions(answers)
        });
    let topics = topics.collect();
    DescribeProducersResponse::default().with_topics(topics)
}

/// The same fault for every partition.
pub(crate) fn refusal(
    request: DescribeProducersRequest,
    fault: &Fault,
) -> DescribeProducersResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let answers = topic
            .partition_indexes
            .iter()
            .map(|index| answer(*index, Err(fault.clone())));
        let answers = answers.collect();
        TopicResponse::default()
            .with_name(topic.name)
            .with_partitions(answers)
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

fn answer(index: i32, found: Result<Vec<ActiveProducer>, Fault>) -> PartitionResponse {
    let response = PartitionResponse::default().with_partition_index(index);
    match found {
        Ok(producers) => {
            let producers = producers.into_iter().map(|producer| {
                ProducerState::default()
                    .with_producer_id(producer.producer_id.into())
                    .with_producer_epoch(i32::from(producer.epoch))
                    .with_last_sequence(producer.last_sequence)
                    .with_last_timestamp(producer.last_timestamp_ms)
                    .with_coordinator_epoch(-1)
                    .with_current_txn_start_offset(-1)
            });
            response.with_active_producers(producers.collect())
        }
        Err(fault) => response
            .with_error_code(fault.code())
            .with_error_message(Some(StrBytes::from_string(fault.to_string()))),
    }
}
