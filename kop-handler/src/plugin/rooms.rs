//! Builds the rooms in the order in which they need each other. It must not know sockets.

use std::sync::Arc;

use handler_api::Host;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::api::data::fetch_sessions::FetchSessions;
use crate::api::{self, Server};
use crate::clock::Clock;
use crate::config::{Config, Limits};
use crate::coordinator::Groups;
use crate::coordinator::engine::{Engine, EngineLimits, LogStore};
use crate::coordinator::group::message::GroupSettings;
use crate::coordinator::ids::ProducerIds;
use crate::log::{Directory, LogOptions, Logs};
use crate::metrics::Metrics;
use crate::topics::Topics;

/// Everything that requests work on.
pub(crate) async fn build(
    config: Config,
    clock: Arc<dyn Clock>,
    host: Host,
    runtime: &Handle,
) -> Arc<Server> {
    let limits = Limits::new(&config);
    let metrics = Metrics::new(
        &config.cluster_name,
        limits.max_metric_topics,
        api::TABLE.iter().map(|line| line.name),
    );
    let topics = Topics::new(host.clone(), Arc::clone(&clock), &config);
    if config.kafka_manage_system_namespaces {
        let system_bytes = match config.system_topic_retention_size_mb {
            -1 => -1,
            mb => mb.saturating_mul(1024 * 1024),
        };
        let ttl_ms = config.offsets_message_ttl.saturating_mul(1_000);
        // What still holds is written again every third of the offsets' retention, and a group may rest for all of it.
        let system_ms = refresh_after_ms(&topics, &config)
            .map_or(-1, |_| offsets_retention_ms(&config).saturating_mul(2));
        let bounds = (system_ms, system_bytes);
        topics.ensure_namespaces(bounds, ttl_ms).await;
    }
    let logs = Logs::new(
        host.clone(),
        Arc::clone(&clock),
        Arc::clone(&topics) as Arc<dyn Directory>,
        LogOptions {
            mixed_compression: config.kafka_compression_type.0,
            max_entry_bytes: config.max_message_size,
            producer_id_expiration_ms: config.producer_id_expiration_ms,
            check_interval_ms: config.log_retention_check_interval_ms,
        },
        runtime.clone(),
    );
    let store = LogStore::new(
        Arc::clone(&logs),
        Arc::clone(&topics),
        Arc::clone(&clock),
        config.offsets_topic_num_partitions,
        offsets_retention_ms(&config),
    );
    let engine = Engine::new(
        Arc::clone(&clock),
        Arc::new(store),
        GroupSettings {
            refresh_after_ms: refresh_after_ms(&topics, &config),
            ..group_settings(&config, &limits)
        },
        EngineLimits::new(&limits, config.offset_commit_timeout_ms),
        runtime.clone(),
    );
    runtime.spawn(Arc::clone(&logs).housekeep());
    Arc::new(Server {
        groups: Groups::new(engine),
        producer_ids: ProducerIds::new(host.clone(), config.kafka_broker_id),
        fetch_sessions: FetchSessions::new(&limits),
        closing: watch::Sender::new(false),
        limits,
        clock,
        host,
        metrics,
        topics,
        logs,
        config,
    })
}

fn offsets_retention_ms(config: &Config) -> i64 {
    config.offsets_retention_minutes.saturating_mul(60_000)
}

/// Where the host cannot compact the offsets topic, it has to lose what is old, or a load would take longer each day.
fn refresh_after_ms(topics: &Topics, config: &Config) -> Option<u64> {
    let third = u64::try_from(offsets_retention_ms(config) / 3).unwrap_or(1);
    (!topics.can_compact()).then_some(third)
}

fn group_settings(config: &Config, limits: &Limits) -> GroupSettings {
    GroupSettings {
        min_session_timeout_ms: config.group_min_session_timeout_ms,
        max_session_timeout_ms: config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms: u64::try_from(config.group_initial_rebalance_delay_ms)
            .unwrap_or(0),
        max_group_size: config.group_max_size,
        max_groups_per_shard: limits.max_groups_per_shard,
        max_member_protocols: limits.max_member_protocols,
        max_decision_records: limits.max_decision_records,
        max_decision_bytes: limits.max_decision_bytes,
        offset_metadata_max_size: config.offset_metadata_max_size,
        offsets_retention_ms: offsets_retention_ms(config),
        offsets_check_interval_ms: config.offsets_retention_check_interval_ms,
        ..GroupSettings::default()
    }
}

/// The metrics' text, with what the rooms count themselves.
pub(crate) fn metrics(server: &Server) -> String {
    let metrics = &server.metrics;
    let census = server.groups.census();
    metrics.groups.set(census.held.groups);
    metrics.group_members.set(census.held.members);
    metrics.group_offsets.set(census.held.offsets);
    metrics.fetch_sessions.set(server.fetch_sessions.len());
    metrics.render()
}
