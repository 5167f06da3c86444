//! JoinGroup (key 11), versions 0 to 9: a member enters a group or comes back for a new generation. The reply waits for
//! the end of the rebalance.
//!
//! v1: rebalance timeout, before the session timeout. v4: a new member is given an id to come back with (KIP-394).
//! v5: static members (KIP-345). v7: protocol type. v8: the reason, for the log (KIP-800). v9: skipped assignments
//! (KIP-814).

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};

use super::{client_host, code, text};
use crate::api::{Call, Server};
use crate::coordinator::group::message::{Join, JoinReply};

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let group = request.group_id.to_string();
    if let Some(reason) = request.reason.as_ref().filter(|reason| !reason.is_empty()) {
        let member = request.member_id.as_str();
        tracing::info!(
            group,
            member,
            reason = reason.as_str(),
            "a member joins again"
        );
    }
    let join = Join {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        client_id: call.client_id.to_string(),
        client_host: client_host(call),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: if call.version >= 1 {
            request.rebalance_timeout_ms
        } else {
            request.session_timeout_ms
        },
        protocol_type: request.protocol_type.to_string(),
        protocols: request
            .protocols
            .into_iter()
            // Copied, as the assignments are: a slice would keep the whole frame in memory, which the budget no longer counts.
            .map(|protocol| {
                let metadata = Bytes::copy_from_slice(&protocol.metadata);
                (protocol.name.to_string(), metadata)
            })
            .collect(),
        require_known_member_id: call.version >= 4,
        supports_skipping_assignment: call.version >= 9,
        fresh_id: server.groups.fresh_id(),
    };
    response(call.version, server.groups.join(&group, join).await)
}

fn response(version: i16, reply: JoinReply) -> JoinGroupResponse {
    let protocol = reply.protocol.map(text);
    let mut response = JoinGroupResponse::default()
        .with_error_code(code(reply.error))
        .with_generation_id(reply.generation)
        .with_protocol_name(if version >= 7 {
            protocol
        } else {
            Some(protocol.unwrap_or_default()) // null is not known there
        })
        .with_leader(text(reply.leader))
        .with_member_id(text(reply.member_id))
        .with_members(
            reply
                .members
                .into_iter()
                .map(|member| {
                    let joined = JoinGroupResponseMember::default()
                        .with_member_id(text(member.member_id))
                        .with_metadata(member.metadata);
                    if version >= 5 {
                        joined.with_group_instance_id(member.instance_id.map(text))
                    } else {
                        joined
                    }
                })
                .collect(),
        );
    if version >= 7 {
        response.protocol_type = reply.protocol_type.map(text);
    }
    if version >= 9 {
        response.skip_assignment = reply.skip_assignment;
    }
    response
}

/// A reply to a request that broke down.
pub(crate) fn refusal(version: i16, code: i16) -> JoinGroupResponse {
    let response = JoinGroupResponse::default()
        .with_error_code(code)
        .with_generation_id(-1);
    response.with_protocol_name((version < 7).then(Default::default))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::error::ResponseError;
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::*;
    use crate::coordinator::group::message::JoinedMember;

    #[test]
    fn every_version_carries_what_it_can_and_encodes() {
        let full = JoinReply {
            error: None,
            generation: 3,
            protocol_type: Some("consumer".into()),
            protocol: Some("range".into()),
            leader: "m".into(),
            skip_assignment: true,
            member_id: "m".into(),
            members: vec![JoinedMember {
                member_id: "m".into(),
                instance_id: Some("i".into()),
                metadata: Bytes::from_static(b"s"),
            }],
        };
        for version in 0..=9 {
            for reply in [
                full.clone(),
                JoinReply::refused(ResponseError::UnknownMemberId, "m"),
            ] {
                let failed = reply.error.is_some();
                let mut bytes = BytesMut::new();
                response(version, reply)
                    .encode(&mut bytes, version)
                    .unwrap();
                let read = JoinGroupResponse::decode(&mut bytes.freeze(), version).unwrap();
                assert_eq!(read.error_code, if failed { 25 } else { 0 });
                assert_eq!(read.member_id.as_str(), "m");
                if failed {
                    assert_eq!(read.generation_id, -1);
                    let none = read.protocol_name.as_deref();
                    assert_eq!(none, (version < 7).then_some(""), "version {version}");
                    continue;
                }
                assert_eq!(read.skip_assignment, version >= 9);
                assert_eq!(read.protocol_type.is_some(), version >= 7);
                assert_eq!(read.members[0].group_instance_id.is_some(), version >= 5);
            }
            refusal(version, -1)
                .encode(&mut BytesMut::new(), version)
                .unwrap();
        }
    }
}
