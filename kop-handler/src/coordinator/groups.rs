//! The group coordinator as the API files use it: one method per request, errors already Kafka's.
//!
//! It knows which requests may create the offsets topic, which group ids are legal where, and how long work is cut into
//! several commands. It must not know the codec or connections.

mod parts;

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use uuid::Uuid;

use super::engine::{Engine, EngineCensus};
use super::group::message::{
    Command, Commit, Description, FetchOffsets, FetchedTopic, GroupSettings, Heartbeat, Join,
    JoinReply, Leaving, Left, Listed, Reply, Sync, SyncReply, TopicOutcome, TopicPartitions,
};

/// Longest group id in bytes: what fits into a record's key.
const MAX_GROUP_ID: usize = i16::MAX as usize;

/// The group coordinator.
#[derive(Clone, Debug)]
pub struct Groups {
    engine: Arc<Engine>,
}

/// A state of a group that a filter may name, and its spelling in replies.
const STATES: [&str; 4] = [
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Empty",
];
/// The only type of group that exists here.
const CLASSIC: &str = "classic";

impl Groups {
    /// The coordinator over an engine.
    #[must_use]
    pub const fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Unique text for the id of a new member ([`Join::fresh_id`]).
    #[must_use]
    pub fn fresh_id(&self) -> String {
        self.engine.clock().uuid().to_string()
    }

    /// The partition of the offsets topic that coordinates a group; the topic is created if it does not exist.
    ///
    /// # Errors
    /// COORDINATOR_NOT_AVAILABLE if the topic cannot be looked up or created.
    pub async fn partition_of(&self, group: &str) -> Result<u32, ResponseError> {
        let shard = self.engine.shard_of(group, true).await?;
        shard.ok_or(ResponseError::CoordinatorNotAvailable)
    }

    /// JoinGroup: completes when the rebalance does.
    pub async fn join(&self, group: &str, join: Join) -> JoinReply {
        let member_id = join.member_id.clone();
        if !is_member_group(group) {
            return JoinReply::refused(ResponseError::InvalidGroupId, &member_id);
        }
        match self.engine.submit(group, Command::Join(join)).await {
            Reply::Join(reply) => reply,
            other => JoinReply::refused(refusal(&other), &member_id),
        }
    }

    /// SyncGroup: completes when the leader's assignment is durable.
    pub async fn sync(&self, group: &str, sync: Sync) -> SyncReply {
        if !is_member_group(group) {
            return SyncReply::refused(ResponseError::InvalidGroupId);
        }
        match self.engine.submit(group, Command::Sync(sync)).await {
            Reply::Sync(reply) => reply,
            other => SyncReply::refused(refusal(&other)),
        }
    }

    /// Heartbeat.
    ///
    /// # Errors
    /// What the member is to be told; REBALANCE_IN_PROGRESS sends it back to JoinGroup.
    pub async fn heartbeat(&self, group: &str, beat: Heartbeat) -> Result<(), ResponseError> {
        if !is_member_group(group) {
            return Err(ResponseError::InvalidGroupId);
        }
        match self.engine.submit(group, Command::Heartbeat(beat)).await {
            Reply::Heartbeat(None) => Ok(()),
            Reply::Heartbeat(Some(error)) => Err(error),
            // While the group loads, members are believed, as Kafka does.
            Reply::Unavailable(ResponseError::CoordinatorLoadInProgress) => Ok(()),
            other => Err(refusal(&other)),
        }
    }

    /// LeaveGroup, of one or several members.
    ///
    /// # Errors
    /// What holds for all of them.
    pub async fn leave(
        &self,
        group: &str,
        members: Vec<Leaving>,
    ) -> Result<Vec<Left>, ResponseError> {
        if !is_member_group(group) {
            return Err(ResponseError::InvalidGroupId);
        }
        match self.engine.submit(group, Command::Leave(members)).await {
            Reply::Leave(left) => Ok(left),
            other => Err(refusal(&other)),
        }
    }

    /// OffsetCommit. A commit of many partitions is written in several entries. Once the engine knows its shards,
    /// commits take effect in the order in which these futures are first polled.
    ///
    /// # Errors
    /// What holds for every partition.
    pub async fn commit(
        &self,
        group: &str,
        mut commit: Commit,
    ) -> Result<Vec<TopicOutcome>, ResponseError> {
        if !is_legal(group) {
            return Err(ResponseError::InvalidGroupId);
        }
        let most = most_at_once(
            self.engine.settings(),
            group,
            commit.topics.iter().map(|topic| topic.topic.len()),
            longest_metadata(self.engine.settings(), &commit),
        );
        let mut answers = Vec::new();
        for part in parts::split(std::mem::take(&mut commit.topics), most) {
            let command = Command::Commit(Commit {
                topics: part.topics,
                ..commit.clone()
            });
            let reply = self.engine.submit(group, command).await;
            let Reply::Commit(outcome) = reply else {
                return Err(refusal(&reply));
            };
            parts::join(&mut answers, part.goes_on, outcome?);
        }
        Ok(answers)
    }

    /// OffsetFetch of one group; an unknown group, topic or partition answers offset −1.
    ///
    /// # Errors
    /// What holds for the group.
    pub async fn fetch(
        &self,
        group: &str,
        fetch: FetchOffsets,
    ) -> Result<Vec<FetchedTopic>, ResponseError> {
        if !is_legal(group) {
            return Err(ResponseError::InvalidGroupId);
        }
        match self.engine.submit(group, Command::Fetch(fetch)).await {
            Reply::Fetch(topics) => Ok(topics),
            other => Err(refusal(&other)),
        }
    }

