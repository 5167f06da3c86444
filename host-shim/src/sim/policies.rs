//! How long the simulated broker says that it keeps data. It gives nothing up by itself: what is set is there to be
//! looked at.

use handler_api::control::{Operation, unsupported};
use handler_api::topics::{
    NamespacePolicies, PolicyOutcome, SetNamespacePolicies, SetTopicPolicies, TopicPolicies,
};
use handler_api::{ApiError, capability};

use super::control::{Answer, invalid, not_found};
use super::world::World;
use crate::names;

impl World {
    /// Of a host that gives nothing up by itself nobody wants to know.
    fn has_policies<O: Operation>(&self) -> Result<(), ApiError> {
        if self.capabilities & capability::HOST_RETENTION == 0 {
            return Err(unsupported(O::OP, O::VERSION));
        }
        Ok(())
    }

    pub(super) fn set_topic_policies(&mut self, asked: TopicPolicies) -> Answer<SetTopicPolicies> {
        self.has_policies::<SetTopicPolicies>()?;
        let state = self
            .topics
            .get_mut(&asked.name)
            .ok_or_else(|| not_found(&asked.name))?;
        let namespace = names::parse_topic(&asked.name).map_or("", |parts| parts.namespace);
        let of_namespace = self.namespaces.get(namespace).copied().unwrap_or_default();
        let wanted = merged(
            state.retention.unwrap_or(of_namespace),
            asked.retention_ms,
            asked.retention_bytes,
        )?;
        if self.topic_policies {
            state.retention = Some(wanted);
        }
        let applied = self.topic_policies || keeps(of_namespace, wanted);
        let advice = if applied {
            String::new()
        } else {
            format!("pulsar-admin namespaces set-retention {namespace}")
        };
        Ok(PolicyOutcome { applied, advice })
    }

    pub(super) fn set_namespace_policies(
        &mut self,
        asked: NamespacePolicies,
    ) -> Answer<SetNamespacePolicies> {
        self.has_policies::<SetNamespacePolicies>()?;
        let retention = self
            .namespaces
            .get_mut(&asked.namespace)
            .ok_or_else(|| not_found(&asked.namespace))?;
        *retention = merged(*retention, asked.retention_ms, asked.retention_bytes)?;
        Ok(PolicyOutcome {
            applied: true,
            advice: String::new(),
        })
    }
}

/// A retention with what is asked for in place of what is there.
fn merged(now: (i64, i64), ms: Option<i64>, bytes: Option<i64>) -> Result<(i64, i64), ApiError> {
    let wanted = (ms.unwrap_or(now.0), bytes.unwrap_or(now.1));
    if wanted.0 < -1 || wanted.1 < -1 {
        return Err(invalid(format!("{wanted:?} is no retention")));
    }
    Ok(wanted)
}

/// Whether one retention keeps whatever the other does.
fn keeps(one: (i64, i64), other: (i64, i64)) -> bool {
    let covers = |one: i64, other: i64| one == -1 || (other != -1 && one >= other);
    covers(one.0, other.0) && covers(one.1, other.1)
}
