//! Drives a shard in tests: a clock in the hand, a log that is a list. After every command the shard is made anew from
//! its records and must hold the same durable state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use uuid::Uuid;

use super::message::*;
use super::{Offsets, Shard};
use crate::coordinator::record::{self, GroupValue, KeyValue, Record};

/// What is durable of a shard, by group.
pub(crate) type Durable = BTreeMap<String, (Option<GroupValue>, Offsets)>;

impl Shard {
    /// What is durable; groups that only live are left out.
    pub(crate) fn durable(&self) -> Durable {
        self.groups
            .iter()
            .filter(|(_, group)| group.durable.is_some() || !group.offsets.is_empty())
            .map(|(id, group)| {
                let value = group.durable.as_deref().cloned();
                (id.to_string(), (value, group.offsets.clone()))
            })
            .collect()
    }
}

/// A shard, its log and its clock.
pub(crate) struct Harness {
    pub(crate) shard: Shard,
    pub(crate) log: Vec<KeyValue>,
    pub(crate) now: Now,
    pub(crate) settings: Arc<GroupSettings>,
    replies: HashMap<Token, Reply>,
    next: Token,
}

/// A request in a test, by which its reply is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked(Token);

pub(crate) const GROUP: &str = "g";

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with(GroupSettings::default())
    }

    pub(crate) fn with(settings: GroupSettings) -> Self {
        let settings = Arc::new(settings);
        Self {
            shard: Shard::new(Arc::clone(&settings)),
            log: Vec::new(),
            now: Now {
                wall_ms: 1_000_000_000_000,
                mono_ms: 0,
            },
            settings,
            replies: HashMap::new(),
            next: 0,
        }
    }

    /// Runs a command; its records are durable at once.
    pub(crate) fn ask(&mut self, group: &str, command: Command) -> Asked {
        self.next += 1;
        let token = self.next;
        let before = self.shard.durable();
        let decision = self.shard.decide(self.now, group, token, command);
        assert_eq!(self.shard.durable(), before, "deciding changes nothing");
        for record in &decision.records {
            self.log.push(record::encode(record));
        }
        for record in decision.records {
            assert_eq!(record.group(), group, "a decision is about one group");
            self.shard.replay(record);
        }
        self.shard.soften(self.now, group, decision.soft);
        for (token, reply) in decision
            .released
            .into_iter()
            .chain(decision.reply.map(|r| (token, r)))
        {
            assert!(
                self.replies.insert(token, reply).is_none(),
                "answered twice"
            );
        }
        assert_eq!(
            self.reload().durable(),
            self.shard.durable(),
            "a reload finds equal state"
        );
        Asked(token)
    }

    /// A shard made from the log alone.
    pub(crate) fn reload(&self) -> Shard {
        let mut shard = Shard::new(Arc::clone(&self.settings));
        for KeyValue { key, value } in &self.log {
            let record = record::decode(key, value.as_deref()).unwrap().unwrap();
            shard.replay(record);
        }
        shard.wake(self.now);
        shard
    }

    /// The coordinator crashes and comes back; whoever waited is forgotten.
    pub(crate) fn crash(&mut self) {
        self.shard = self.reload();
    }

    /// The reply to a request, if it has one.
    pub(crate) fn reply(&self, asked: Asked) -> Option<&Reply> {
        self.replies.get(&asked.0)
    }

    /// Whether a request is still parked.
    pub(crate) fn waits(&self, asked: Asked) -> bool {
        self.reply(asked).is_none()
    }

    /// Lets time pass, with every deadline on the way taking effect when it comes.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        let end = self.now.mono_ms + ms;
        loop {
            let groups: Vec<String> = self.shard.group_ids().map(ToString::to_string).collect();
            let next = groups
                .iter()
                .filter_map(|id| Some((self.shard.next_deadline_ms(id)?, id.clone())))
                .min();
            match next {
                Some((at, group)) if at <= end => {
                    self.move_to(at.max(self.now.mono_ms));
                    self.ask(&group, Command::Tick);
                    let again = self.shard.next_deadline_ms(&group);
                    assert!(
                        again.is_none_or(|next| next > self.now.mono_ms),
                        "a deadline takes effect"
                    );
                }
                _ => break,
            }
        }
        self.move_to(end);
    }

    fn move_to(&mut self, mono_ms: u64) {
        self.now.wall_ms += i64::try_from(mono_ms - self.now.mono_ms).unwrap();
        self.now.mono_ms = mono_ms;
    }

    pub(crate) fn join(&mut self, join: Join) -> Asked {
        self.ask(GROUP, Command::Join(join))
    }

    pub(crate) fn joined(&self, asked: Asked) -> JoinReply {
        match self.reply(asked) {
            Some(Reply::Join(reply)) => reply.clone(),
            other => panic!("no reply to JoinGroup but {other:?}"),
        }
    }

    pub(crate) fn sync(&mut self, member: &str, generation: i32, assign: &[(&str, &str)]) -> Asked {
        self.ask(GROUP, Command::Sync(sync(member, generation, assign)))
    }

    pub(crate) fn synced(&self, asked: Asked) -> Result<String, ResponseError> {
        match self.reply(asked) {
            Some(Reply::Sync(reply)) => match reply.error {
                None => Ok(String::from_utf8(reply.assignment.to_vec()).unwrap()),
                Some(error) => Err(error),
            },
            other => panic!("no reply to SyncGroup but {other:?}"),
        }
    }

    pub(crate) fn beat(&mut self, member: &str, generation: i32) -> Option<ResponseError> {
        let asked = self.ask(
            GROUP,
            Command::Heartbeat(Heartbeat {
                member_id: member.into(),
                instance_id: None,
                generation,
            }),
        );
        match self.reply(asked) {
            Some(Reply::Heartbeat(error)) => *error,
            other => panic!("no reply to Heartbeat but {other:?}"),
        }
    }

    pub(crate) fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Vec<Option<ResponseError>> {
        let members = members
            .iter()
            .map(|(member, instance)| Leaving {
                member_id: (*member).into(),
                instance_id: instance.map(Into::into),
            })
            .collect();
        let asked = self.ask(GROUP, Command::Leave(members));
        match self.reply(asked) {
            Some(Reply::Leave(left)) => left.iter().map(|l| l.error).collect(),
            other => panic!("no reply to LeaveGroup but {other:?}"),
        }
    }

    pub(crate) fn commit(
        &mut self,
        commit: Commit,
    ) -> Result<Vec<Option<ResponseError>>, ResponseError> {
        let asked = self.ask(GROUP, Command::Commit(commit));
        match self.reply(asked) {
            Some(Reply::Commit(Ok(topics))) => Ok(topics
                .iter()
                .flat_map(|t| t.partitions.iter().map(|p| p.1))
                .collect()),
            Some(Reply::Commit(Err(error))) => Err(*error),
            other => panic!("no reply to OffsetCommit but {other:?}"),
        }
    }

    /// Offset −1 stands for none.
    pub(crate) fn offset(&mut self, topic: &str, partition: i32) -> i64 {
        let topics = vec![partitions(topic, &[partition])];
        let asked = self.ask(
            GROUP,
            Command::Fetch(FetchOffsets {
                topics: Some(topics),
            }),
        );
        match self.reply(asked) {
            Some(Reply::Fetch(topics)) => topics[0].partitions[0].offset,
            other => panic!("no reply to OffsetFetch but {other:?}"),
        }
    }

    pub(crate) fn describe(&mut self) -> Option<Description> {
        let asked = self.ask(GROUP, Command::Describe);
        match self.reply(asked) {
            Some(Reply::Describe(description)) => description.clone(),
            other => panic!("no reply to DescribeGroups but {other:?}"),
        }
    }

    pub(crate) fn state(&mut self) -> &'static str {
        self.describe().map_or("Dead", |group| group.state)
    }

    pub(crate) fn delete(&mut self) -> Result<bool, ResponseError> {
        let asked = self.ask(GROUP, Command::Delete);
        match self.reply(asked) {
            Some(Reply::Delete(outcome)) => *outcome,
            other => panic!("no reply to DeleteGroups but {other:?}"),
        }
    }

    /// A stable group of these members, who join at once; the ids that they got, the leader's first.
    pub(crate) fn stable(&mut self, names: &[&str]) -> Vec<String> {
        let asked: Vec<Asked> = names.iter().map(|name| self.join(member(name))).collect();
        self.pass_ms(6_000);
        let replies: Vec<JoinReply> = asked.iter().map(|a| self.joined(*a)).collect();
        self.settle(&replies)
    }

    /// All members of a join phase that has ended send their SyncGroup, each is assigned its own id.
    pub(crate) fn settle(&mut self, replies: &[JoinReply]) -> Vec<String> {
        let mut ids: Vec<String> = replies
            .iter()
            .map(|reply| reply.member_id.clone())
            .collect();
        let leader = replies[0].leader.clone();
        let generation = replies[0].generation;
        ids.sort_by_key(|id| *id != leader);
        let assign: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
        for id in ids.iter().rev() {
            let asked = self.sync(id, generation, if *id == leader { &assign } else { &[] });
            assert_eq!(self.waits(asked), *id != leader);
        }
        assert_eq!(self.state(), "Stable");
        ids
    }
}

