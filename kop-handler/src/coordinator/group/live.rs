//! The living membership of a classic group: who is there, who waits, which deadlines run.
//!
//! This is soft state. A reload forgets it and starts from the last [`GroupValue`] with fresh sessions. A decision
//! never changes it in place: it makes a new one, which the shard puts into the old one's place, so that an append
//! that is refused can put the old one back.
//!
//! ```text
//!            first member joins                    all joined, or time is up
//!   Empty ───────────────────────► PreparingRebalance ───────────────────────► CompletingRebalance
//!     ▲                                  │    ▲                                        │
//!     │          nobody is left          │    │  a member joins, leaves or expires     │ the leader's
//!     └──────────────────────────────────┘    └──────────────── Stable ◄───────────────┘ assignment
//! ```
//!
//! Kafka's source: `ClassicGroup`, `ClassicGroupMember`. It must not know records' bytes, tasks or clocks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::message::{JoinReply, JoinedMember, Now, Token};
use super::shared_map::SharedMap;
use super::subscription;
use crate::coordinator::record::{GroupValue, MemberValue};

/// Where a group stands; a group that is not there is what Kafka calls Dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl State {
    /// Kafka's name of the state.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    /// In order of preference.
    pub(crate) protocols: Vec<(String, Bytes)>,
    pub(crate) assignment: Bytes,
    /// Its JoinGroup is parked.
    pub(crate) join: Option<Token>,
    /// Its SyncGroup is parked.
    pub(crate) sync: Option<Token>,
    /// It has never been through a whole join phase, so it cannot send heartbeats yet.
    pub(crate) is_new: bool,
    /// When its session ends, on the monotonic clock.
    pub(crate) deadline_ms: u64,
}

impl Member {
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    /// Whether its session can run out: not while it waits for us, except for its very first join.
    pub(crate) fn expires(&self) -> bool {
        self.is_new || (self.join.is_none() && self.sync.is_none())
    }

    /// A timeout of a request as a duration; negative ones count as none.
    pub(crate) fn session_ms(&self) -> u64 {
        u64::try_from(self.session_timeout_ms).unwrap_or(0)
    }
}

/// The timer of a join phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JoinTimer {
    pub(crate) at_ms: u64,
    /// Of the first rebalance of an empty group, which waits longer while members keep coming.
    pub(crate) initial: Option<InitialDelay>,
}

/// How long the first rebalance has waited, and may still wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InitialDelay {
    pub(crate) delay_ms: u64,
    pub(crate) remaining_ms: u64,
}

/// A group's living membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) state: State,
    pub(crate) previous: State,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: Option<Arc<str>>,
    /// When the state was entered, wall clock; −1 if unknown.
    pub(crate) state_ms: i64,
    pub(crate) members: SharedMap<Arc<Member>>,
    /// Instance id → member id.
    pub(crate) statics: SharedMap<Arc<str>>,
    /// Ids given out by MEMBER_ID_REQUIRED that have not come back, with the end of their session.
    pub(crate) pending: SharedMap<u64>,
    /// Members that have not sent their SyncGroup in this generation.
    pub(crate) pending_sync: SharedMap<()>,
    pub(crate) new_member_added: bool,
    pub(crate) join_timer: Option<JoinTimer>,
    pub(crate) sync_deadline_ms: Option<u64>,
}

impl Live {
    /// A group that nobody has joined.
    pub(crate) const fn empty() -> Self {
        Self {
            state: State::Empty,
            previous: State::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            state_ms: -1,
            members: SharedMap::new(),
            statics: SharedMap::new(),
            pending: SharedMap::new(),
            pending_sync: SharedMap::new(),
            new_member_added: false,
            join_timer: None,
            sync_deadline_ms: None,
        }
    }

