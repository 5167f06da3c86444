//! Creating, growing, altering and deleting topics.
//!
//! What is legal is checked by the callers (`api/admin`), which answer with Kafka's words; here is what the host is
//! asked for, and what the view must forget. It must not know requests.

use std::collections::HashMap;
use std::sync::Arc;

use handler_api::ErrorCode;
use handler_api::topics::{
    CreateTopic, DeleteTopic, EnsureNamespace, Namespace, Topic as HostTopic, TopicChange,
    TopicName, TopicsChanged, UpdateTopic,
};
use tokio::sync::watch;

use super::Topics;
use super::configs::{Change, Overrides};
use super::names::{can_collide, namespace_of, unify_collisions};
use super::topic::{FORMAT_PROPERTY, KOPS_FORMAT, Topic, properties};
use crate::error::Fault;

/// Tries of a change whose topic is changed by others meanwhile.
const CHANGE_TRIES: usize = 5;

/// A creation under way; true when it has ended.
pub(super) type Creation = watch::Receiver<bool>;

/// The names of all topics, by what they collide as.
#[derive(Debug)]
pub struct Taken(HashMap<String, String>);

impl Taken {
    fn new(topics: &[Arc<Topic>]) -> Self {
        let names = topics.iter().filter(|topic| can_collide(&topic.name));
        Self(
            names
                .map(|topic| (unify_collisions(&topic.name), topic.name.clone()))
                .collect(),
        )
    }

    fn other_than(&self, shown: &str) -> Option<&str> {
        let other = self.0.get(&unify_collisions(shown))?;
        (other != shown).then_some(other)
    }
}

/// What a Metadata request for a topic that does not exist leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AutoCreation {
    /// It is being created: the client's next request finds it.
    Started,
    /// It is not created here.
    Refused(Fault),
}

impl Topics {
    /// Creates a topic with its configurations (checked before). `partitions` is at least 1.
    ///
    /// # Errors
    /// [`Fault::TopicExists`], [`Fault::InvalidTopic`] for a name that cannot be or that collides with another one,
    /// [`Fault::UnknownTopicOrPartition`] for a namespace that does not exist, and what the host answers.
    pub async fn create(
        &self,
        name: &str,
        partitions: u32,
        overrides: &Overrides,
    ) -> Result<Arc<Topic>, Fault> {
        let full_name = self.check_new(name, &mut None).await?;
        self.create_checked(name, full_name, partitions, overrides)
            .await
    }

    /// Creates a topic that [`Self::check_new`] found nothing against.
    ///
    /// # Errors
    /// As of [`Self::create`].
    pub async fn create_checked(
        &self,
        name: &str,
        full_name: String,
        partitions: u32,
        overrides: &Overrides,
    ) -> Result<Arc<Topic>, Fault> {
        let mut properties = properties(self.new_id(), overrides);
        if self.is_kops(&full_name) {
            properties.insert(FORMAT_PROPERTY.to_owned(), KOPS_FORMAT.to_owned());
        }
        let request = HostTopic {
            name: full_name.clone(),
            partitions,
            properties,
            ..HostTopic::default()
        };
        let created = match self.host.control::<CreateTopic>(&request).await {
            Err(error)
                if error.kind() == ErrorCode::NotFound && self.is_own_namespace(&full_name) =>
            {
                self.ensure_namespace(&full_name).await?;
                self.host.control::<CreateTopic>(&request).await
            }
            answer => answer,
        };
        self.forget(&full_name);
        let created = created.map_err(|error| match error.kind() {
            ErrorCode::Conflict => exists(name),
            ErrorCode::InvalidArgument => Fault::InvalidTopic(error.message.into_string()),
            _ => error.into(),
        })?;
        self.keep_as_configured(&full_name, overrides).await;
        let mut topics = self
            .identified(vec![HostTopic {
                found: true,
                ..created
            }])
            .await?;
        topics.pop().flatten().ok_or_else(|| {
            Fault::InvalidTopic(format!("the topic '{name}' is one of Pulsar's own"))
        })
    }

