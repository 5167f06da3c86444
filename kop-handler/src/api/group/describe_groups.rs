//! DescribeGroups (key 15), versions 0 to 6: state, protocol and members of groups.
//!
//! v3: authorized operations (KIP-430). v4: instance ids. v6: a group that does not exist is GROUP_ID_NOT_FOUND with a
//! message (KIP-1043), before that it is a group in the state `Dead` without an error.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use super::text;
use crate::api::{Call, Server};
use crate::coordinator::group::message::Description;

/// What clients get that did not ask, or may not know.
const OPERATIONS_NOT_ASKED: i32 = i32::MIN;
/// READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: everybody may do everything until clients authenticate.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let mut groups = Vec::with_capacity(request.groups.len());
    for id in request.groups {
        let found = server.groups.describe(&id).await;
        groups.push(describe(
            call.version,
            id,
            found,
            request.include_authorized_operations,
        ));
    }
    DescribeGroupsResponse::default().with_groups(groups)
}

fn describe(
    version: i16,
    id: GroupId,
    found: Result<Option<Description>, ResponseError>,
    with_operations: bool,
) -> DescribedGroup {
    let group = DescribedGroup::default()
        .with_authorized_operations(OPERATIONS_NOT_ASKED)
        .with_group_id(id.clone());
    match found {
        Err(error) => group.with_error_code(error.code()),
        Ok(None) if version >= 6 => group
            .with_error_code(ResponseError::GroupIdNotFound.code())
            .with_error_message(Some(text(format!("Group {} not found.", id.as_str()))))
            .with_group_state(text("Dead")),
        found => {
            let described = match found.ok().flatten() {
                Some(description) => fill(version, group, description),
                None => group.with_group_state(text("Dead")),
            };
            if with_operations {
                described.with_authorized_operations(GROUP_OPERATIONS)
            } else {
                described
            }
        }
    }
}

fn fill(version: i16, group: DescribedGroup, description: Description) -> DescribedGroup {
    let members = description.members.into_iter().map(|member| {
        let described = DescribedGroupMember::default()
            .with_member_id(text(member.member_id))
            .with_client_id(text(member.client_id))
            .with_client_host(text(member.client_host))
            .with_member_metadata(member.metadata)
            .with_member_assignment(member.assignment);
        if version >= 4 {
            described.with_group_instance_id(member.instance_id.map(text))
        } else {
            described
        }
    });
    group
        .with_group_state(text(description.state))
        .with_protocol_type(text(description.protocol_type))
        .with_protocol_data(text(description.protocol))
        .with_members(members.collect())
}

/// A reply to a request that broke down.
pub(crate) fn refusal(request: DescribeGroupsRequest, code: i16) -> DescribeGroupsResponse {
    let groups = request.groups.into_iter().map(|id| {
        DescribedGroup::default()
            .with_group_id(id)
            .with_error_code(code)
            .with_authorized_operations(OPERATIONS_NOT_ASKED)
    });
    DescribeGroupsResponse::default().with_groups(groups.collect())
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::*;
    use crate::coordinator::group::message::DescribedMember;

    fn through_the_wire(version: i16, group: DescribedGroup) -> DescribedGroup {
        let mut bytes = BytesMut::new();
        DescribeGroupsResponse::default()
            .with_groups(vec![group])
            .encode(&mut bytes, version)
            .unwrap();
        let read = DescribeGroupsResponse::decode(&mut bytes.freeze(), version).unwrap();
        read.groups[0].clone()
    }

    #[test]
    fn a_group_that_does_not_exist_is_dead_and_from_v6_an_error() {
        for version in 0..=6 {
            let id = GroupId(text("g"));
            let group = through_the_wire(version, describe(version, id, Ok(None), false));
            assert_eq!(group.group_state.as_str(), "Dead");
            assert_eq!(group.error_code, if version >= 6 { 69 } else { 0 });
            assert_eq!(group.error_message.is_some(), version >= 6);
            assert_eq!(group.authorized_operations, i32::MIN);
        }
    }

    #[test]
    fn every_version_carries_members() {
        let description = Description {
            state: "Stable",
            protocol_type: "consumer".into(),
            protocol: "range".into(),
            members: vec![DescribedMember {
                member_id: "m".into(),
                instance_id: Some("i".into()),
                client_id: "c".into(),
                client_host: "/h".into(),
                metadata: Bytes::from_static(b"s"),
                assignment: Bytes::from_static(b"a"),
            }],
        };
        for version in 0..=6 {
            let id = GroupId(text("g"));
            let asked = version >= 3;
            let group = describe(version, id, Ok(Some(description.clone())), asked);
            let group = through_the_wire(version, group);
            assert_eq!(group.members[0].member_assignment, Bytes::from_static(b"a"));
            assert_eq!(group.members[0].group_instance_id.is_some(), version >= 4);
            let operations = if asked { 3_400 } else { i32::MIN };
            assert_eq!(group.authorized_operations, operations);
        }
    }
}