/// A new consumer whose client id is `name`, of the time before KIP-394, so that one JoinGroup is enough.
pub(crate) fn member(name: &str) -> Join {
    Join {
        member_id: String::new(),
        instance_id: None,
        client_id: name.into(),
        client_host: "/127.0.0.1".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), subscription(&["t"]))],
        require_known_member_id: false,
        supports_skipping_assignment: true,
        fresh_id: "1".into(),
    }
}

/// The same consumer joining again.
pub(crate) fn again(id: &str) -> Join {
    Join {
        member_id: id.into(),
        ..member(id.split('-').next().unwrap())
    }
}

/// A static consumer.
pub(crate) fn fixed(instance: &str, fresh_id: &str) -> Join {
    Join {
        instance_id: Some(instance.into()),
        fresh_id: fresh_id.into(),
        ..member(instance)
    }
}

pub(crate) fn sync(member: &str, generation: i32, assign: &[(&str, &str)]) -> Sync {
    Sync {
        member_id: member.into(),
        instance_id: None,
        generation,
        protocol_type: None,
        protocol: None,
        assignments: assign
            .iter()
            .map(|(id, bytes)| ((*id).to_owned(), Bytes::from((*bytes).to_owned())))
            .collect(),
    }
}

/// A subscription as the consumer protocol writes it (version 0).
pub(crate) fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0];
    bytes.extend(i32::try_from(topics.len()).unwrap().to_be_bytes());
    for topic in topics {
        bytes.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend([0xff; 4]);
    bytes.into()
}

