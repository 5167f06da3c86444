//! Metadata (key 3), versions 0 to 13.
//!
//! Brokers, the controller and topics with their leaders. A topic that does not exist, in a request that allows it, is
//! created: this reply says UNKNOWN_TOPIC_OR_PARTITION, which clients retry, and the next one has leaders. Every
//! partition has one replica, its leader: the host replicates beneath it. Any broker can do what Kafka's controller
//! does; all name the same one.
//!
//! v1: all topics by null. v4: auto-creation can be forbidden. v7: leader epochs. v8: authorized operations (KIP-430).
//! v10: topic ids. v12: requests by id (KIP-516). v13: the reply has an error of its own, set when
//! all topics were asked for and cannot be listed; before it, the connection is closed then.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use uuid::Uuid;

use super::{NOBODY, controller, operations, text};
use crate::api::{self, Call, Reply, Server};
use crate::error::Fault;
use crate::topics::{AutoCreation, Leaders, Topic};
use crate::wire::WireError;

/// First version whose reply has an error of its own.
const WITH_ERROR: i16 = 13;

/// The answer to a Metadata.
#[derive(Debug)]
pub(crate) enum Described {
    Answer(Box<MetadataResponse>),
    /// The topics could not be listed, and the version has no place for an error: an empty list would tell clients
    /// that all topics are gone.
    Unknown,
}

impl api::Answer for Described {
    fn encode(self, correlation_id: i32, version: i16) -> Result<Reply, WireError> {
        match self {
            Self::Answer(response) => api::Answer::encode(*response, correlation_id, version),
            Self::Unknown => Ok(Reply::Close),
        }
    }
}

/// A topic of the reply: as the client called it, and what there is.
struct Answer {
    name: Option<TopicName>,
    id: Uuid,
    topic: Result<Arc<Topic>, Fault>,
}

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: MetadataRequest,
) -> Described {
    let answers = match find(
        server,
        call.version,
        request.topics,
        request.allow_auto_topic_creation,
    )
    .await
    {
        Ok(answers) => answers,
        Err(fault) => {
            tracing::warn!(%fault, "the topics could not be listed");
            return unlisted(call.version, &fault);
        }
    };
    let found: Vec<Arc<Topic>> = answers
        .iter()
        .filter_map(|answer| answer.topic.as_ref().ok())
        .cloned()
        .collect();
    let mut leaders = match server.topics.topic_leaders(&found, &call.listener).await {
        Ok(leaders) => leaders,
        Err(fault) => {
            tracing::warn!(%fault, "the leaders of topics could not be looked up");
            found.iter().map(|_| Leaders::Each(Vec::new())).collect()
        }
    }
    .into_iter();
    let brokers = match server.topics.brokers(&call.listener).await {
        Ok(brokers) => brokers,
        Err(fault) => {
            tracing::warn!(%fault, "the brokers could not be listed");
            server
                .topics
                .local_node(&call.listener)
                .into_iter()
                .collect()
        }
    };
    let controller = controller(server, call).await;
    let epoch = server.topics.leader_epoch();
    let topics = answers
        .into_iter()
        .map(|answer| {
            let asked = request.include_topic_authorized_operations;
            let reply = MetadataResponseTopic::default().with_name(answer.name);
            match answer.topic {
                Ok(topic) => {
                    let leaders = leaders.next().unwrap_or(Leaders::Each(Vec::new()));
                    let reply = if call.version >= 10 {
                        reply.with_topic_id(topic.id)
                    } else {
                        reply
                    };
                    let reply = if call.version >= 1 {
                        reply.with_is_internal(topic.internal)
                    } else {
                        reply
                    };
                    reply
                        .with_topic_authorized_operations(operations::on_topic(asked))
                        .with_partitions(
                            (0..topic.partitions())
                                .map(|index| {
                                    partition(call.version, index, leaders.of(index), epoch)
                                })
                                .collect(),
                        )
                }
                Err(fault) => {
                    let reply = if call.version >= 10 {
                        reply.with_topic_id(answer.id)
                    } else {
                        reply
                    };
                    reply.with_error_code(fault.code())
                }
            }
        })
        .collect();
    let mut response = MetadataResponse::default()
        .with_brokers(
            brokers
                .into_iter()
                .map(|node| {
                    MetadataResponseBroker::default()
                        .with_node_id(BrokerId(node.id))
                        .with_host(text(node.host))
                        .with_port(i32::from(node.port))
                })
                .collect(),
        )
        .with_topics(topics);
    if call.version >= 1 {
        response = response.with_controller_id(controller);
    }
    if call.version >= 2 {
        response = response.with_cluster_id(Some(text(server.topics.cluster_id())));
    }
    if (8..=10).contains(&call.version) {
        let asked = request.include_cluster_authorized_operations;
        response = response.with_cluster_authorized_operations(operations::on_cluster(asked));
    }
    Described::Answer(Box::new(response))
}

