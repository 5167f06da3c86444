//! The table of what is served: one line per API key, with its versions and its handler.
//!
//! Everything follows from it: dispatch, the versions that ApiVersions advertises, the names in metrics. A handler
//! lives in a file of its own, `api/<group>/<api_name>.rs`, as
//! `pub(crate) async fn handle(server: &Arc<Server>, call: &Call, request: XRequest) -> XResponse`, and never sees a
//! version outside of its line. It must not know sockets.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use handler_api::Host;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Encodable, HeaderVersion};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::api::data::fetch_sessions::FetchSessions;
use crate::clock::Clock;
use crate::config::{Config, Limits};
use crate::coordinator::Groups;
use crate::coordinator::ids::ProducerIds;
use crate::log::Logs;
use crate::metrics::Metrics;
use crate::topics::Topics;
use crate::wire::WireError;
use crate::wire::response::{self, Encoded};

pub(crate) mod admin;
pub(crate) mod data;
pub(crate) mod group;
pub(crate) mod refuse;
pub(crate) mod security;

/// What every handler works on: made once by `plugin`, shared by all connections.
pub(crate) struct Server {
    /// Settings.
    pub(crate) config: Config,
    /// Bounds.
    pub(crate) limits: Limits,
    /// Time and randomness.
    pub(crate) clock: Arc<dyn Clock>,
    /// The broker's services.
    pub(crate) host: Host,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// Topics as Kafka sees them.
    pub(crate) topics: Arc<Topics>,
    /// The partitions that are open here.
    pub(crate) logs: Arc<Logs>,
    /// Groups and their offsets.
    pub(crate) groups: Groups,
    /// Ids of idempotent producers.
    pub(crate) producer_ids: ProducerIds,
    /// What clients fetch incrementally.
    pub(crate) fetch_sessions: FetchSessions,
    /// Becomes true when the plugin closes: what waits answers with what it has.
    pub(crate) closing: watch::Sender<bool>,
}

impl Server {
    /// Completes when the plugin closes.
    pub(crate) async fn closed(&self) {
        // An error would mean that the sender is gone, which lives in `self`.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }
}

/// What a client calls itself in ApiVersions (KIP-511).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientSoftware {
    /// E.g. `apache-kafka-java`.
    pub(crate) name: String,
    /// E.g. `4.3.1`.
    pub(crate) version: String,
}

/// What the requests of one connection share.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// Set by ApiVersions.
    pub(crate) software: Mutex<Option<ClientSoftware>>,
    /// Appends of one connection are made in the order of their requests: a Produce holds this from its first poll
    /// until its appends are handed over. The lock is fair, and first polls come in the order of arrival.
    pub(crate) produce_turn: Arc<tokio::sync::Mutex<()>>,
    /// The same for commits, so that the last one of a client is the one that stays.
    pub(crate) commit_turn: Arc<tokio::sync::Mutex<()>>,
}

/// One request beside its body.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Version of the request, within its line of the table.
    pub(crate) version: i16,
    /// The client's name for itself; empty if it has none.
    pub(crate) client_id: Arc<str>,
    /// Where the client is.
    pub(crate) peer: SocketAddr,
    /// Name of the listener that the client came in by.
    pub(crate) listener: Arc<str>,
    /// What the requests of its connection share.
    pub(crate) connection: Arc<Connection>,
}

/// What a request comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A reply.
    Bytes(Encoded),
    /// The client wants none (Produce with acks=0).
    Silent,
    /// The client wants none and must learn that something failed: its connection is closed.
    Close,
}

/// A reply that can be put on the wire: the codec's structs, and our own where those would copy records.
pub(crate) trait Answer {
    /// The bytes.
    fn encode(self, correlation_id: i32, version: i16) -> Result<Reply, WireError>;
}

impl<R: Encodable + HeaderVersion> Answer for R {
    fn encode(self, correlation_id: i32, version: i16) -> Result<Reply, WireError> {
        response::encode(correlation_id, version, &self).map(Reply::Bytes)
    }
}

/// The work on one request. Its first poll decodes the body.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<Reply, WireError>> + Send>>;

/// One line of the table.
pub(crate) struct Line {
    /// The API.
    pub(crate) key: ApiKey,
    /// Its name, as in Kafka's documentation.
    pub(crate) name: &'static str,
    /// Oldest version handled.
    pub(crate) min: i16,
    /// Newest version handled.
    pub(crate) max: i16,
    /// Whether ApiVersions names it. What is only answered to be refused (SASL on a plaintext listener) is not.
    pub(crate) advertised: bool,
    /// Whether it waits for others by its nature (a long poll, a joining member): `requestTimeoutMs` does not bound it.
    pub(crate) waits: bool,
    /// Starts the work: correlation id, body.
    pub(crate) start: fn(Arc<Server>, Call, i32, Bytes) -> Work,
}

