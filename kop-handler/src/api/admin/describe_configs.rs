//! DescribeConfigs (key 32), versions 1 to 4.
//!
//! Topics: every configuration of Kafka 4.3.1, with its source and synonyms. Brokers: this broker's settings under
//! Kafka's names, read-only. Broker loggers: the one level of the log. Groups and client metrics have no configurations
//! here, so that theirs are empty.
//!
//! v1: sources and synonyms. v3: types and documentation (KIP-569).

use std::sync::Arc;

use handler_api::Level;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::resource::{Kind, check_broker};
use super::topic_configs::{Source, default_source, effective};
use super::{broker_configs, message, text};
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::configs;

/// Which parts of an entry the client wants.
struct Wanted {
    version: i16,
    synonyms: bool,
    documentation: bool,
}

/// One configuration, before it is filtered and dressed for the client's version.
struct Entry {
    name: StrBytes,
    kind: i8,
    value: Option<StrBytes>,
    source: Source,
    read_only: bool,
    sensitive: bool,
    synonyms: Vec<DescribeConfigsSynonym>,
    documentation: String,
}

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let wanted = Wanted {
        version: call.version,
        synonyms: request.include_synonyms,
        documentation: request.include_documentation,
    };
    let mut results = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let entries = describe(server, call, &resource).await;
        let reply = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name);
        results.push(match entries {
            Ok(entries) => {
                // No keys mean all keys, as null does.
                let keys = resource.configuration_keys.filter(|keys| !keys.is_empty());
                let asked =
                    |entry: &Entry| keys.as_ref().is_none_or(|keys| keys.contains(&entry.name));
                let configs = entries
                    .into_iter()
                    .filter(asked)
                    .map(|entry| wanted.dress(entry))
                    .collect();
                reply.with_error_message(None).with_configs(configs)
            }
            Err(fault) => reply
                .with_error_code(fault.code())
                .with_error_message(message(&fault)),
        });
    }
    DescribeConfigsResponse::default().with_results(results)
}

impl Wanted {
    fn dress(&self, entry: Entry) -> DescribeConfigsResourceResult {
        let result = DescribeConfigsResourceResult::default()
            .with_name(entry.name)
            .with_value(entry.value)
            .with_read_only(entry.read_only)
            .with_config_source(entry.source as i8)
            .with_is_sensitive(entry.sensitive)
            .with_synonyms(if self.synonyms {
                entry.synonyms
            } else {
                Vec::new()
            });
        if self.version < 3 {
            return result;
        }
        result
            .with_config_type(entry.kind)
            .with_documentation(self.documentation.then(|| text(entry.documentation)))
    }
}

async fn describe(
    server: &Arc<Server>,
    call: &Call,
    resource: &DescribeConfigsResource,
) -> Result<Vec<Entry>, Fault> {
    let name = resource.resource_name.as_str();
    match Kind::parse(resource.resource_type, name)? {
        Kind::Topic => topic(server, name).await,
        Kind::Broker => broker(server, call, name),
        Kind::BrokerLogger => broker_logger(server, call, name),
        Kind::Group if name.is_empty() => Err(Fault::InvalidRequest(
            "Group name must not be empty".to_owned(),
        )),
        Kind::ClientMetrics if name.is_empty() => Err(Fault::InvalidRequest(
            "Client metrics subscription name must not be empty".to_owned(),
        )),
        Kind::Group | Kind::ClientMetrics => Ok(Vec::new()),
    }
}

async fn topic(server: &Arc<Server>, name: &str) -> Result<Vec<Entry>, Fault> {
    let topic = server.topics.by_name(name).await?;
    let defaults = server.topics.defaults();
    Ok(effective(&topic.overrides, defaults)
        .map(|entry| {
            let definition = entry.definition;
            let synonym = |name: &str, value: &str, source: Source| {
                DescribeConfigsSynonym::default()
                    .with_name(text(name))
                    .with_value(Some(text(value)))
                    .with_source(source as i8)
            };
            let mut synonyms = Vec::new();
            if entry.source == Source::Topic {
                synonyms.push(synonym(definition.name, entry.value, Source::Topic));
            }
            if let Some(name) = definition.synonym {
                let source = default_source(definition, defaults);
                synonyms.push(synonym(name, defaults.value(definition), source));
                if source == Source::StaticBroker {
                    synonyms.push(synonym(name, definition.default, Source::Default));
                }
            }
            Entry {
                name: text(definition.name),
                kind: definition.kind as i8,
                value: Some(text(entry.value)),
                source: entry.source,
                read_only: false,
                sensitive: false,
                synonyms,
                documentation: definition.documentation(),
            }
        })
        .collect())
}

fn own_id(server: &Server, call: &Call) -> Result<crate::topics::nodes::Node, Fault> {
    server
        .topics
        .local_node(&call.listener)
        .ok_or_else(|| Fault::Internal("this broker has no listener".to_owned()))
}

fn broker(server: &Server, call: &Call, name: &str) -> Result<Vec<Entry>, Fault> {
    let node = own_id(server, call)?;
    if check_broker(name, node.id, true)?.is_none() {
        // The cluster-wide dynamic defaults: there are none.
        return Ok(Vec::new());
    }
    Ok(broker_configs::all(server, &node)
        .into_iter()
        .map(|config| Entry {
            name: text(config.name),
            kind: config.kind as i8,
            synonyms: vec![
                DescribeConfigsSynonym::default()
                    .with_name(text(config.name))
                    .with_value(config.value.clone().map(text))
                    .with_source(config.source as i8),
            ],
            value: config.value.map(text),
            source: config.source,
            read_only: true,
            sensitive: config.kind == configs::Kind::Password,
            documentation: config.documentation,
        })
        .collect())
}

fn broker_logger(server: &Server, call: &Call, name: &str) -> Result<Vec<Entry>, Fault> {
    let node = own_id(server, call)?;
    check_broker(name, node.id, false)?;
    let levels = [
        (Level::Trace, "TRACE"),
        (Level::Debug, "DEBUG"),
        (Level::Info, "INFO"),
        (Level::Warn, "WARN"),
        (Level::Error, "ERROR"),
    ];
    let level = levels
        .iter()
        .find(|(level, _)| server.host.log_enabled(*level))
        .map_or("OFF", |(_, name)| name);
    Ok(vec![Entry {
        name: text("root"),
        kind: 0,
        value: Some(text(level)),
        source: Source::BrokerLogger,
        read_only: true,
        sensitive: false,
        synonyms: Vec::new(),
        documentation: "Level of the broker's log, set where the broker is started.".to_owned(),
    }])
}
