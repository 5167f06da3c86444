//! SaslHandshake (key 17), versions 0–1, on a listener without SASL: ILLEGAL_SASL_STATE, as Kafka answers there.
//!
//! Not advertised until SASL is built.

use std::sync::Arc;

use kafka_protocol::messages::{SaslHandshakeRequest, SaslHandshakeResponse};

use crate::api::{Call, Server};
use crate::error::Fault;

pub(crate) async fn handle(
    _server: &Arc<Server>,
    _call: &Call,
    _request: SaslHandshakeRequest,
) -> SaslHandshakeResponse {
    SaslHandshakeResponse::default().with_error_code(Fault::IllegalSaslState(String::new()).code())
}
