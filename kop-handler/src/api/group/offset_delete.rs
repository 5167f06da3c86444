//! OffsetDelete (key 47), version 0: committed offsets of topics that a group does not read go (KIP-496).

use std::sync::Arc;

use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse, TopicName};

use super::code;
use crate::api::{Call, Server};
use crate::coordinator::group::message::TopicPartitions;

pub(crate) async fn handle(
    server: &Arc<Server>,
    _: &Call,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let names: Vec<&str> = request
        .topics
        .iter()
        .map(|topic| topic.name.as_str())
        .collect();
    let found = super::topics(server, &names).await;
    let mut asked = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for (topic, found) in request.topics.into_iter().zip(found) {
        let numbers: Vec<i32> = topic.partitions.iter().map(|p| p.partition_index).collect();
        match found {
            // Filled in when the coordinator has answered.
            Ok(found) => {
                topics.push((true, answer(topic.name, std::iter::empty())));
                asked.push(TopicPartitions {
                    topic: found.name.clone(),
                    topic_id: found.id,
                    partitions: numbers,
                });
            }
            Err(fault) => {
                let refused = numbers.into_iter().map(|number| (number, fault.code()));
                topics.push((false, answer(topic.name, refused)));
            }
        }
    }
    let deleted = match server.groups.delete_offsets(&request.group_id, asked).await {
        Ok(deleted) => deleted,
        Err(error) => return refusal(error.code()),
    };
    let places = topics.iter_mut().filter(|(known, _)| *known);
    for ((_, topic), deleted) in places.zip(deleted) {
        let partitions = deleted.partitions.into_iter();
        let done = partitions.map(|(number, error)| (number, code(error)));
        topic.partitions = answer(TopicName::default(), done).partitions;
    }
    OffsetDeleteResponse::default()
        .with_topics(topics.into_iter().map(|(_, topic)| topic).collect())
}

fn answer(
    name: TopicName,
    partitions: impl Iterator<Item = (i32, i16)>,
) -> OffsetDeleteResponseTopic {
    let partitions = partitions.map(|(number, code)| {
        OffsetDeleteResponsePartition::default()
            .with_partition_index(number)
            .with_error_code(code)
    });
    OffsetDeleteResponseTopic::default()
        .with_name(name)
        .with_partitions(partitions.collect())
}

/// A reply for the group as a whole.
pub(crate) fn refusal(code: i16) -> OffsetDeleteResponse {
    OffsetDeleteResponse::default().with_error_code(code)
}
