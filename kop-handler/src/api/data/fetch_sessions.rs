//! Incremental fetch sessions (KIP-227): which partitions a client follows, so that a request names only what changed
//! and a reply holds only what is new.
//!
//! ```text
//!   (0, 0)  ──▶ a session if there is room, epoch 1 next     every partition is answered
//!   (id, n) ──▶ n is the expected epoch: n + 1 next           changed partitions are answered
//!   (id, 0) ──▶ the old session ends, a new one begins
//!   (*, −1) ──▶ the old session ends, none begins             every partition is answered
//! ```
//!
//! Pure: time and ids come in as arguments. It must not know logs beyond the handle it keeps per partition.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::config::Limits;
use crate::error::Fault;
use crate::log::Partition;

/// Session epoch of a request that ends its session.
pub(crate) const FINAL_EPOCH: i32 = -1;
/// Session epoch of a request that begins one.
pub(crate) const INITIAL_EPOCH: i32 = 0;
/// Session id of none.
pub(crate) const NO_SESSION: i32 = 0;

/// A topic as the requests of a session name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TopicKey {
    /// By name, up to version 12.
    Name(Arc<str>),
    /// By id, from version 13.
    Id(Uuid),
}

/// A partition that a client follows, with the position of its last request.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    /// The topic.
    pub(crate) topic: TopicKey,
    /// The partition's number.
    pub(crate) partition: i32,
    /// First offset wanted.
    pub(crate) offset: i64,
    /// Most bytes of it in one reply.
    pub(crate) max_bytes: i32,
    /// Leader epoch that the client knows, or −1.
    pub(crate) leader_epoch: i32,
    /// The open partition, if it was found before.
    pub(crate) open: Option<Arc<Partition>>,
    /// High watermark that was answered last; −1: answer the next time whatever it is.
    high_watermark: i64,
    /// Log start offset that was answered last.
    log_start_offset: i64,
}

impl Followed {
    /// A partition as a request names it.
    pub(crate) const fn new(
        topic: TopicKey,
        partition: i32,
        offset: i64,
        max_bytes: i32,
        leader_epoch: i32,
    ) -> Self {
        Self {
            topic,
            partition,
            offset,
            max_bytes,
            leader_epoch,
            open: None,
            high_watermark: -1,
            log_start_offset: -1,
        }
    }

    /// Whether an answer tells the client anything; remembers it.
    fn note(&mut self, answer: &Outcome) -> bool {
        if answer.error {
            self.high_watermark = -1;
            return true;
        }
        let changed = answer.has_records
            || self.high_watermark != answer.high_watermark
            || self.log_start_offset != answer.log_start_offset;
        self.high_watermark = answer.high_watermark;
        self.log_start_offset = answer.log_start_offset;
        changed
    }
}

/// What was answered for a partition, as far as a session cares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Whether it is an error.
    pub(crate) error: bool,
    /// Whether there are records.
    pub(crate) has_records: bool,
    /// High watermark.
    pub(crate) high_watermark: i64,
    /// Log start offset.
    pub(crate) log_start_offset: i64,
}

/// What a request asks of the sessions.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Session id of the request.
    pub(crate) id: i32,
    /// Session epoch of the request.
    pub(crate) epoch: i32,
    /// Whether the request names topics by id.
    pub(crate) by_id: bool,
    /// The partitions that it names.
    pub(crate) partitions: Vec<Followed>,
    /// The partitions that it forgets.
    pub(crate) forgotten: Vec<(TopicKey, i32)>,
}

/// How a request is answered.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Every partition, no session.
    Sessionless(Vec<Followed>),
    /// Every partition, and a session if there is room.
    Full(Vec<Followed>),
    /// What changed among the session's partitions. The epoch is that of the request.
    Incremental {
        /// Which session.
        id: i32,
        /// Epoch of the request.
        epoch: i32,
        /// All its partitions, in the order in which they are to be read.
        partitions: Vec<Followed>,
    },
}

impl Plan {
    /// The partitions to read.
    pub(crate) fn partitions(&self) -> &[Followed] {
        match self {
            Self::Sessionless(partitions)
            | Self::Full(partitions)
            | Self::Incremental { partitions, .. } => partitions,
        }
    }

    /// The partitions to read, to note where they are open.
    pub(crate) fn partitions_mut(&mut self) -> &mut [Followed] {
        match self {
            Self::Sessionless(partitions)
            | Self::Full(partitions)
            | Self::Incremental { partitions, .. } => partitions,
        }
    }
}

