//! ListConfigResources (key 74), versions 0 to 1.
//!
//! What DescribeConfigs can describe: topics, brokers and their loggers. Groups and client metrics have no
//! configurations here, so that none is listed. v0 lists client metrics alone (KIP-714); v1 all kinds (KIP-1142).

use std::sync::Arc;

use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};

use super::resource::Kind;
use super::text;
use crate::api::{Call, Server};
use crate::error::Fault;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    if call.version == 0 {
        return ListConfigResourcesResponse::default();
    }
    match list(server, call, &request.resource_types).await {
        Ok(resources) => ListConfigResourcesResponse::default().with_config_resources(resources),
        Err(fault) => ListConfigResourcesResponse::default().with_error_code(fault.code()),
    }
}

async fn list(
    server: &Arc<Server>,
    call: &Call,
    types: &[i8],
) -> Result<Vec<ConfigResource>, Fault> {
    for number in types {
        Kind::parse(*number, "").map_err(|_| {
            Fault::UnsupportedVersion(format!("resource type {number} is not known here"))
        })?;
    }
    let wants = |kind: Kind| types.is_empty() || types.contains(&(kind as i8));
    let resource = |name: String, kind: Kind| {
        ConfigResource::default()
            .with_resource_name(text(name))
            .with_resource_type(kind as i8)
    };
    let mut resources = Vec::new();
    for kind in [Kind::BrokerLogger, Kind::Broker]
        .into_iter()
        .filter(|kind| wants(*kind))
    {
        let nodes = server.topics.brokers(&call.listener).await?;
        resources.extend(
            nodes
                .into_iter()
                .map(|node| resource(node.id.to_string(), kind)),
        );
    }
    if wants(Kind::Topic) {
        let topics = server.topics.list().await?;
        resources.extend(
            topics
                .iter()
                .map(|topic| resource(topic.name.clone(), Kind::Topic)),
        );
    }
    Ok(resources)
}
