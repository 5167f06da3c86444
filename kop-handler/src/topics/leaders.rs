//! Who leads what: owners of partitions and the brokers that are alive, as nodes for the clients of one listener.
//!
//! On a host that owns everything nothing is looked up. It must not know what a topic holds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use handler_api::control::Nothing;
use handler_api::topics::{ListBrokers, OwnershipChanged};
use handler_api::{ErrorCode, capability};

use super::names::split_partition;
use super::nodes::{Advertised, Node};
use super::{Topic, Topics};
use crate::error::Fault;

/// Kept lookups.
#[derive(Default)]
pub(super) struct Owners {
    known: HashMap<String, Arc<Advertised>>,
    brokers: Option<Arc<Vec<Arc<Advertised>>>>,
    /// Number of events so far: an answer asked for before the last one is not kept.
    events: u64,
}

/// The node ids of the leaders of one topic's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaders {
    /// One node leads all.
    One(i32),
    /// One per partition; `None` where there is none at the moment.
    Each(Vec<Option<i32>>),
}

impl Leaders {
    /// The leader of a partition.
    #[must_use]
    pub fn of(&self, partition: u32) -> Option<i32> {
        match self {
            Self::One(node) => Some(*node),
            Self::Each(nodes) => nodes
                .get(usize::try_from(partition).ok()?)
                .copied()
                .flatten(),
        }
    }
}

impl Topics {
    /// Whether all partitions are led by this broker.
    #[must_use]
    pub fn is_single_broker(&self) -> bool {
        self.host.has(capability::SINGLE_BROKER)
    }

    /// This broker, for clients of a listener.
    #[must_use]
    pub fn local_node(&self, listener: &str) -> Option<Node> {
        self.local.node(listener).cloned()
    }

    /// The brokers that are alive and serve Kafka clients, for clients of a listener, by id.
    ///
    /// # Errors
    /// What the host answers.
    pub async fn brokers(&self, listener: &str) -> Result<Vec<Node>, Fault> {
        let local = self.local_node(listener);
        if self.is_single_broker() {
            return Ok(local.into_iter().collect());
        }
        let others = self.other_brokers().await?;
        let mut nodes: Vec<Node> = others
            .iter()
            .filter_map(|advertised| advertised.node(listener).cloned())
            .chain(local)
            .collect();
        nodes.sort_unstable();
        nodes.dedup_by_key(|node| node.id);
        Ok(nodes)
    }

    async fn other_brokers(&self) -> Result<Arc<Vec<Arc<Advertised>>>, Fault> {
        let since = {
            let owners = self.owners.read();
            if let Some(brokers) = &owners.brokers {
                return Ok(Arc::clone(brokers));
            }
            owners.events
        };
        let cluster = self.host.control::<ListBrokers>(&Nothing {}).await?;
        let brokers: Arc<Vec<Arc<Advertised>>> = Arc::new(
            cluster
                .brokers
                .iter()
                .filter(|broker| broker.id != cluster.local_broker)
                .map(|broker| Arc::new(Advertised::parse(&broker.protocol_data)))
                .collect(),
        );
        let mut owners = self.owners.write();
        if owners.events == since {
            owners.brokers = Some(Arc::clone(&brokers));
        }
        Ok(brokers)
    }

    /// Which broker leads each of these partitions (full Pulsar names), for clients of a listener; answers in their
    /// order. [`Fault::LeaderNotAvailable`] where none does at the moment, [`Fault::NotLeader`] where its leader serves
    /// no Kafka clients.
    ///
    /// # Errors
    /// What the host answers to the lookup as a whole.
    pub async fn leaders(
        &self,
        partitions: &[String],
        listener: &str,
    ) -> Result<Vec<Result<Node, Fault>>, Fault> {
        let no_node = || Fault::NotLeader("the leader serves no Kafka clients".to_owned());
        if self.is_single_broker() {
            let local = self.local_node(listener).ok_or_else(no_node);
            return Ok(vec![local; partitions.len()]);
        }
        let owners = self.lookup(partitions).await?;
        Ok(owners
            .into_iter()
            .map(|owner| owner?.node(listener).cloned().ok_or_else(no_node))
            .collect())
    }