    /// What speaks against creating a topic of this name; its full name if nothing does. `taken` is for the names of one
    /// request, empty at first: all topics are listed at most once for them.
    ///
    /// # Errors
    /// As of [`Self::create`].
    pub async fn check_new(&self, name: &str, taken: &mut Option<Taken>) -> Result<String, Fault> {
        let full_name = self.names.full_name(name)?;
        let Some(shown) = self.names.kafka_name(&full_name) else {
            return Err(Fault::InvalidTopic(format!(
                "the topic '{name}' is one of Pulsar's own"
            )));
        };
        let existing = self.describe(std::slice::from_ref(&full_name)).await?;
        if existing.into_iter().flatten().next().is_some() {
            return Err(exists(name));
        }
        if can_collide(&shown) {
            let taken = match taken {
                Some(taken) => taken,
                None => taken.insert(Taken::new(&self.list().await?)),
            };
            if let Some(other) = taken.other_than(&shown) {
                return Err(Fault::InvalidTopic(format!(
                    "Topic '{name}' collides with existing topic: {other}"
                )));
            }
        }
        Ok(full_name)
    }

    /// Starts to create a topic that a Metadata request named and nobody has made. Many requests for one topic start
    /// one creation. It always has the broker's default number of partitions: `allowAutoTopicCreationType` is about
    /// Pulsar's own clients, and a Kafka client that got a non-partitioned topic could never add partitions to it.
    pub fn auto_create(self: &Arc<Self>, name: &str) -> AutoCreation {
        let full_name = match self.names.full_name(name) {
            Ok(full_name) => full_name,
            Err(fault) => return AutoCreation::Refused(fault),
        };
        if !self.auto_create || self.names.is_internal(&full_name) {
            return AutoCreation::Refused(Fault::UnknownTopicOrPartition(String::new()));
        }
        let done = {
            let mut creating = self.creating.lock();
            if creating.contains_key(&full_name) || creating.len() >= self.limits.max_auto_creations
            {
                return AutoCreation::Started;
            }
            let (done, running) = watch::channel(false);
            creating.insert(full_name.clone(), running);
            done
        };
        let topics = Arc::clone(self);
        let name = name.to_owned();
        tokio::spawn(async move {
            let result = topics
                .create(&name, topics.default_partitions, &Overrides::default())
                .await;
            match &result {
                Ok(topic) => {
                    tracing::info!(
                        topic = topic.name,
                        partitions = topic.partitions(),
                        "created by a Metadata request"
                    );
                }
                Err(Fault::TopicExists(_)) => {}
                Err(fault) => {
                    tracing::warn!(topic = name, %fault, "could not be created by a Metadata request")
                }
            }
            topics.creating.lock().remove(&full_name);
            done.send_replace(true);
        });
        AutoCreation::Started
    }

    /// Waits until no Metadata request's creation of this topic is under way.
    #[cfg(test)]
    pub(super) async fn created(&self, name: &str) {
        let Ok(full_name) = self.names.full_name(name) else {
            return;
        };
        let running = self.creating.lock().get(&full_name).cloned();
        if let Some(mut running) = running {
            // An error means that the creation ended without a word: it panicked.
            let _ = running.wait_for(|done| *done).await;
        }
    }

