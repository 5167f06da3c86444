//! What a group machine is asked and what it answers, independent of protocol versions.
//!
//! The shapes follow Kafka's messages; the API files translate. It must not know the codec, the log or tasks.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use uuid::Uuid;

/// Names a request whose reply is parked inside a machine; the engine maps it back to the waiting connection.
pub type Token = u64;

/// Both clocks at the moment of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, ms since the epoch: goes into records.
    pub wall_ms: i64,
    /// Monotonic clock in ms: timeouts are counted on it.
    pub mono_ms: u64,
}

/// Bounds and timeouts of group machines; see the settings of the same names in `config.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// `groupMinSessionTimeoutMs`.
    pub min_session_timeout_ms: i32,
    /// `groupMaxSessionTimeoutMs`.
    pub max_session_timeout_ms: i32,
    /// `groupInitialRebalanceDelayMs`.
    pub initial_rebalance_delay_ms: u64,
    /// How long a new member's first JoinGroup may stay parked (Kafka's constant, 5 minutes).
    pub new_member_join_timeout_ms: u64,
    /// Most members of one group; one more is answered GROUP_MAX_SIZE_REACHED.
    pub max_group_size: usize,
    /// Most protocols that one member may offer; a JoinGroup with more is answered INVALID_REQUEST.
    pub max_member_protocols: usize,
    /// Most groups of one shard; one more is answered COORDINATOR_NOT_AVAILABLE.
    pub max_groups_per_shard: usize,
    /// `offsetMetadataMaxSize`, in UTF-16 units as Kafka counts.
    pub offset_metadata_max_size: usize,
    /// `offsetsRetentionMinutes` in ms.
    pub offsets_retention_ms: i64,
    /// `offsetsRetentionCheckIntervalMs`.
    pub offsets_check_interval_ms: u64,
    /// Where the log loses what is old: how old what still holds may become before it is written again, in ms.
    pub refresh_after_ms: Option<u64>,
    /// Most records that one decision may make; longer work is done in several.
    pub max_decision_records: usize,
    /// Most bytes of those records in a batch, unless there is only one.
    pub max_decision_bytes: usize,
}

impl Default for GroupSettings {
    /// Kafka's defaults, where it has them.
    fn default() -> Self {
        Self {
            min_session_timeout_ms: 6_000,
            max_session_timeout_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            new_member_join_timeout_ms: 300_000,
            max_group_size: 10_000,
            max_member_protocols: 32,
            max_groups_per_shard: 100_000,
            offset_metadata_max_size: 4096,
            offsets_retention_ms: 7 * 24 * 60 * 60 * 1000,
            offsets_check_interval_ms: 600_000,
            refresh_after_ms: None,
            max_decision_records: 5_000,
            max_decision_bytes: 2 * 1024 * 1024,
        }
    }
}

/// Something asked of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// JoinGroup.
    Join(Join),
    /// SyncGroup.
    Sync(Sync),
    /// Heartbeat.
    Heartbeat(Heartbeat),
    /// LeaveGroup.
    Leave(Vec<Leaving>),
    /// OffsetCommit.
    Commit(Commit),
    /// OffsetFetch.
    Fetch(FetchOffsets),
    /// DescribeGroups.
    Describe,
    /// DeleteGroups.
    Delete,
    /// OffsetDelete.
    DeleteOffsets(Vec<TopicPartitions>),
    /// A topic was deleted: its offsets go.
    TopicDeleted {
        /// Its name.
        topic: String,
        /// Its id, nil if not known; offsets committed under another id stay.
        topic_id: Uuid,
    },
    /// What was written before some time is written again.
    Refresh {
        /// Wall clock, ms since the epoch.
        before_ms: i64,
        /// Go on behind this topic and partition.
        after: Option<(String, i32)>,
    },
    /// Offsets past their retention go, and the group with them if nothing is left.
    Expire,
    /// A deadline of the group may have passed.
    Tick,
}

/// The answer to a [`Command`], of the same kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Command::Join`].
    Join(JoinReply),
    /// To [`Command::Sync`].
    Sync(SyncReply),
    /// To [`Command::Heartbeat`]: `None` is success.
    Heartbeat(Option<ResponseError>),
    /// To [`Command::Leave`].
    Leave(Vec<Left>),
    /// To [`Command::Commit`].
    Commit(Result<Vec<TopicOutcome>, ResponseError>),
    /// To [`Command::Fetch`].
    Fetch(Vec<FetchedTopic>),
    /// To [`Command::Describe`]; `None` if there is no such group.
    Describe(Option<Description>),
    /// To [`Command::Delete`]; `Ok(true)` asks for the same command again, more is left to delete.
    Delete(Result<bool, ResponseError>),
    /// To [`Command::DeleteOffsets`].
    DeleteOffsets(Result<Vec<TopicOutcome>, ResponseError>),
    /// To [`Command::TopicDeleted`] and [`Command::Expire`]; `true` asks for the same command again.
    Swept(bool),
    /// To [`Command::Refresh`]: where to go on, `None` when all is done.
    Refreshed(Option<(String, i32)>),
    /// To [`Command::Tick`].
    Ticked,
    /// The coordinator cannot answer; every kind of request is answered with this error.
    Unavailable(ResponseError),
}

/// JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Member id, empty for a new member.
    pub member_id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
    /// Client id from the request's header.
    pub client_id: String,
    /// `/address` of the client.
    pub client_host: String,
    /// Session timeout in ms.
    pub session_timeout_ms: i32,
    /// Rebalance timeout in ms (v0: the session timeout).
    pub rebalance_timeout_ms: i32,
    /// `consumer`, `connect`, …
    pub protocol_type: String,
    /// Protocols in order of preference, each with its metadata.
    pub protocols: Vec<(String, Bytes)>,
    /// Whether a new member must come again with the id that it is given (KIP-394, v4).
    pub require_known_member_id: bool,
    /// Whether the client understands `skip_assignment` (KIP-814, v9).
    pub supports_skipping_assignment: bool,
    /// Unique text for the id of a new member.
    pub fresh_id: String,
}

/// Answer to JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReply {
    /// `None` is success.
    pub error: Option<ResponseError>,
    /// Generation, −1 on errors.
    pub generation: i32,
    /// Protocol type.
    pub protocol_type: Option<String>,
    /// Chosen protocol.
    pub protocol: Option<String>,
    /// Leader's member id.
    pub leader: String,
    /// The leader need not assign: the assignment stands (KIP-814).
    pub skip_assignment: bool,
    /// The member's own id.
    pub member_id: String,
    /// All members, for the leader only.
    pub members: Vec<JoinedMember>,
}

impl JoinReply {
    /// A refusal.
    #[must_use]
    pub fn refused(error: ResponseError, member_id: &str) -> Self {
        Self {
            error: Some(error),
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: String::new(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }
}

/// A member as the leader learns of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Member id.
    pub member_id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
    /// Metadata for the chosen protocol.
    pub metadata: Bytes,
}

/// SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// Member id.
    pub member_id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
    /// Generation.
    pub generation: i32,
    /// Checked if given (v5).
    pub protocol_type: Option<String>,
    /// Checked if given (v5).
    pub protocol: Option<String>,
    /// From the leader: member id → assignment.
    pub assignments: Vec<(String, Bytes)>,
}

/// Answer to SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReply {
    /// `None` is success.
    pub error: Option<ResponseError>,
    /// Protocol type.
    pub protocol_type: Option<String>,
    /// Protocol.
    pub protocol: Option<String>,
    /// The member's assignment.
    pub assignment: Bytes,
}

impl SyncReply {
    /// A refusal.
    #[must_use]
    pub fn refused(error: ResponseError) -> Self {
        Self {
            error: Some(error),
            protocol_type: None,
            protocol: None,
            assignment: Bytes::new(),
        }
    }
}

/// Heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Member id.
    pub member_id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
    /// Generation.
    pub generation: i32,
}

/// One member of LeaveGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Member id; empty to name a static member by its instance id.
    pub member_id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
}

/// One member's outcome of LeaveGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// As asked.
    pub member_id: String,
    /// As asked.
    pub instance_id: Option<String>,
    /// `None` is success.
    pub error: Option<ResponseError>,
}

/// OffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Member id, empty from a client that is no member.
    pub member_id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
    /// Generation, −1 from a client that is no member.
    pub generation: i32,
    /// How long to keep the offsets, in ms; −1: as the broker is set (v2–4).
    pub retention_ms: i64,
    /// From v9 on a group that does not exist is GROUP_ID_NOT_FOUND, before ILLEGAL_GENERATION.
    pub knows_group_id_not_found: bool,
    /// What to commit.
    pub topics: Vec<CommitTopic>,
}

/// A topic with what is wanted of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOf<P> {
    /// Name.
    pub topic: String,
    /// Id, nil if not known. An offset committed under another id is not found.
    pub topic_id: Uuid,
    /// One for each.
    pub partitions: Vec<P>,
}

/// One topic of a commit.
pub type CommitTopic = TopicOf<CommitPartition>;

/// A topic with the numbers of some of its partitions.
pub type TopicPartitions = TopicOf<i32>;

/// One partition of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPartition {
    /// Number.
    pub partition: i32,
    /// Offset of the next record to read.
    pub offset: i64,
    /// Leader epoch, −1 if unknown.
    pub leader_epoch: i32,
    /// The client's text.
    pub metadata: String,
}

/// What became of the partitions of one topic, in a commit or a deletion of offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOutcome {
    /// Name.
    pub topic: String,
    /// Per partition; `None` is success.
    pub partitions: Vec<(i32, Option<ResponseError>)>,
}

/// OffsetFetch of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOffsets {
    /// Which offsets; `None`: all.
    pub topics: Option<Vec<TopicPartitions>>,
}

/// One topic of an OffsetFetch answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedTopic {
    /// Name.
    pub topic: String,
    /// Partitions.
    pub partitions: Vec<FetchedOffset>,
}

/// One committed offset as fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    /// Partition number.
    pub partition: i32,
    /// Offset, −1 if none is committed.
    pub offset: i64,
    /// Leader epoch, −1 if unknown.
    pub leader_epoch: i32,
    /// The client's text.
    pub metadata: String,
}

/// A group as DescribeGroups tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Kafka's name of the state.
    pub state: &'static str,
    /// Protocol type, empty if none.
    pub protocol_type: String,
    /// Protocol, empty unless the group is stable.
    pub protocol: String,
    /// Members.
    pub members: Vec<DescribedMember>,
}

/// A member as DescribeGroups tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    /// Member id.
    pub member_id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
    /// Client id.
    pub client_id: String,
    /// `/address`.
    pub client_host: String,
    /// Metadata for the protocol; empty unless the group is stable.
    pub metadata: Bytes,
    /// Assignment; empty unless the group is stable.
    pub assignment: Bytes,
}

/// A group as ListGroups tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Group id.
    pub group: String,
    /// Protocol type, empty if none.
    pub protocol_type: String,
    /// Kafka's name of the state.
    pub state: &'static str,
}
