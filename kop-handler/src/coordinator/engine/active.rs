//! A shard that is loaded: its machine, what waits for durability, and who waits for an answer.
//!
//! ```text
//! command → decide → replay + soften ─┬─ no records, group clean ──────────────► answer
//!                                     └─ else a step: gathering → in flight → durable → answer
//!                                                                         └─ refused → undo, answer an error
//! ```
//!
//! Steps of one group keep their order, and a group with a step under way is *dirty*: whatever is decided on it rests on
//! records that may yet be refused, so its answers wait too. Groups are independent of each other.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use tokio::sync::oneshot;

use super::EngineLimits;
use super::store::{Pending, ShardLog, StoreFault};
use crate::coordinator::group::message::{Command, Now, Reply, Token};
use crate::coordinator::group::{Decision, Shard, Soft, Undo};
use crate::coordinator::record::{self, KeyValue};

/// Bytes of a batch beside its records.
const BATCH_HEADER: usize = 61;

/// Answers one request.
pub(super) type Answer = oneshot::Sender<Reply>;

/// A decision that waits for durability.
struct Step {
    group: Arc<str>,
    records: Vec<KeyValue>,
    undo: Vec<Undo>,
    reply: Option<(Answer, Reply)>,
    released: Vec<(Token, Reply)>,
}

impl Step {
    fn bytes(&self) -> usize {
        bytes(&self.records)
    }
}

/// What records take up in a batch at most.
fn bytes(records: &[KeyValue]) -> usize {
    records.iter().map(KeyValue::batched_len).sum()
}

/// How an append ended, for the engine to act upon.
pub(super) enum Settled {
    /// The shard goes on.
    Alive,
    /// Its decisions were undone; the groups are to be looked at again, not before a pause.
    Refused(Vec<Arc<str>>),
    /// The shard's life is over.
    Dead(ResponseError),
}

/// What became of a command, as far as the group's deadlines are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It was not taken: the group stands where it stood, whatever is due there.
    NotTaken,
    /// No deadline has come nearer.
    SameDeadlines,
    /// The living state is another one.
    NewDeadlines,
}

/// A loaded shard.
pub(super) struct Active {
    pub(super) life: u64,
    pub(super) machine: Shard,
    log: Arc<dyn ShardLog>,
    parked: BTreeMap<Token, Answer>,
    next_token: Token,
    gathering: VecDeque<Step>,
    gathered_bytes: usize,
    /// Steps of the append that is under way.
    in_flight: Vec<Step>,
    /// Groups with steps under way, and how many.
    dirty: HashMap<Arc<str>, usize>,
    /// Deadline for which each group has been armed.
    pub(super) armed: HashMap<Arc<str>, u64>,
    /// When what is old is written again next, on the monotonic clock.
    pub(super) refresh_at_ms: u64,
    /// An append failed for good: this life is to be ended, with this error.
    pub(super) dead: Option<ResponseError>,
}

impl Active {
    pub(super) fn new(life: u64, machine: Shard, log: Arc<dyn ShardLog>) -> Self {
        Self {
            life,
            machine,
            log,
            parked: BTreeMap::new(),
            next_token: 0,
            gathering: VecDeque::new(),
            gathered_bytes: 0,
            in_flight: Vec::new(),
            dirty: HashMap::new(),
            armed: HashMap::new(),
            refresh_at_ms: 0,
            dead: None,
        }
    }

    /// Decides a command and puts it into effect.
    pub(super) fn run(
        &mut self,
        now: Now,
        group: &Arc<str>,
        command: Command,
        answer: Option<Answer>,
        limits: &EngineLimits,
    ) -> Ran {
        if self.dead.is_some()
            || self.gathering.len() >= limits.max_gathered_steps
            || self.gathered_bytes >= limits.max_gathered_bytes
        {
            if let Some(answer) = answer {
                let busy = ResponseError::CoordinatorNotAvailable;
                let _ = answer.send(Reply::Unavailable(busy)); // a requester that has gone needs no answer
            }
            return Ran::NotTaken;
        }
        self.next_token += 1;
        let token = self.next_token;
        let decision = self.machine.decide(now, group, token, command);
        let Decision {
            records,
            soft,
            reply,
            released,
        } = decision;

        let encoded: Vec<KeyValue> = records.iter().map(record::encode).collect();
        if bytes(&encoded) > limits.max_append_bytes.saturating_sub(BATCH_HEADER) {
            if let Some(answer) = answer {
                let too_large = ResponseError::UnknownServerError; // as Kafka answers a record list that is too large
                let _ = answer.send(Reply::Unavailable(too_large)); // a requester that has gone needs no answer
            }
            return Ran::NotTaken;
        }
        let ran = match &soft {
            Soft::Replace(_) => Ran::NewDeadlines,
            Soft::Keep | Soft::Touch(_) => Ran::SameDeadlines,
        };
        let mut undo: Vec<Undo> = records
            .into_iter()
            .map(|record| self.machine.replay(record))
            .collect();
        undo.extend(self.machine.soften(now, group, soft));

        let reply = match (reply, answer) {
            (Some(reply), Some(answer)) => Some((answer, reply)),
            (None, Some(answer)) => {
                self.parked.insert(token, answer);
                None
            }
            (_, None) => None,
        };
        if encoded.is_empty() && !self.dirty.contains_key(group) {
            self.answer(reply, released);
            return ran;
        }
        *self.dirty.entry(Arc::clone(group)).or_default() += 1;
        let step = Step {
            group: Arc::clone(group),
            records: encoded,
            undo,
            reply,
            released,
        };
        self.gathered_bytes += step.bytes();
        self.gathering.push_back(step);
        ran
    }

