//! Group APIs: one file per key. They translate between the protocol's versions and the coordinator, nothing more.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;

use super::{Call, Server};
use crate::error::Fault;
use crate::topics::Topic;

pub(crate) mod delete_groups;
pub(crate) mod describe_groups;
pub(crate) mod find_coordinator;
pub(crate) mod heartbeat;
pub(crate) mod join_group;
pub(crate) mod leave_group;
pub(crate) mod list_groups;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod sync_group;

/// The code on the wire; 0 for none.
fn code(error: Option<ResponseError>) -> i16 {
    error.map_or(0, |error| error.code())
}

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// The client as Kafka shows it in descriptions of groups.
fn client_host(call: &Call) -> String {
    format!("/{}", call.peer.ip())
}

/// The topics of a request, in one crossing where they are not known yet; answers in the order of `names`. A name that
/// cannot be a topic's names none.
async fn topics(server: &Server, names: &[&str]) -> Vec<Result<Arc<Topic>, Fault>> {
    let cached: Option<Vec<_>> = names
        .iter()
        .map(|name| server.topics.cached(name))
        .collect();
    if let Some(cached) = cached {
        return cached.into_iter().map(Ok).collect();
    }
    let found = server.topics.by_names(names).await.into_iter();
    found
        .map(|topic| {
            topic.map_err(|fault| match fault {
                Fault::InvalidTopic(text) => Fault::UnknownTopicOrPartition(text),
                fault => fault,
            })
        })
        .collect()
}

/// Whether the topic has such a partition.
fn has_partition(topic: &Topic, index: i32) -> bool {
    u32::try_from(index).is_ok_and(|index| index < topic.partitions())
}
