//! CreatePartitions (key 37), versions 0 to 3.
//!
//! The number of partitions grows and never shrinks; `count` is the new total. Assignments are checked and otherwise
//! ignored: the host places data. Non-partitioned Pulsar topics cannot grow, nor can internal topics, whose number of
//! partitions says where a group lives.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse, TopicName};

use super::{check_replicas, deadline, existing, message, until};
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::Topic;
use crate::topics::nodes::Node;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let nodes = server.topics.brokers(&call.listener).await;
    let mut times: HashMap<TopicName, usize> = HashMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.clone()).or_default() += 1;
    }
    let mut seen = HashSet::new();
    let deadline = deadline(request.timeout_ms);
    let mut room = server.limits.max_created_partitions;
    let mut results = Vec::new();
    for topic in request
        .topics
        .into_iter()
        .filter(|topic| seen.insert(topic.name.clone()))
    {
        let result = if times.get(&topic.name).is_some_and(|times| *times > 1) {
            Err(Fault::InvalidRequest("Duplicate topic name.".to_owned()))
        } else {
            let work = async {
                let nodes = nodes.as_ref().map_err(Clone::clone)?;
                let (existing, count) = check(server, &topic, nodes, &mut room).await?;
                if request.validate_only {
                    Ok(())
                } else {
                    server.topics.grow(&existing, count).await
                }
            };
            until(deadline, work).await
        };
        let reply = CreatePartitionsTopicResult::default().with_name(topic.name);
        results.push(match result {
            Ok(()) => reply.with_error_message(None),
            Err(fault) => reply
                .with_error_code(fault.code())
                .with_error_message(message(&fault)),
        });
    }
    CreatePartitionsResponse::default().with_results(results)
}

async fn check(
    server: &Arc<Server>,
    topic: &CreatePartitionsTopic,
    nodes: &[Node],
    room: &mut u32,
) -> Result<(Arc<Topic>, u32), Fault> {
    let existing = existing(server, &topic.name).await?;
    let name = topic.name.as_str();
    let current = existing.partitions();
    let count = u32::try_from(topic.count).ok().filter(|count| *count >= current).ok_or_else(|| {
        Fault::InvalidPartitions(format!(
            "The topic {name} currently has {current} partition(s); {} would not be an increase.",
            topic.count
        ))
    })?;
    let added = count - current;
    if added == 0 {
        return Err(Fault::InvalidPartitions(format!(
            "Topic already has {current} partition(s)."
        )));
    }
    if existing.internal {
        return Err(Fault::InvalidTopic(format!(
            "The topic '{name}' is internal: its number of partitions says where a group lives, and cannot change."
        )));
    }
    if !existing.is_partitioned() {
        return Err(Fault::InvalidPartitions(format!(
            "The topic {name} is a non-partitioned Pulsar topic, which cannot have more partitions."
        )));
    }
    if added > *room {
        return Err(Fault::PolicyViolation(
            "Excessively large number of partitions per request.".to_owned(),
        ));
    }
    if let Some(assignments) = &topic.assignments {
        if assignments.len() != usize::try_from(added).unwrap_or(usize::MAX) {
            return Err(Fault::InvalidReplicaAssignment(format!(
                "Attempted to add {added} additional partition(s), but only {} assignment(s) were specified.",
                assignments.len()
            )));
        }
        for assignment in assignments {
            check_replicas(&assignment.broker_ids, nodes)?;
        }
    }
    *room -= added;
    Ok((existing, count))
}
