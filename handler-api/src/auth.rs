//! Authentication and authorization by the broker's own providers.

use prost::Message;

use crate::control::{Nothing, operations};

operations! {
    /// Checks credentials with the provider of a method (`token`, `basic`, …). `Unauthenticated` if they are wrong,
    /// `Unsupported` if the host authenticates nobody.
    Authenticate = 0x0501: Credentials => Identity;
    /// Whether a role may do things; answers in order. A host without authorization allows everything.
    Authorize = 0x0502: AuthorizeRequest => Decisions;
    /// Forgets an identity.
    EndSession = 0x0503: Session => Nothing;
}

/// Credentials of a client.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Credentials {
    /// Pulsar's name of the method.
    #[prost(string, tag = "1")]
    pub method: String,
    /// What the client sent.
    #[prost(bytes = "bytes", tag = "2")]
    pub data: bytes::Bytes,
    /// The client's address, `ip:port`.
    #[prost(string, tag = "3")]
    pub remote_address: String,
}

/// Who a client is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Identity {
    /// Pulsar's role.
    #[prost(string, tag = "1")]
    pub role: String,
    /// Names what the host keeps about this client, for [`Authorize`].
    #[prost(uint64, tag = "2")]
    pub session: u64,
    /// When it ends, in ms since the epoch; 0: never.
    #[prost(int64, tag = "3")]
    pub expires_ms: i64,
}

/// A session of [`Identity`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Session {
    /// Its number; 0 for a client that did not authenticate.
    #[prost(uint64, tag = "1")]
    pub session: u64,
}

/// What a role wants to do.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AuthorizeRequest {
    /// The role; empty for a client that did not authenticate.
    #[prost(string, tag = "1")]
    pub role: String,
    /// See [`Identity::session`].
    #[prost(uint64, tag = "2")]
    pub session: u64,
    /// The questions.
    #[prost(message, repeated, tag = "3")]
    pub actions: Vec<Action>,
}

/// One question.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Action {
    /// What is touched.
    #[prost(enumeration = "Resource", tag = "1")]
    pub resource: i32,
    /// Full name of the topic or namespace; empty for the cluster.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What is done.
    #[prost(enumeration = "TopicOperation", tag = "3")]
    pub operation: i32,
    /// Subscription (Kafka: group), where one plays a part.
    #[prost(string, tag = "4")]
    pub subscription: String,
}

/// Kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Resource {
    /// The cluster as a whole.
    Cluster = 0,
    /// A namespace.
    Namespace = 1,
    /// A topic.
    Topic = 2,
}

/// What can be done, in Pulsar's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TopicOperation {
    /// Learn that it exists and where.
    Lookup = 0,
    /// Write messages.
    Produce = 1,
    /// Read messages, move a subscription.
    Consume = 2,
    /// Create a topic in a namespace.
    Create = 3,
    /// Delete it, or records of it.
    Delete = 4,
    /// Change partitions, configuration, policies.
    Alter = 5,
    /// List the topics of a namespace.
    List = 6,
    /// Administer the cluster.
    Administer = 7,
}

/// Answers of [`Authorize`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Decisions {
    /// One per question.
    #[prost(bool, repeated, tag = "1")]
    pub allowed: Vec<bool>,
}
