//! DeleteTopics (key 20), versions 1 to 6.
//!
//! A topic goes with its data; open fetches of it end with an error, and groups forget their offsets in it. Kafka's
//! internal topics stay: groups live in them.
//!
//! v5: messages beside error codes. v6: by id (KIP-516).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use uuid::Uuid;

use super::{deadline, existing, message, text, until};
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
    let mut chosen: HashSet<Uuid> = HashSet::new();
    let mut plans = Vec::with_capacity(asked.len());
    for state in asked {
        let Some(times) = times.remove(&(state.name.clone(), state.topic_id)) else {
            continue; // The second of two equal ones.
        };
        let topic = choose(server, &state, times, &mut chosen).await;
        plans.push((state, topic));
    }
    let deadline = deadline(request.timeout_ms);
    let responses = stream::iter(plans)
        .map(|(state, topic)| async move {
            let result = match topic {
                Ok(topic) => until(deadline, delete(server, &topic))
                    .await
                    .map(|()| topic),
                Err(fault) => Err(fault),
            };
            answer(call.version, state, result)
        })
        .buffered(server.limits.max_topic_changes_at_once)
        .collect()
        .await;
    DeleteTopicsResponse::default().with_responses(responses)
}

fn answer(
    version: i16,
    state: DeleteTopicState,
    result: Result<Arc<Topic>, Fault>,
) -> DeletableTopicResult {
    let reply = DeletableTopicResult::default();
    let (id, name) = match &result {
        Ok(topic) => (
            topic.id,
            state
                .name
                .or_else(|| Some(TopicName(text(topic.name.clone())))),
        ),
        Err(_) => (state.topic_id, state.name),
    };
    let reply = reply.with_name(name);
    let reply = if version >= 6 {
        reply.with_topic_id(id)
    } else {
        reply
    };
    let Err(fault) = result else { return reply };
    let reply = reply.with_error_code(fault.code());
    if version >= 5 {
        reply.with_error_message(message(&fault))
    } else {
        reply
    }
}

/// The topic that a request means, if it may be deleted.
async fn choose(
    server: &Arc<Server>,
    state: &DeleteTopicState,
    times: usize,
    chosen: &mut HashSet<Uuid>,
) -> Result<Arc<Topic>, Fault> {
    let invalid = |reason: &str| Err(Fault::InvalidRequest(reason.to_owned()));
    let topic = match (state.name.as_ref(), state.topic_id.is_nil()) {
        (None, true) => return invalid("Neither topic name nor id were specified."),
        (Some(_), false) => return invalid("You may not specify both topic name and topic id."),
        (Some(_), true) if times > 1 => return invalid("Duplicate topic name."),
        (None, false) if times > 1 => return invalid("Duplicate topic id."),
        (Some(name), true) => existing(server, name).await?,
        (None, false) => {
            server
                .topics
                .by_id(state.topic_id)
                .await
                .map_err(|fault| match fault {
                    Fault::UnknownTopicId(_) => {
                        Fault::UnknownTopicId("This server does not host this topic ID.".to_owned())
                    }
                    fault => fault,
                })?
        }
    };
    if topic.internal {
        return Err(Fault::InvalidTopic(format!(
            "The topic '{}' is internal: groups live in it, and it cannot be deleted.",
            topic.name
        )));
    }
    if !chosen.insert(topic.id) {
        return invalid("The topic was already named in this request, by its name or its id.");
    }
    Ok(topic)
}

async fn delete(server: &Arc<Server>, topic: &Topic) -> Result<(), Fault> {
    server.topics.delete(topic).await?;
    // The host's event does this too, but may come when a topic of the same name exists again.
    if let Err(error) = server.groups.topic_deleted(&topic.name, topic.id).await {
        tracing::warn!(topic = topic.name, %error, "committed offsets of a deleted topic stay until they expire");
    }
    Ok(())
}
