//! Who leads what: owners of partitions and the brokers that are alive, as nodes for the clients of one listener.
//!
//! On a host that owns everything nothing is looked up. It must not know what a topic holds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use handler_api::control::Nothing;
use handler_api::topics::{ListBrokers, OwnershipChanged};
use handler_api::{ApiError, ErrorCode, Owner, Text, capability};

use super::names::split_partition;
use super::nodes::{Advertised, Node};
use super::{Topic, Topics};
use crate::error::Fault;

/// Kept lookups.
#[derive(Default)]
pub(super) struct Owners {
    /// Partitions that the host said to be this broker's own. Other answers hold for the moment only, and are not kept.
    local: HashSet<String>,
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

    /// The leader epoch that clients are told of everywhere. Where ownership moves it is not counted, so that all
    /// brokers say that they know none: clients ignore leaders of an older epoch than they know.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        crate::log::leader_epoch(&self.host)
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
        let all = self.all_brokers().await?;
        // This broker serves, whether or not the others have heard of it by now.
        let mut nodes: Vec<Node> = all
            .iter()
            .filter_map(|advertised| advertised.node(listener).cloned())
            .chain(local)
            .collect();
        nodes.sort_unstable();
        nodes.dedup_by_key(|node| node.id);
        Ok(nodes)
    }

    /// The node that clients of a listener are told to be the controller. Any broker can do what Kafka's does, but
    /// clients expect all brokers to name the same: the first by the host's id of those that serve Kafka clients.
    ///
    /// # Errors
    /// What the host answers.
    pub async fn controller(&self, listener: &str) -> Result<Option<Node>, Fault> {
        if self.is_single_broker() {
            return Ok(self.local_node(listener));
        }
        let all = self.all_brokers().await?;
        let mut nodes = all
            .iter()
            .filter_map(|advertised| advertised.node(listener));
        Ok(nodes.next().cloned().or_else(|| self.local_node(listener)))
    }

    /// What all brokers advertise, in the order of the host's ids.
    async fn all_brokers(&self) -> Result<Arc<Vec<Arc<Advertised>>>, Fault> {
        let since = {
            let owners = self.owners.read();
            if let Some(brokers) = &owners.brokers {
                return Ok(Arc::clone(brokers));
            }
            owners.events
        };
        let mut cluster = self.host.control::<ListBrokers>(&Nothing {}).await?;
        cluster.brokers.sort_by(|one, other| one.id.cmp(&other.id));
        let brokers: Arc<Vec<Arc<Advertised>>> = Arc::new(
            cluster
                .brokers
                .iter()
                .map(|broker| {
                    if broker.id == cluster.local_broker {
                        Arc::clone(&self.local)
                    } else {
                        Arc::new(Advertised::parse(&broker.protocol_data))
                    }
                })
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

    /// Those of these partitions that are known to be led by this broker. Nobody is asked: asking may make a broker the
    /// owner of what nobody owns.
    #[must_use]
    pub fn known_local(&self, partitions: Vec<String>) -> Vec<String> {
        if self.is_single_broker() {
            return partitions;
        }
        let owners = self.owners.read();
        let mut known = partitions;
        known.retain(|partition| owners.local.contains(partition));
        known
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
        let (is_local, missing, since) = {
            let owners = self.owners.read();
            let is_local: Vec<bool> = partitions
                .iter()
                .map(|name| owners.local.contains(name))
                .collect();
            let missing: Vec<String> = partitions
                .iter()
                .zip(&is_local)
                .filter(|(_, is_local)| !**is_local)
                .map(|(name, _)| name.clone())
                .collect();
            (is_local, missing, owners.events)
        };
        let answers = if missing.is_empty() {
            Vec::new()
        } else {
            self.ask(missing.clone()).await?
        };
        self.keep_local(&missing, &answers, since);
        let mut answers = answers.into_iter();
        let mut remote = Remote::default();
        let owner = |is_local| match is_local {
            true => Ok(Arc::clone(&self.local)),
            false => match answers.next() {
                Some(Ok(owner)) if owner.local => Ok(Arc::clone(&self.local)),
                Some(Ok(owner)) => Ok(remote.advertised(owner)),
                Some(Err(error)) if error.kind() == ErrorCode::NotFound => {
                    Err(Fault::LeaderNotAvailable(error.message.into_string()))
                }
                Some(Err(error)) => Err(error.into()),
                None => Err(Fault::Internal(
                    "the host answered too few lookups".to_owned(),
                )),
            },
        };
        Ok(is_local.into_iter().map(owner).collect())
    }

    /// One lookup at the host, for no longer than `brokerLookupTimeoutMs`.
    async fn ask(&self, partitions: Vec<String>) -> Result<Vec<Result<Owner, ApiError>>, Fault> {
        let count = partitions.len();
        match tokio::time::timeout(self.lookup_timeout, self.host.lookup(partitions)).await {
            Ok(answers) => Ok(answers?),
            Err(_) => Err(Fault::TimedOut(format!(
                "the owners of {count} partitions were not found within brokerLookupTimeoutMs"
            ))),
        }
    }

    fn keep_local(&self, asked: &[String], answers: &[Result<Owner, ApiError>], since: u64) {
        let is_local =
            |answer: &Result<Owner, ApiError>| answer.as_ref().is_ok_and(|owner| owner.local);
        if !answers.iter().any(is_local) {
            return;
        }
        let mut owners = self.owners.write();
        if owners.events != since {
            return;
        }
        for (name, _) in asked
            .iter()
            .zip(answers)
            .filter(|(_, answer)| is_local(answer))
        {
            if owners.local.len() >= self.limits.max_cached_owners {
                owners.local.clear();
            }
            owners.local.insert(name.clone());
        }
    }

    /// Ownership moved.
    pub fn ownership_changed(&self, event: &OwnershipChanged) {
        let mut owners = self.owners.write();
        owners.events += 1;
        if event.topics.is_empty() {
            owners.local.clear();
            return;
        }
        for name in &event.topics {
            owners.local.remove(name);
        }
        // An event may name a topic and mean its partitions.
        if event
            .topics
            .iter()
            .any(|name| split_partition(name).is_none())
        {
            let moved: HashSet<&str> = event.topics.iter().map(String::as_str).collect();
            owners.local.retain(|partition| {
                let topic = split_partition(partition).map(|(topic, _)| topic);
                topic.is_none_or(|topic| !moved.contains(topic))
            });
        }
    }

    /// The set of brokers changed, or what one advertises.
    pub fn brokers_changed(&self) {
        let mut owners = self.owners.write();
        owners.events += 1;
        owners.brokers = None;
    }
}

/// What other brokers advertise, read once per answer: thousands of partitions have a few owners.
#[derive(Default)]
struct Remote {
    by_data: HashMap<Text, Arc<Advertised>>,
}

impl Remote {
    fn advertised(&mut self, owner: Owner) -> Arc<Advertised> {
        if let Some(known) = self.by_data.get(&owner.protocol_data) {
            return Arc::clone(known);
        }
        let advertised = Arc::new(Advertised::parse(&owner.protocol_data));
        self.by_data
            .insert(owner.protocol_data, Arc::clone(&advertised));
        advertised
    }
}