/// A commit of one offset by a member; empty id and generation −1 for a simple consumer.
pub(crate) fn commit(
    member: &str,
    generation: i32,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Commit {
    Commit {
        member_id: member.into(),
        instance_id: None,
        generation,
        retention_ms: -1,
        knows_group_id_not_found: true,
        topics: vec![CommitTopic {
            topic: topic.into(),
            topic_id: Uuid::nil(),
            partitions: vec![CommitPartition {
                partition,
                offset,
                leader_epoch: 5,
                metadata: "m".into(),
            }],
        }],
    }
}

pub(crate) fn partitions(topic: &str, numbers: &[i32]) -> TopicPartitions {
    TopicPartitions {
        topic: topic.into(),
        topic_id: Uuid::nil(),
        partitions: numbers.to_vec(),
    }
}

/// How many records of a log delete something.
pub(crate) fn tombstones(log: &[KeyValue]) -> usize {
    log.iter().filter(|record| record.value.is_none()).count()
}

/// The last record of a group in a log.
pub(crate) fn last_group(log: &[KeyValue]) -> GroupValue {
    let last = log
        .iter()
        .rev()
        .find_map(|kv| match record::decode(&kv.key, kv.value.as_deref()) {
            Ok(Some(Record::Group { value, .. })) => value,
            _ => None,
        });
    last.unwrap()
}
