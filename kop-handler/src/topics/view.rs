//! The cache of topics and owners: filled on demand, dropped by events.
//!
//! What was read before an event that names a topic never overwrites what holds after it: reads remember the number
//! of events at their start, and a topic that an event named stays *dirty* until a later read. It must not change topics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use handler_api::ErrorCode;
use handler_api::topics::{
    DescribeTopics, ListNamespaces, ListTopics, Namespace, Tenant, Topic as HostTopic, TopicChange,
    TopicNames, TopicsChanged, UpdateTopic,
};
use uuid::Uuid;

use super::Topics;
use super::names::namespace_of;
use super::topic::{ID_PROPERTY, Topic};
use crate::error::Fault;

/// Readings after which a list is answered although topics keep changing.
const LIST_ROUNDS: usize = 3;

/// What is known of topics.
#[derive(Default)]
pub(super) struct Cache {
    topics: HashMap<String, Arc<Topic>>,
    by_name: HashMap<String, Arc<Topic>>,
    by_id: HashMap<Uuid, Arc<Topic>>,
    /// Topics that changed, with the number of the last event that said so.
    dirty: HashMap<String, u64>,
    /// Whether `topics` holds all topics of the listed namespaces, the dirty ones aside.
    listed: bool,
    sorted: Option<Arc<Vec<Arc<Topic>>>>,
    /// Number of events so far.
    events: u64,
    /// Number of the last event that named no topic and so meant all.
    wiped: u64,
    /// Most topics kept, and most that events may leave dirty before everything is forgotten instead.
    most: usize,
}

impl Cache {
    /// Nothing known yet.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    fn is_current(&self, full_name: &str, since: u64) -> bool {
        self.wiped <= since
            && self
                .dirty
                .get(full_name)
                .is_none_or(|event| *event <= since)
    }

    /// Keeps a topic as read after event `since`.
    fn keep(&mut self, topic: &Arc<Topic>, since: u64) {
        if !self.is_current(&topic.full_name, since) {
            return;
        }
        if self.topics.len() >= self.most && !self.topics.contains_key(&topic.full_name) {
            self.wipe();
        }
        self.remove(&topic.full_name);
        self.dirty.remove(&topic.full_name);
        self.by_id.insert(topic.id, Arc::clone(topic));
        self.by_name.insert(topic.name.clone(), Arc::clone(topic));
        self.topics
            .insert(topic.full_name.clone(), Arc::clone(topic));
    }

    /// Notes that a topic did not exist after event `since`.
    fn keep_absent(&mut self, full_name: &str, since: u64) {
        if self.is_current(full_name, since) {
            self.remove(full_name);
            self.dirty.remove(full_name);
        }
    }

    fn remove(&mut self, full_name: &str) {
        self.sorted = None;
        if let Some(old) = self.topics.remove(full_name) {
            self.by_id.remove(&old.id);
            self.by_name.remove(&old.name);
        }
    }

    fn wipe(&mut self) {
        let (events, wiped, most) = (self.events, self.wiped, self.most);
        *self = Self {
            events,
            wiped,
            most,
            ..Self::default()
        };
    }

    fn changed(&mut self, names: &[String]) {
        self.events += 1;
        if names.is_empty() || self.dirty.len() + names.len() > self.most {
            self.wiped = self.events;
            self.wipe();
            return;
        }
        for name in names {
            self.remove(name);
            self.dirty.insert(name.clone(), self.events);
        }
    }
}

impl Topics {
    /// The topic of a name, if it is in the cache: what hot paths try first.
    #[must_use]
    pub fn cached(&self, name: &str) -> Option<Arc<Topic>> {
        self.cache.read().by_name.get(name).cloned()
    }

