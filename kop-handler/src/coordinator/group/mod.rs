//! Classic groups and their committed offsets, as a machine that is replayed from a log.
//!
//! `Shard` holds the groups of one partition of `__consumer_offsets`. `Shard::decide` is pure: it answers a command
//! with records, replies and a new living state, and changes nothing. `Shard::replay` is the only place that changes
//! what is durable, for live traffic and for recovery alike; `Shard::soften` puts the living state in place, which a
//! reload forgets. Both hand back an `Undo`, so that an append that is refused leaves no trace.
//!
//! Kafka's source: `GroupMetadataManager`, `OffsetMetadataManager`, `ClassicGroup`. It must not know logs, tasks,
//! clocks or randomness: time is an argument, and so is the id of a new member.

mod live;
mod membership;
pub mod message;
mod offsets;
mod rebalance;
mod shared_map;
mod subscription;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use self::live::{Live, State};
use self::message::{
    Command, DescribedMember, Description, GroupSettings, Listed, Now, Reply, Token,
};
use super::record::{GroupValue, OffsetValue, Record};

/// Committed offsets of a group: topic → partition → offset.
type Offsets = BTreeMap<String, BTreeMap<i32, OffsetValue>>;

/// One group: what the log says of it, and who lives in it.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The last record of its membership, if there is one.
    durable: Option<Arc<GroupValue>>,
    offsets: Offsets,
    live: Live,
}

impl Group {
    const fn new() -> Self {
        Self {
            durable: None,
            offsets: BTreeMap::new(),
            live: Live::empty(),
        }
    }

    /// Nothing durable, nobody living: as if it were not there.
    fn is_void(&self) -> bool {
        self.durable.is_none()
            && self.offsets.is_empty()
            && self.live.members.is_empty()
            && self.live.pending.is_empty()
    }

    fn describe(&self) -> Description {
        let stable = self.live.is(State::Stable);
        let protocol = self.live.protocol.clone().filter(|_| stable);
        Description {
            state: self.live.state.name(),
            protocol_type: self.live.protocol_type.clone().unwrap_or_default(),
            members: self
                .live
                .members
                .iter()
                .map(|(id, member)| DescribedMember {
                    member_id: id.to_string(),
                    instance_id: member.instance_id.clone(),
                    client_id: member.client_id.clone(),
                    client_host: member.client_host.clone(),
                    metadata: protocol
                        .as_deref()
                        .map(|name| member.metadata(name))
                        .unwrap_or_default(),
                    assignment: if stable {
                        member.assignment.clone()
                    } else {
                        Bytes::new()
                    },
                })
                .collect(),
            protocol: protocol.unwrap_or_default(),
        }
    }
}

/// What a command leads to.
#[derive(Debug)]
pub(crate) struct Decision {
    /// To append; replies wait until they are durable.
    pub(crate) records: Vec<Record>,
    /// What becomes of the living state.
    pub(crate) soft: Soft,
    /// The answer; `None` parks the request under its token (it may be among `released` already).
    pub(crate) reply: Option<Reply>,
    /// Answers to parked requests.
    pub(crate) released: Vec<(Token, Reply)>,
}

impl Decision {
    /// An answer that changes nothing.
    pub(crate) const fn answer(reply: Reply) -> Self {
        Self {
            records: Vec::new(),
            soft: Soft::Keep,
            reply: Some(reply),
            released: Vec::new(),
        }
    }

    /// Records and an answer.
    fn write(records: Vec<Record>, reply: Reply) -> Self {
        Self {
            records,
            ..Self::answer(reply)
        }
    }

    /// The same, and a member's session begins again.
    fn touching(mut self, member_id: &str) -> Self {
        self.soft = Soft::Touch(Arc::from(member_id));
        self
    }
}

/// A change of the living state.
#[derive(Debug)]
pub(crate) enum Soft {
    /// None.
    Keep,
    /// A member's session begins again.
    Touch(Arc<str>),
    /// A new one.
    Replace(Box<Live>),
}

