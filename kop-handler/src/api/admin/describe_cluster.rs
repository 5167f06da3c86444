//! DescribeCluster (key 60), versions 0 to 2.
//!
//! The brokers that are alive, on the listener that the client came in by. There are no KRaft controllers: who asks for
//! their endpoints gets UNSUPPORTED_ENDPOINT_TYPE, as from a Kafka broker.
//!
//! v1: endpoint types (KIP-919). v2: fenced brokers; a broker that is not alive is not known here, so that none is.

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};

use super::{NOBODY, controller, message, operations, text};
use crate::api::{Call, Server};

/// Brokers, not controllers.
const BROKERS: i8 = 1;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let reply = DescribeClusterResponse::default()
        .with_error_message(None)
        .with_cluster_id(text(server.topics.cluster_id()))
        .with_controller_id(NOBODY);
    if call.version >= 1 && request.endpoint_type != BROKERS {
        return reply
            .with_endpoint_type(request.endpoint_type)
            .with_error_code(ResponseError::UnsupportedEndpointType.code())
            .with_error_message(Some(text(
                "This broker knows no endpoints other than those of brokers.",
            )));
    }
    let controller = controller(server, call).await;
    let reply = reply
        .with_controller_id(controller)
        .with_cluster_authorized_operations(operations::on_cluster(
            request.include_cluster_authorized_operations,
        ));
    match server.topics.brokers(&call.listener).await {
        Ok(nodes) => reply.with_brokers(
            nodes
                .into_iter()
                .map(|node| {
                    DescribeClusterBroker::default()
                        .with_broker_id(BrokerId(node.id))
                        .with_host(text(node.host))
                        .with_port(i32::from(node.port))
                        .with_rack(None)
                })
                .collect(),
        ),
        Err(fault) => reply
            .with_error_code(fault.code())
            .with_error_message(message(&fault)),
    }
}