/// A request for all topics that cannot be answered.
fn unlisted(version: i16, fault: &Fault) -> Described {
    if version < WITH_ERROR {
        return Described::Unknown;
    }
    let response = MetadataResponse::default().with_error_code(fault.code());
    Described::Answer(Box::new(response))
}

fn partition(
    version: i16,
    index: u32,
    leader: Option<i32>,
    leader_epoch: i32,
) -> MetadataResponsePartition {
    let reply = MetadataResponsePartition::default()
        .with_partition_index(i32::try_from(index).unwrap_or(i32::MAX));
    let Some(leader) = leader.map(BrokerId) else {
        return reply
            .with_error_code(Fault::LeaderNotAvailable(String::new()).code())
            .with_leader_id(NOBODY);
    };
    let reply = reply
        .with_leader_id(leader)
        .with_replica_nodes(vec![leader])
        .with_isr_nodes(vec![leader]);
    if version >= 7 {
        reply.with_leader_epoch(leader_epoch)
    } else {
        reply
    }
}

/// The topics that a request means, each once.
async fn find(
    server: &Arc<Server>,
    version: i16,
    topics: Option<Vec<MetadataRequestTopic>>,
    may_create: bool,
) -> Result<Vec<Answer>, Fault> {
    let topics = match topics {
        // Version 0 had no null and meant all by none.
        Some(topics) if version > 0 || !topics.is_empty() => topics,
        _ => return all(server).await,
    };
    // Who asks by id may leave the name null or empty.
    let (ids, names): (Vec<_>, Vec<_>) = topics
        .into_iter()
        .partition(|topic| !topic.topic_id.is_nil() || topic.name.is_none());
    let mut answers = by_ids(server, ids.into_iter().map(|topic| topic.topic_id)).await;
    answers.extend(
        by_names(
            server,
            names.into_iter().filter_map(|topic| topic.name),
            may_create,
        )
        .await,
    );
    Ok(answers)
}

async fn all(server: &Arc<Server>) -> Result<Vec<Answer>, Fault> {
    let topics = server.topics.list().await?;
    let answer = |topic: &Arc<Topic>| Answer {
        name: Some(TopicName(text(topic.name.clone()))),
        id: topic.id,
        topic: Ok(Arc::clone(topic)),
    };
    Ok(topics.iter().map(answer).collect())
}

async fn by_ids(server: &Arc<Server>, ids: impl Iterator<Item = Uuid>) -> Vec<Answer> {
    let mut seen = HashSet::new();
    let mut answers = Vec::new();
    for id in ids.filter(|id| seen.insert(*id)) {
        let topic = server.topics.by_id(id).await;
        let name = topic
            .as_ref()
            .ok()
            .map(|topic| TopicName(text(topic.name.clone())));
        answers.push(Answer { name, id, topic });
    }
    answers
}

async fn by_names(
    server: &Arc<Server>,
    names: impl Iterator<Item = TopicName>,
    may_create: bool,
) -> Vec<Answer> {
    let mut seen = HashSet::new();
    let names: Vec<TopicName> = names.filter(|name| seen.insert(name.clone())).collect();
    let asked: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let found = server.topics.by_names(&asked).await;
    names
        .into_iter()
        .zip(found)
        .map(|(name, topic)| {
            let topic = topic.map_err(|fault| match fault {
                Fault::UnknownTopicOrPartition(_) if may_create => {
                    match server.topics.auto_create(&name) {
                        AutoCreation::Started => fault,
                        AutoCreation::Refused(fault) => fault,
                    }
                }
                fault => fault,
            });
            Answer {
                name: Some(name),
                id: Uuid::nil(),
                topic,
            }
        })
        .collect()
}