/// How to take back one change.
#[derive(Debug)]
pub(crate) enum Undo {
    Offset {
        group: Arc<str>,
        topic: String,
        partition: i32,
        old: Option<OffsetValue>,
    },
    Group {
        group: Arc<str>,
        old: Option<Arc<GroupValue>>,
    },
    Live {
        group: Arc<str>,
        old: Box<Live>,
    },
}

/// The groups of one partition of `__consumer_offsets`.
#[derive(Debug)]
pub(crate) struct Shard {
    settings: Arc<GroupSettings>,
    groups: BTreeMap<Arc<str>, Group>,
}

impl Shard {
    pub(crate) const fn new(settings: Arc<GroupSettings>) -> Self {
        Self {
            settings,
            groups: BTreeMap::new(),
        }
    }

    /// What follows from a command; changes nothing.
    pub(crate) fn decide(&self, now: Now, id: &str, token: Token, command: Command) -> Decision {
        let group = self.groups.get(id);
        let makes_group = matches!(command, Command::Join(_) | Command::Commit(_));
        if group.is_none() && makes_group && self.groups.len() >= self.settings.max_groups_per_shard
        {
            return Decision::answer(Reply::Unavailable(ResponseError::CoordinatorNotAvailable));
        }
        let settings = self.settings.as_ref();
        match command {
            Command::Join(join) => membership::join(settings, now, id, group, token, join),
            Command::Sync(sync) => membership::sync(now, id, group, token, sync),
            Command::Heartbeat(beat) => membership::heartbeat(group, &beat),
            Command::Leave(members) => membership::leave(settings, now, id, group, members),
            Command::Tick => membership::tick(settings, now, id, group),
            Command::Commit(commit) => offsets::commit(settings, now, id, group, commit),
            Command::Fetch(fetch) => Decision::answer(Reply::Fetch(offsets::fetch(group, fetch))),
            Command::Describe => Decision::answer(Reply::Describe(group.map(Group::describe))),
            Command::Delete => offsets::delete_group(settings, id, group),
            Command::DeleteOffsets(topics) => offsets::delete(id, group, topics),
            Command::TopicDeleted { topic, topic_id } => {
                offsets::topic_deleted(settings, id, group, &topic, topic_id)
            }
            Command::Refresh { before_ms, after } => {
                offsets::refresh(settings, id, group, before_ms, after.as_ref())
            }
            Command::Expire => offsets::expire(settings, now, id, group),
        }
    }

    /// Applies a record: the only change of durable state.
    pub(crate) fn replay(&mut self, record: Record) -> Undo {
        let key: Arc<str> = Arc::from(record.group());
        let group = self.groups.entry(Arc::clone(&key)).or_insert(Group::new());
        let undo = match record {
            Record::Group { value, .. } => Undo::Group {
                group: Arc::clone(&key),
                old: std::mem::replace(&mut group.durable, value.map(Arc::new)),
            },
            Record::Offset {
                topic,
                partition,
                value,
                ..
            } => Undo::Offset {
                old: set_offset(&mut group.offsets, &topic, partition, value),
                group: Arc::clone(&key),
                topic,
                partition,
            },
        };
        self.sweep(&key);
        undo
    }

    /// Puts a living state in place.
    pub(crate) fn soften(&mut self, now: Now, id: &str, soft: Soft) -> Option<Undo> {
        let live = match soft {
            Soft::Keep => return None,
            Soft::Touch(member_id) => {
                let live = &mut self.groups.get_mut(id)?.live;
                if let Some(member) = live.change(&member_id) {
                    // Never nearer: a first join may last longer than a session.
                    let end_ms = now.mono_ms.saturating_add(member.session_ms());
                    member.deadline_ms = member.deadline_ms.max(end_ms);
                }
                return None; // a session that goes on does no harm when the rest is taken back
            }
            Soft::Replace(live) => live,
        };
        let key: Arc<str> = Arc::from(id);
        let group = self.groups.entry(Arc::clone(&key)).or_insert(Group::new());
        let old = std::mem::replace(&mut group.live, *live);
        self.sweep(&key);
        Some(Undo::Live {
            group: key,
            old: Box::new(old),
        })
    }

