//! Which simulated broker owns what: lookups, opening, moves, unloads and deaths.
//!
//! A topic (each partition by itself) lies in one of its namespace's bundles, by a hash of its name. A bundle without an
//! owner is given to a living broker, drawn from the seed, when somebody asks for it. It must not call anybody.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use handler_api::ledger::HandleClosed;
use handler_api::topics::{Broker, BrokersChanged, Cluster as BrokerList, OwnershipChanged};
use handler_api::{ApiError, ErrorCode, Event, Owner};

use super::{Due, World, unknown_outcome};
use crate::names;
use crate::sim::managed::Managed;

/// Bundles of a namespace, unless a test wants another number.
const BUNDLES: u32 = 8;

/// A namespace and the number of one of its bundles.
type Bundle = (String, u32);

/// A broker that the others know.
struct Member {
    protocol_data: String,
    /// A killed broker stays in the list until its session expires.
    alive: bool,
}

/// The brokers, and what belongs to whom.
pub(super) struct Cluster {
    members: BTreeMap<String, Member>,
    bundles: u32,
    owners: BTreeMap<Bundle, String>,
    /// Partitions that tests gave to brokers which do not exist here.
    foreign: HashMap<String, Owner>,
    /// Who has a partition open.
    holders: BTreeMap<String, String>,
    /// What each broker was answered to be its own, and has not lost since.
    told: HashMap<String, BTreeSet<String>>,
}

impl Cluster {
    pub(super) fn new() -> Self {
        Self {
            members: BTreeMap::new(),
            bundles: BUNDLES,
            owners: BTreeMap::new(),
            foreign: HashMap::new(),
            holders: BTreeMap::new(),
            told: HashMap::new(),
        }
    }

    /// FNV-1a: any hash will do that spreads names and is the same in every run.
    fn bundle(&self, partition: &str) -> Bundle {
        let hash = partition.bytes().fold(0x811C_9DC5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        let namespace = names::parse_topic(partition).map_or("", |parts| parts.namespace);
        (namespace.to_owned(), hash % self.bundles)
    }

    /// Forgets what a broker was told of a bundle, and gives it.
    fn untell(&mut self, broker: &str, bundle: &Bundle) -> Vec<String> {
        let told = self.told.remove(broker).unwrap_or_default();
        let (gone, kept) = told
            .into_iter()
            .partition::<BTreeSet<_>, _>(|name| self.bundle(name) == *bundle);
        self.told.insert(broker.to_owned(), kept);
        gone.into_iter().collect()
    }
}

impl World {
    // ---- brokers

    /// A broker starts, or one of its plugins does.
    pub(super) fn join(&mut self, broker: &str, protocol_data: &str) {
        let member = Member {
            protocol_data: protocol_data.to_owned(),
            alive: true,
        };
        let before = self.cluster.members.insert(broker.to_owned(), member);
        let is_known = before
            .as_ref()
            .is_some_and(|before| before.alive && before.protocol_data == protocol_data);
        if before.is_some_and(|before| !before.alive) {
            // Its former life's locks are gone with their session.
            self.disown(broker);
        }
        if !is_known {
            self.tell_of_brokers(broker);
        }
    }

    /// The brokers as one of them sees them.
    pub(in crate::sim) fn broker_list(&self, local: &str) -> BrokerList {
        let broker = |(id, member): (&String, &Member)| Broker {
            id: id.clone(),
            protocol_data: member.protocol_data.clone(),
        };
        BrokerList {
            name: "sim".to_owned(),
            local_broker: local.to_owned(),
            brokers: self.cluster.members.iter().map(broker).collect(),
        }
    }

    fn tell_of_brokers(&mut self, except: &str) {
        let others: Vec<String> = self.cluster.members.keys().cloned().collect();
        for broker in others.iter().filter(|broker| *broker != except) {
            let event = BrokersChanged {
                cluster: Some(self.broker_list(broker)),
            };
            self.tell_broker(broker, &event);
        }
    }

    fn tell_broker(&mut self, broker: &str, event: &impl Event) {
        self.tell_some(event, |view| view.broker == broker);
    }

    fn disown(&mut self, broker: &str) {
        self.cluster.owners.retain(|_, owner| owner != broker);
        self.cluster.told.remove(broker);
    }

    /// The process of a broker dies; the others learn of it when its session expires.
    pub(in crate::sim) fn kill(&mut self, broker: &str) -> bool {
        let Some(member) = self.cluster.members.get_mut(broker) else {
            return false;
        };
        member.alive = false;
        // First, so that nobody hears of what follows.
        self.views.retain(|_, view| view.broker != broker);
        for partition in self.held_by(|_, holder| holder == broker) {
            self.keep_some(&partition);
            self.cluster.holders.remove(&partition);
            if let Some(managed) = self.ledgers.get_mut(&partition) {
                managed.drop_pending();
                managed.generation = 0;
            }
            // Dropping the senders tells those who wait.
            self.due.retain(
                |_, due| !matches!(due, Due::Append { partition: p, .. } if *p == partition),
            );
        }
        true
    }

