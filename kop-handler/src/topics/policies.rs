//! How long the host keeps a topic's data, where it gives data up by policies of its own.
//!
//! A Kafka group holds no data back, and Pulsar keeps what no subscription holds for no time at all unless it is told
//! otherwise: without this, topics of Kafka's clients would lose their records silently. It must not know requests.

use handler_api::topics::{
    EnsureNamespace, ListNamespaces, Namespace, NamespacePolicies, SetNamespacePolicies,
    SetTopicPolicies, Tenant, TopicPolicies,
};
use handler_api::{ApiError, ErrorCode, capability};

use super::Topics;
use super::configs::Overrides;
use super::configs::definition::items;

/// Without limit.
const UNLIMITED: i64 = -1;
/// Configurations that say how long data is kept.
const RETENTION: [&str; 3] = ["cleanup.policy", "retention.bytes", "retention.ms"];

impl Topics {
    /// Tells the host how long to keep a topic that was created. Of internal topics their namespace decides, which is told
    /// what coordinators need ([`Self::ensure_namespaces`]).
    pub(super) async fn keep_as_configured(&self, full_name: &str, overrides: &Overrides) {
        if !self.host.has(capability::HOST_RETENTION) || self.names.is_internal(full_name) {
            return;
        }
        let long = |name| Some(overrides.long(name, &self.defaults));
        let is_deleted =
            items(overrides.effective("cleanup.policy", &self.defaults)).contains(&"delete");
        let policies = TopicPolicies {
            name: full_name.to_owned(),
            retention_ms: Some(UNLIMITED)
                .filter(|_| !is_deleted)
                .or_else(|| long("retention.ms")),
            retention_bytes: Some(UNLIMITED)
                .filter(|_| !is_deleted)
                .or_else(|| long("retention.bytes")),
        };
        match self.host.control::<SetTopicPolicies>(&policies).await {
            // If they do not hold, the host has said so, and what an operator can do.
            Ok(outcome) => {
                tracing::debug!(topic = full_name, applied = outcome.applied, "retention");
            }
            Err(error) => {
                tracing::warn!(topic = full_name, %error, "the host was not told how long to keep a topic: its namespace decides");
            }
        }
    }

    /// The same for a topic whose configurations changed.
    pub(super) async fn keep_as_altered(&self, full_name: &str, old: &Overrides, new: &Overrides) {
        if RETENTION.iter().any(|name| old.get(name) != new.get(name)) {
            self.keep_as_configured(full_name, new).await;
        }
    }

    /// Makes the namespaces of clients' topics and of the system topics, and has the host keep what lies in them. A host
    /// that refuses is not a reason not to start: they may exist, and what needs them says so.
    ///
    /// `system` is how long and up to how many bytes each system topic is kept; −1: for ever, of any size. A commit is as
    /// old as its last change, and a group that rests must find it. `ttl_ms` is for subscriptions of Pulsar's clients.
    pub async fn ensure_namespaces(&self, system: (i64, i64), ttl_ms: i64) {
        let (system_ms, system_bytes) = system;
        let system = NamespacePolicies {
            namespace: self.names.metadata_namespace().to_owned(),
            retention_ms: Some(system_ms),
            retention_bytes: Some(system_bytes),
            message_ttl_ms: Some(ttl_ms),
            compaction_threshold_bytes: None,
        };
        self.ensure(system, true).await;
        if self.names.user_namespace() != self.names.metadata_namespace() {
            let empty = Overrides::default();
            let user = NamespacePolicies {
                namespace: self.names.user_namespace().to_owned(),
                retention_ms: Some(empty.long("retention.ms", &self.defaults)),
                retention_bytes: Some(empty.long("retention.bytes", &self.defaults)),
                ..NamespacePolicies::default()
            };
            // One that exists is its owner's business.
            self.ensure(user, false).await;
        }
    }

    async fn ensure(&self, policies: NamespacePolicies, also_existing: bool) {
        let namespace = policies.namespace.clone();
        if let Err(error) = self.try_ensure(policies, also_existing).await {
            tracing::warn!(namespace, %error, "a namespace cannot be created or configured");
        }
    }

    async fn try_ensure(
        &self,
        policies: NamespacePolicies,
        also_existing: bool,
    ) -> Result<(), ApiError> {
        let request = Namespace {
            namespace: policies.namespace.clone(),
        };
        let exists = self.namespace_exists(&policies.namespace).await;
        self.host.control::<EnsureNamespace>(&request).await?;
        let is_new = matches!(exists, Ok(false));
        if is_new {
            tracing::info!(namespace = policies.namespace, "created a namespace");
        }
        if !self.host.has(capability::HOST_RETENTION) || !(is_new || also_existing) {
            return Ok(());
        }
        let outcome = self.host.control::<SetNamespacePolicies>(&policies).await?;
        if outcome.applied {
            tracing::info!(
                namespace = policies.namespace,
                retention_ms = policies.retention_ms,
                retention_bytes = policies.retention_bytes,
                message_ttl_ms = policies.message_ttl_ms,
                "the namespace keeps data like this"
            );
        } else {
            tracing::warn!(
                namespace = policies.namespace,
                "the policies of a namespace do not hold: {}",
                outcome.advice
            );
        }
        Ok(())
    }

    async fn namespace_exists(&self, namespace: &str) -> Result<bool, ApiError> {
        let tenant = namespace.split('/').next().unwrap_or_default();
        let request = Tenant {
            tenant: tenant.to_owned(),
        };
        match self.host.control::<ListNamespaces>(&request).await {
            Ok(list) => Ok(list.namespaces.iter().any(|found| found == namespace)),
            Err(error) if error.kind() == ErrorCode::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
