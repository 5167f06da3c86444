//! SyncGroup (key 14), versions 0 to 5: the leader hands in the assignment of a generation, everyone gets a share. The
//! reply waits for the leader, however long it takes.
//!
//! v3: static members (KIP-345). v5: protocol type and name, which must be there and be the group's (KIP-559).

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::{code, text};
use crate::api::{Call, Server};
use crate::coordinator::group::message::{Sync, SyncReply};

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let named = request.protocol_type.is_some() && request.protocol_name.is_some();
    if call.version >= 5 && !named {
        return refusal(ResponseError::InconsistentGroupProtocol.code());
    }
    let sync = Sync {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        generation: request.generation_id,
        protocol_type: request.protocol_type.map(|kind| kind.to_string()),
        protocol: request.protocol_name.map(|name| name.to_string()),
        assignments: request
            .assignments
            .into_iter()
            .map(|assigned| {
                let share = Bytes::copy_from_slice(&assigned.assignment);
                (assigned.member_id.to_string(), share)
            })
            .collect(),
    };
    let reply = server.groups.sync(&request.group_id, sync).await;
    response(call.version, reply)
}

fn response(version: i16, reply: SyncReply) -> SyncGroupResponse {
    let response = SyncGroupResponse::default()
        .with_error_code(code(reply.error))
        .with_assignment(reply.assignment);
    if version >= 5 {
        response
            .with_protocol_type(reply.protocol_type.map(text))
            .with_protocol_name(reply.protocol.map(text))
    } else {
        response
    }
}

/// A reply without an assignment.
pub(crate) fn refusal(code: i16) -> SyncGroupResponse {
    SyncGroupResponse::default().with_error_code(code)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::*;

    #[test]
    fn every_version_carries_what_it_can_and_encodes() {
        let reply = SyncReply {
            error: None,
            protocol_type: Some("consumer".into()),
            protocol: Some("range".into()),
            assignment: Bytes::from_static(b"a"),
        };
        for version in 0..=5 {
            let mut bytes = BytesMut::new();
            response(version, reply.clone())
                .encode(&mut bytes, version)
                .unwrap();
            let read = SyncGroupResponse::decode(&mut bytes.freeze(), version).unwrap();
            assert_eq!(read.assignment, reply.assignment);
            assert_eq!(read.protocol_name.is_some(), version >= 5);
            refusal(27).encode(&mut BytesMut::new(), version).unwrap();
        }
    }
}
