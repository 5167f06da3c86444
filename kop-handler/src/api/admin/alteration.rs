//! What AlterConfigs and IncrementalAlterConfigs share: checks of keys, the change of a topic, and why nothing else can
//! be altered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::resource::{Kind, check_broker};
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::configs::Overrides;

/// Each resource of a request once, in order; one that it names twice with the error for that.
pub(super) fn named_once<R>(
    resources: Vec<R>,
    name: impl Fn(&R) -> (i8, &str),
) -> Vec<(R, Result<(), Fault>)> {
    let key = |resource: &R| {
        let (kind, name) = name(resource);
        (kind, name.to_owned())
    };
    let mut times: HashMap<(i8, String), usize> = HashMap::new();
    for resource in &resources {
        *times.entry(key(resource)).or_default() += 1;
    }
    let once = resources.into_iter().filter_map(|resource| {
        // The second of two equal ones finds nothing any more.
        let verdict = match times.remove(&key(&resource))? {
            1 => Ok(()),
            _ => Err(Fault::InvalidRequest(
                "Each resource must appear at most once.".to_owned(),
            )),
        };
        Some((resource, verdict))
    });
    once.collect()
}

/// Checks that no key comes twice and none is null.
pub(super) fn check_keys<'a>(
    names: impl Iterator<Item = &'a str>,
    nulls: impl Iterator<Item = &'a str>,
) -> Result<(), Fault> {
    let nulls: Vec<&str> = nulls.collect();
    if !nulls.is_empty() {
        return Err(Fault::InvalidRequest(format!(
            "Null value not supported for : {}",
            nulls.join(",")
        )));
    }
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Fault::InvalidRequest(
                "Error due to duplicate config keys".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Changes a topic's configurations and tells its open partitions.
pub(super) async fn change_topic(
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
pub(super) fn refuse<'a>(
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
