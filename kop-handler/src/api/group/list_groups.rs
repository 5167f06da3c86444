//! ListGroups (key 16), versions 0 to 5: the groups that this broker coordinates.
//!
//! v4: filter by state, states in the reply (KIP-518). v5: filter by type, types in the reply (KIP-848).

use std::sync::Arc;

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};

use super::text;
use crate::api::{Call, Server};

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let states: Vec<&str> = request.states_filter.iter().map(|s| s.as_str()).collect();
    let types: Vec<&str> = request.types_filter.iter().map(|t| t.as_str()).collect();
    let groups = match server.groups.list(&states, &types).await {
        Ok(groups) => groups,
        Err(error) => return ListGroupsResponse::default().with_error_code(error.code()),
    };
    let listed = groups.into_iter().map(|group| {
        let mut listed = ListedGroup::default()
            .with_group_id(GroupId(text(group.group)))
            .with_protocol_type(text(group.protocol_type));
        if call.version >= 4 {
            listed.group_state = text(group.state);
        }
        if call.version >= 5 {
            listed.group_type = text("classic");
        }
        listed
    });
    ListGroupsResponse::default().with_groups(listed.collect())
}