    /// The others give a killed broker up: what it owned has no owner now.
    pub(in crate::sim) fn expire(&mut self, broker: &str) -> bool {
        let is_dead = |member: &Member| !member.alive;
        if !self.cluster.members.get(broker).is_some_and(is_dead) {
            return false;
        }
        self.cluster.members.remove(broker);
        self.disown(broker);
        self.tell_of_brokers(broker);
        true
    }

    // ---- bundles

    pub(in crate::sim) fn set_bundles(&mut self, bundles: u32) {
        self.cluster.bundles = bundles.max(1);
        self.cluster.owners.clear();
    }

    /// Who owns a partition's bundle; `None` if nobody has asked for it yet.
    pub(in crate::sim) fn owner_of(&self, partition: &str) -> Option<String> {
        let bundle = self.cluster.bundle(partition);
        self.cluster.owners.get(&bundle).cloned()
    }

    /// The owner of a partition's bundle, drawn now if there is none.
    fn assigned_owner(&mut self, partition: &str) -> Result<String, ApiError> {
        let bundle = self.cluster.bundle(partition);
        if let Some(owner) = self.cluster.owners.get(&bundle) {
            return Ok(owner.clone());
        }
        let alive: Vec<String> = self
            .cluster
            .members
            .iter()
            .filter(|(_, member)| member.alive)
            .map(|(id, _)| id.clone())
            .collect();
        // Nothing is drawn where there is no choice, so that one broker's runs stay as they were.
        let choice = match alive.len() {
            0 | 1 => 0,
            several => self.random.up_to(several as u64 - 1) as usize,
        };
        let owner = alive
            .into_iter()
            .nth(choice)
            .ok_or_else(|| ApiError::new(ErrorCode::NotReady, "no broker is alive"))?;
        self.cluster.owners.insert(bundle, owner.clone());
        Ok(owner)
    }

    pub(in crate::sim) fn lookup(
        &mut self,
        view: u64,
        topics: &[String],
    ) -> Result<Vec<Result<Owner, ApiError>>, ApiError> {
        let asker = self.view(view)?;
        let (broker, own_data) = (asker.broker.clone(), asker.protocol_data.clone());
        self.lookups += 1;
        Ok(topics
            .iter()
            .map(|topic| self.look_up(topic, &broker, &own_data))
            .collect())
    }

    fn look_up(&mut self, topic: &str, asker: &str, own_data: &str) -> Result<Owner, ApiError> {
        if let Some(owner) = self.cluster.foreign.get(topic) {
            return Ok(owner.clone());
        }
        let owner = self.assigned_owner(topic)?;
        if owner == asker {
            let told = self.cluster.told.entry(owner.clone()).or_default();
            told.insert(topic.to_owned());
            return Ok(Owner {
                local: true,
                broker: owner.as_str().into(),
                protocol_data: own_data.into(),
            });
        }
        let member = self.cluster.members.get(&owner);
        let data = member.map_or("", |member| &member.protocol_data);
        Ok(Owner {
            local: false,
            broker: owner.as_str().into(),
            protocol_data: data.into(),
        })
    }

    /// The bundle of a partition is unloaded, with all that lies in it, and goes to another broker, or to nobody until
    /// somebody asks.
    pub(in crate::sim) fn move_bundle(&mut self, partition: &str, to: Option<&str>) -> bool {
        let bundle = self.cluster.bundle(partition);
        let from = self.cluster.owners.get(&bundle).cloned();
        if to.is_some() && from.as_deref() == to {
            return false;
        }
        let held = self.held_by(|name, _| self.cluster.bundle(name) == bundle);
        for name in held {
            self.keep_some(&name);
            self.close(&name, "its bundle was unloaded");
        }
        if let Some(from) = from {
            let topics = self.cluster.untell(&from, &bundle);
            self.tell_ownership(&from, topics, false);
        }
        match to {
            Some(to) => {
                self.cluster.owners.insert(bundle.clone(), to.to_owned());
                let topics = self.partitions_in(&bundle);
                self.tell_ownership(to, topics, true);
            }
            None => drop(self.cluster.owners.remove(&bundle)),
        }
        true
    }

    /// An event that names nothing would mean all.
    fn tell_ownership(&mut self, broker: &str, topics: Vec<String>, acquired: bool) {
        if !topics.is_empty() {
            self.tell_broker(broker, &OwnershipChanged { topics, acquired });
        }
    }

    fn partitions_in(&self, bundle: &Bundle) -> Vec<String> {
        let partitions = self
            .topics
            .iter()
            .flat_map(|(topic, state)| Self::topic_names(topic, state.partitions));
        partitions
            .filter(|name| self.cluster.bundle(name) == *bundle)
            .collect()
    }

    // ---- opening and closing

