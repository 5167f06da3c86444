//! IncrementalAlterConfigs (key 44), versions 0 to 1.
//!
//! Sets and takes back single configurations of a topic, and adds items to lists or takes them out (KIP-339);
//! effective at once, and concurrent changes of one topic are all kept. The configurations of brokers come from their
//! file and cannot be altered.

use std::sync::Arc;

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::alteration::{change_topic, check_keys, named_once, refuse};
use super::message;
use super::resource::Kind;
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::configs::{Overrides, ServerDefaults};

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
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
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

async fn alter(
    server: &Arc<Server>,
    call: &Call,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Fault> {
    let names = || resource.configs.iter().map(|config| config.name.as_str());
    let nulls = resource
        .configs
        .iter()
        .filter(|config| config.value.is_none() && config.config_operation != DELETE)
        .map(|config| config.name.as_str());
    check_keys(names(), nulls)?;
    if let Some(unknown) = resource
        .configs
        .iter()
        .find(|config| !(SET..=SUBTRACT).contains(&config.config_operation))
    {
        return Err(Fault::InvalidRequest(format!(
            "Unknown operation {} on config {}",
            unknown.config_operation,
            unknown.name.as_str()
        )));
    }
    let name = resource.resource_name.as_str();
    match Kind::parse(resource.resource_type, name)? {
        Kind::Topic => {
            let defaults = server.topics.defaults();
            change_topic(server, name, validate_only, |old| {
                change(old, &resource.configs, defaults)
            })
            .await
        }
        kind => refuse(server, call, kind, name, names()),
    }
}

fn change(
    old: &Overrides,
    configs: &[AlterableConfig],
    defaults: &ServerDefaults,
) -> Result<Overrides, Fault> {
    let mut new = old.clone();
    for config in configs {
        let value = config.value.as_deref().unwrap_or_default();
        match config.config_operation {
            DELETE => new.unset(&config.name),
            APPEND => new.append(&config.name, value, defaults)?,
            SUBTRACT => new.subtract(&config.name, value, defaults)?,
            _ => new.set(&config.name, value)?,
        }
    }
    Ok(new)
}
