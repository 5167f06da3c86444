//! InitProducerId (key 22), versions 0–5: an id for an idempotent producer.
//!
//! Without a transactional id every request gets a fresh id at epoch 0, whatever id and epoch it names, as in Kafka.
//! With one it is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients take as fatal: the coordinator of
//! transactions is not built yet, and a code that they retry would hang them.
//! v2: flexible. v3: the producer's current id and epoch (KIP-360): both or neither. v4, v5: codes for transactions.

use std::sync::Arc;

use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use crate::api::{Call, Server};
use crate::error::Fault;

/// Neither id nor epoch.
const NONE: i64 = -1;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    match init(server, call, &request).await {
        Ok(id) => InitProducerIdResponse::default()
            .with_producer_id(id.into())
            .with_producer_epoch(0),
        Err(fault) => refusal(&fault),
    }
}

/// A reply without an id.
pub(crate) fn refusal(fault: &Fault) -> InitProducerIdResponse {
    InitProducerIdResponse::default()
        .with_error_code(fault.code())
        .with_producer_id(NONE.into())
        .with_producer_epoch(-1)
}

async fn init(server: &Server, call: &Call, request: &InitProducerIdRequest) -> Result<i64, Fault> {
    if let Some(transactional_id) = &request.transactional_id {
        if transactional_id.is_empty() {
            return Err(Fault::InvalidRequest(String::new()));
        }
        tracing::warn!(client = %call.client_id, peer = %call.peer, "a transactional producer is refused: transactions are not built yet");
        return Err(Fault::TransactionalIdAuthorizationFailed(String::new()));
    }
    if (request.producer_id.0 == NONE) != (request.producer_epoch == -1) {
        return Err(Fault::InvalidRequest(String::new()));
    }
    server.producer_ids.next().await
}