impl Line {
    /// Whether a version is handled.
    pub(crate) fn serves(&self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }

    /// Its place in the table.
    pub(crate) fn place(&self) -> usize {
        TABLE
            .iter()
            .position(|line| line.key == self.key)
            .unwrap_or(usize::MAX)
    }
}

/// `Key min..=max => [group::module];`, with `hidden` for what is answered but not advertised and `waits` for what
/// waits by its nature in front of the handler.
macro_rules! table {
    (@is $wanted:ident) => { false };
    (@is hidden hidden $($rest:ident)*) => { true };
    (@is waits waits $($rest:ident)*) => { true };
    (@is $wanted:ident $other:ident $($rest:ident)*) => { table!(@is $wanted $($rest)*) };
    ($($key:ident $min:literal ..= $max:literal => $($flag:ident)* [$($handler:tt)+];)+) => {
        /// Every API that is served, by key.
        pub(crate) static TABLE: &[Line] = &[$(Line {
            key: ApiKey::$key,
            name: stringify!($key),
            min: $min,
            max: $max,
            advertised: !table!(@is hidden $($flag)*),
            waits: table!(@is waits $($flag)*),
            start: |server, call, correlation_id, body| Box::pin(async move {
                let version = call.version;
                let request = crate::wire::request::decode(version, &body)?;
                drop(body);
                let reply = $($handler)+::handle(&server, &call, request).await;
                Answer::encode(reply, correlation_id, version)
            }),
        },)+];
    };
}

table! {
    Produce 3..=13 => [data::produce];
    Fetch 4..=18 => waits [data::fetch];
    ListOffsets 1..=10 => [data::list_offsets];
    Metadata 0..=13 => [admin::metadata];
    OffsetCommit 2..=9 => [group::offset_commit];
    OffsetFetch 1..=9 => [group::offset_fetch];
    FindCoordinator 0..=6 => [group::find_coordinator];
    JoinGroup 0..=9 => waits [group::join_group];
    Heartbeat 0..=4 => [group::heartbeat];
    LeaveGroup 0..=5 => [group::leave_group];
    SyncGroup 0..=5 => waits [group::sync_group];
    DescribeGroups 0..=6 => [group::describe_groups];
    ListGroups 0..=5 => [group::list_groups];
    SaslHandshake 0..=1 => hidden [security::sasl_handshake];
    ApiVersions 0..=4 => [security::api_versions];
    CreateTopics 2..=7 => [admin::create_topics];
    DeleteTopics 1..=6 => [admin::delete_topics];
    DeleteRecords 0..=2 => [admin::delete_records];
    InitProducerId 0..=5 => [data::init_producer_id];
    OffsetForLeaderEpoch 2..=4 => [data::offset_for_leader_epoch];
    DescribeConfigs 1..=4 => [admin::describe_configs];
    AlterConfigs 0..=2 => [admin::alter_configs];
    DescribeLogDirs 1..=4 => [admin::describe_log_dirs];
    SaslAuthenticate 0..=2 => hidden [security::sasl_authenticate];
    CreatePartitions 0..=3 => [admin::create_partitions];
    DeleteGroups 0..=2 => [group::delete_groups];
    ElectLeaders 0..=2 => [admin::elect_leaders];
    IncrementalAlterConfigs 0..=1 => [admin::incremental_alter_configs];
    AlterPartitionReassignments 0..=1 => [admin::alter_partition_reassignments];
    ListPartitionReassignments 0..=0 => [admin::list_partition_reassignments];
    OffsetDelete 0..=0 => [group::offset_delete];
    DescribeCluster 0..=2 => [admin::describe_cluster];
    DescribeProducers 0..=0 => [data::describe_producers];
    ListConfigResources 0..=1 => [admin::list_config_resources];
    DescribeTopicPartitions 0..=0 => [admin::describe_topic_partitions];
}

/// The line of an API key.
pub(crate) fn line(key: i16) -> Option<&'static Line> {
    TABLE.iter().find(|line| line.key as i16 == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_within_what_the_codec_knows() {
        for pair in TABLE.windows(2) {
            let [first, second] = pair else { continue };
            assert!(
                (first.key as i16) < second.key as i16,
                "{} after {}",
                second.name,
                first.name
            );
        }
        for line in TABLE {
            let codec = line.key.valid_versions();
            assert!(
                codec.min <= line.min && line.min <= line.max && line.max <= codec.max,
                "{}",
                line.name
            );
        }
    }
}
