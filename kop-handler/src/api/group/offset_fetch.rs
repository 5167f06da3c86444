//! OffsetFetch (key 9), versions 1 to 9: where groups have read to.
//!
//! What was never committed, of whatever topic, is offset −1 and no error. An answer never shows a commit that is not
//! durable yet, so that every offset is stable as long as there are no transactions (`require_stable`, KIP-447).
//!
//! v2: all topics of a group, an error for the whole. v5: leader epochs. v7: `require_stable`. v8: many groups (KIP-709).
//! v9: member id and epoch, which only groups of the new protocol have. v10, by topic id, is more than the codec knows.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{GroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName};
use uuid::Uuid;

use super::{code, text, topics};
use crate::api::{Call, Server};
use crate::coordinator::group::message::{
    FetchOffsets, FetchedOffset, FetchedTopic, TopicPartitions,
};

/// Topics as asked: name and partitions. `None`: all that the group has.
type Asked = Option<Vec<(TopicName, Vec<i32>)>>;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    if call.version < 8 {
        let asked = asked_of_one(&request);
        let found = fetch(server, &request.group_id, &asked).await;
        return one(call.version, &asked, found);
    }
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let asked: Asked = group.topics.map(|topics| {
            let topics = topics.into_iter();
            topics
                .map(|topic| (topic.name, topic.partition_indexes))
                .collect()
        });
        let found = fetch(server, &group.group_id, &asked).await;
        groups.push(many(group.group_id, found));
    }
    OffsetFetchResponse::default().with_groups(groups)
}

fn asked_of_one(request: &OffsetFetchRequest) -> Asked {
    let topics = request.topics.as_ref()?.iter();
    Some(
        topics
            .map(|topic| (topic.name.clone(), topic.partition_indexes.clone()))
            .collect(),
    )
}

/// The offsets, under the names by which they were asked for.
async fn fetch(
    server: &Server,
    group: &str,
    asked: &Asked,
) -> Result<Vec<FetchedTopic>, ResponseError> {
    let Some(asked) = asked else {
        return server
            .groups
            .fetch(group, FetchOffsets { topics: None })
            .await;
    };
    let names: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
    let found = topics(server, &names).await;
    let wanted = asked.iter().zip(found).map(|((name, partitions), found)| {
        // A topic that does not exist may have offsets all the same: they are kept until they expire.
        let (topic, topic_id) = match found {
            Ok(found) => (found.name.clone(), found.id),
            Err(_) => (name.to_string(), Uuid::nil()),
        };
        TopicPartitions {
            topic,
            topic_id,
            partitions: partitions.clone(),
        }
    });
    let fetch = FetchOffsets {
        topics: Some(wanted.collect()),
    };
    let mut fetched = server.groups.fetch(group, fetch).await?;
    for (topic, (name, _)) in fetched.iter_mut().zip(asked) {
        topic.topic = name.to_string();
    }
    Ok(fetched)
}

fn one(
    version: i16,
    asked: &Asked,
    found: Result<Vec<FetchedTopic>, ResponseError>,
) -> OffsetFetchResponse {
    let (fetched, error) = match found {
        Ok(fetched) => (fetched, None),
        // v1 has no place for an error but the partitions.
        Err(error) if version < 2 => (unknown(asked), Some(error)),
        Err(error) => (Vec::new(), Some(error)),
    };
    let partition_code = if version < 2 { code(error) } else { 0 };
    let topics = fetched.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|fetched| {
            let partition = OffsetFetchResponsePartition::default()
                .with_partition_index(fetched.partition)
                .with_committed_offset(fetched.offset)
                .with_metadata(Some(text(fetched.metadata)))
                .with_error_code(partition_code);
            if version >= 5 {
                partition.with_committed_leader_epoch(fetched.leader_epoch)
            } else {
                partition
            }
        });
        OffsetFetchResponseTopic::default()
            .with_name(TopicName(text(topic.topic)))
            .with_partitions(partitions.collect())
    });
    let response = OffsetFetchResponse::default().with_topics(topics.collect());
    if version >= 2 {
        response.with_error_code(code(error))
    } else {
        response
    }
}