    /// What a reload makes of a record: stable if it has members, all sessions fresh.
    pub(crate) fn load(value: &GroupValue, now: Now) -> Self {
        let mut live = Self::empty();
        live.generation = value.generation;
        live.protocol_type = Some(value.protocol_type.clone()).filter(|kind| !kind.is_empty());
        live.protocol.clone_from(&value.protocol);
        live.leader = value.leader.as_deref().map(Arc::from);
        live.state_ms = value.state_ms;
        for member in &value.members {
            let id: Arc<str> = Arc::from(member.member_id.as_str());
            let protocol = value.protocol.clone().unwrap_or_default();
            let loaded = Member {
                instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout_ms,
                protocols: vec![(protocol, member.subscription.clone())],
                assignment: member.assignment.clone(),
                join: None,
                sync: None,
                is_new: false,
                deadline_ms: now
                    .mono_ms
                    .saturating_add(u64::try_from(member.session_timeout_ms).unwrap_or(0)),
            };
            live.insert(&id, loaded);
        }
        if !live.members.is_empty() {
            live.state = State::Stable;
        }
        live
    }

    /// The record of this membership. `assignments` may be those about to be propagated.
    pub(crate) fn record(&self) -> GroupValue {
        let protocol = self.protocol.clone().unwrap_or_default();
        GroupValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.as_deref().map(str::to_owned),
            state_ms: self.state_ms,
            members: self
                .members
                .iter()
                .map(|(id, member)| MemberValue {
                    member_id: id.to_string(),
                    instance_id: member.instance_id.clone(),
                    client_id: member.client_id.clone(),
                    client_host: member.client_host.clone(),
                    rebalance_timeout_ms: member.rebalance_timeout_ms,
                    session_timeout_ms: member.session_timeout_ms,
                    subscription: member.metadata(&protocol),
                    assignment: member.assignment.clone(),
                })
                .collect(),
        }
    }

    pub(crate) fn is(&self, state: State) -> bool {
        self.state == state
    }

    pub(crate) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    pub(crate) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id).map(Arc::as_ref)
    }

    /// The member for changing; shared with the older state until then.
    pub(crate) fn change(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id).map(Arc::make_mut)
    }

    fn insert(&mut self, id: &Arc<str>, member: Member) {
        if let Some(instance) = &member.instance_id {
            let instance = Arc::from(instance.as_str());
            self.statics.insert(instance, Arc::clone(id));
        }
        self.members.insert(Arc::clone(id), Arc::new(member));
    }

    /// A member joins the group for the first time. The first one leads and gives the group its protocol type.
    pub(crate) fn add(&mut self, id: &Arc<str>, member: Member, protocol_type: &str) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.to_owned());
        }
        if self.leader.is_none() {
            self.leader = Some(Arc::clone(id));
        }
        self.pending.remove(id);
        self.insert(id, member);
    }

    /// A member or a pending id goes. Its parked requests must have been answered.
    pub(crate) fn remove(&mut self, id: &str) {
        if let Some(member) = self.members.remove(id)
            && let Some(instance) = &member.instance_id
            && self.statics.get(instance).is_some_and(|held| **held == *id)
        {
            self.statics.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending.remove(id);
        self.pending_sync.remove(id);
    }

    /// A static member comes back under a new member id, keeping everything else.
    pub(crate) fn replace_static(&mut self, instance: &str, old: &str, new: &Arc<str>) {
        let Some(member) = self.members.remove(old) else {
            return;
        };
        self.members.insert(Arc::clone(new), member);
        if self.is_leader(old) {
            self.leader = Some(Arc::clone(new));
        }
        if self.pending_sync.remove(old).is_some() {
            self.pending_sync.insert(Arc::clone(new), ());
        }
        self.statics.insert(Arc::from(instance), Arc::clone(new));
    }

    pub(crate) fn enter(&mut self, state: State, now: Now) {
        self.previous = self.state;
        self.state = state;
        self.state_ms = now.wall_ms;
    }

    /// Members whose JoinGroup is parked.
    pub(crate) fn waiting_to_join(&self) -> usize {
        self.members.values().filter(|m| m.join.is_some()).count()
    }

    pub(crate) fn all_joined(&self) -> bool {
        self.pending.is_empty() && self.members.values().all(|m| m.join.is_some())
    }

    /// The longest rebalance timeout of all members, in ms.
    pub(crate) fn rebalance_timeout_ms(&self) -> u64 {
        self.members
            .values()
            .filter_map(|m| u64::try_from(m.rebalance_timeout_ms).ok())
            .max()
            .unwrap_or(0)
    }

    /// Whether these protocols fit the group: the same type, and one that all members support.
    pub(crate) fn supports(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.is(State::Empty) {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type) && !self.common(protocols).is_empty()
    }

    /// Those of some protocols that all members support. Each member's protocols are looked at once.
    fn common<'a>(&self, protocols: &'a [(String, Bytes)]) -> HashSet<&'a str> {
        let mut supporters: HashMap<&str, usize> = protocols
            .iter()
            .map(|(name, _)| (name.as_str(), 0))
            .collect();
        for (before, member) in self.members.values().enumerate() {
            for (name, _) in &member.protocols {
                if let Some(count) = supporters.get_mut(name.as_str())
                    && *count == before
                {
                    *count += 1; // once, though a member may offer one twice
                }
            }
        }
        supporters.retain(|_, count| *count == self.members.len());
        supporters.into_keys().collect()
    }

    /// The protocol that most members prefer among those that all support; the leader's preference breaks ties.
    pub(crate) fn select_protocol(&self) -> Option<String> {
        let common = self.common(&self.members.values().next()?.protocols);
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut offered = member.protocols.iter();
            let vote = offered.find(|(name, _)| common.contains(name.as_str()));
            if let Some((name, _)) = vote {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        let preferred = self
            .leader
            .as_deref()
            .and_then(|leader| self.member(leader))
            .and_then(|leader| {
                leader
                    .protocols
                    .iter()
                    .find(|(name, _)| votes.get(name.as_str()) == Some(&most))
            })
            .map(|(name, _)| name.as_str());
        preferred
            .or_else(|| {
                votes
                    .iter()
                    .find(|(_, n)| **n == most)
                    .map(|(name, _)| *name)
            })
            .map(str::to_owned)
    }

    /// A leader that has not joined again gives way to a member that has. Whether there is a leader that has.
    pub(crate) fn elect_joined_leader(&mut self) -> bool {
        let Some(leader) = &self.leader else {
            return false;
        };
        if self.member(leader).is_some_and(|m| m.join.is_some()) {
            return true;
        }
        let joined = self.members.iter().find(|(_, m)| m.join.is_some());
        match joined.map(|(id, _)| Arc::clone(id)) {
            Some(id) => {
                self.leader = Some(id);
                true
            }
            None => false,
        }
    }

    /// All members as the leader learns of them.
    pub(crate) fn roster(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.clone().unwrap_or_default();
        self.members
            .iter()
            .map(|(id, member)| JoinedMember {
                member_id: id.to_string(),
                instance_id: member.instance_id.clone(),
                metadata: member.metadata(&protocol),
            })
            .collect()
    }

    /// What a member learns of the current generation; the leader learns of all members too.
    pub(crate) fn join_reply(&self, member_id: &str) -> JoinReply {
        JoinReply {
            error: None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.as_deref().unwrap_or_default().to_owned(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: if self.is_leader(member_id) {
                self.roster()
            } else {
                Vec::new()
            },
        }
    }

    pub(crate) fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some("consumer")
    }

    /// The topics that the members read, if that can be known (Kafka: `computeSubscribedTopics`).
    pub(crate) fn subscribed_topics(&self) -> Option<BTreeSet<String>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol.as_deref()?;
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(subscription::topics(&member.metadata(protocol))?);
        }
        Some(topics)
    }

    /// Whether a topic's offsets are in use. A consumer group whose subscriptions cannot be read uses all.
    pub(crate) fn subscribes(&self, topics: Option<&BTreeSet<String>>, topic: &str) -> bool {
        topics.map_or_else(|| self.uses_consumer_protocol(), |all| all.contains(topic))
    }

    /// The earliest moment at which something may have to happen, on the monotonic clock.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let members = self
            .members
            .values()
            .filter(|m| m.expires())
            .map(|m| m.deadline_ms);
        members
            .chain(self.pending.values().copied())
            .chain(self.join_timer.map(|timer| timer.at_ms))
            .chain(self.sync_deadline_ms)
            .min()
    }

    /// All sessions begin again.
    pub(crate) fn freshen(&mut self, now: Now) {
        for member in self.members.values_mut().map(Arc::make_mut) {
            let at = now.mono_ms.saturating_add(member.session_ms());
            member.deadline_ms = member.deadline_ms.max(at);
        }
    }

    /// Every request that is parked here.
    pub(crate) fn parked(&self) -> impl Iterator<Item = Token> + '_ {
        self.members
            .values()
            .flat_map(|member| member.join.into_iter().chain(member.sync))
    }
}