    /// The topic of an id, if it is in the cache.
    #[must_use]
    pub fn cached_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        self.cache.read().by_id.get(&id).cloned()
    }

    /// The topic that Kafka clients call `name`.
    ///
    /// # Errors
    /// [`Fault::InvalidTopic`] for a name that cannot be one, [`Fault::UnknownTopicOrPartition`] if there is none.
    pub async fn by_name(&self, name: &str) -> Result<Arc<Topic>, Fault> {
        if let Some(topic) = self.cached(name) {
            return Ok(topic);
        }
        let full_name = self.names.full_name(name)?;
        let mut found = self.describe(std::slice::from_ref(&full_name)).await?;
        found.pop().flatten().ok_or_else(|| unknown(name))
    }

    /// The topics of many names, in one crossing; answers in their order. See [`Self::by_name`].
    pub async fn by_names(&self, names: &[&str]) -> Vec<Result<Arc<Topic>, Fault>> {
        let full_names: Vec<Result<String, Fault>> = names
            .iter()
            .map(|name| self.names.full_name(name))
            .collect();
        let asked: Vec<String> = full_names.iter().flatten().cloned().collect();
        let found = match self.describe(&asked).await {
            Ok(found) => found,
            Err(fault) => {
                return full_names
                    .into_iter()
                    .map(|name| name.and(Err(fault.clone())))
                    .collect();
            }
        };
        let mut found = found.into_iter();
        names
            .iter()
            .zip(full_names)
            .map(|(name, full_name)| {
                full_name?;
                found.next().flatten().ok_or_else(|| unknown(name))
            })
            .collect()
    }

    /// The topic of an id.
    ///
    /// # Errors
    /// [`Fault::UnknownTopicId`] if there is none.
    pub async fn by_id(&self, id: Uuid) -> Result<Arc<Topic>, Fault> {
        if let Some(topic) = self.cached_by_id(id) {
            return Ok(topic);
        }
        self.list().await?;
        self.cached_by_id(id)
            .ok_or_else(|| Fault::UnknownTopicId(String::new()))
    }

    /// All topics of the listed namespaces and Kafka's internal ones, by name.
    ///
    /// # Errors
    /// What the host answers.
    pub async fn list(&self) -> Result<Arc<Vec<Arc<Topic>>>, Fault> {
        let mut read = Vec::new();
        for _ in 0..LIST_ROUNDS {
            let dirty = {
                let mut cache = self.cache.write();
                if cache.listed && cache.dirty.is_empty() {
                    return Ok(self.sorted(&mut cache));
                }
                cache
                    .listed
                    .then(|| cache.dirty.keys().cloned().collect::<Vec<_>>())
            };
            // Giving an id to a topic that has none is a change too, so that the first listing may need a second look.
            read = match dirty {
                Some(dirty) => self.read(&dirty).await?,
                None => self.read_all().await?,
            };
        }
        // Topics change faster than they are read: those read last are shown as they were then.
        let mut topics: BTreeMap<String, Arc<Topic>> = read
            .into_iter()
            .flatten()
            .filter(|topic| self.is_listed(topic))
            .map(|topic| (topic.name.clone(), topic))
            .collect();
        let kept = self.sorted(&mut self.cache.write());
        topics.extend(
            kept.iter()
                .map(|topic| (topic.name.clone(), Arc::clone(topic))),
        );
        Ok(Arc::new(topics.into_values().collect()))
    }

    fn sorted(&self, cache: &mut Cache) -> Arc<Vec<Arc<Topic>>> {
        if let Some(sorted) = &cache.sorted {
            return Arc::clone(sorted);
        }
        let listed: BTreeMap<&str, &Arc<Topic>> = cache
            .topics
            .values()
            .filter(|topic| self.is_listed(topic))
            .map(|topic| (topic.name.as_str(), topic))
            .collect();
        let sorted: Arc<Vec<_>> = Arc::new(listed.into_values().cloned().collect());
        cache.sorted = Some(Arc::clone(&sorted));
        sorted
    }

    fn is_listed(&self, topic: &Topic) -> bool {
        topic.internal
            || namespace_of(&topic.full_name).is_some_and(|namespace| {
                self.allowed.iter().any(|allowed| allowed.holds(namespace))
            })
    }

    /// Topics by full name, from the cache where it has them.
    pub(super) async fn describe(
        &self,
        full_names: &[String],
    ) -> Result<Vec<Option<Arc<Topic>>>, Fault> {
        let (mut found, missing) = {
            let cache = self.cache.read();
            let found: Vec<Option<Arc<Topic>>> = full_names
                .iter()
                .map(|name| cache.topics.get(name).cloned())
                .collect();
            let missing: Vec<String> = full_names
                .iter()
                .zip(&found)
                .filter(|(_, topic)| topic.is_none())
                .map(|(name, _)| name.clone())
                .collect();
            (found, missing)
        };
        if missing.is_empty() {
            return Ok(found);
        }
        let mut read = self.read(&missing).await?.into_iter();
        for slot in found.iter_mut().filter(|slot| slot.is_none()) {
            *slot = read.next().flatten();
        }
        Ok(found)
    }

    /// Asks the host for topics and keeps the answers.
    async fn read(&self, full_names: &[String]) -> Result<Vec<Option<Arc<Topic>>>, Fault> {
        let since = self.cache.read().events;
        let request = TopicNames {
            names: full_names.to_vec(),
        };
        let answer = self.host.control::<DescribeTopics>(&request).await?;
        if answer.topics.len() != full_names.len() {
            return Err(Fault::Internal(format!(
                "the host described {} of {} topics",
                answer.topics.len(),
                full_names.len()
            )));
        }
        let read = self.identified(answer.topics).await?;
        let mut cache = self.cache.write();
        for (name, topic) in full_names.iter().zip(&read) {
            match topic {
                Some(topic) => cache.keep(topic, since),
                None => cache.keep_absent(name, since),
            }
        }
        Ok(read)
    }

    /// Asks the host for everything and keeps it.
    async fn read_all(&self) -> Result<Vec<Option<Arc<Topic>>>, Fault> {
        let since = self.cache.read().events;
        let mut topics = Vec::new();
        for namespace in self.namespaces().await? {
            match self
                .host
                .control::<ListTopics>(&Namespace { namespace })
                .await
            {
                Ok(list) => topics.extend(list.topics),
                // A namespace that nobody has created yet holds nothing.
                Err(error) if error.kind() == ErrorCode::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        let read = self.identified(topics).await?;
        let mut cache = self.cache.write();
        if cache.wiped <= since {
            for topic in read.iter().flatten() {
                cache.keep(topic, since);
            }
            cache.listed = true;
        }
        Ok(read)
    }

    /// The namespaces whose topics are listed.
    async fn namespaces(&self) -> Result<Vec<String>, Fault> {
        let mut namespaces = vec![self.names.metadata_namespace().to_owned()];
        for allowed in &self.allowed {
            match allowed {
                super::Allowed::Namespace(namespace) => namespaces.push(namespace.clone()),
                super::Allowed::Tenant(tenant) => {
                    let request = Tenant {
                        tenant: tenant.clone(),
                    };
                    match self.host.control::<ListNamespaces>(&request).await {
                        Ok(list) => namespaces.extend(list.namespaces),
                        Err(error) if error.kind() == ErrorCode::NotFound => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        Ok(namespaces)
    }

    /// Topics as the host described them, with ids given to those that have none: topics that were not made through
    /// the Kafka protocol.
    pub(super) async fn identified(
        &self,
        topics: Vec<HostTopic>,
    ) -> Result<Vec<Option<Arc<Topic>>>, Fault> {
        stream::iter(topics)
            .map(|topic| self.identify(topic))
            .buffered(self.limits.max_topic_changes_at_once)
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .collect()
    }

    async fn identify(&self, mut topic: HostTopic) -> Result<Option<Arc<Topic>>, Fault> {
        // Another broker may give the id at the same time: the second try finds its id, the third a topic made anew.
        for _ in 0..3 {
            if !topic.found {
                return Ok(None);
            }
            let stored = match Topic::from_host(&self.names, &topic) {
                None => return Ok(None),
                Some(Ok(topic)) => return Ok(Some(Arc::new(topic))),
                Some(Err(stored)) => stored,
            };
            let change = TopicChange {
                name: topic.name.clone(),
                set: HashMap::from([(ID_PROPERTY.to_owned(), self.new_id().to_string())]),
                expect: HashMap::from([(ID_PROPERTY.to_owned(), stored)]),
                ..TopicChange::default()
            };
            topic = match self.host.control::<UpdateTopic>(&change).await {
                Ok(topic) => topic,
                Err(error) if error.kind() == ErrorCode::NotFound => return Ok(None),
                Err(error) if error.kind() == ErrorCode::Conflict => {
                    let request = TopicNames {
                        names: vec![change.name],
                    };
                    let answer = self.host.control::<DescribeTopics>(&request).await?;
                    answer.topics.into_iter().next().unwrap_or_default()
                }
                Err(error) => return Err(error.into()),
            };
        }
        Err(Fault::TimedOut(format!(
            "{} changes too fast to be identified",
            topic.name
        )))
    }

    /// A new topic id. As in Kafka, none whose text starts with a dash: command lines would take it for an option.
    pub(super) fn new_id(&self) -> Uuid {
        loop {
            let id = self.clock.uuid();
            if id.as_bytes().first().is_some_and(|byte| byte >> 2 != 62) {
                return id;
            }
        }
    }

    /// Topics were created, changed or deleted.
    pub fn topics_changed(&self, event: &TopicsChanged) {
        self.cache.write().changed(&event.topics);
    }
}

fn unknown(name: &str) -> Fault {
    Fault::UnknownTopicOrPartition(format!("The topic '{name}' does not exist."))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::topics::names::Names;

    fn topic(number: u128) -> Arc<Topic> {
        let host = HostTopic {
            name: format!("persistent://public/default/t{number}"),
            found: true,
            partitions: 1,
            properties: HashMap::from([(
                ID_PROPERTY.to_owned(),
                Uuid::from_u128(number).to_string(),
            )]),
            created_ms: 0,
        };
        let names = Names::new("public", "default", "public", "__kafka");
        Arc::new(Topic::from_host(&names, &host).unwrap().unwrap())
    }

    #[test]
    fn the_cache_starts_anew_before_it_outgrows_its_bound() {
        let mut cache = Cache::new(3);
        for number in 1..=3 {
            cache.keep(&topic(number), 0);
        }
        cache.keep(&topic(3), 0);
        assert_eq!(cache.topics.len(), 3);
        cache.keep(&topic(4), 0);
        assert_eq!(
            (cache.topics.len(), cache.by_id.len(), cache.by_name.len()),
            (1, 1, 1)
        );
        // So do names that changed and that nobody asks for again.
        for number in 5..=9 {
            cache.changed(&[topic(number).full_name.clone()]);
        }
        assert!(cache.dirty.len() <= 3, "{}", cache.dirty.len());
        assert!(!cache.listed);
    }

    #[test]
    fn a_read_from_before_an_event_is_not_kept() {
        let mut cache = Cache::new(10);
        let since = cache.events;
        cache.changed(&[topic(1).full_name.clone()]);
        cache.keep(&topic(1), since);
        assert!(cache.topics.is_empty());
        cache.keep_absent(&topic(1).full_name, since);
        assert_eq!(cache.dirty.len(), 1, "it still has to be read again");
        cache.keep(&topic(1), cache.events);
        assert_eq!((cache.topics.len(), cache.dirty.len()), (1, 0));
        let since = cache.events;
        cache.changed(&[]);
        cache.keep(&topic(1), since);
        assert!(
            cache.topics.is_empty(),
            "an event that names none means all"
        );
    }
}
