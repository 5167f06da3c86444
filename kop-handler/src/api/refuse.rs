//! Replies to requests whose handler panicked or ran out of time: the API's own layout, with the error in every place
//! that a client looks at.
//!
//! An API without an entry here closes the connection instead, which every client survives. It must not know handlers.

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, ListOffsetsRequest, OffsetForLeaderEpochRequest, ProduceRequest,
    SaslAuthenticateResponse, SaslHandshakeResponse,
};

use super::data::{fetch, init_producer_id, list_offsets, offset_for_leader_epoch, produce};
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
        ApiKey::SaslHandshake => whole!(SaslHandshakeResponse),
        ApiKey::SaslAuthenticate => whole!(SaslAuthenticateResponse),
        ApiKey::ApiVersions => whole!(ApiVersionsResponse),
        _ => Ok(Reply::Close),
    }
}
