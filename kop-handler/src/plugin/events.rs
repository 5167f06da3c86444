//! The host's events, handed to the rooms that they concern. It must not know what a room does with one.

use std::sync::Arc;

use bytes::Bytes;
use handler_api::Event;
use handler_api::control;
use handler_api::ledger::{HandleClosed, StartMoved};
use handler_api::topics::{BrokersChanged, OwnershipChanged, TopicsChanged};
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::api::Server;
use crate::coordinator::engine::LogStore;
use crate::error::Fault;
use crate::topics::Topic;

/// Hands an event over; never blocks. An unknown one is a newer host's and ignored.
pub(super) fn dispatch(server: &Arc<Server>, runtime: &Handle, op: u32, payload: Bytes) {
    match op {
        HandleClosed::OP => with(payload, |event: HandleClosed| {
            if let Some(handle) = event.handle {
                server.logs.closed(handle.into());
            }
            if let Some(shard) = LogStore::shard_named(&server.topics, &event.topic) {
                server.groups.lose(shard);
            }
        }),
        StartMoved::OP => with(payload, |event: StartMoved| {
            if let Some(handle) = event.handle {
                server.logs.start_moved(handle.into(), event.start_index);
            }
        }),
        OwnershipChanged::OP => with(payload, |event: OwnershipChanged| {
            ownership_changed(server, &event);
        }),
        TopicsChanged::OP => with(payload, |event: TopicsChanged| {
            topics_changed(server, runtime, &event)
        }),
        BrokersChanged::OP => with(payload, |_: BrokersChanged| server.topics.brokers_changed()),
        _ => tracing::debug!(op, "an event of a newer host is ignored"),
    }
}

fn with<E: Event>(payload: Bytes, then: impl FnOnce(E)) {
    match control::decode(payload) {
        Ok(event) => then(event),
        Err(error) => tracing::error!(%error, op = E::OP, "an event of the host cannot be read"),
    }
}

/// What was kept of owners goes; coordinators that came are loaded when they are asked for. Those that went are told by
/// the end of their handles.
fn ownership_changed(server: &Arc<Server>, event: &OwnershipChanged) {
    server.topics.ownership_changed(event);
    if !event.acquired {
        return;
    }
    for name in &event.topics {
        if let Some(shard) = LogStore::shard_named(&server.topics, name) {
            server.groups.gain(shard);
        }
    }
}

/// Topics that are gone, or were made anew, lose their committed offsets and their series of metrics.
fn topics_changed(server: &Arc<Server>, runtime: &Handle, event: &TopicsChanged) {
    let changed: Vec<(String, Uuid)> = event
        .topics
        .iter()
        .filter_map(|full_name| {
            let name = server.topics.names().kafka_name(full_name)?;
            let known = server.topics.cached(&name);
            Some((name, known.map_or(Uuid::nil(), |topic| topic.id)))
        })
        .collect();
    server.topics.topics_changed(event);
    if changed.is_empty() {
        return;
    }
    let server = Arc::clone(server);
    runtime.spawn(async move {
        for (name, id) in changed {
            let gone = match server.topics.by_name(&name).await {
                Ok(topic) => {
                    apply_settings(&server, &topic);
                    !id.is_nil() && topic.id != id
                }
                Err(Fault::UnknownTopicOrPartition(_)) => true,
                Err(_) => false,
            };
            if !gone {
                continue;
            }
            server.metrics.forget_topic(&name);
            if let Err(error) = server.groups.topic_deleted(&name, id).await {
                tracing::warn!(topic = name, %error, "committed offsets of a deleted topic stay until they expire");
            }
        }
    });
}

/// Gives a topic's settings to those of its partitions that are open: another broker may have changed them.
fn apply_settings(server: &Server, topic: &Topic) {
    let partitions: Vec<String> = topic.partition_names().collect();
    let partitions: Vec<&str> = partitions.iter().map(String::as_str).collect();
    let settings = server.topics.log_settings(topic);
    server.logs.apply_settings(&partitions, &settings);
}
