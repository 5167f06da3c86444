//! Replies to requests whose handler panicked or ran out of time: the API's own layout, with the error in every place
//! that a client looks at.
//!
//! An API without an entry here closes the connection instead, which every client survives. It must not know handlers.

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, SaslAuthenticateResponse, SaslHandshakeResponse,
};

use super::{Answer, Reply};
use crate::error::Fault;
use crate::wire::WireError;

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
    let code = fault.code();
    /// APIs whose reply has one error for the whole.
    macro_rules! whole {
        ($($key:ident => $response:ident,)+ ; $($other:tt)*) => {
            match key {
                $(ApiKey::$key => $response::default().with_error_code(code).encode(correlation_id, version),)+
                $($other)*
            }
        };
    }
    let _ = body;
    whole! {
        ApiVersions => ApiVersionsResponse,
        SaslHandshake => SaslHandshakeResponse,
        SaslAuthenticate => SaslAuthenticateResponse,
        ;
        _ => Ok(Reply::Close),
    }
}
