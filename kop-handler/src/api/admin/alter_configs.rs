//! AlterConfigs (key 33), versions 0 to 2.
//!
//! Gives a topic exactly these configurations, taking back all others; effective at once. Kafka has deprecated it for
//! IncrementalAlterConfigs, which does not forget what it is not told. The configurations of brokers come from their
//! file and cannot be altered.

use std::sync::Arc;

use kafka_protocol::messages::alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};

use super::alteration::{change_topic, check_keys, named_once, refuse};
use super::message;
use super::resource::Kind;
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::configs::Overrides;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let resources = named_once(request.resources, |resource| {
        (resource.resource_type, resource.resource_name.as_str())
    });
    let mut responses = Vec::with_capacity(resources.len());
    for (resource, verdict) in resources {
        let result = match verdict {
            Ok(()) => alter(server, call, &resource, request.validate_only).await,
            Err(fault) => Err(fault),
        };
        let reply = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name);
        responses.push(match result {
            Ok(()) => reply.with_error_message(None),
            Err(fault) => reply
                .with_error_code(fault.code())
                .with_error_message(message(&fault)),
        });
    }
    AlterConfigsResponse::default().with_responses(responses)
}

async fn alter(
    server: &Arc<Server>,
    call: &Call,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Fault> {
    let names = || resource.configs.iter().map(|config| config.name.as_str());
    check_keys(
        names(),
        resource
            .configs
            .iter()
            .filter(|config| config.value.is_none())
            .map(|config| config.name.as_str()),
    )?;
    let name = resource.resource_name.as_str();
    match Kind::parse(resource.resource_type, name)? {
        Kind::Topic => {
            change_topic(server, name, validate_only, |_| {
                let mut new = Overrides::default();
                for config in &resource.configs {
                    new.set(&config.name, config.value.as_deref().unwrap_or_default())?;
                }
                Ok(new)
            })
            .await
        }
        kind => refuse(server, call, kind, name, names()),
    }
}
