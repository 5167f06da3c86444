//! Committed offsets of a group: commit, fetch, delete, expire.
//!
//! Kafka's source: `OffsetMetadataManager`, `ClassicGroup.validateOffsetCommit`, `offsetExpirationCondition`.

use std::collections::BTreeMap;

use kafka_protocol::error::ResponseError;
use uuid::Uuid;

use super::live::{Live, State};
use super::membership::validate;
use super::message::{
    Commit, CommitPartition, FetchOffsets, FetchedOffset, FetchedTopic, GroupSettings, Now, Reply,
    TopicOutcome, TopicPartitions,
};
use super::{Decision, Group, Soft};
use crate::coordinator::record::{self, OffsetValue, Record};

/// OffsetCommit's "as the broker is set".
const DEFAULT_RETENTION: i64 = -1;

pub(super) fn commit(
    settings: &GroupSettings,
    now: Now,
    id: &str,
    group: Option<&Group>,
    commit: Commit,
) -> Decision {
    if let Err(error) = may_commit(group, &commit) {
        return Decision::answer(Reply::Commit(Err(error)));
    }
    let expire_ms = (commit.retention_ms != DEFAULT_RETENTION)
        .then(|| now.wall_ms.saturating_add(commit.retention_ms));
    let mut records = Vec::new();
    let mut topics = Vec::with_capacity(commit.topics.len());
    for topic in commit.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            if too_large(&partition, settings.offset_metadata_max_size) {
                let error = ResponseError::OffsetMetadataTooLarge;
                partitions.push((partition.partition, Some(error)));
                continue;
            }
            partitions.push((partition.partition, None));
            records.push(Record::Offset {
                group: id.to_owned(),
                topic: topic.topic.clone(),
                partition: partition.partition,
                value: Some(OffsetValue {
                    offset: partition.offset,
                    // Requests that name a retention know no epochs, and neither do their records.
                    leader_epoch: expire_ms.map_or(partition.leader_epoch, |_| -1),
                    metadata: partition.metadata,
                    commit_ms: now.wall_ms,
                    expire_ms,
                    topic_id: topic.topic_id,
                }),
            });
        }
        topics.push(TopicOutcome {
            topic: topic.topic,
            partitions,
        });
    }
    let decision = Decision::write(records, Reply::Commit(Ok(topics)));
    let keeps_session = group.is_some_and(|group| {
        group.live.is(State::Stable) || group.live.is(State::PreparingRebalance)
    });
    if keeps_session {
        decision.touching(&commit.member_id)
    } else {
        decision
    }
}

/// Kafka counts a Java string: UTF-16 units.
fn too_large(partition: &CommitPartition, max: usize) -> bool {
    partition.metadata.len() > max && partition.metadata.encode_utf16().count() > max
}

fn may_commit(group: Option<&Group>, commit: &Commit) -> Result<(), ResponseError> {
    let Some(Group { live, .. }) = group else {
        return match commit.generation {
            ..0 => Ok(()), // a simple consumer: the group comes into being
            _ if commit.knows_group_id_not_found => Err(ResponseError::GroupIdNotFound),
            _ => Err(ResponseError::IllegalGeneration),
        };
    };
    if commit.generation < 0 && live.is(State::Empty) {
        return Ok(()); // an administrator, or a client without group management
    }
    let is_member = commit.generation >= 0 || !commit.member_id.is_empty();
    if !is_member && commit.instance_id.is_none() {
        return Err(ResponseError::UnknownMemberId); // others may not commit while members do
    }
    validate(live, &commit.member_id, commit.instance_id.as_deref())?;
    if commit.generation != live.generation {
        return Err(ResponseError::IllegalGeneration);
    }
    if live.is(State::CompletingRebalance) {
        // The member knows the new generation, whose assignment is not out yet.
        return Err(ResponseError::RebalanceInProgress);
    }
    Ok(())
}

pub(super) fn fetch(group: Option<&Group>, fetch: FetchOffsets) -> Vec<FetchedTopic> {
    let none = BTreeMap::new();
    let offsets = group.map_or(&none, |group| &group.offsets);
    let Some(topics) = fetch.topics else {
        return offsets
            .iter()
            .map(|(topic, partitions)| FetchedTopic {
                topic: topic.clone(),
                partitions: partitions
                    .iter()
                    .map(|(n, v)| fetched(*n, Some(v)))
                    .collect(),
            })
            .collect();
    };
    topics
        .into_iter()
        .map(|asked| {
            let held = offsets.get(&asked.topic);
            let partitions = asked.partitions.iter().map(|number| {
                let value = held
                    .and_then(|partitions| partitions.get(number))
                    .filter(|value| same_topic(value.topic_id, asked.topic_id));
                fetched(*number, value)
            });
            FetchedTopic {
                partitions: partitions.collect(),
                topic: asked.topic,
            }
        })
        .collect()
}

