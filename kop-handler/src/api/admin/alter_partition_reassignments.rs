//! AlterPartitionReassignments (key 45), versions 0 to 1.
//!
//! The host places data. To name the broker that leads a partition already changes nothing and succeeds; anything else
//! is refused, and there is never a reassignment to cancel.
//!
//! v1: changes of the replication factor can be forbidden; none is ever made.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};

use super::{check_replicas, text};
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::Topic;
use crate::topics::nodes::Node;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let nodes = server.topics.brokers(&call.listener).await;
    let mut responses = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let found = server.topics.by_name(&topic.name).await;
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let reply = ReassignablePartitionResponse::default()
                .with_partition_index(partition.partition_index);
            let result = match (&found, &nodes) {
                (Ok(found), Ok(nodes)) => check(server, call, found, nodes, &partition).await,
                (Err(fault), _) | (_, Err(fault)) => {
                    Err((fault.response_error(), fault.to_string()))
                }
            };
            partitions.push(match result {
                Ok(()) => reply.with_error_message(None),
                Err((code, reason)) => reply
                    .with_error_code(code.code())
                    .with_error_message(Some(text(reason))),
            });
        }
        responses.push(
            ReassignableTopicResponse::default()
                .with_name(topic.name)
                .with_partitions(partitions),
        );
    }
    let reply = AlterPartitionReassignmentsResponse::default()
        .with_error_message(None)
        .with_responses(responses);
    if call.version >= 1 {
        return reply.with_allow_replication_factor_change(request.allow_replication_factor_change);
    }
    reply
}

async fn check(
    server: &Arc<Server>,
    call: &Call,
    topic: &Topic,
    nodes: &[Node],
    partition: &ReassignablePartition,
) -> Result<(), (ResponseError, String)> {
    let refuse = |fault: Fault| (fault.response_error(), fault.to_string());
    let index = partition.partition_index;
    let full_name = topic.partition(index).ok_or_else(|| {
        refuse(Fault::UnknownTopicOrPartition(
            "This server does not host this topic-partition.".to_owned(),
        ))
    })?;
    let Some(replicas) = &partition.replicas else {
        let reason = "No partition reassignment is in progress.".to_owned();
        return Err((ResponseError::NoReassignmentInProgress, reason));
    };
    check_replicas(replicas, nodes).map_err(refuse)?;
    let leaders = server
        .topics
        .leaders(&[full_name], &call.listener)
        .await
        .map_err(refuse)?;
    let leader = leaders.into_iter().next().and_then(Result::ok);
    if leader.is_some_and(|leader| replicas.iter().all(|replica| replica.0 == leader.id)) {
        return Ok(());
    }
    Err(refuse(Fault::InvalidReplicaAssignment(
        "The host places data: partitions cannot be moved through the Kafka protocol.".to_owned(),
    )))
}
