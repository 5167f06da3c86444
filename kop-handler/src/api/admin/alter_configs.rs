//! AlterConfigs (key 33), versions 0 to 2.
//!
//! Gives a topic exactly these configurations, taking back all others; effective at once. Kafka has deprecated it for
//! IncrementalAlterConfigs, which does not forget what it is not told. The configurations of brokers come from their
//! file and cannot be altered.

use std::sync::Arc;

use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};

use super::alteration::{SET, Setting, Start, Wanted, alter_all};
use crate::api::{Call, Server};

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let resources = request.resources.into_iter().map(|resource| {
        let settings = resource.configs.into_iter().map(|config| Setting {
            name: config.name,
            operation: SET,
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
    let answers = alter_all(server, call, Start::Nothing, only, resources).await;
    let responses = answers.into_iter().map(|answer| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(answer.kind)
            .with_resource_name(answer.name)
            .with_error_code(answer.error_code)
            .with_error_message(answer.error_message)
    });
    AlterConfigsResponse::default().with_responses(responses.collect())
}
