//! What AlterConfigs and IncrementalAlterConfigs share: checks, the change of a topic, and why nothing else can be
//! altered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kafka_protocol::protocol::StrBytes;

use super::message;
use super::resource::{Kind, check_broker};
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::configs::{Overrides, ServerDefaults};

/// Kafka's numbers of what can be done with a configuration (KIP-339).
pub(super) const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// From which configurations of its own a topic is altered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    /// From none: what is not named goes back to the default.
    Nothing,
    /// From those that it has.
    Present,
}

/// A resource to alter.
#[derive(Debug)]
pub(super) struct Wanted {
    /// As in the request.
    pub(super) kind: i8,
    /// As in the request.
    pub(super) name: StrBytes,
    /// In order.
    pub(super) settings: Vec<Setting>,
}

/// What to do with one configuration.
#[derive(Debug)]
pub(super) struct Setting {
    /// Name of the configuration.
    pub(super) name: StrBytes,
    /// As in the request.
    pub(super) operation: i8,
    /// As in the request.
    pub(super) value: Option<StrBytes>,
}

/// What is answered for a resource.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) kind: i8,
    pub(super) name: StrBytes,
    pub(super) error_code: i16,
    pub(super) error_message: Option<StrBytes>,
}

/// Alters resources one after the other; answers for each once, in order.
pub(super) async fn alter_all(
    server: &Arc<Server>,
    call: &Call,
    start: Start,
    validate_only: bool,
    resources: Vec<Wanted>,
) -> Vec<Answer> {
    let mut times: HashMap<(i8, StrBytes), usize> = HashMap::new();
    for resource in &resources {
        let key = (resource.kind, resource.name.clone());
        *times.entry(key).or_default() += 1;
    }
    let mut answers = Vec::with_capacity(resources.len());
    for resource in resources {
        let Some(times) = times.remove(&(resource.kind, resource.name.clone())) else {
            continue; // The second of two equal ones.
        };
        let result = if times > 1 {
            Err(Fault::InvalidRequest(
                "Each resource must appear at most once.".to_owned(),
            ))
        } else {
            alter(server, call, start, validate_only, &resource).await
        };
        answers.push(Answer {
            kind: resource.kind,
            name: resource.name,
            error_code: result.as_ref().err().map_or(0, Fault::code),
            error_message: result.as_ref().err().and_then(message),
        });
    }
    answers
}

async fn alter(
    server: &Arc<Server>,
    call: &Call,
    start: Start,
    validate_only: bool,
    resource: &Wanted,
) -> Result<(), Fault> {
    check(&resource.settings)?;
    let name = resource.name.as_str();
    match Kind::parse(resource.kind, name)? {
        Kind::Topic => {
            let defaults = server.topics.defaults();
            change_topic(server, name, validate_only, |old| {
                let base = match start {
                    Start::Nothing => Overrides::default(),
                    Start::Present => old.clone(),
                };
                changed(base, &resource.settings, defaults)
            })
            .await
        }
        kind => {
            let names = resource.settings.iter().map(|setting| &*setting.name);
            refuse(server, call, kind, name, names)
        }
    }
}

/// Checks that no key comes twice, none is null, and the operations are known.
fn check(settings: &[Setting]) -> Result<(), Fault> {
    let nulls: Vec<&str> = settings
        .iter()
        .filter(|setting| setting.value.is_none() && setting.operation != DELETE)
        .map(|setting| &*setting.name)
        .collect();
    if !nulls.is_empty() {
        return Err(Fault::InvalidRequest(format!(
            "Null value not supported for : {}",
            nulls.join(",")
        )));
    }
    let mut seen = HashSet::new();
    if !settings.iter().all(|setting| seen.insert(&*setting.name)) {
        return Err(Fault::InvalidRequest(
            "Error due to duplicate config keys".to_owned(),
        ));
    }
    let is_known = |setting: &&Setting| (SET..=SUBTRACT).contains(&setting.operation);
    match settings.iter().find(|setting| !is_known(setting)) {
        None => Ok(()),
        Some(unknown) => Err(Fault::InvalidRequest(format!(
            "Unknown operation {} on config {}",
            unknown.operation, &*unknown.name
        ))),
    }
}

fn changed(
    base: Overrides,
    settings: &[Setting],
    defaults: &ServerDefaults,
) -> Result<Overrides, Fault> {
    let mut new = base;
    for setting in settings {
        let value = setting.value.as_deref().unwrap_or_default();
        match setting.operation {
            DELETE => new.unset(&setting.name),
            APPEND => new.append(&setting.name, value, defaults)?,
            SUBTRACT => new.subtract(&setting.name, value, defaults)?,
            _ => new.set(&setting.name, value)?,
        }
    }
    Ok(new)
}

/// Changes a topic's configurations and tells its open partitions.
async fn change_topic(
    server: &Arc<Server>,
    name: &str,
    validate_only: bool,
    decide: impl Fn(&Overrides) -> Result<Overrides, Fault>,
) -> Result<(), Fault> {
    if name.is_empty() {
        return Err(Fault::InvalidRequest(
            "Default topic resources are not allowed.".to_owned(),
        ));
    }
    let defaults = server.topics.defaults();
    let decide = |old: &Overrides| {
        let new = decide(old)?;
        new.check(defaults)?;
        // What a topic has already, whoever gave it, stands in nobody's way.
        if new.get("cleanup.policy") != old.get("cleanup.policy") {
            server.topics.check_storage(&new)?;
        }
        Ok(new)
    };
    let topic = server.topics.by_name(name).await?;
    if validate_only {
        return decide(&topic.overrides).map(drop);
    }
    let altered = server.topics.alter(&topic, decide).await?;
    let partitions: Vec<String> = altered.partition_names().collect();
    let partitions: Vec<&str> = partitions.iter().map(String::as_str).collect();
    server
        .logs
        .apply_settings(&partitions, &server.topics.log_settings(&altered));
    Ok(())
}

/// Why a resource that is no topic cannot be altered.
fn refuse<'a>(
    server: &Server,
    call: &Call,
    kind: Kind,
    name: &str,
    keys: impl Iterator<Item = &'a str>,
) -> Result<(), Fault> {
    let own_id = server
        .topics
        .local_node(&call.listener)
        .map_or(-1, |node| node.id);
    let keys: Vec<&str> = keys.collect();
    let reason = match kind {
        Kind::Topic => return Ok(()),
        Kind::Broker => {
            check_broker(name, own_id, true)?;
            if keys.is_empty() {
                return Ok(());
            }
            format!(
                "Cannot update these configs dynamically: [{}]. They come from the broker's configuration file.",
                keys.join(", ")
            )
        }
        Kind::BrokerLogger => {
            check_broker(name, own_id, false)?;
            if keys.is_empty() {
                return Ok(());
            }
            "Levels of the log are set where the broker is started, and cannot be altered."
                .to_owned()
        }
        Kind::ClientMetrics => "Client metrics are not collected here.".to_owned(),
        Kind::Group => {
            return Err(Fault::InvalidConfig(format!(
                "Groups have no configurations here: {} cannot be altered.",
                keys.join(", ")
            )));
        }
    };
    Err(Fault::InvalidRequest(reason))
}
