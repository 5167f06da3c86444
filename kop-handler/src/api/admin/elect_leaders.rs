//! ElectLeaders (key 43), versions 0 to 2.
//!
//! The host decides who leads, and there is one replica: the leader is always the preferred one, and no election is
//! needed. Asked for all partitions, Kafka leaves out those that need none, so that the reply is empty.
//!
//! v1: unclean elections (KIP-460), which change nothing either.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};

use super::text;
use crate::api::{Call, Server};
use crate::error::Fault;

pub(crate) async fn handle(
    server: &Arc<Server>,
    _call: &Call,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let topics = request.topic_partitions.unwrap_or_default();
    let names: Vec<&str> = topics.iter().map(|topic| topic.topic.as_str()).collect();
    let found = server.topics.by_names(&names).await;
    let results = topics
        .into_iter()
        .zip(found)
        .map(|(topic, found)| {
            let name = topic.topic.as_str();
            let partitions = topic
                .partitions
                .iter()
                .map(|index| {
                    let (code, reason) = match &found {
                        Err(fault) => (fault.code(), format!("No such topic as {name}")),
                        Ok(found) if found.partition(*index).is_none() => (
                            Fault::UnknownTopicOrPartition(String::new()).code(),
                            format!("No such partition as {name}-{index}"),
                        ),
                        Ok(_) => (
                            ResponseError::ElectionNotNeeded.code(),
                            "Leader election not needed for topic partition.".to_owned(),
                        ),
                    };
                    PartitionResult::default()
                        .with_partition_id(*index)
                        .with_error_code(code)
                        .with_error_message(Some(text(reason)))
                })
                .collect();
            ReplicaElectionResult::default()
                .with_partition_result(partitions)
                .with_topic(topic.topic)
        })
        .collect();
    ElectLeadersResponse::default().with_replica_election_results(results)
}
