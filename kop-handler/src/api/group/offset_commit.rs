//! OffsetCommit (key 8), versions 2 to 9: where a group, or a client without one, has read to.
//!
//! Commits of one connection take effect in the order of their requests. A partition that does not exist is
//! UNKNOWN_TOPIC_OR_PARTITION, and the others are committed. Offsets are kept with the topic's id, so that those of a
//! topic that was deleted never count for one of the same name.
//!
//! v2–4: a retention of the client's own. v6: leader epochs. v7: static members. v9: GROUP_ID_NOT_FOUND. v10, by topic
//! id, is more than the codec knows.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse, TopicName};

use super::{code, has_partition, topics};
use crate::api::{Call, Server};
use crate::coordinator::group::message::{Commit, CommitPartition, CommitTopic, TopicOutcome};

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let turn = Arc::clone(&call.connection.commit_turn).lock_owned().await;
    let names: Vec<&str> = request
        .topics
        .iter()
        .map(|topic| topic.name.as_str())
        .collect();
    let found = topics(server, &names).await;

    let mut answers = Vec::with_capacity(request.topics.len());
    let mut known = Vec::new();
    for (topic, found) in request.topics.iter().zip(found) {
        let mut answer = Answer::new(topic);
        match found {
            Err(fault) => answer.all(fault.code()),
            Ok(found) => {
                let exists = |index| has_partition(&found, index);
                known.push(CommitTopic {
                    topic: found.name.clone(),
                    topic_id: found.id,
                    partitions: answer.sort(&topic.partitions, exists),
                });
            }
        }
        answers.push(answer);
    }
    // Kafka asks the coordinator only if something is left to commit.
    let outcome = if known.iter().all(|topic| topic.partitions.is_empty()) {
        Ok(Vec::new())
    } else {
        let group = request.group_id.as_str();
        // The order of commits is that of their first polls once the shards are known.
        match server.groups.partition_of(group).await {
            Err(error) => Err(error),
            Ok(_) => {
                let commit = commit(call.version, &request, known);
                let mut committing = pin!(server.groups.commit(group, commit));
                let first =
                    std::future::poll_fn(|context| Poll::Ready(committing.as_mut().poll(context)));
                match first.await {
                    Poll::Ready(outcome) => outcome,
                    Poll::Pending => {
                        drop(turn);
                        committing.await
                    }
                }
            }
        }
    };
    let topics = merge(answers, outcome);
    OffsetCommitResponse::default().with_topics(topics)
}

fn commit(version: i16, request: &OffsetCommitRequest, topics: Vec<CommitTopic>) -> Commit {
    Commit {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.as_ref().map(ToString::to_string),
        generation: request.generation_id_or_member_epoch,
        retention_ms: request.retention_time_ms,
        knows_group_id_not_found: version >= 9,
        topics,
    }
}

/// The answer to one topic, in the order of its partitions; `None` stands for the coordinator's own.
struct Answer {
    name: TopicName,
    partitions: Vec<(i32, Option<i16>)>,
}

impl Answer {
    fn new(topic: &OffsetCommitRequestTopic) -> Self {
        Self {
            name: topic.name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|p| (p.partition_index, None))
                .collect(),
        }
    }

    fn all(&mut self, code: i16) {
        for (_, answer) in &mut self.partitions {
            *answer = Some(code);
        }
    }

    /// Answers partitions that do not exist, and gives the others to the coordinator.
    fn sort(
        &mut self,
        asked: &[OffsetCommitRequestPartition],
        exists: impl Fn(i32) -> bool,
    ) -> Vec<CommitPartition> {
        let mut known = Vec::with_capacity(asked.len());
        for (partition, (_, answer)) in asked.iter().zip(&mut self.partitions) {
            if !exists(partition.partition_index) {
                *answer = Some(ResponseError::UnknownTopicOrPartition.code());
                continue;
            }
            known.push(CommitPartition {
                partition: partition.partition_index,
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                metadata: partition
                    .committed_metadata
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            });
        }
        known
    }
}