struct Session {
    epoch: i32,
    by_id: bool,
    created_ms: u64,
    used_ms: u64,
    /// Partitions by turn: the one whose turn is smallest is read first.
    order: BTreeMap<u64, Followed>,
    turns: HashMap<(TopicKey, i32), u64>,
    next_turn: u64,
}

impl Session {
    fn new(by_id: bool, now_ms: u64) -> Self {
        Self {
            epoch: INITIAL_EPOCH,
            by_id,
            created_ms: now_ms,
            used_ms: now_ms,
            order: BTreeMap::new(),
            turns: HashMap::new(),
            next_turn: 0,
        }
    }

    fn add(&mut self, partition: Followed) {
        let key = (partition.topic.clone(), partition.partition);
        if let Some(known) = self
            .turns
            .get(&key)
            .and_then(|turn| self.order.get_mut(turn))
        {
            known.offset = partition.offset;
            known.max_bytes = partition.max_bytes;
            known.leader_epoch = partition.leader_epoch;
            return;
        }
        self.turns.insert(key, self.next_turn);
        self.order.insert(self.next_turn, partition);
        self.next_turn += 1;
    }

    fn forget(&mut self, key: &(TopicKey, i32)) {
        if let Some(turn) = self.turns.remove(key) {
            self.order.remove(&turn);
        }
    }

    /// Notes an answer; a partition that gave records goes to the end, so that the others have their turn.
    fn note(
        &mut self,
        key: &(TopicKey, i32),
        outcome: &Outcome,
        open: Option<Arc<Partition>>,
    ) -> bool {
        let Some(turn) = self.turns.get_mut(key) else {
            return true;
        };
        let Some(partition) = self.order.get_mut(turn) else {
            return true;
        };
        partition.open = open;
        let changed = partition.note(outcome);
        if outcome.has_records
            && let Some(partition) = self.order.remove(turn)
        {
            *turn = self.next_turn;
            self.order.insert(self.next_turn, partition);
            self.next_turn += 1;
        }
        changed
    }
}

/// All sessions.
pub(crate) struct FetchSessions {
    max_sessions: usize,
    max_partitions: usize,
    min_eviction_ms: u64,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    by_id: HashMap<i32, Session>,
    partitions: usize,
}

impl FetchSessions {
    /// None yet.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            max_sessions: limits.max_fetch_sessions,
            max_partitions: limits.max_fetch_session_partitions,
            min_eviction_ms: limits.fetch_session_min_eviction_ms,
            sessions: Mutex::default(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.sessions.lock().by_id.len()
    }

    /// What a request is to be answered with.
    ///
    /// # Errors
    /// [`Fault::FetchSessionIdNotFound`], [`Fault::InvalidFetchSessionEpoch`], [`Fault::FetchSessionTopicId`].
    pub(crate) fn plan(&self, ask: Ask, now_ms: u64) -> Result<Plan, Fault> {
        let mut sessions = self.sessions.lock();
        if ask.epoch == FINAL_EPOCH || ask.epoch == INITIAL_EPOCH {
            if ask.id != NO_SESSION {
                sessions.remove(ask.id);
            }
            return Ok(if ask.epoch == FINAL_EPOCH {
                Plan::Sessionless(ask.partitions)
            } else {
                Plan::Full(ask.partitions)
            });
        }
        let session = sessions
            .by_id
            .get_mut(&ask.id)
            .ok_or_else(|| Fault::FetchSessionIdNotFound(String::new()))?;
        if session.epoch != ask.epoch {
            return Err(Fault::InvalidFetchSessionEpoch(String::new()));
        }
        if session.by_id != ask.by_id {
            return Err(Fault::FetchSessionTopicId(String::new()));
        }
        let before = session.order.len();
        for key in &ask.forgotten {
            session.forget(key);
        }
        // A frame bounds how many they are.
        for partition in ask.partitions {
            session.add(partition);
        }
        session.epoch = next_epoch(ask.epoch);
        session.used_ms = now_ms;
        let partitions: Vec<Followed> = session.order.values().cloned().collect();
        let after = session.order.len();
        sessions.partitions = sessions.partitions + after - before;
        if sessions.partitions > self.max_partitions {
            // The client begins anew, and is then answered without a session.
            sessions.remove(ask.id);
            return Err(Fault::FetchSessionIdNotFound(String::new()));
        }
        if partitions.is_empty() {
            sessions.remove(ask.id);
            return Ok(Plan::Sessionless(partitions));
        }
        Ok(Plan::Incremental {
            id: ask.id,
            epoch: ask.epoch,
            partitions,
        })
    }