/// No offset for any partition that was asked for.
fn unknown(asked: &Asked) -> Vec<FetchedTopic> {
    let topics = asked.iter().flatten();
    topics
        .map(|(name, partitions)| FetchedTopic {
            topic: name.to_string(),
            partitions: partitions
                .iter()
                .map(|partition| FetchedOffset {
                    partition: *partition,
                    offset: -1,
                    leader_epoch: -1,
                    metadata: String::new(),
                })
                .collect(),
        })
        .collect()
}

fn many(
    group: GroupId,
    found: Result<Vec<FetchedTopic>, ResponseError>,
) -> OffsetFetchResponseGroup {
    let response = OffsetFetchResponseGroup::default().with_group_id(group);
    let fetched = match found {
        Ok(fetched) => fetched,
        Err(error) => return response.with_error_code(error.code()),
    };
    let topics = fetched.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|fetched| {
            OffsetFetchResponsePartitions::default()
                .with_partition_index(fetched.partition)
                .with_committed_offset(fetched.offset)
                .with_committed_leader_epoch(fetched.leader_epoch)
                .with_metadata(Some(text(fetched.metadata)))
        });
        OffsetFetchResponseTopics::default()
            .with_name(TopicName(text(topic.topic)))
            .with_partitions(partitions.collect())
    });
    response.with_topics(topics.collect())
}

/// A reply to a request that broke down.
pub(crate) fn refusal(
    request: OffsetFetchRequest,
    version: i16,
    error: ResponseError,
) -> OffsetFetchResponse {
    if version < 8 {
        return one(version, &asked_of_one(&request), Err(error));
    }
    let groups = request.groups.into_iter();
    let groups = groups.map(|group| many(group.group_id, Err(error)));
    OffsetFetchResponse::default().with_groups(groups.collect())
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::*;

    fn found() -> Vec<FetchedTopic> {
        vec![FetchedTopic {
            topic: "t".into(),
            partitions: vec![FetchedOffset {
                partition: 3,
                offset: 42,
                leader_epoch: 7,
                metadata: "m".into(),
            }],
        }]
    }

    fn response(
        version: i16,
        found: Result<Vec<FetchedTopic>, ResponseError>,
    ) -> OffsetFetchResponse {
        let asked = Some(vec![(TopicName(text("t")), vec![3])]);
        let response = if version < 8 {
            one(version, &asked, found)
        } else {
            OffsetFetchResponse::default().with_groups(vec![many(GroupId(text("g")), found)])
        };
        let mut bytes = BytesMut::new();
        response.encode(&mut bytes, version).unwrap();
        OffsetFetchResponse::decode(&mut bytes.freeze(), version).unwrap()
    }

    #[test]
    fn every_version_carries_offsets() {
        for version in 1..8 {
            let read = response(version, Ok(found()));
            let partition = &read.topics[0].partitions[0];
            let epoch = if version >= 5 { 7 } else { -1 };
            assert_eq!(
                (partition.committed_offset, partition.committed_leader_epoch),
                (42, epoch)
            );
            assert_eq!(partition.metadata.as_ref().unwrap().as_str(), "m");
        }
        for version in 8..=9 {
            let read = response(version, Ok(found()));
            let partition = &read.groups[0].topics[0].partitions[0];
            assert_eq!(
                (partition.committed_offset, partition.committed_leader_epoch),
                (42, 7)
            );
        }
    }

    #[test]
    fn an_error_stands_where_the_version_has_room_for_it() {
        for version in 1..=9 {
            let read = response(version, Err(ResponseError::NotCoordinator));
            let code = match version {
                1 => read.topics[0].partitions[0].error_code,
                2..8 => read.error_code,
                _ => read.groups[0].error_code,
            };
            assert_eq!(code, 16, "version {version}");
        }
    }
}
