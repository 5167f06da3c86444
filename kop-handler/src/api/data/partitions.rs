//! From what a request names to open partitions: by topic name or id, in as few crossings as there are.
//!
//! It must not know what is done with a partition.

use std::sync::Arc;

use uuid::Uuid;

use crate::api::Server;
use crate::error::Fault;
use crate::log::Partition;
use crate::topics::Topic;

/// How a request names a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicRef<'a> {
    /// By name.
    Name(&'a str),
    /// By id (KIP-516).
    Id(Uuid),
}

/// Finds topics; answers in their order. An unknown name is [`Fault::UnknownTopicOrPartition`], an unknown id
/// [`Fault::UnknownTopicId`].
pub(super) async fn topics(
    server: &Server,
    wanted: &[TopicRef<'_>],
) -> Vec<Result<Arc<Topic>, Fault>> {
    let mut found: Vec<Option<Result<Arc<Topic>, Fault>>> = Vec::with_capacity(wanted.len());
    let mut missing = Vec::new();
    for (place, topic) in wanted.iter().enumerate() {
        let cached = match topic {
            TopicRef::Name(name) => server.topics.cached(name),
            TopicRef::Id(id) => server.topics.cached_by_id(*id),
        };
        if cached.is_none() {
            missing.push(place);
        }
        found.push(cached.map(Ok));
    }
    if !missing.is_empty() {
        let mut names = Vec::new();
        for place in missing {
            match (wanted.get(place), found.get_mut(place)) {
                (Some(TopicRef::Name(name)), _) => names.push((place, *name)),
                (Some(TopicRef::Id(id)), Some(slot)) => {
                    *slot = Some(server.topics.by_id(*id).await)
                }
                _ => {}
            }
        }
        let asked: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
        let answers = if asked.is_empty() {
            Vec::new()
        } else {
            server.topics.by_names(&asked).await
        };
        for ((place, _), answer) in names.into_iter().zip(answers) {
            if let Some(slot) = found.get_mut(place) {
                // What cannot be a topic's name is, to those who read and write, a topic that does not exist.
                *slot = Some(answer.map_err(|fault| match fault {
                    Fault::InvalidTopic(text) => Fault::UnknownTopicOrPartition(text),
                    fault => fault,
                }));
            }
        }
    }
    found
        .into_iter()
        .map(|topic| topic.unwrap_or_else(|| Err(Fault::UnknownTopicOrPartition(String::new()))))
        .collect()
}

/// Opens partitions by topic name and number; answers in the same shape.
pub(super) async fn open_named(
    server: &Server,
    asked: &[(&str, Vec<i32>)],
) -> Vec<Vec<Result<Arc<Partition>, Fault>>> {
    let names: Vec<TopicRef<'_>> = asked.iter().map(|(name, _)| TopicRef::Name(name)).collect();
    let topics = topics(server, &names).await;
    let mut opening = Vec::new();
    for (topic, (_, numbers)) in topics.iter().zip(asked) {
        if let Ok(topic) = topic {
            opening.extend(numbers.iter().map(|number| (Arc::clone(topic), *number)));
        }
    }
    let mut opened = open(server, &opening).await.into_iter();
    let lost = || Fault::Internal("a partition was not answered".to_owned());
    let mut answers = Vec::with_capacity(asked.len());
    for (topic, (_, numbers)) in topics.iter().zip(asked) {
        let of_topic = numbers.iter().map(|_| match topic {
            Ok(_) => opened.next().unwrap_or_else(|| Err(lost())),
            Err(fault) => Err(fault.clone()),
        });
        answers.push(of_topic.collect());
    }
    answers
}

/// Opens partitions of topics that were found; answers in their order.
pub(super) async fn open(
    server: &Server,
    wanted: &[(Arc<Topic>, i32)],
) -> Vec<Result<Arc<Partition>, Fault>> {
    let names: Vec<Option<String>> = wanted
        .iter()
        .map(|(topic, partition)| topic.partition(*partition))
        .collect();
    let existing: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
    let mut opened = server.logs.open(&existing).await.into_iter();
    names
        .iter()
        .map(|name| match name {
            Some(_) => opened
                .next()
                .unwrap_or_else(|| Err(Fault::Internal("a partition was not answered".to_owned()))),
            None => Err(Fault::UnknownTopicOrPartition(String::new())),
        })
        .collect()
}

/// Checks the leader epoch that a client knows against a partition's (KIP-320). −1: one of them does not know.
pub(super) fn check_leader_epoch(
    partition: &Partition,
    current_leader_epoch: i32,
) -> Result<(), Fault> {
    let ours = partition.leader_epoch();
    if current_leader_epoch < 0 || ours < 0 || current_leader_epoch == ours {
        Ok(())
    } else if current_leader_epoch < ours {
        Err(Fault::FencedLeaderEpoch(String::new()))
    } else {
        Err(Fault::UnknownLeaderEpoch(String::new()))
    }
}