/// Puts the coordinator's answers into their places.
fn merge(
    answers: Vec<Answer>,
    outcome: Result<Vec<TopicOutcome>, ResponseError>,
) -> Vec<OffsetCommitResponseTopic> {
    let (committed, error) = match outcome {
        Ok(committed) => (committed, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let mut codes = committed
        .into_iter()
        .flat_map(|topic| topic.partitions)
        .map(|(_, error)| code(error));
    let failed = code(error.or(Some(ResponseError::UnknownServerError)));
    answers
        .into_iter()
        .map(|answer| {
            let partitions = answer.partitions.into_iter().map(|(index, code)| {
                OffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(code.or_else(|| codes.next()).unwrap_or(failed))
            });
            OffsetCommitResponseTopic::default()
                .with_name(answer.name)
                .with_partitions(partitions.collect())
        })
        .collect()
}

/// A reply to a request that broke down.
pub(crate) fn refusal(request: &OffsetCommitRequest, code: i16) -> OffsetCommitResponse {
    let mut answers: Vec<Answer> = request.topics.iter().map(Answer::new).collect();
    answers.iter_mut().for_each(|answer| answer.all(code));
    OffsetCommitResponse::default().with_topics(merge(answers, Ok(Vec::new())))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::protocol::StrBytes;

    use super::*;

    fn request(topics: &[(&'static str, &[i32])]) -> Vec<OffsetCommitRequestTopic> {
        let topic = |(name, numbers): &(&'static str, &[i32])| {
            let partition =
                |n: &i32| OffsetCommitRequestPartition::default().with_partition_index(*n);
            OffsetCommitRequestTopic::default()
                .with_name(TopicName(StrBytes::from_static_str(name)))
                .with_partitions(numbers.iter().map(partition).collect())
        };
        topics.iter().map(topic).collect()
    }

    #[test]
    fn every_partition_gets_its_own_answer_in_the_order_of_the_request() {
        let asked = request(&[("a", &[0, 9, 1]), ("gone", &[0]), ("b", &[2])]);
        let mut answers: Vec<Answer> = asked.iter().map(Answer::new).collect();
        answers[1].all(3);
        let known = [
            answers[0].sort(&asked[0].partitions, |n| n < 9),
            answers[2].sort(&asked[2].partitions, |n| n < 9),
        ];
        let numbers: Vec<i32> = known.iter().flatten().map(|p| p.partition).collect();
        assert_eq!(numbers, [0, 1, 2]);
        let committed = vec![
            TopicOutcome {
                topic: "a".into(),
                partitions: vec![(0, None), (1, Some(ResponseError::OffsetMetadataTooLarge))],
            },
            TopicOutcome {
                topic: "b".into(),
                partitions: vec![(2, None)],
            },
        ];
        let codes = |topics: &[OffsetCommitResponseTopic]| -> Vec<(String, i32, i16)> {
            let flat = topics.iter().flat_map(|t| {
                t.partitions
                    .iter()
                    .map(|p| (t.name.to_string(), p.partition_index, p.error_code))
            });
            flat.collect()
        };
        let expected = [
            ("a", 0, 0),
            ("a", 9, 3),
            ("a", 1, 12),
            ("gone", 0, 3),
            ("b", 2, 0),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(t, p, c)| ((*t).to_owned(), *p, *c))
            .collect();
        assert_eq!(codes(&merge(answers, Ok(committed))), expected);
    }

    #[test]
    fn an_error_of_the_group_is_that_of_every_partition_that_exists() {
        let asked = request(&[("a", &[0, 9])]);
        let mut answer = Answer::new(&asked[0]);
        answer.sort(&asked[0].partitions, |n| n < 9);
        let topics = merge(vec![answer], Err(ResponseError::IllegalGeneration));
        let codes: Vec<i16> = topics[0].partitions.iter().map(|p| p.error_code).collect();
        assert_eq!(codes, [22, 3]);
    }
}
