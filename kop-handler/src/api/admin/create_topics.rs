//! CreateTopics (key 19), versions 2 to 7.
//!
//! Checked as Kafka's controller checks: names, collisions, partitions, replicas, configurations; with `validate_only`
//! nothing is created. A partition has one replica (the host replicates beneath it), so that the replication factor is
//! −1 or 1 and a manual assignment names one broker, whose choice is the host's in the end.
//!
//! v5: the reply has the topic's configurations (KIP-525). v7: the topic's id.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse, TopicName};
use uuid::Uuid;

use super::{check_replicas, deadline, message, text, topic_configs, until};
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::Taken;
use crate::topics::configs::Overrides;
use crate::topics::nodes::Node;

/// A topic of the request that may be created.
struct Plan {
    full_name: String,
    partitions: u32,
    overrides: Overrides,
}

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let nodes = server.topics.brokers(&call.listener).await;
    let mut times: HashMap<TopicName, usize> = HashMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.clone()).or_default() += 1;
    }
    let mut seen = HashSet::new();
    let mut unified = HashMap::new();
    let mut taken = None;
    let mut plans = Vec::new();
    for topic in request
        .topics
        .into_iter()
        .filter(|topic| seen.insert(topic.name.clone()))
    {
        let plan = if times.get(&topic.name).is_some_and(|times| *times > 1) {
            Err(Fault::InvalidRequest("Duplicate topic name.".to_owned()))
        } else {
            match &nodes {
                Ok(nodes) => plan(server, &topic, nodes, &mut unified, &mut taken).await,
                Err(fault) => Err(fault.clone()),
            }
        };
        plans.push((topic.name, plan));
    }
    let total = plans
        .iter()
        .filter_map(|(_, plan)| plan.as_ref().ok())
        .fold(0_u32, |total, plan| total.saturating_add(plan.partitions));
    let too_many = total > server.limits.max_created_partitions;
    let deadline = deadline(request.timeout_ms);
    let results = stream::iter(plans)
        .map(|(name, plan)| async move {
            let result = match plan {
                Ok(_) if too_many => Err(Fault::PolicyViolation(
                    "Excessively large number of partitions per request.".to_owned(),
                )),
                Ok(plan) if request.validate_only => Ok((plan, None)),
                Ok(plan) => {
                    let create = server.topics.create_checked(
                        &name,
                        plan.full_name.clone(),
                        plan.partitions,
                        &plan.overrides,
                    );
                    let created = until(deadline, create).await;
                    created.map(|topic| (plan, Some(topic.id)))
                }
                Err(fault) => Err(fault),
            };
            answer(server, call.version, name, result)
        })
        .buffered(server.limits.max_topic_changes_at_once)
        .collect()
        .await;
    CreateTopicsResponse::default().with_topics(results)
}

fn answer(
    server: &Server,
    version: i16,
    name: TopicName,
    result: Result<(Plan, Option<Uuid>), Fault>,
) -> CreatableTopicResult {
    let reply = CreatableTopicResult::default().with_name(name);
    let (plan, id) = match result {
        Ok(created) => created,
        Err(fault) => return failed(version, &fault, reply),
    };
    let reply = match id {
        Some(id) if version >= 7 => reply.with_topic_id(id),
        _ => reply,
    };
    let reply = reply.with_error_message(None);
    if version >= 5 {
        describe(server, &plan, reply)
    } else {
        reply
    }
}

fn failed(version: i16, fault: &Fault, reply: CreatableTopicResult) -> CreatableTopicResult {
    let reply = reply
        .with_error_code(fault.code())
        .with_error_message(message(fault));
    if version >= 5 {
        reply
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_configs(None)
    } else {
        reply
    }
}

fn describe(server: &Server, plan: &Plan, reply: CreatableTopicResult) -> CreatableTopicResult {
    let configs = topic_configs::effective(&plan.overrides, server.topics.defaults())
        .map(|entry| {
            CreatableTopicConfigs::default()
                .with_name(text(entry.definition.name))
                .with_value(Some(text(entry.value)))
                .with_read_only(false)
                .with_config_source(entry.source as i8)
                .with_is_sensitive(false)
        })
        .collect();
    reply
        .with_num_partitions(i32::try_from(plan.partitions).unwrap_or(i32::MAX))
        .with_replication_factor(1)
        .with_configs(Some(configs))
}

