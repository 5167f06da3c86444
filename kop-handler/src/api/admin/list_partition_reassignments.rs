//! ListPartitionReassignments (key 46), version 0.
//!
//! The host places data; a reassignment by Kafka's tools is never under way, so that the list is always empty.

use std::sync::Arc;

use kafka_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::api::{Call, Server};

pub(crate) async fn handle(
    _server: &Arc<Server>,
    _call: &Call,
    _request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse::default().with_error_message(None)
}
