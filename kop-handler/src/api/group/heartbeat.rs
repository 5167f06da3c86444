//! Heartbeat (key 12), versions 0 to 4: a member is alive; REBALANCE_IN_PROGRESS sends it back to JoinGroup.
//!
//! v3: static members (KIP-345).

use std::sync::Arc;

use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use super::code;
use crate::api::{Call, Server};
use crate::coordinator::group::message::Heartbeat;

pub(crate) async fn handle(
    server: &Arc<Server>,
    _: &Call,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let beat = Heartbeat {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        generation: request.generation_id,
    };
    let outcome = server.groups.heartbeat(&request.group_id, beat).await;
    HeartbeatResponse::default().with_error_code(code(outcome.err()))
}