/// Offsets of a topic that was deleted and made again are not offsets of the new one.
fn same_topic(stored: Uuid, asked: Uuid) -> bool {
    stored.is_nil() || asked.is_nil() || stored == asked
}

fn fetched(partition: i32, value: Option<&OffsetValue>) -> FetchedOffset {
    FetchedOffset {
        partition,
        offset: value.map_or(-1, |value| value.offset),
        leader_epoch: value.map_or(-1, |value| value.leader_epoch),
        metadata: value.map_or_else(String::new, |value| value.metadata.clone()),
    }
}

pub(super) fn delete(id: &str, group: Option<&Group>, topics: Vec<TopicPartitions>) -> Decision {
    let refuse = |error| Decision::answer(Reply::DeleteOffsets(Err(error)));
    let Some(group) = group else {
        return refuse(ResponseError::GroupIdNotFound);
    };
    if !group.live.is(State::Empty) && !group.live.uses_consumer_protocol() {
        return refuse(ResponseError::NonEmptyGroup);
    }
    let subscribed = group.live.subscribed_topics();
    let mut records = Vec::new();
    let mut results = Vec::with_capacity(topics.len());
    for asked in topics {
        let in_use = group.live.subscribes(subscribed.as_ref(), &asked.topic);
        let held = group.offsets.get(&asked.topic);
        let mut partitions = Vec::with_capacity(asked.partitions.len());
        for partition in asked.partitions {
            partitions.push((
                partition,
                in_use.then_some(ResponseError::GroupSubscribedToTopic),
            ));
            if !in_use && held.is_some_and(|offsets| offsets.contains_key(&partition)) {
                records.push(tombstone(id, &asked.topic, partition));
            }
        }
        results.push(TopicOutcome {
            topic: asked.topic,
            partitions,
        });
    }
    Decision::write(records, Reply::DeleteOffsets(Ok(results)))
}

fn tombstone(group: &str, topic: &str, partition: i32) -> Record {
    Record::Offset {
        group: group.to_owned(),
        topic: topic.to_owned(),
        partition,
        value: None,
    }
}

/// Deletes an empty group: its offsets first, itself last; as many steps as its offsets need.
pub(super) fn delete_group(settings: &GroupSettings, id: &str, group: Option<&Group>) -> Decision {
    let refuse = |error| Decision::answer(Reply::Delete(Err(error)));
    let Some(group) = group else {
        return refuse(ResponseError::GroupIdNotFound);
    };
    if !group.live.is(State::Empty) {
        return refuse(ResponseError::NonEmptyGroup);
    }
    let doomed = all_offsets(group).map(|(topic, partition, _)| tombstone(id, topic, partition));
    let (mut records, more) = within_bounds(settings, doomed);
    if more {
        return Decision::write(records, Reply::Delete(Ok(true)));
    }
    remove_group(id, group, &mut records);
    let mut decision = Decision::write(records, Reply::Delete(Ok(false)));
    decision.soft = Soft::Replace(Box::new(Live::empty()));
    decision
}

/// As many records as one decision may make, and whether there are more.
fn within_bounds(
    settings: &GroupSettings,
    records: impl Iterator<Item = Record>,
) -> (Vec<Record>, bool) {
    let mut taken = Vec::new();
    let mut bytes = 0;
    for record in records {
        bytes += record::encode(&record).batched_len();
        let full =
            taken.len() >= settings.max_decision_records || bytes > settings.max_decision_bytes;
        if full && !taken.is_empty() {
            return (taken, true);
        }
        taken.push(record);
    }
    (taken, false)
}

fn remove_group(id: &str, group: &Group, records: &mut Vec<Record>) {
    if group.durable.is_some() {
        records.push(Record::Group {
            group: id.to_owned(),
            value: None,
        });
    }
}

fn all_offsets(group: &Group) -> impl Iterator<Item = (&str, i32, &OffsetValue)> {
    group.offsets.iter().flat_map(|(topic, partitions)| {
        partitions
            .iter()
            .map(move |(number, value)| (topic.as_str(), *number, value))
    })
}