    fn held_by(&self, wanted: impl Fn(&str, &str) -> bool) -> Vec<String> {
        let held = self.cluster.holders.iter();
        held.filter(|(name, holder)| wanted(name, holder))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Opens a partition whose topic exists.
    pub(in crate::sim) fn open(
        &mut self,
        view: u64,
        partition: &str,
    ) -> Result<&mut Managed, ApiError> {
        let broker = self.view(view)?.broker.clone();
        let owner = match self.cluster.foreign.get(partition) {
            Some(owner) => owner.broker.to_string(),
            None => self.assigned_owner(partition)?,
        };
        if owner != broker {
            return Err(ApiError::new(
                ErrorCode::NotOwner,
                format!("{partition} is owned by {owner}"),
            ));
        }
        if !self.ledgers.contains_key(partition) {
            let id = self.next_managed;
            self.next_managed += 1;
            let ledger = self.next_ledger_id();
            self.names.insert(id, partition.to_owned());
            let managed = Managed::new(id, ledger, self.now_ms);
            self.ledgers.insert(partition.to_owned(), managed);
        }
        self.cluster.holders.insert(partition.to_owned(), broker);
        let (now_ms, next_ledger, generation) =
            (self.now_ms, self.next_ledger, self.next_generation);
        let managed = self
            .ledgers
            .get_mut(partition)
            .ok_or_else(|| ApiError::new(ErrorCode::NotFound, partition))?;
        if managed.generation == 0 {
            managed.generation = generation;
            self.next_generation += 1;
            // As after a crash of the last owner: its ledger is sealed, ours is new.
            if managed.roll(next_ledger, now_ms) {
                self.next_ledger += 1;
            }
        }
        Ok(managed)
    }

    /// The handle dies; what is pending is lost, and those who wait for it hear of an unknown outcome.
    pub(super) fn close(&mut self, partition: &str, reason: &str) -> bool {
        let Some(managed) = self.ledgers.get_mut(partition) else {
            return false;
        };
        if managed.generation == 0 {
            return false;
        }
        let handle = managed.handle();
        managed.generation = 0;
        managed.drop_pending();
        let waiting: Vec<_> = self
            .due
            .extract_if(
                ..,
                |_, due| matches!(due, Due::Append { partition: p, .. } if p == partition),
            )
            .collect();
        for (_, due) in waiting {
            if let Due::Append { reply, .. } = due {
                self.reply_to_append(reply, Err(unknown_outcome()));
            }
        }
        for view in self.views.values_mut() {
            view.watches.remove(&handle);
        }
        let event = HandleClosed {
            handle: Some(handle.into()),
            topic: partition.to_owned(),
            reason: reason.to_owned(),
        };
        if let Some(holder) = self.cluster.holders.remove(partition) {
            self.tell_broker(&holder, &event);
        }
        true
    }

    /// Forgets a partition and its data.
    pub(in crate::sim) fn forget(&mut self, partition: &str) {
        self.close(partition, "the topic was deleted");
        if let Some(managed) = self.ledgers.remove(partition) {
            self.names.remove(&managed.id);
        }
    }

    /// Makes some of the oldest pending entries durable: written, but nobody heard of it.
    pub(super) fn keep_some(&mut self, partition: &str) {
        while self.random.happens(500) && self.persist_next(partition).is_some() {}
    }

    pub(in crate::sim) fn unload(&mut self, partition: &str, reason: &str) -> bool {
        let Some(holder) = self.cluster.holders.get(partition).cloned() else {
            return false;
        };
        self.keep_some(partition);
        if !self.close(partition, reason) {
            return false;
        }
        for acquired in [false, true] {
            self.tell_ownership(&holder, vec![partition.to_owned()], acquired);
        }
        true
    }

    pub(super) fn unload_any(&mut self) {
        let open = self.held_by(|_, _| true);
        if open.is_empty() {
            return;
        }
        let choice = self.random.up_to(open.len() as u64 - 1) as usize;
        if let Some(name) = open.get(choice) {
            self.unload(name, "ownership moved");
        }
    }

    pub(in crate::sim) fn set_owner(&mut self, partition: &str, owner: Option<Owner>) {
        let acquired = owner.is_none();
        match owner {
            Some(owner) => {
                self.keep_some(partition);
                self.cluster.foreign.insert(partition.to_owned(), owner);
                self.close(partition, "another broker owns it");
            }
            None => {
                self.cluster.foreign.remove(partition);
            }
        }
        self.tell(&OwnershipChanged {
            topics: vec![partition.to_owned()],
            acquired,
        });
    }

    /// All processes die and come back.
    pub(in crate::sim) fn crash(&mut self) {
        // First, so that nobody hears of what follows.
        self.views.clear();
        let partitions: Vec<String> = self.ledgers.keys().cloned().collect();
        for partition in &partitions {
            self.keep_some(partition);
        }
        for managed in self.ledgers.values_mut() {
            managed.drop_pending();
            managed.generation = 0;
        }
        self.cluster.holders.clear();
        self.cluster.told.clear();
        // Dropping the senders tells those who wait.
        self.due.clear();
        self.effects.clear();
    }
}
