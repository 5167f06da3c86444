//! FindCoordinator (key 10), versions 0 to 6: which broker coordinates a group. It is the one that owns the group's
//! partition of `__consumer_offsets`, which is created when the first group is looked for.
//!
//! v1: kinds of keys. v4: many keys (KIP-699). v6: share groups (KIP-932). Transactions and share groups are not built
//! yet. A transactional id is refused with a code that clients take as fatal, since one that they retry would hang them;
//! a share group's key with INVALID_REQUEST, as by a Kafka that has share groups switched off.

use std::sync::Arc;

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::text;
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::names::{CONSUMER_OFFSETS, partition_name};
use crate::topics::nodes::Node;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    if call.version < 4 {
        let found = find(server, call, request.key_type, &request.key).await;
        return one(call.version, found);
    }
    let mut coordinators = Vec::with_capacity(request.coordinator_keys.len());
    for key in request.coordinator_keys {
        let found = find(server, call, request.key_type, &key).await;
        coordinators.push(coordinator(key, found));
    }
    FindCoordinatorResponse::default().with_coordinators(coordinators)
}

async fn find(server: &Server, call: &Call, kind: i8, key: &str) -> Result<Node, Fault> {
    match kind {
        GROUP => {}
        TRANSACTION => {
            tracing::warn!(client = %call.client_id, peer = %call.peer, "a transactional producer is refused: transactions are not built yet");
            return Err(Fault::TransactionalIdAuthorizationFailed(
                "Transactions are not supported by this broker.".to_owned(),
            ));
        }
        SHARE if call.version >= 6 => {
            return Err(Fault::InvalidRequest(
                "Share groups are not supported by this broker.".to_owned(),
            ));
        }
        _ => {
            return Err(Fault::InvalidRequest(format!(
                "Unknown coordinator type {kind}."
            )));
        }
    }
    let unavailable = |text: String| Fault::CoordinatorNotAvailable(text);
    let partition = server.groups.partition_of(key).await;
    let partition = partition.map_err(|error| unavailable(error.to_string()))?;
    let topic = server.topics.names().full_name(CONSUMER_OFFSETS)?;
    let name = partition_name(&topic, partition);
    let leader = server.topics.leaders(&[name], &call.listener).await;
    let leader = leader.map_err(|fault| unavailable(fault.to_string()))?;
    match leader.into_iter().next() {
        Some(Ok(node)) => Ok(node),
        Some(Err(fault)) => Err(unavailable(fault.to_string())),
        None => Err(unavailable(String::new())),
    }
}

fn coordinator(key: StrBytes, found: Result<Node, Fault>) -> Coordinator {
    let coordinator = Coordinator::default().with_key(key);
    match found {
        Ok(node) => coordinator
            .with_node_id(BrokerId(node.id))
            .with_host(text(node.host))
            .with_port(i32::from(node.port)),
        Err(fault) => coordinator
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .with_error_code(fault.code())
            .with_error_message(Some(text(fault.to_string()))),
    }
}

fn one(version: i16, found: Result<Node, Fault>) -> FindCoordinatorResponse {
    let found = coordinator(StrBytes::default(), found);
    let response = FindCoordinatorResponse::default()
        .with_node_id(found.node_id)
        .with_host(found.host)
        .with_port(found.port)
        .with_error_code(found.error_code);
    if version >= 1 {
        response.with_error_message(found.error_message)
    } else {
        response
    }
}

/// A reply to a request that broke down.
pub(crate) fn refusal(
    request: FindCoordinatorRequest,
    version: i16,
    fault: &Fault,
) -> FindCoordinatorResponse {
    if version < 4 {
        return one(version, Err(fault.clone()));
    }
    let keys = request.coordinator_keys.into_iter();
    let coordinators = keys.map(|key| coordinator(key, Err(fault.clone())));
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::*;

    #[test]
    fn every_version_carries_the_node_or_the_error() {
        for version in 0..=6 {
            for found in [
                Ok(Node::new("h", 9092)),
                Err(Fault::CoordinatorNotAvailable("why".into())),
            ] {
                let failed = found.is_err();
                let response = if version < 4 {
                    one(version, found)
                } else {
                    let coordinator = coordinator(text("g"), found);
                    FindCoordinatorResponse::default().with_coordinators(vec![coordinator])
                };
                let mut bytes = BytesMut::new();
                response.encode(&mut bytes, version).unwrap();
                let read = FindCoordinatorResponse::decode(&mut bytes.freeze(), version).unwrap();
                let (code, port, message) = match read.coordinators.first() {
                    Some(found) => (found.error_code, found.port, found.error_message.clone()),
                    None => (read.error_code, read.port, read.error_message.clone()),
                };
                let message = message.map(|text| text.to_string());
                if failed {
                    assert_eq!((code, port), (15, -1));
                    let expected = if version >= 1 { "why" } else { "" };
                    assert_eq!(message.as_deref(), Some(expected));
                } else {
                    assert_eq!((code, port), (0, 9092));
                }
            }
        }
    }
}
