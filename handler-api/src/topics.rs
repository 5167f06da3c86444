//! Topics, namespaces and brokers: what Pulsar's admin API and namespace service offer.
//!
//! Names are full Pulsar names: `persistent://tenant/namespace/topic`. It must not know Kafka's names.

use std::collections::HashMap;

use prost::Message;

use crate::control::{Event, Nothing, operations};

operations! {
    /// Looks at topics by name; an unknown one is answered without `found`, and never created.
    DescribeTopics = 0x0101: TopicNames => TopicList;
    /// All topics of a namespace, partitioned ones once (not their partitions), by name.
    ListTopics = 0x0102: Namespace => TopicList;
    /// Creates a partitioned topic (or a non-partitioned one with 0 partitions). `Conflict` if it exists,
    /// `NotFound` if its namespace does not.
    CreateTopic = 0x0103: Topic => Topic;
    /// Expands a topic and changes its properties. `Conflict` if it is not as [`TopicChange::expect`] says.
    UpdateTopic = 0x0104: TopicChange => Topic;
    /// Deletes a topic with all its partitions and data. Open handles die.
    DeleteTopic = 0x0105: TopicName => Nothing;
    /// Creates tenant and namespace if they are missing.
    EnsureNamespace = 0x0106: Namespace => Nothing;
    /// The namespaces of a tenant.
    ListNamespaces = 0x0107: Tenant => NamespaceList;
    /// The brokers that are alive.
    ListBrokers = 0x0108: Nothing => Cluster;
    /// Says how long a topic's data is to be kept, to a host that gives data up by itself
    /// ([`crate::capability::HOST_RETENTION`]). `NotFound` if there is no such topic. Since 1.1.
    SetTopicPolicies = 0x0109: TopicPolicies => PolicyOutcome;
    /// Says how long a namespace keeps data, where its topics say nothing themselves. Values that stand already are
    /// left alone; what is changed is logged. `NotFound` if there is no such namespace. Since 1.1.
    SetNamespacePolicies = 0x010a: NamespacePolicies => PolicyOutcome;
}

/// One topic's name.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TopicName {
    /// Full name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Names of topics.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TopicNames {
    /// Full names.
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
}

/// A topic.
#[derive(Clone, PartialEq, Message)]
pub struct Topic {
    /// Full name, without a partition's suffix.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Whether it exists.
    #[prost(bool, tag = "2")]
    pub found: bool,
    /// Number of partitions; 0 for a non-partitioned topic.
    #[prost(uint32, tag = "3")]
    pub partitions: u32,
    /// Properties, stored with the topic.
    #[prost(map = "string, string", tag = "4")]
    pub properties: HashMap<String, String>,
    /// When it was created, in ms since the epoch; 0 if the host does not know.
    #[prost(int64, tag = "5")]
    pub created_ms: i64,
}

/// Topics in order of the request, or by name.
#[derive(Clone, PartialEq, Message)]
pub struct TopicList {
    /// The topics.
    #[prost(message, repeated, tag = "1")]
    pub topics: Vec<Topic>,
}

/// A change of a topic.
#[derive(Clone, PartialEq, Message)]
pub struct TopicChange {
    /// Full name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// New number of partitions, not smaller than before; 0 leaves it.
    #[prost(uint32, tag = "2")]
    pub partitions: u32,
    /// Properties to set.
    #[prost(map = "string, string", tag = "3")]
    pub set: HashMap<String, String>,
    /// Properties to remove.
    #[prost(string, repeated, tag = "4")]
    pub remove: Vec<String>,
    /// Properties that must stand like this for anything to be changed (compare-and-set), one that is absent counting
    /// as empty. `Conflict` if one does not.
    #[prost(map = "string, string", tag = "5")]
    pub expect: HashMap<String, String>,
}

/// A tenant's name.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Tenant {
    /// The name.
    #[prost(string, tag = "1")]
    pub tenant: String,
}