    /// DescribeGroups of one group; `None` if it does not exist.
    ///
    /// # Errors
    /// What holds for the group.
    pub async fn describe(&self, group: &str) -> Result<Option<Description>, ResponseError> {
        if !is_legal(group) {
            return Err(ResponseError::InvalidGroupId);
        }
        match self.engine.submit(group, Command::Describe).await {
            Reply::Describe(description) => Ok(description),
            other => Err(refusal(&other)),
        }
    }

    /// ListGroups: groups of this broker in one of the states and of one of the types; no filter: all. Names are
    /// compared without regard to case, and one that is no state or type matches nothing.
    ///
    /// # Errors
    /// What holds for all of them.
    pub async fn list(
        &self,
        states: &[&str],
        types: &[&str],
    ) -> Result<Vec<Listed>, ResponseError> {
        if !types.is_empty() && !types.iter().any(|kind| kind.eq_ignore_ascii_case(CLASSIC)) {
            return Ok(Vec::new());
        }
        let wanted: Vec<&str> = STATES
            .into_iter()
            .filter(|state| states.iter().any(|asked| asked.eq_ignore_ascii_case(state)))
            .collect();
        let mut groups = self.engine.list().await?;
        groups.retain(|group| states.is_empty() || wanted.contains(&group.state));
        Ok(groups)
    }

    /// DeleteGroups of one group.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or what holds for the coordinator.
    pub async fn delete(&self, group: &str) -> Result<(), ResponseError> {
        if !is_legal(group) {
            return Err(ResponseError::InvalidGroupId);
        }
        loop {
            match self.engine.submit(group, Command::Delete).await {
                Reply::Delete(Ok(true)) => {}
                Reply::Delete(Ok(false)) => return Ok(()),
                Reply::Delete(Err(error)) => return Err(error),
                other => return Err(refusal(&other)),
            }
        }
    }

    /// OffsetDelete. As with a commit, many partitions are deleted in several entries.
    ///
    /// # Errors
    /// What holds for the group; if it is only found in a later entry, what stood in the earlier ones is gone.
    pub async fn delete_offsets(
        &self,
        group: &str,
        topics: Vec<TopicPartitions>,
    ) -> Result<Vec<TopicOutcome>, ResponseError> {
        if !is_member_group(group) {
            return Err(ResponseError::InvalidGroupId);
        }
        let most = most_at_once(
            self.engine.settings(),
            group,
            topics.iter().map(|topic| topic.topic.len()),
            0,
        );
        let mut answers = Vec::new();
        for part in parts::split(topics, most) {
            let command = Command::DeleteOffsets(part.topics);
            let reply = self.engine.submit(group, command).await;
            let Reply::DeleteOffsets(outcome) = reply else {
                return Err(refusal(&reply));
            };
            parts::join(&mut answers, part.goes_on, outcome?);
        }
        Ok(answers)
    }

    /// A topic (as Kafka clients spell it) was deleted: committed offsets of it go, unless they were committed to a
    /// topic of the same name with another id. Nil stands for "any id".
    ///
    /// # Errors
    /// What kept some of them from being deleted; asking again does no harm.
    pub async fn topic_deleted(&self, topic: &str, topic_id: Uuid) -> Result<(), ResponseError> {
        for group in self.engine.groups_reading(topic).await? {
            let command = Command::TopicDeleted {
                topic: topic.to_owned(),
                topic_id,
            };
            loop {
                match self.engine.submit(&group, command.clone()).await {
                    Reply::Swept(true) => {}
                    Reply::Swept(false) => break,
                    other => return Err(refusal(&other)),
                }
            }
        }
        Ok(())
    }

    /// A log of a partition of the offsets topic was closed: unless another one is in use by now, members are sent
    /// elsewhere soon after this returns. May be called from anywhere, even from within an append.
    pub fn lose(&self, partition: u32) {
        self.engine.lose(partition);
    }

    /// This broker owns a partition of the offsets topic now.
    pub fn gain(&self, partition: u32) {
        self.engine.gain(partition);
    }

    /// What is held, for metrics.
    #[must_use]
    pub fn census(&self) -> EngineCensus {
        self.engine.census()
    }

    /// Waits for the appends under way and answers everyone who waits.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

/// Membership needs an id.
fn is_member_group(group: &str) -> bool {
    !group.is_empty() && is_legal(group)
}

/// Offsets may be kept under the empty id too, as clients of old did.
fn is_legal(group: &str) -> bool {
    group.len() <= MAX_GROUP_ID
}

/// The error in a reply that is not of the kind that was asked for.
fn refusal(reply: &Reply) -> ResponseError {
    match reply {
        Reply::Unavailable(error) => *error,
        _ => ResponseError::UnknownServerError,
    }
}

/// How many records of offsets one decision may hold: each repeats the names of group and topic. Lengths are in bytes.
fn most_at_once(
    settings: &GroupSettings,
    group: &str,
    topics: impl Iterator<Item = usize>,
    longest_metadata: usize,
) -> usize {
    /// What else is in a record, and around it.
    const AROUND: usize = 128;
    let record = AROUND + group.len() + topics.max().unwrap_or(0) + longest_metadata;
    let fit = settings.max_decision_bytes / record;
    fit.clamp(1, settings.max_decision_records.max(1))
}

/// Bytes of the longest metadata that a commit can store.
fn longest_metadata(settings: &GroupSettings, commit: &Commit) -> usize {
    const MAX_UTF8_PER_UNIT: usize = 3;
    let partitions = commit.topics.iter().flat_map(|topic| &topic.partitions);
    let longest = partitions.map(|partition| partition.metadata.len()).max();
    // Longer metadata is not stored.
    let most = settings.offset_metadata_max_size * MAX_UTF8_PER_UNIT;
    longest.unwrap_or(0).min(most)
}
