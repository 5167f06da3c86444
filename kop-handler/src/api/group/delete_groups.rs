//! DeleteGroups (key 42), versions 0 to 2: groups without members go, with their offsets.

use std::sync::Arc;

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::code;
use crate::api::{Call, Server};

pub(crate) async fn handle(
    server: &Arc<Server>,
    _: &Call,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut results: Vec<DeletableGroupResult> = Vec::with_capacity(request.groups_names.len());
    for group in request.groups_names {
        if results.iter().any(|done| done.group_id == group) {
            continue; // named twice, answered once
        }
        let outcome = server.groups.delete(&group).await;
        results.push(
            DeletableGroupResult::default()
                .with_group_id(group)
                .with_error_code(code(outcome.err())),
        );
    }
    DeleteGroupsResponse::default().with_results(results)
}

/// A reply to a request that broke down.
pub(crate) fn refusal(request: DeleteGroupsRequest, code: i16) -> DeleteGroupsResponse {
    let results = request.groups_names.into_iter().map(|group| {
        DeletableGroupResult::default()
            .with_group_id(group)
            .with_error_code(code)
    });
    DeleteGroupsResponse::default().with_results(results.collect())
}