/// A namespace, `tenant/namespace`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Namespace {
    /// The name.
    #[prost(string, tag = "1")]
    pub namespace: String,
}

/// Namespaces by name.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NamespaceList {
    /// Names, `tenant/namespace`.
    #[prost(string, repeated, tag = "1")]
    pub namespaces: Vec<String>,
}

/// How long a topic's data is kept. What is absent stays as it is; −1 is without limit. Hosts count coarser (Pulsar in
/// minutes and MiB) and round up: they keep at least what is said here.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TopicPolicies {
    /// Full name, without a partition's suffix.
    #[prost(string, tag = "1")]
    pub name: String,
    /// For how long, in ms.
    #[prost(sint64, optional, tag = "2")]
    pub retention_ms: Option<i64>,
    /// How many bytes of each partition.
    #[prost(sint64, optional, tag = "3")]
    pub retention_bytes: Option<i64>,
}

/// How long a namespace keeps data; as [`TopicPolicies`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NamespacePolicies {
    /// The name, `tenant/namespace`.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// For how long, in ms.
    #[prost(sint64, optional, tag = "2")]
    pub retention_ms: Option<i64>,
    /// How many bytes of each partition.
    #[prost(sint64, optional, tag = "3")]
    pub retention_bytes: Option<i64>,
    /// After how long a message counts as consumed by subscriptions that have not done so, in ms.
    #[prost(sint64, optional, tag = "4")]
    pub message_ttl_ms: Option<i64>,
    /// Bytes of a topic's backlog at which the host compacts it by itself; 0: never.
    #[prost(sint64, optional, tag = "5")]
    pub compaction_threshold_bytes: Option<i64>,
}

/// Whether policies hold.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PolicyOutcome {
    /// Whether the host keeps data for at least as long as it was asked to.
    #[prost(bool, tag = "1")]
    pub applied: bool,
    /// If not: why, and what an operator can do. The host has logged it, once per namespace.
    #[prost(string, tag = "2")]
    pub advice: String,
}

/// The cluster as this broker sees it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Cluster {
    /// `clusterName`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The asked broker's own id.
    #[prost(string, tag = "2")]
    pub local_broker: String,
    /// All brokers that are alive, by id.
    #[prost(message, repeated, tag = "3")]
    pub brokers: Vec<Broker>,
}

/// A broker that is alive.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Broker {
    /// Id: `host:port` of its lookup service.
    #[prost(string, tag = "1")]
    pub id: String,
    /// What the handler of the asking plugin's protocol advertises there; may be empty.
    #[prost(string, tag = "2")]
    pub protocol_data: String,
}

/// Ownership of topics moved: kept lookups of them are stale. Only lookups that answered `local` may be kept, so a host
/// tells of what it has lost, and need not tell of what it gained.
#[derive(Clone, PartialEq, Message)]
pub struct OwnershipChanged {
    /// Full names of the topics (or partitions) concerned; empty means all.
    #[prost(string, repeated, tag = "1")]
    pub topics: Vec<String>,
    /// Whether this broker owns them now.
    #[prost(bool, tag = "2")]
    pub acquired: bool,
}

impl Event for OwnershipChanged {
    const OP: u32 = 0x0101;
}

/// Topics were created, changed or deleted, by anyone.
#[derive(Clone, PartialEq, Message)]
pub struct TopicsChanged {
    /// Full names of the topics (without partition suffix); empty means all.
    #[prost(string, repeated, tag = "1")]
    pub topics: Vec<String>,
}

impl Event for TopicsChanged {
    const OP: u32 = 0x0102;
}

/// The set of brokers, or what one advertises, changed.
#[derive(Clone, PartialEq, Message)]
pub struct BrokersChanged {
    /// The new view.
    #[prost(message, optional, tag = "1")]
    pub cluster: Option<Cluster>,
}

impl Event for BrokersChanged {
    const OP: u32 = 0x0103;
}
