//! Topics, configurations and the cluster: one file per API, and what several of them share.

pub(crate) mod alter_configs;
pub(crate) mod alter_partition_reassignments;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_records;
pub(crate) mod delete_topics;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_topic_partitions;
pub(crate) mod elect_leaders;
pub(crate) mod incremental_alter_configs;
pub(crate) mod list_config_resources;
pub(crate) mod list_partition_reassignments;
pub(crate) mod metadata;

mod alteration;
mod broker_configs;
mod operations;
mod resource;
mod topic_configs;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::Topic;
use crate::topics::nodes::Node;

/// Stands for "no leader" and "no broker".
const NOBODY: BrokerId = BrokerId(-1);

/// The node that this client is told to be the controller.
async fn controller(server: &Server, call: &Call) -> BrokerId {
    match server.topics.controller(&call.listener).await {
        Ok(node) => node.map_or(NOBODY, |node| BrokerId(node.id)),
        Err(fault) => {
            tracing::warn!(%fault, "the brokers could not be listed");
            NOBODY
        }
    }
}

/// Text for the wire.
fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// A fault's sentence for the wire.
fn message(fault: &Fault) -> Option<StrBytes> {
    Some(text(fault.to_string()))
}

/// A topic that is to be changed. What cannot be a topic's name is not there either, as in Kafka.
async fn existing(server: &Server, name: &str) -> Result<Arc<Topic>, Fault> {
    let found = server.topics.by_name(name).await;
    found.map_err(|fault| match fault {
        Fault::InvalidTopic(_) | Fault::UnknownTopicOrPartition(_) => {
            Fault::UnknownTopicOrPartition(
                "This server does not host this topic-partition.".to_owned(),
            )
        }
        fault => fault,
    })
}

/// When a client that gives its request this long stops to wait.
fn deadline(timeout_ms: i32) -> Instant {
    Instant::now() + Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0))
}

/// Runs work until a deadline. What was begun goes on at the host either way.
async fn until<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    match tokio::time::timeout_at(deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(Fault::TimedOut(
            "not done within the request's timeout; it may still be done".to_owned(),
        )),
    }
}

/// Checks the replicas that an administrator chose for one partition. There is one, and any broker may be named: the
/// host decides where the data lies.
fn check_replicas(replicas: &[BrokerId], nodes: &[Node]) -> Result<(), Fault> {
    let refuse = |reason: String| Err(Fault::InvalidReplicaAssignment(reason));
    if replicas.is_empty() {
        return refuse(
            "The manual partition assignment includes an empty replica list.".to_owned(),
        );
    }
    for (index, replica) in replicas.iter().enumerate() {
        if !nodes.iter().any(|node| node.id == replica.0) {
            return refuse(format!(
                "The manual partition assignment includes broker {}, but no such broker is registered.",
                replica.0
            ));
        }
        if replicas.iter().take(index).any(|other| other == replica) {
            return refuse(format!(
                "The manual partition assignment includes the broker {} more than once.",
                replica.0
            ));
        }
    }
    if replicas.len() > 1 {
        return refuse(format!(
            "The manual partition assignment names {} replicas, but every partition has one: the host replicates beneath it.",
            replicas.len()
        ));
    }
    Ok(())
}
