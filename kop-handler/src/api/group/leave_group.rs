//! LeaveGroup (key 13), versions 0 to 5: members leave, or are removed by an administrator.
//!
//! v3: several members at once, static ones also by their instance id alone (KIP-345). v5: the reason, for the log
//! (KIP-800).

use std::sync::Arc;

use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use super::{code, text};
use crate::api::{Call, Server};
use crate::coordinator::group::message::{Leaving, Left};

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let group = request.group_id.as_str();
    let members = if call.version >= 3 {
        for member in &request.members {
            let reason = member
                .reason
                .as_ref()
                .map_or("not provided", |r| r.as_str());
            let instance = member.group_instance_id.as_ref().map(|id| id.as_str());
            let member = member.member_id.as_str();
            tracing::info!(group, member, instance, reason, "a member leaves");
        }
        request
            .members
            .iter()
            .map(|member| Leaving {
                member_id: member.member_id.to_string(),
                instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
            })
            .collect()
    } else {
        vec![Leaving {
            member_id: request.member_id.to_string(),
            instance_id: None,
        }]
    };
    match server.groups.leave(group, members).await {
        Ok(left) => response(call.version, left),
        Err(error) => LeaveGroupResponse::default().with_error_code(error.code()),
    }
}

/// Up to v2 the one member's error is that of the whole.
fn response(version: i16, left: Vec<Left>) -> LeaveGroupResponse {
    if version < 3 {
        let error = left.first().and_then(|member| member.error);
        return LeaveGroupResponse::default().with_error_code(code(error));
    }
    let members = left.into_iter().map(|member| {
        MemberResponse::default()
            .with_member_id(text(member.member_id))
            .with_group_instance_id(member.instance_id.map(text))
            .with_error_code(code(member.error))
    });
    LeaveGroupResponse::default().with_members(members.collect())
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::error::ResponseError;
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::*;

    #[test]
    fn the_error_of_one_member_is_that_of_the_whole_until_there_can_be_several() {
        let left = || Left {
            member_id: "m".into(),
            instance_id: Some("i".into()),
            error: Some(ResponseError::FencedInstanceId),
        };
        for version in 0..=5 {
            let mut bytes = BytesMut::new();
            response(version, vec![left()])
                .encode(&mut bytes, version)
                .unwrap();
            let read = LeaveGroupResponse::decode(&mut bytes.freeze(), version).unwrap();
            let errors: Vec<i16> = read.members.iter().map(|m| m.error_code).collect();
            if version < 3 {
                assert_eq!((read.error_code, errors), (82, vec![]));
            } else {
                assert_eq!((read.error_code, errors), (0, vec![82]));
            }
        }
    }
}