    /// Adds partitions to a topic.
    ///
    /// # Errors
    /// [`Fault::InvalidPartitions`] if the host refuses the number, and what else it answers.
    pub async fn grow(&self, topic: &Topic, partitions: u32) -> Result<(), Fault> {
        let change = TopicChange {
            name: topic.full_name.clone(),
            partitions,
            ..TopicChange::default()
        };
        let answer = self.host.control::<UpdateTopic>(&change).await;
        self.forget(&topic.full_name);
        match answer {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorCode::InvalidArgument => {
                Err(Fault::InvalidPartitions(error.message.into_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Changes the configurations of a topic: `decide` is given those that it has and answers with those that it shall
    /// have, again if somebody else changes them meanwhile. Gives the topic as it is then.
    ///
    /// # Errors
    /// What `decide` or the host answers.
    pub async fn alter(
        &self,
        topic: &Topic,
        decide: impl Fn(&Overrides) -> Result<Overrides, Fault>,
    ) -> Result<Arc<Topic>, Fault> {
        for _ in 0..CHANGE_TRIES {
            let found = self
                .describe(std::slice::from_ref(&topic.full_name))
                .await?;
            let Some(current) = found.into_iter().flatten().next() else {
                break;
            };
            let wanted = decide(&current.overrides)?;
            let Change {
                set,
                remove,
                expect,
            } = current.overrides.change_to(&wanted);
            if set.is_empty() && remove.is_empty() {
                return Ok(current);
            }
            let change = TopicChange {
                name: topic.full_name.clone(),
                partitions: 0,
                set,
                remove,
                expect,
            };
            let answer = self.host.control::<UpdateTopic>(&change).await;
            self.forget(&topic.full_name);
            match answer {
                Ok(changed) => {
                    self.keep_as_altered(&topic.full_name, &current.overrides, &wanted)
                        .await;
                    let mut topics = self
                        .identified(vec![HostTopic {
                            found: true,
                            ..changed
                        }])
                        .await?;
                    return topics.pop().flatten().ok_or_else(|| unknown(&topic.name));
                }
                Err(error) if error.kind() == ErrorCode::Conflict => {}
                Err(error) if error.kind() == ErrorCode::NotFound => break,
                Err(error) => return Err(error.into()),
            }
        }
        let found = self
            .describe(std::slice::from_ref(&topic.full_name))
            .await?;
        Err(if found.into_iter().flatten().next().is_some() {
            Fault::TimedOut(format!(
                "the topic '{}' is being changed by others",
                topic.name
            ))
        } else {
            unknown(&topic.name)
        })
    }

    /// Deletes a topic with its data; open handles die.
    ///
    /// # Errors
    /// [`Fault::UnknownTopicOrPartition`] if it is gone already, and what else the host answers.
    pub async fn delete(&self, topic: &Topic) -> Result<(), Fault> {
        let request = TopicName {
            name: topic.full_name.clone(),
        };
        let answer = self.host.control::<DeleteTopic>(&request).await;
        self.forget(&topic.full_name);
        answer?;
        if !self.is_single_broker() {
            self.deletions.note(&self.host, &topic.name);
        }
        Ok(())
    }

    /// Creates one of Kafka's internal topics if it is missing and `kafkaManageSystemNamespaces` lets us.
    ///
    /// # Errors
    /// [`Fault::UnknownTopicOrPartition`] if it is missing and is not ours to create, and what the host answers.
    pub async fn ensure_internal(
        &self,
        name: &str,
        partitions: u32,
        overrides: &Overrides,
    ) -> Result<Arc<Topic>, Fault> {
        match self.by_name(name).await {
            Err(Fault::UnknownTopicOrPartition(_)) => {}
            answer => return answer,
        }
        if !self.manage_system_topics {
            return Err(Fault::UnknownTopicOrPartition(format!(
                "the topic '{name}' does not exist, and kafkaManageSystemNamespaces=false forbids to create it"
            )));
        }
        match self.create(name, partitions, overrides).await {
            Err(Fault::TopicExists(_)) => self.by_name(name).await,
            answer => answer,
        }
    }

    /// The namespaces that the settings name are created when they are needed; others are their owner's business.
    fn is_own_namespace(&self, full_name: &str) -> bool {
        namespace_of(full_name).is_some_and(|namespace| {
            namespace == self.names.user_namespace() || namespace == self.names.metadata_namespace()
        })
    }

    async fn ensure_namespace(&self, full_name: &str) -> Result<(), Fault> {
        let namespace = namespace_of(full_name).unwrap_or_default().to_owned();
        self.host
            .control::<EnsureNamespace>(&Namespace { namespace })
            .await?;
        Ok(())
    }

    /// Drops what is known of a topic: the host's own event may come later than its answer.
    fn forget(&self, full_name: &str) {
        self.topics_changed(&TopicsChanged {
            topics: vec![full_name.to_owned()],
        });
    }
}

/// The error for a topic that is there already, in Kafka's words.
fn exists(name: &str) -> Fault {
    Fault::TopicExists(format!("Topic '{name}' already exists."))
}

fn unknown(name: &str) -> Fault {
    Fault::UnknownTopicOrPartition(format!("The topic '{name}' does not exist."))
}
