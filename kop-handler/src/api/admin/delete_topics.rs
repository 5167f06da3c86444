//! DeleteTopics (key 20), versions 1 to 6.
//!
//! A topic goes with its data; open fetches of it end with an error, and groups forget their offsets in it. Kafka's
//! internal topics stay: groups live in them.
//!
//! v5: messages beside error codes. v6: by id (KIP-516).

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use uuid::Uuid;

use super::{message, text, within};
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::Topic;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let asked: Vec<DeleteTopicState> = if call.version >= 6 {
        request.topics
    } else {
        let state = |name| DeleteTopicState::default().with_name(Some(name));
        request.topic_names.into_iter().map(state).collect()
    };
    let mut times: HashMap<(Option<TopicName>, Uuid), usize> = HashMap::new();
    for topic in &asked {
        *times
            .entry((topic.name.clone(), topic.topic_id))
            .or_default() += 1;
    }
    let mut deleted: Vec<Uuid> = Vec::new();
    let mut responses = Vec::with_capacity(asked.len());
    for DeleteTopicState { name, topic_id, .. } in asked {
        let Some(times) = times.remove(&(name.clone(), topic_id)) else {
            continue; // The second of two equal ones.
        };
        let result = delete(
            server,
            name.as_ref(),
            topic_id,
            times,
            &mut deleted,
            request.timeout_ms,
        )
        .await;
        let mut reply = DeletableTopicResult::default().with_name(name);
        if call.version >= 6 {
            reply = reply.with_topic_id(topic_id);
        }
        responses.push(match result {
            Ok(topic) => {
                let reply = if call.version >= 6 {
                    reply.with_topic_id(topic.id)
                } else {
                    reply
                };
                match reply.name {
                    Some(_) => reply,
                    None => reply.with_name(Some(TopicName(text(topic.name.clone())))),
                }
            }
            Err(fault) => {
                let reply = reply.with_error_code(fault.code());
                if call.version >= 5 {
                    reply.with_error_message(message(&fault))
                } else {
                    reply
                }
            }
        });
    }
    DeleteTopicsResponse::default().with_responses(responses)
}

async fn delete(
    server: &Arc<Server>,
    name: Option<&TopicName>,
    id: Uuid,
    times: usize,
    deleted: &mut Vec<Uuid>,
    timeout_ms: i32,
) -> Result<Arc<Topic>, Fault> {
    let invalid = |reason: &str| Err(Fault::InvalidRequest(reason.to_owned()));
    let topic = match (name, id.is_nil()) {
        (None, true) => return invalid("Neither topic name nor id were specified."),
        (Some(_), false) => return invalid("You may not specify both topic name and topic id."),
        (Some(_), true) if times > 1 => return invalid("Duplicate topic name."),
        (None, false) if times > 1 => return invalid("Duplicate topic id."),
        (Some(name), true) => server
            .topics
            .by_name(name)
            .await
            .map_err(|fault| match fault {
                // A name that cannot be is not there either, says Kafka.
                Fault::InvalidTopic(_) | Fault::UnknownTopicOrPartition(_) => {
                    Fault::UnknownTopicOrPartition(
                        "This server does not host this topic-partition.".to_owned(),
                    )
                }
                fault => fault,
            })?,
        (None, false) => server.topics.by_id(id).await.map_err(|fault| match fault {
            Fault::UnknownTopicId(_) => {
                Fault::UnknownTopicId("This server does not host this topic ID.".to_owned())
            }
            fault => fault,
        })?,
    };
    if deleted.contains(&topic.id) {
        return invalid("The topic was already named in this request, by its name or its id.");
    }
    if topic.internal {
        return Err(Fault::InvalidTopic(format!(
            "The topic '{}' is internal: groups live in it, and it cannot be deleted.",
            topic.name
        )));
    }
    deleted.push(topic.id);
    let work = async {
        server.topics.delete(&topic).await?;
        // The host's event does this too, but may come when a topic of the same name exists again.
        if let Err(error) = server.groups.topic_deleted(&topic.name, topic.id).await {
            tracing::warn!(topic = topic.name, %error, "committed offsets of a deleted topic stay until they expire");
        }
        Ok(())
    };
    within(timeout_ms, work).await?;
    Ok(topic)
}