    /// Takes back a change. Changes must be taken back in reverse order. Members could not be heard while the append
    /// that failed was under way, so their sessions begin again.
    pub(crate) fn undo(&mut self, now: Now, undo: Undo) {
        let key = match &undo {
            Undo::Offset { group, .. } | Undo::Group { group, .. } | Undo::Live { group, .. } => {
                Arc::clone(group)
            }
        };
        let group = self.groups.entry(Arc::clone(&key)).or_insert(Group::new());
        match undo {
            Undo::Offset {
                topic,
                partition,
                old,
                ..
            } => {
                set_offset(&mut group.offsets, &topic, partition, old);
            }
            Undo::Group { old, .. } => group.durable = old,
            Undo::Live { old, .. } => {
                group.live = *old;
                group.live.freshen(now);
            }
        }
        self.sweep(&key);
    }

    /// Ends a load: every group with members becomes stable, and their sessions begin.
    pub(crate) fn wake(&mut self, now: Now) {
        for group in self.groups.values_mut() {
            if let Some(value) = &group.durable {
                group.live = Live::load(value, now);
            }
        }
    }

    /// When a group's next deadline comes, on the monotonic clock.
    pub(crate) fn next_deadline_ms(&self, id: &str) -> Option<u64> {
        self.groups.get(id)?.live.next_deadline_ms()
    }

    /// Ids of all groups.
    pub(crate) fn group_ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.groups.keys()
    }

    /// Ids of the groups that hold offsets of a topic.
    pub(crate) fn groups_reading(&self, topic: &str) -> Vec<Arc<str>> {
        self.groups
            .iter()
            .filter(|(_, group)| group.offsets.contains_key(topic))
            .map(|(id, _)| Arc::clone(id))
            .collect()
    }

    /// All groups in short.
    pub(crate) fn list(&self) -> Vec<Listed> {
        self.groups
            .iter()
            .map(|(id, group)| Listed {
                group: id.to_string(),
                protocol_type: group.live.protocol_type.clone().unwrap_or_default(),
                state: group.live.state.name(),
            })
            .collect()
    }

    /// Numbers of groups, members and committed offsets, for metrics.
    pub(crate) fn census(&self) -> Census {
        let mut census = Census::default();
        for group in self.groups.values() {
            census.groups += 1;
            census.members += group.live.members.len();
            census.offsets += group.offsets.values().map(BTreeMap::len).sum::<usize>();
        }
        census
    }

    /// Every request that is parked in a group.
    pub(crate) fn parked(&self) -> HashSet<Token> {
        self.groups
            .values()
            .flat_map(|group| group.live.parked())
            .collect()
    }

    fn sweep(&mut self, id: &str) {
        if self.groups.get(id).is_some_and(Group::is_void) {
            self.groups.remove(id);
        }
    }
}

/// What a shard holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Groups.
    pub groups: usize,
    /// Members of all groups.
    pub members: usize,
    /// Committed offsets.
    pub offsets: usize,
}

fn set_offset(
    offsets: &mut Offsets,
    topic: &str,
    partition: i32,
    value: Option<OffsetValue>,
) -> Option<OffsetValue> {
    match value {
        Some(value) => match offsets.get_mut(topic) {
            Some(partitions) => partitions.insert(partition, value),
            None => {
                offsets.insert(topic.to_owned(), BTreeMap::from([(partition, value)]));
                None
            }
        },
        None => {
            let partitions = offsets.get_mut(topic)?;
            let old = partitions.remove(&partition);
            if partitions.is_empty() {
                offsets.remove(topic);
            }
            old
        }
    }
}

#[cfg(test)]
mod tests;
