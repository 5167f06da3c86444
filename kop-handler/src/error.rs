//! Faults, sorted by who must act, and the one exhaustive map from them to Kafka's error codes.
//!
//! Every room answers with a [`Fault`]; only `api` turns it into a code on the wire. It must not know requests.

use handler_api::{ApiError, ErrorCode};
use kafka_protocol::error::ResponseError;

/// Who can do something about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The client: its request, its state or its rights are wrong.
    Peer,
    /// Nobody: it passes, and the client's retry succeeds.
    Time,
    /// The operator: a disk, a setting.
    Operator,
    /// Ourselves: a bug.
    Ourselves,
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $blame:ident, $code:ident, $text:literal;)+) => {
        /// What went wrong. Each carries a sentence for people; an empty one stands for the kind's own text.
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        pub enum Fault {
            $($(#[doc = $doc])+ #[error("{}", if .0.is_empty() { $text } else { .0.as_str() })] $name(String),)+
        }

        impl Fault {
            /// Who must act.
            #[must_use]
            pub const fn blame(&self) -> Blame {
                match self { $(Self::$name(_) => Blame::$blame,)+ }
            }

            /// Kafka's error.
            #[must_use]
            pub const fn response_error(&self) -> ResponseError {
                match self { $(Self::$name(_) => ResponseError::$code,)+ }
            }

            /// One of each kind, for tests of whole maps.
            #[cfg(test)]
            pub(crate) fn all() -> Vec<Self> {
                vec![$(Self::$name(String::new()),)+]
            }
        }
    };
}

faults! {
    // -- the peer's request ------------------------------------------------------------------------------------
    /// A field makes no sense, alone or with the others.
    InvalidRequest = Peer, InvalidRequest, "the request is malformed";
    /// The version of a part of the request, or a feature behind it, is not offered here.
    UnsupportedVersion = Peer, UnsupportedVersion, "this version is not supported";
    /// No such topic or partition.
    UnknownTopicOrPartition = Peer, UnknownTopicOrPartition, "the topic or partition does not exist";
    /// No topic has this id.
    UnknownTopicId = Peer, UnknownTopicId, "no topic has this id";
    /// The topic's id is not the one that the client knows.
    InconsistentTopicId = Peer, InconsistentTopicId, "the topic has another id";
    /// A name that cannot be a topic's, or may not be written by clients.
    InvalidTopic = Peer, InvalidTopicException, "the topic name is not valid";
    /// The topic exists already.
    TopicExists = Peer, TopicAlreadyExists, "the topic exists already";
    /// A number of partitions that cannot be.
    InvalidPartitions = Peer, InvalidPartitions, "the number of partitions is not valid";
    /// A replication factor that cannot be.
    InvalidReplicationFactor = Peer, InvalidReplicationFactor, "the replication factor is not valid";
    /// Replicas placed where none can be.
    InvalidReplicaAssignment = Peer, InvalidReplicaAssignment, "the replica assignment is not valid";
    /// A configuration key or value that Kafka refuses.
    InvalidConfig = Peer, InvalidConfig, "the configuration is not valid";
    /// Against a policy of the host.
    PolicyViolation = Peer, PolicyViolation, "the request violates a policy";
    /// Deleting topics is switched off.
    TopicDeletionDisabled = Peer, TopicDeletionDisabled, "topic deletion is disabled";
    /// Outside of what the partition holds.
    OffsetOutOfRange = Peer, OffsetOutOfRange, "the offset is out of range";
    /// A batch whose checksum, or whose framing, is wrong.
    CorruptMessage = Peer, CorruptMessage, "the record batch is corrupt";
    /// A batch or record that breaks a rule of the format or the topic.
    InvalidRecord = Peer, InvalidRecord, "the record batch is not valid";
    /// A record's timestamp is too far from now.
    InvalidTimestamp = Peer, InvalidTimestamp, "the timestamp is out of the accepted range";
    /// A batch larger than the topic accepts.
    MessageTooLarge = Peer, MessageTooLarge, "the record batch is too large";
    /// A batch larger than a segment.
    RecordListTooLarge = Peer, RecordListTooLarge, "the record batch is larger than a segment";
    /// A codec that this version of the request cannot carry.
    UnsupportedCompression = Peer, UnsupportedCompressionType, "the compression type is not supported here";
    /// An old message format that cannot hold what was asked.
    UnsupportedForMessageFormat = Peer, UnsupportedForMessageFormat, "not possible in this message format";
    /// acks other than 0, 1 or -1.
    InvalidRequiredAcks = Peer, InvalidRequiredAcks, "acks must be 0, 1 or -1";

    // -- the peer's state --------------------------------------------------------------------------------------
    /// A gap in a producer's sequence numbers.
    OutOfOrderSequence = Peer, OutOfOrderSequenceNumber, "the sequence number is out of order";
    /// An old batch again, older than the last five.
    DuplicateSequence = Peer, DuplicateSequenceNumber, "the sequence number was seen before";
    /// A producer with an old epoch.
    InvalidProducerEpoch = Peer, InvalidProducerEpoch, "the producer's epoch is old";
    /// Nothing is known of this producer.
    UnknownProducerId = Peer, UnknownProducerId, "the producer id is unknown";
    /// Another producer with the same transactional id took over.
    ProducerFenced = Peer, ProducerFenced, "the producer was fenced by a newer one";
    /// The transactional id belongs to another producer id.
    InvalidProducerIdMapping = Peer, InvalidProducerIdMapping, "the producer id does not belong to the transactional id";
    /// Not possible in this state of the transaction.
    InvalidTxnState = Peer, InvalidTxnState, "not possible in this state of the transaction";
    /// A transaction's timeout above the maximum.
    InvalidTransactionTimeout = Peer, InvalidTransactionTimeout, "the transaction timeout is too long";
    /// No such transactional id.
    TransactionalIdNotFound = Peer, TransactionalIdNotFound, "the transactional id does not exist";
    /// The fetch session is gone.
    FetchSessionIdNotFound = Peer, FetchSessionIdNotFound, "the fetch session does not exist";
    /// The fetch session is at another epoch.
    InvalidFetchSessionEpoch = Peer, InvalidFetchSessionEpoch, "the fetch session is at another epoch";
    /// The fetch session knows a topic by another id.
    FetchSessionTopicId = Peer, FetchSessionTopicIdError, "the fetch session mixes topic ids and names";
    /// The client's leader epoch is older than ours.
    FencedLeaderEpoch = Peer, FencedLeaderEpoch, "the leader epoch is older than the broker's";
    /// The client's leader epoch is newer than ours.
    UnknownLeaderEpoch = Peer, UnknownLeaderEpoch, "the leader epoch is newer than the broker's";
    /// No such member in the group.
    UnknownMemberId = Peer, UnknownMemberId, "the member is unknown";
    /// The group is at another generation.
    IllegalGeneration = Peer, IllegalGeneration, "the generation is not the group's";
    /// No protocol that all members support.
    InconsistentGroupProtocol = Peer, InconsistentGroupProtocol, "the member's protocols do not fit the group's";
    /// A group id that cannot be.
    InvalidGroupId = Peer, InvalidGroupId, "the group id is not valid";
    /// A session timeout outside of the bounds.
    InvalidSessionTimeout = Peer, InvalidSessionTimeout, "the session timeout is out of bounds";
    /// The member must join again.
    RebalanceInProgress = Peer, RebalanceInProgress, "the group is rebalancing";
    /// Join again with the member id given.
    MemberIdRequired = Peer, MemberIdRequired, "join again with the member id";
    /// Another member took over the static instance.
    FencedInstanceId = Peer, FencedInstanceId, "another member uses this instance id";
    /// The group is full.
    GroupMaxSizeReached = Peer, GroupMaxSizeReached, "the group is full";
    /// No such group.
    GroupIdNotFound = Peer, GroupIdNotFound, "the group does not exist";
    /// The group has members.
    NonEmptyGroup = Peer, NonEmptyGroup, "the group is not empty";
    /// The group consumes the topic.
    GroupSubscribedToTopic = Peer, GroupSubscribedToTopic, "the group is subscribed to the topic";
    /// A commit's metadata is too long.
    OffsetMetadataTooLarge = Peer, OffsetMetadataTooLarge, "the offset metadata is too large";
    /// A commit that does not fit into the log.
    InvalidCommitOffsetSize = Peer, InvalidCommitOffsetSize, "the commit is too large";
    /// A consumer group's member is at another epoch.
    StaleMemberEpoch = Peer, StaleMemberEpoch, "the member's epoch is stale";
    /// A consumer group's member was fenced.
    FencedMemberEpoch = Peer, FencedMemberEpoch, "the member was fenced";

    // -- the peer's rights -------------------------------------------------------------------------------------
    /// May not touch the topic.
    TopicAuthorizationFailed = Peer, TopicAuthorizationFailed, "not authorized for the topic";
    /// May not touch the group.
    GroupAuthorizationFailed = Peer, GroupAuthorizationFailed, "not authorized for the group";
    /// May not administer the cluster.
    ClusterAuthorizationFailed = Peer, ClusterAuthorizationFailed, "not authorized for the cluster";
    /// May not use the transactional id.
    TransactionalIdAuthorizationFailed = Peer, TransactionalIdAuthorizationFailed, "not authorized for the transactional id";
    /// No such mechanism.
    UnsupportedSaslMechanism = Peer, UnsupportedSaslMechanism, "the SASL mechanism is not offered";
    /// A SASL request where none is due.
    IllegalSaslState = Peer, IllegalSaslState, "a SASL request is not expected here";
    /// Wrong credentials.
    SaslAuthenticationFailed = Peer, SaslAuthenticationFailed, "authentication failed";
    /// What was asked depends on security that is switched off.
    SecurityDisabled = Peer, SecurityDisabled, "security is disabled";

    // -- it passes ---------------------------------------------------------------------------------------------
    /// Another broker leads the partition, or the handle died: look it up again.
    NotLeader = Time, NotLeaderOrFollower, "this broker does not lead the partition";
    /// The leader is being decided.
    LeaderNotAvailable = Time, LeaderNotAvailable, "the partition has no leader at the moment";
    /// No answer in time.
    TimedOut = Time, RequestTimedOut, "no answer in time";
    /// The coordinator is being loaded.
    CoordinatorLoading = Time, CoordinatorLoadInProgress, "the coordinator is loading";
    /// The coordinator cannot answer at the moment.
    CoordinatorNotAvailable = Time, CoordinatorNotAvailable, "the coordinator is not available";
    /// Another broker coordinates this.
    NotCoordinator = Time, NotCoordinator, "this broker is not the coordinator";
    /// Another transaction of the same id is being completed.
    ConcurrentTransactions = Time, ConcurrentTransactions, "another operation on the transaction is under way";
    /// A transaction is open on what was asked for.
    UnstableOffsetCommit = Time, UnstableOffsetCommit, "offsets of an open transaction are pending";

    // -- the operator ------------------------------------------------------------------------------------------
    /// Nothing was written: the disk is full or not writable.
    StorageRefused = Operator, KafkaStorageError, "the storage refuses writes";
    /// Bytes may have been written; the outcome is not known.
    StorageUnknown = Operator, KafkaStorageError, "the outcome of the write is not known";
    /// Stored bytes are damaged.
    StoredCorrupt = Operator, CorruptMessage, "stored data is damaged";

    // -- ourselves ---------------------------------------------------------------------------------------------
    /// A bug, or a fault of the host that has no better name.
    Internal = Ourselves, UnknownServerError, "internal error";
}

impl Fault {
    /// The code on the wire.
    #[must_use]
    pub const fn code(&self) -> i16 {
        self.response_error().code()
    }

    /// Whether Kafka's clients try again by themselves.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        self.response_error().is_retriable()
    }
}

