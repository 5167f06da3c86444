//! OffsetDelete (key 47), version 0: committed offsets of topics that a group does not read go (KIP-496).

use std::sync::Arc;

use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse, TopicName};

use super::{code, topics};
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
    let found = topics(server, &names).await;
    let mut asked = Vec::new();
    let mut places: Vec<Result<TopicName, (TopicName, Vec<i32>, i16)>> = Vec::new();
    for (topic, found) in request.topics.iter().zip(found) {
        let numbers: Vec<i32> = topic.partitions.iter().map(|p| p.partition_index).collect();
        match found {
            Ok(found) => {
                places.push(Ok(topic.name.clone()));
                asked.push(TopicPartitions {
                    topic: found.name.clone(),
                    topic_id: found.id,
                    partitions: numbers,
                });
            }
            Err(fault) => places.push(Err((topic.name.clone(), numbers, fault.code()))),
        }
    }
    let deleted = match server.groups.delete_offsets(&request.group_id, asked).await {
        Ok(deleted) => deleted,
        Err(error) => return refusal(error.code()),
    };
    let mut deleted = deleted.into_iter();
    let topics = places.into_iter().filter_map(|place| match place {
        Ok(name) => {
            let partitions = deleted.next()?.partitions;
            Some(answer(
                name,
                partitions.into_iter().map(|(n, error)| (n, code(error))),
            ))
        }
        Err((name, numbers, code)) => Some(answer(name, numbers.into_iter().map(|n| (n, code)))),
    });
    OffsetDeleteResponse::default().with_topics(topics.collect())
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
