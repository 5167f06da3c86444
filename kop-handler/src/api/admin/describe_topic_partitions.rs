//! DescribeTopicPartitions (key 75), version 0.
//!
//! Topics with their partitions in pages (KIP-966), topics by name, from the cursor on. Every partition has one replica,
//! its leader, and no eligible leaders beside it: the host replicates beneath it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
};

use super::{NOBODY, operations, text};
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::{Leaders, Topic};

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let names = match names(server, &request).await {
        Ok(names) => names,
        Err(fault) => {
            let topics = request
                .topics
                .into_iter()
                .map(|topic| failed(topic.name.0.to_string(), &fault))
                .collect();
            return DescribeTopicPartitionsResponse::default()
                .with_topics(topics)
                .with_next_cursor(None);
        }
    };
    let all = request.topics.is_empty();
    let page = page(server, &request, names).await;
    let shown: Vec<Arc<Topic>> = page
        .topics
        .iter()
        .filter_map(|shown| Some(Arc::clone(&shown.topic.as_ref().ok()?.0)))
        .collect();
    // One lookup for the whole page.
    let leaders = server.topics.topic_leaders(&shown, &call.listener).await;
    let leaders = leaders.unwrap_or_else(|fault| {
        tracing::warn!(%fault, "the leaders of topics could not be looked up");
        Vec::new()
    });
    let mut leaders = leaders.into_iter();
    let mut topics = Vec::with_capacity(page.topics.len());
    for Shown { name, topic } in page.topics {
        match topic {
            Ok((topic, range)) => {
                let leaders = leaders.next().unwrap_or(Leaders::Each(Vec::new()));
                let epoch = server.topics.leader_epoch();
                let partitions: Vec<_> = range
                    .map(|index| partition(index, leaders.of(index), epoch))
                    .collect();
                topics.push(
                    DescribeTopicPartitionsResponseTopic::default()
                        .with_name(Some(TopicName(text(name))))
                        .with_topic_id(topic.id)
                        .with_is_internal(topic.internal)
                        .with_partitions(partitions)
                        .with_topic_authorized_operations(operations::on_topic(true)),
                );
            }
            // A topic that went while all were being described is no error.
            Err(Fault::UnknownTopicOrPartition(_)) if all => {}
            Err(fault) => topics.push(failed(name, &fault)),
        }
    }
    DescribeTopicPartitionsResponse::default()
        .with_topics(topics)
        .with_next_cursor(page.next)
}

/// A topic of a page: which of its partitions are on it, or what is wrong with it.
struct Shown {
    name: String,
    topic: Result<(Arc<Topic>, Range<u32>), Fault>,
}

/// What fits into one reply, and where the next one begins.
struct Page {
    topics: Vec<Shown>,
    next: Option<Cursor>,
}

async fn page(
    server: &Arc<Server>,
    request: &DescribeTopicPartitionsRequest,
    names: BTreeSet<String>,
) -> Page {
    let mut room = u32::try_from(request.response_partition_limit)
        .unwrap_or(0)
        .clamp(1, server.limits.max_partitions_per_page);
    let mut page = Page {
        topics: Vec::new(),
        next: None,
    };
    for name in names {
        let first = match &request.cursor {
            Some(cursor) if cursor.topic_name.as_str() == name => {
                u32::try_from(cursor.partition_index).unwrap_or(0)
            }
            _ => 0,
        };
        if room == 0 {
            page.next = Some(cursor_at(name, first));
            break;
        }
        let topic = server.topics.by_name(&name).await;
        let topic = topic.map(|topic| {
            let end = topic.partitions().min(first.saturating_add(room));
            room -= end.saturating_sub(first);
            if end < topic.partitions() {
                page.next = Some(cursor_at(name.clone(), end));
            }
            (topic, first..end)
        });
        page.topics.push(Shown { name, topic });
        if page.next.is_some() {
            break;
        }
    }
    page
}

fn cursor_at(topic: String, partition: u32) -> Cursor {
    Cursor::default()
        .with_topic_name(TopicName(text(topic)))
        .with_partition_index(i32::try_from(partition).unwrap_or(i32::MAX))
}

fn failed(name: String, fault: &Fault) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default()
        .with_error_code(fault.code())
        .with_name(Some(TopicName(text(name))))
        .with_topic_authorized_operations(operations::NOT_ASKED)
}

/// The topics from the cursor on, by name.
async fn names(
    server: &Arc<Server>,
    request: &DescribeTopicPartitionsRequest,
) -> Result<BTreeSet<String>, Fault> {
    let from = request
        .cursor
        .as_ref()
        .map_or("", |cursor| cursor.topic_name.as_str());
    let names: BTreeSet<String> = if request.topics.is_empty() {
        let topics = server.topics.list().await?;
        topics
            .iter()
            .map(|topic| topic.name.clone())
            .filter(|name| name.as_str() >= from)
            .collect()
    } else {
        request
            .topics
            .iter()
            .map(|topic| topic.name.to_string())
            .filter(|name| name.as_str() >= from)
            .collect()
    };
    let Some(cursor) = &request.cursor else {
        return Ok(names);
    };
    if !request.topics.is_empty() && !names.contains(from) {
        return Err(Fault::InvalidRequest(format!(
            "DescribeTopicPartitionsRequest topic list should contain the cursor topic: {from}"
        )));
    }
    if cursor.partition_index < 0 {
        return Err(Fault::InvalidRequest(format!(
            "DescribeTopicPartitionsRequest cursor partition must be valid: {}",
            cursor.partition_index
        )));
    }
    Ok(names)
}

fn partition(
    index: u32,
    leader: Option<i32>,
    leader_epoch: i32,
) -> DescribeTopicPartitionsResponsePartition {
    let reply = DescribeTopicPartitionsResponsePartition::default()
        .with_partition_index(i32::try_from(index).unwrap_or(i32::MAX))
        .with_eligible_leader_replicas(Some(Vec::new()))
        .with_last_known_elr(Some(Vec::new()));
    match leader.map(BrokerId) {
        Some(leader) => reply
            .with_leader_id(leader)
            .with_leader_epoch(leader_epoch)
            .with_replica_nodes(vec![leader])
            .with_isr_nodes(vec![leader]),
        None => reply
            .with_error_code(Fault::LeaderNotAvailable(String::new()).code())
            .with_leader_id(NOBODY),
    }
}
