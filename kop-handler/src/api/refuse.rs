//! Replies to requests whose handler panicked or ran out of time: the API's own layout, with the error in every place
//! that a client looks at.
//!
//! An API without an entry here closes the connection instead, which every client survives. It must not know handlers.

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, DeleteGroupsRequest, DescribeGroupsRequest,
    FindCoordinatorRequest, HeartbeatResponse, LeaveGroupResponse, ListGroupsResponse,
    ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
    ProduceRequest, SaslAuthenticateResponse, SaslHandshakeResponse,
};

use super::data::{fetch, init_producer_id, list_offsets, offset_for_leader_epoch, produce};
use super::group::{
    delete_groups, describe_groups, find_coordinator, join_group, offset_commit, offset_delete,
    offset_fetch, sync_group,
};
use super::{Answer, Reply};
use crate::error::Fault;
use crate::wire::WireError;
use crate::wire::request::decode;

/// First version of Fetch with an error for the whole.
const FETCH_WITH_ERROR: i16 = 7;

/// The reply that tells of `fault`.
///
/// # Errors
/// What the decoding of the body or the encoding of the reply says.
pub(crate) fn reply(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &Bytes,
    fault: &Fault,
) -> Result<Reply, WireError> {
    /// APIs whose reply has one error for the whole.
    macro_rules! whole {
        ($response:ident) => {
            $response::default()
                .with_error_code(fault.code())
                .encode(correlation_id, version)
        };
    }
    match key {
        ApiKey::Produce => {
            let request: ProduceRequest = decode(version, body)?;
            produce::refusal(&request, version, fault).encode(correlation_id, version)
        }
        ApiKey::Fetch if version >= FETCH_WITH_ERROR => {
            Answer::encode(fetch::refusal(fault), correlation_id, version)
        }
        ApiKey::ListOffsets => {
            let request: ListOffsetsRequest = decode(version, body)?;
            list_offsets::refusal(request, version, fault).encode(correlation_id, version)
        }
        ApiKey::InitProducerId => init_producer_id::refusal(fault).encode(correlation_id, version),
        ApiKey::OffsetForLeaderEpoch => {
            let request: OffsetForLeaderEpochRequest = decode(version, body)?;
            offset_for_leader_epoch::refusal(request, fault).encode(correlation_id, version)
        }
        ApiKey::OffsetCommit => {
            let request: OffsetCommitRequest = decode(version, body)?;
            offset_commit::refusal(&request, fault.code()).encode(correlation_id, version)
        }
        ApiKey::OffsetFetch => {
            let request: OffsetFetchRequest = decode(version, body)?;
            offset_fetch::refusal(request, version, fault.response_error())
                .encode(correlation_id, version)
        }
        ApiKey::FindCoordinator => {
            let request: FindCoordinatorRequest = decode(version, body)?;
            find_coordinator::refusal(request, version, fault).encode(correlation_id, version)
        }
        ApiKey::DescribeGroups => {
            let request: DescribeGroupsRequest = decode(version, body)?;
            describe_groups::refusal(request, fault.code()).encode(correlation_id, version)
        }
        ApiKey::DeleteGroups => {
            let request: DeleteGroupsRequest = decode(version, body)?;
            delete_groups::refusal(request, fault.code()).encode(correlation_id, version)
        }
        ApiKey::JoinGroup => {
            join_group::refusal(version, fault.code()).encode(correlation_id, version)
        }
        ApiKey::SyncGroup => sync_group::refusal(fault.code()).encode(correlation_id, version),
        ApiKey::OffsetDelete => {
            offset_delete::refusal(fault.code()).encode(correlation_id, version)
        }
        ApiKey::Heartbeat => whole!(HeartbeatResponse),
        ApiKey::LeaveGroup => whole!(LeaveGroupResponse),
        ApiKey::ListGroups => whole!(ListGroupsResponse),
        ApiKey::SaslHandshake => whole!(SaslHandshakeResponse),
        ApiKey::SaslAuthenticate => whole!(SaslAuthenticateResponse),
        ApiKey::ApiVersions => whole!(ApiVersionsResponse),
        _ => Ok(Reply::Close),
    }
}
