//! SaslAuthenticate (key 36), versions 0–2, on a listener without SASL: ILLEGAL_SASL_STATE, as Kafka answers there.
//!
//! Not advertised until SASL is built.

use std::sync::Arc;

use kafka_protocol::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use kafka_protocol::protocol::StrBytes;

use crate::api::{Call, Server};
use crate::error::Fault;

pub(crate) async fn handle(
    _server: &Arc<Server>,
    _call: &Call,
    _request: SaslAuthenticateRequest,
) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse::default()
        .with_error_code(Fault::IllegalSaslState(String::new()).code())
        .with_error_message(Some(StrBytes::from_static_str(
            "this listener does not use SASL",
        )))
}