    fn answer(&mut self, reply: Option<(Answer, Reply)>, released: Vec<(Token, Reply)>) {
        if let Some((answer, reply)) = reply {
            let _ = answer.send(reply); // a requester that has gone needs no answer
        }
        for (token, reply) in released {
            if let Some(answer) = self.parked.remove(&token) {
                let _ = answer.send(reply); // as above
            }
        }
    }

    /// Whether its log was closed.
    pub(super) fn is_cut_off(&self) -> bool {
        !self.log.is_open()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.gathering.is_empty()
    }

    /// Begins the next append, if none is under way and there is something to write. Steps without records at the
    /// front rest on appends that are durable by now, and are answered.
    pub(super) fn begin_append(&mut self, limits: &EngineLimits) -> Option<Pending<()>> {
        if !self.in_flight.is_empty() || self.dead.is_some() {
            return None;
        }
        let mut records = Vec::new();
        let mut bytes = 0;
        while let Some(step) = self.gathering.front() {
            let more = step.bytes();
            if !records.is_empty()
                && bytes + more > limits.max_append_bytes.saturating_sub(BATCH_HEADER)
            {
                break;
            }
            let Some(mut step) = self.gathering.pop_front() else {
                break;
            };
            self.gathered_bytes = self.gathered_bytes.saturating_sub(more);
            bytes += more;
            records.append(&mut step.records);
            self.in_flight.push(step);
        }
        if records.is_empty() {
            self.finish();
            return None;
        }
        Some(self.log.append(records))
    }

    /// The append under way is durable: its steps are answered.
    fn finish(&mut self) {
        for step in std::mem::take(&mut self.in_flight) {
            self.clean(&step.group);
            self.answer(step.reply, step.released);
        }
    }

    fn clean(&mut self, group: &Arc<str>) {
        if let Some(steps) = self.dirty.get_mut(group) {
            *steps -= 1;
            if *steps == 0 {
                self.dirty.remove(group);
            }
        }
    }

    /// The append under way takes too long: whoever waits for it is told so; what it decided stands or falls later.
    pub(super) fn give_up_waiting(&mut self) {
        let late = ResponseError::CoordinatorNotAvailable;
        for step in &mut self.in_flight {
            if let Some((answer, _)) = step.reply.take() {
                let _ = answer.send(Reply::Unavailable(late)); // a requester that has gone needs no answer
            }
            for (token, _) in step.released.drain(..) {
                if let Some(answer) = self.parked.remove(&token) {
                    let _ = answer.send(Reply::Unavailable(late)); // as above
                }
            }
        }
    }

    /// The append under way has ended.
    pub(super) fn settle(&mut self, now: Now, outcome: Result<(), StoreFault>) -> Settled {
        match outcome {
            Ok(()) => {
                self.finish();
                Settled::Alive
            }
            Err(StoreFault::Refused(_)) => {
                Settled::Refused(self.take_back(now, ResponseError::CoordinatorNotAvailable))
            }
            Err(StoreFault::TooLarge(_)) => {
                Settled::Refused(self.take_back(now, ResponseError::UnknownServerError))
            }
            Err(StoreFault::NotOwner(_)) => Settled::Dead(ResponseError::NotCoordinator),
            Err(StoreFault::Failed(_)) => Settled::Dead(ResponseError::CoordinatorNotAvailable),
        }
    }

    /// Undoes every step that is not durable, newest first, and answers the requests behind them with an error.
    /// Requests that those steps would have released stay parked.
    fn take_back(&mut self, now: Now, error: ResponseError) -> Vec<Arc<str>> {
        let steps: Vec<Step> = self
            .in_flight
            .drain(..)
            .chain(self.gathering.drain(..))
            .collect();
        self.gathered_bytes = 0;
        let mut groups = Vec::with_capacity(steps.len());
        for mut step in steps.into_iter().rev() {
            while let Some(undo) = step.undo.pop() {
                self.machine.undo(now, undo);
            }
            if let Some((answer, _)) = step.reply {
                let _ = answer.send(Reply::Unavailable(error)); // a requester that has gone needs no answer
            }
            groups.push(step.group);
        }
        self.dirty.clear();
        // Requests that were parked by a step that is undone wait for nothing now.
        let parked = self.machine.parked();
        let orphans: Vec<Token> = self
            .parked
            .keys()
            .filter(|token| !parked.contains(token))
            .copied()
            .collect();
        for token in orphans {
            if let Some(answer) = self.parked.remove(&token) {
                let _ = answer.send(Reply::Unavailable(error)); // as above
            }
        }
        groups
    }

    /// The shard's life ends: everyone who waits is told so.
    pub(super) fn abandon(self, error: ResponseError) {
        let steps = self.in_flight.into_iter().chain(self.gathering);
        let waiting = steps.filter_map(|step| step.reply.map(|(answer, _)| answer));
        for answer in waiting.chain(self.parked.into_values()) {
            let _ = answer.send(Reply::Unavailable(error)); // a requester that has gone needs no answer
        }
    }

    /// How many requests are parked, for metrics.
    pub(super) fn waiting(&self) -> usize {
        self.parked.len()
    }
}