    /// Whether this broker leads each of these partitions (full Pulsar names); answers in their order.
    ///
    /// # Errors
    /// What the host answers to the lookup as a whole.
    pub async fn are_local(&self, partitions: &[String]) -> Result<Vec<bool>, Fault> {
        if self.is_single_broker() {
            return Ok(vec![true; partitions.len()]);
        }
        let owners = self.lookup(partitions).await?;
        Ok(owners
            .iter()
            .map(|owner| {
                owner
                    .as_ref()
                    .is_ok_and(|owner| Arc::ptr_eq(owner, &self.local))
            })
            .collect())
    }

    /// The leaders of the partitions of topics, in one crossing; answers in the order of the topics.
    ///
    /// # Errors
    /// What the host answers to the lookup as a whole.
    pub async fn topic_leaders(
        &self,
        topics: &[Arc<Topic>],
        listener: &str,
    ) -> Result<Vec<Leaders>, Fault> {
        if self.is_single_broker()
            && let Some(local) = self.local_node(listener)
        {
            return Ok(vec![Leaders::One(local.id); topics.len()]);
        }
        let partitions: Vec<String> = topics
            .iter()
            .flat_map(|topic| topic.partition_names())
            .collect();
        let mut leaders = self.leaders(&partitions, listener).await?.into_iter();
        Ok(topics
            .iter()
            .map(|topic| {
                let each =
                    (0..topic.partitions()).map(|_| leaders.next()?.ok().map(|node| node.id));
                Leaders::Each(each.collect())
            })
            .collect())
    }

    async fn lookup(
        &self,
        partitions: &[String],
    ) -> Result<Vec<Result<Arc<Advertised>, Fault>>, Fault> {
        let (mut found, missing, since) = {
            let owners = self.owners.read();
            let found: Vec<Option<Result<Arc<Advertised>, Fault>>> = partitions
                .iter()
                .map(|name| owners.known.get(name).cloned().map(Ok))
                .collect();
            let missing: Vec<String> = partitions
                .iter()
                .zip(&found)
                .filter(|(_, owner)| owner.is_none())
                .map(|(name, _)| name.clone())
                .collect();
            (found, missing, owners.events)
        };
        if !missing.is_empty() {
            let mut answers = self.host.lookup(missing.clone()).await?.into_iter();
            let mut owners = self.owners.write();
            for (name, slot) in partitions
                .iter()
                .zip(&mut found)
                .filter(|(_, slot)| slot.is_none())
            {
                let owner = match answers.next() {
                    Some(Ok(owner)) if owner.local => Ok(Arc::clone(&self.local)),
                    Some(Ok(owner)) => Ok(Arc::new(Advertised::parse(&owner.protocol_data))),
                    Some(Err(error)) if error.kind() == ErrorCode::NotFound => {
                        Err(Fault::LeaderNotAvailable(error.message.into_string()))
                    }
                    Some(Err(error)) => Err(error.into()),
                    None => Err(Fault::Internal(
                        "the host answered too few lookups".to_owned(),
                    )),
                };
                if let Ok(owner) = &owner
                    && owners.events == since
                {
                    if owners.known.len() >= self.limits.max_cached_owners {
                        owners.known.clear();
                    }
                    owners.known.insert(name.clone(), Arc::clone(owner));
                }
                *slot = Some(owner);
            }
        }
        Ok(found
            .into_iter()
            .map(|owner| owner.unwrap_or_else(|| Err(Fault::LeaderNotAvailable(String::new()))))
            .collect())
    }

    /// Ownership moved.
    pub fn ownership_changed(&self, event: &OwnershipChanged) {
        let mut owners = self.owners.write();
        owners.events += 1;
        if event.topics.is_empty() {
            owners.known.clear();
            return;
        }
        let moved: HashSet<&str> = event.topics.iter().map(String::as_str).collect();
        owners.known.retain(|partition, _| {
            let topic = split_partition(partition).map(|(topic, _)| topic);
            !moved.contains(partition.as_str()) && topic.is_none_or(|topic| !moved.contains(topic))
        });
    }

    /// The set of brokers changed, or what one advertises.
    pub fn brokers_changed(&self) {
        let mut owners = self.owners.write();
        owners.events += 1;
        owners.brokers = None;
        owners.known.clear();
    }
}