    /// Notes what is answered. Gives the session id for the reply, and for each partition whether it must be in it.
    ///
    /// # Errors
    /// [`Fault::FetchSessionIdNotFound`] or [`Fault::InvalidFetchSessionEpoch`] if the session changed meanwhile.
    pub(crate) fn answer(
        &self,
        plan: Plan,
        by_id: bool,
        outcomes: &[Outcome],
        new_id: impl FnMut() -> i32,
        now_ms: u64,
    ) -> Result<(i32, Vec<bool>), Fault> {
        match plan {
            Plan::Sessionless(partitions) => Ok((NO_SESSION, vec![true; partitions.len()])),
            Plan::Full(partitions) => {
                let all = vec![true; partitions.len()];
                let id = self.create(partitions, by_id, outcomes, new_id, now_ms);
                Ok((id, all))
            }
            Plan::Incremental {
                id,
                epoch,
                partitions,
            } => {
                let mut sessions = self.sessions.lock();
                let session = sessions
                    .by_id
                    .get_mut(&id)
                    .ok_or_else(|| Fault::FetchSessionIdNotFound(String::new()))?;
                if session.epoch != next_epoch(epoch) {
                    return Err(Fault::InvalidFetchSessionEpoch(String::new()));
                }
                let needed = partitions
                    .into_iter()
                    .zip(outcomes)
                    .map(|(partition, outcome)| {
                        session.note(
                            &(partition.topic, partition.partition),
                            outcome,
                            partition.open,
                        )
                    })
                    .collect();
                Ok((id, needed))
            }
        }
    }

    fn create(
        &self,
        partitions: Vec<Followed>,
        by_id: bool,
        outcomes: &[Outcome],
        mut new_id: impl FnMut() -> i32,
        now_ms: u64,
    ) -> i32 {
        if partitions.is_empty() {
            return NO_SESSION;
        }
        let mut sessions = self.sessions.lock();
        let full = sessions.by_id.len() >= self.max_sessions
            || sessions.partitions + partitions.len() > self.max_partitions;
        if full && !sessions.evict(partitions.len(), self.min_eviction_ms, now_ms) {
            return NO_SESSION;
        }
        if sessions.partitions + partitions.len() > self.max_partitions {
            return NO_SESSION;
        }
        let mut session = Session::new(by_id, now_ms);
        session.epoch = next_epoch(INITIAL_EPOCH);
        for (mut partition, outcome) in partitions.into_iter().zip(outcomes) {
            partition.note(outcome);
            session.add(partition);
        }
        let id = loop {
            let id = new_id() & i32::MAX;
            if id != NO_SESSION && !sessions.by_id.contains_key(&id) {
                break id;
            }
        };
        sessions.partitions += session.order.len();
        sessions.by_id.insert(id, session);
        id
    }
}

impl Sessions {
    fn remove(&mut self, id: i32) {
        if let Some(session) = self.by_id.remove(&id) {
            self.partitions = self.partitions.saturating_sub(session.order.len());
        }
    }

    /// Makes room for a session of `size` partitions, as Kafka does: the one that was not used for longest if it is
    /// stale, else the smallest old one if it is no larger.
    fn evict(&mut self, size: usize, min_eviction_ms: u64, now_ms: u64) -> bool {
        let age = |since: u64| now_ms.saturating_sub(since);
        let stale = self
            .by_id
            .iter()
            .min_by_key(|(_, session)| session.used_ms)
            .filter(|(_, session)| age(session.used_ms) > min_eviction_ms);
        let victim = stale.or_else(|| {
            self.by_id
                .iter()
                .filter(|(_, session)| age(session.created_ms) > min_eviction_ms)
                .min_by_key(|(_, session)| session.order.len())
                .filter(|(_, session)| session.order.len() <= size)
        });
        match victim.map(|(id, _)| *id) {
            Some(id) => {
                self.remove(id);
                true
            }
            None => false,
        }
    }
}

/// The epoch after one: it wraps around the initial and the final one.
const fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        epoch if epoch < 0 => FINAL_EPOCH,
        epoch => epoch + 1,
    }
}

#[cfg(test)]
#[path = "fetch_sessions_tests.rs"]
mod tests;