pub(super) fn topic_deleted(
    settings: &GroupSettings,
    id: &str,
    group: Option<&Group>,
    topic: &str,
    topic_id: Uuid,
) -> Decision {
    let held = group.and_then(|group| group.offsets.get(topic));
    let doomed = held
        .into_iter()
        .flatten()
        .filter(|(_, value)| same_topic(value.topic_id, topic_id))
        .map(|(number, _)| tombstone(id, topic, *number));
    let (records, more) = within_bounds(settings, doomed);
    Decision::write(records, Reply::Swept(more))
}

/// Tombstones of the offsets past their retention, and of the group if nothing is left of it.
pub(super) fn expire(
    settings: &GroupSettings,
    now: Now,
    id: &str,
    group: Option<&Group>,
) -> Decision {
    let nothing = Decision::answer(Reply::Swept(false));
    let Some(group) = group else {
        return nothing;
    };
    if !group.live.pending.is_empty() {
        return nothing; // someone is about to join
    }
    let Some(base) = Retention::of(&group.live) else {
        return nothing;
    };
    let subscribed = group.live.subscribed_topics();
    let expired = all_offsets(group).filter(|(topic, _, value)| {
        !group.live.subscribes(subscribed.as_ref(), topic)
            && base.has_expired(&group.live, value, now, settings.offsets_retention_ms)
    });
    let doomed = expired.map(|(topic, partition, _)| tombstone(id, topic, partition));
    let (mut records, more) = within_bounds(settings, doomed);
    let all = records.len() == all_offsets(group).count();
    if all && group.live.is(State::Empty) {
        remove_group(id, group, &mut records);
        let mut decision = Decision::write(records, Reply::Swept(false));
        decision.soft = Soft::Replace(Box::new(Live::empty()));
        return decision;
    }
    Decision::write(records, Reply::Swept(more))
}

/// Writes the group and its offsets again as they are, those aside that were committed lately; as many steps as they
/// need. A log that loses its oldest part then loses nothing that holds.
pub(super) fn refresh(
    settings: &GroupSettings,
    id: &str,
    group: Option<&Group>,
    before_ms: i64,
    after: Option<&(String, i32)>,
) -> Decision {
    let Some(group) = group else {
        return Decision::answer(Reply::Refreshed(None));
    };
    let durable = group
        .durable
        .as_ref()
        .filter(|value| after.is_none() && value.state_ms < before_ms);
    let membership = durable.map(|value| Record::Group {
        group: id.to_owned(),
        value: Some(value.as_ref().clone()),
    });
    let is_left = |topic: &str, partition: i32| {
        after.is_none_or(|(last, number)| (topic, partition) > (last.as_str(), *number))
    };
    let offsets = all_offsets(group)
        .filter(|(topic, partition, _)| is_left(topic, *partition))
        .filter(|(_, _, value)| value.commit_ms < before_ms)
        .map(|(topic, partition, value)| Record::Offset {
            group: id.to_owned(),
            topic: topic.to_owned(),
            partition,
            value: Some(value.clone()),
        });
    let (records, more) = within_bounds(settings, membership.into_iter().chain(offsets));
    let next = records.last().filter(|_| more).map(|last| match last {
        Record::Offset {
            topic, partition, ..
        } => (topic.clone(), *partition),
        // Before the first offset of all.
        Record::Group { .. } => (String::new(), i32::MIN),
    });
    Decision::write(records, Reply::Refreshed(next))
}

/// From when on the retention of an offset is counted.
#[derive(Clone, Copy)]
enum Retention {
    /// Since the group is empty; since the commit where that is not known.
    SinceEmpty,
    /// Since the commit: simple consumers, and topics that a stable group no longer reads.
    SinceCommit,
}

impl Retention {
    /// `None`: the group is in use and nothing expires.
    fn of(live: &Live) -> Option<Self> {
        match (&live.protocol_type, live.state) {
            (None, _) => Some(Self::SinceCommit),
            (Some(_), State::Empty) => Some(Self::SinceEmpty),
            (Some(_), State::Stable) if live.subscribed_topics().is_some() => {
                Some(Self::SinceCommit)
            }
            (Some(_), _) => None,
        }
    }

    fn has_expired(self, live: &Live, value: &OffsetValue, now: Now, retention_ms: i64) -> bool {
        if let Some(expire_ms) = value.expire_ms {
            return now.wall_ms >= expire_ms;
        }
        let since = match self {
            Self::SinceEmpty if live.state_ms >= 0 => live.state_ms,
            Self::SinceEmpty | Self::SinceCommit => value.commit_ms,
        };
        now.wall_ms.saturating_sub(since) >= retention_ms
    }
}