/// Checks one topic, in the order in which Kafka's controller does.
async fn plan(
    server: &Arc<Server>,
    topic: &CreatableTopic,
    nodes: &[Node],
    unified: &mut HashMap<String, String>,
    taken: &mut Option<Taken>,
) -> Result<Plan, Fault> {
    let full_name = server.topics.check_new(&topic.name, taken).await?;
    if server.topics.names().is_internal(&full_name) {
        return Err(Fault::InvalidTopic(format!(
            "The topic '{}' is internal: the broker creates it when it is needed.",
            topic.name.as_str()
        )));
    }
    // Two topics of one request can collide too.
    let colliding = crate::topics::names::unify_collisions(&full_name);
    if let Some(other) = unified.insert(colliding, topic.name.to_string()) {
        return Err(Fault::InvalidTopic(format!(
            "Topic '{}' collides with existing topic: {other}",
            topic.name.as_str()
        )));
    }
    let mut overrides = Overrides::default();
    topic_configs::set_all(
        &mut overrides,
        topic
            .configs
            .iter()
            .map(|config| (config.name.as_str(), config.value.as_deref())),
    )?;
    overrides.check(server.topics.defaults())?;
    server.topics.check_storage(&overrides)?;
    let partitions = if topic.assignments.is_empty() {
        check_counts(topic, server.topics.default_partitions())?
    } else {
        check_assignments(topic, nodes)?
    };
    Ok(Plan {
        full_name,
        partitions,
        overrides,
    })
}

fn check_counts(topic: &CreatableTopic, default: u32) -> Result<u32, Fault> {
    match topic.replication_factor {
        -1 | 1 => {}
        factor if factor < 1 => {
            return Err(Fault::InvalidReplicationFactor(
                "Replication factor must be larger than 0, or -1 to use the default value."
                    .to_owned(),
            ));
        }
        factor => {
            return Err(Fault::InvalidReplicationFactor(format!(
                "Unable to replicate the partition {factor} time(s): Kafka clients see one replica, and the host replicates beneath it. Use 1, or -1 for the default."
            )));
        }
    }
    match topic.num_partitions {
        -1 => Ok(default),
        count => u32::try_from(count)
            .ok()
            .filter(|count| *count > 0)
            .ok_or_else(|| {
                Fault::InvalidPartitions(
                    "Number of partitions was set to an invalid non-positive value.".to_owned(),
                )
            }),
    }
}

fn check_assignments(topic: &CreatableTopic, nodes: &[Node]) -> Result<u32, Fault> {
    if topic.replication_factor != -1 {
        return Err(Fault::InvalidRequest(
            "A manual partition assignment was specified, but replication factor was not set to -1.".to_owned(),
        ));
    }
    if topic.num_partitions != -1 {
        return Err(Fault::InvalidRequest(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
                .to_owned(),
        ));
    }
    let mut assignments: Vec<&CreatableReplicaAssignment> = topic.assignments.iter().collect();
    assignments.sort_by_key(|assignment| assignment.partition_index);
    for (previous, assignment) in assignments.iter().zip(assignments.iter().skip(1)) {
        if previous.partition_index == assignment.partition_index {
            return Err(Fault::InvalidReplicaAssignment(format!(
                "Found multiple manual partition assignments for partition {}",
                assignment.partition_index
            )));
        }
    }
    for (expected, assignment) in (0..).zip(&assignments) {
        check_replicas(&assignment.broker_ids, nodes)?;
        if assignment.partition_index != expected {
            return Err(Fault::InvalidReplicaAssignment(
                "partitions should be a consecutive 0-based integer sequence".to_owned(),
            ));
        }
    }
    Ok(u32::try_from(assignments.len()).unwrap_or(u32::MAX))
}
