//! IncrementalAlterConfigs (key 44), versions 0 to 1.
//!
//! Sets and takes back single configurations of a topic, and adds items to lists or takes them out (KIP-339);
//! effective at once, and concurrent changes of one topic are all kept. The configurations of brokers come from their
//! file and cannot be altered.

use std::sync::Arc;

use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::alteration::{Setting, Start, Wanted, alter_all};
use crate::api::{Call, Server};

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let resources = request.resources.into_iter().map(|resource| {
        let settings = resource.configs.into_iter().map(|config| Setting {
            name: config.name,
            operation: config.config_operation,
            value: config.value,
        });
        Wanted {
            kind: resource.resource_type,
            name: resource.resource_name,
            settings: settings.collect(),
        }
    });
    let resources = resources.collect();
    let only = request.validate_only;
    let answers = alter_all(server, call, Start::Present, only, resources).await;
    let responses = answers.into_iter().map(|answer| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(answer.kind)
            .with_resource_name(answer.name)
            .with_error_code(answer.error_code)
            .with_error_message(answer.error_message)
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}