/// What the host answers to an operation on an open managed ledger or a topic. Where a service means something else
/// by a code (`NotFound` of the metadata store, say), its caller maps it before.
impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        let kind = error.kind();
        let text = error.message.into_string();
        match kind {
            ErrorCode::NotFound => Self::UnknownTopicOrPartition(text),
            ErrorCode::HandleClosed | ErrorCode::NotOwner | ErrorCode::Closing => {
                Self::NotLeader(text)
            }
            ErrorCode::NotReady => Self::LeaderNotAvailable(text),
            ErrorCode::Refused | ErrorCode::NoSpace => Self::StorageRefused(text),
            ErrorCode::TooLarge => Self::MessageTooLarge(text),
            ErrorCode::UnknownOutcome => Self::StorageUnknown(text),
            ErrorCode::Corrupt => Self::StoredCorrupt(text),
            ErrorCode::Unauthenticated => Self::SaslAuthenticationFailed(text),
            ErrorCode::Unauthorized => Self::TopicAuthorizationFailed(text),
            ErrorCode::Timeout => Self::TimedOut(text),
            ErrorCode::Conflict => Self::TopicExists(text),
            ErrorCode::InvalidArgument => Self::InvalidRequest(text),
            ErrorCode::Internal | ErrorCode::Unsupported | ErrorCode::InvalidConfiguration => {
                Self::Internal(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_error_has_a_kafka_code() {
        for code in ErrorCode::ALL {
            let fault = Fault::from(ApiError::new(*code, "text"));
            assert_ne!(fault.code(), 0, "{code:?}");
            assert_eq!(fault.to_string(), "text", "{code:?} keeps its text");
        }
    }

    #[test]
    fn what_passes_is_retriable_for_clients() {
        for fault in Fault::all() {
            if fault.blame() == Blame::Time {
                // CONCURRENT_TRANSACTIONS is retried by the producer although the protocol does not mark it.
                let retried =
                    fault.is_retriable() || matches!(fault, Fault::ConcurrentTransactions(_));
                assert!(retried, "{fault:?}");
            }
        }
    }

    #[test]
    fn an_empty_text_is_replaced_by_the_kinds_own() {
        assert_eq!(
            Fault::InvalidRequiredAcks(String::new()).to_string(),
            "acks must be 0, 1 or -1"
        );
        assert_eq!(Fault::NotLeader("gone".to_owned()).to_string(), "gone");
    }
}
