//! The state of the simulated broker behind one lock, and the order in which things under way complete.
//!
//! It must not call anybody while it is locked: what others have to hear is collected as [`Effect`]s.

mod ownership;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use handler_api::{
    ApiError, AppendRequest, Appended, ErrorCode, Event, Handle, Position, ReadAnswer, ReadRequest,
    capability,
};
use tokio::sync::oneshot;

use super::managed::Managed;
use super::random::Random;
use super::{Faults, Outcome, SimHost, died};
use crate::events::EventSink;
use ownership::Cluster;

const START_MS: i64 = 1_700_000_000_000;

/// Something to do once the lock is released.
pub(super) enum Effect {
    EndMoved(Arc<dyn EventSink>, Handle, Position, i64),
    Event(Arc<dyn EventSink>, u32, Bytes),
    Answer(Box<dyn FnOnce() + Send>),
}

/// A topic of the catalog.
pub(super) struct TopicState {
    pub(super) partitions: u32,
    pub(super) properties: HashMap<String, String>,
    pub(super) created_ms: i64,
    /// Retention in ms and bytes, where the topic has one of its own.
    pub(super) retention: Option<(i64, i64)>,
}

/// What one attached plugin has asked for.
pub(super) struct ViewState {
    /// In which broker it is.
    pub(super) broker: String,
    pub(super) protocol_data: String,
    sink: Option<Arc<dyn EventSink>>,
    watches: HashMap<Handle, i64>,
    pub(super) paths: BTreeSet<String>,
}

/// What completes at a step.
enum Due {
    /// The oldest pending entry of a partition.
    Append {
        partition: String,
        unknown: bool,
        reply: oneshot::Sender<Result<Appended, ApiError>>,
    },
    /// An answer that is known already.
    Answer(Box<dyn FnOnce() + Send>),
}

pub(super) struct World {
    random: Random,
    pub(super) faults: Faults,
    pub(super) now_ms: i64,
    pub(super) disk_full: bool,
    step: u64,
    sequence: u64,
    due: BTreeMap<(u64, u64), Due>,
    pub(super) views: BTreeMap<u64, ViewState>,
    /// Namespaces, with their retention in ms and bytes; none at first, as in Pulsar.
    pub(super) namespaces: BTreeMap<String, (i64, i64)>,
    /// Whether topics can have policies of their own.
    pub(super) topic_policies: bool,
    pub(super) topics: BTreeMap<String, TopicState>,
    pub(super) ledgers: BTreeMap<String, Managed>,
    names: HashMap<u64, String>,
    cluster: Cluster,
    pub(super) capabilities: u64,
    /// Lookup calls so far.
    pub(super) lookups: u64,
    pub(super) values: BTreeMap<String, (Bytes, i64)>,
    next_view: u64,
    next_ledger: i64,
    next_managed: u64,
    next_generation: u64,
    effects: Vec<Effect>,
    pub(super) log: VecDeque<String>,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            random: Random::new(seed),
            faults,
            now_ms: START_MS,
            disk_full: false,
            step: 0,
            sequence: 0,
            due: BTreeMap::new(),
            views: BTreeMap::new(),
            namespaces: BTreeMap::from([("public/default".to_owned(), (0, 0))]),
            topic_policies: true,
            topics: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            names: HashMap::new(),
            cluster: Cluster::new(),
            capabilities: capability::REPLACE_LEDGER | capability::TRIM_TO_ENTRY,
            lookups: 0,
            values: BTreeMap::new(),
            next_view: 1,
            next_ledger: 1,
            next_managed: 1,
            next_generation: 1,
            effects: Vec::new(),
            log: VecDeque::new(),
        }
    }

    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(super) fn add_log_line(&mut self, line: String) {
        if self.log.len() >= SimHost::KEPT_LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    pub(super) fn add_view(
        &mut self,
        broker: &str,
        protocol_data: &str,
        sink: Option<Arc<dyn EventSink>>,
    ) -> u64 {
        self.join(broker, protocol_data);
        let id = self.next_view;
        self.next_view += 1;
        self.views.insert(
            id,
            ViewState {
                broker: broker.to_owned(),
                protocol_data: protocol_data.to_owned(),
                sink,
                watches: HashMap::new(),
                paths: BTreeSet::new(),
            },
        );
        id
    }

    /// The view, unless its process died.
    pub(super) fn view(&mut self, view: u64) -> Result<&mut ViewState, ApiError> {
        self.views.get_mut(&view).ok_or_else(died)
    }

    /// Tells all plugins of something.
    pub(super) fn tell(&mut self, event: &impl Event) {
        self.tell_some(event, |_| true);
    }

    /// Tells the plugins that `wants` picks.
    pub(super) fn tell_some<E: Event>(&mut self, event: &E, wants: impl Fn(&ViewState) -> bool) {
        let payload = handler_api::control::encode(event);
        for view in self.views.values().filter(|view| wants(view)) {
            if let Some(sink) = &view.sink {
                self.effects
                    .push(Effect::Event(Arc::clone(sink), E::OP, payload.clone()));
            }
        }
    }

    fn delay(&mut self) -> u64 {
        match self.faults.delay {
            0 => 0,
            most => 1 + self.random.up_to(u64::from(most) - 1),
        }
    }

    fn schedule(&mut self, step: u64, due: Due) {
        self.sequence += 1;
        self.due.insert((step, self.sequence), due);
    }

    /// Gives an answer, now or some steps later.
    pub(super) fn answer<T: Send + 'static>(&mut self, result: Result<T, ApiError>) -> Outcome<T> {
        match self.delay() {
            0 => Outcome::Now(result),
            delay => {
                let (sender, receiver) = oneshot::channel();
                let answer = Box::new(move || drop(sender.send(result)));
                self.schedule(self.step + delay, Due::Answer(answer));
                Outcome::Later(receiver)
            }
        }
    }

    /// Fails now and then with `NotReady`.
    pub(super) fn readiness(&mut self) -> Result<(), ApiError> {
        if self.random.happens(self.faults.not_ready) {
            return Err(ApiError::new(
                ErrorCode::NotReady,
                "the simulated broker is not ready; try again",
            ));
        }
        Ok(())
    }

    pub(super) fn next_ledger_id(&mut self) -> i64 {
        let id = self.next_ledger;
        self.next_ledger += 1;
        id
    }

    // ---- steps

    pub(super) fn is_busy(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(((step, _), due)) = self.due.pop_first() else {
            return false;
        };
        self.step = self.step.max(step);
        match due {
            Due::Answer(answer) => self.effects.push(Effect::Answer(answer)),
            Due::Append {
                partition,
                unknown,
                reply,
            } => {
                let result = self.persist_or_close(&partition, unknown);
                self.reply_to_append(reply, result);
            }
        }
        if self.random.happens(self.faults.unload) {
            self.unload_any();
        }
        true
    }

    fn reply_to_append(
        &mut self,
        reply: oneshot::Sender<Result<Appended, ApiError>>,
        result: Result<Appended, ApiError>,
    ) {
        let answer = Box::new(move || drop(reply.send(result)));
        self.effects.push(Effect::Answer(answer));
    }

    fn persist_next(&mut self, partition: &str) -> Option<Appended> {
        let managed = self.ledgers.get_mut(partition)?;
        let appended = managed.persist_next(self.now_ms)?;
        let handle = managed.handle();
        for view in self.views.values_mut() {
            let armed = view.watches.get(&handle);
            if armed.is_some_and(|after| appended.index > *after) {
                view.watches.remove(&handle);
                if let Some(sink) = &view.sink {
                    self.effects.push(Effect::EndMoved(
                        Arc::clone(sink),
                        handle,
                        appended.position,
                        appended.index,
                    ));
                }
            }
        }
        Some(appended)
    }

    // ---- the hot path

    /// The managed ledger behind a handle that is alive.
    pub(super) fn open_ledger(
        &mut self,
        view: u64,
        handle: Handle,
    ) -> Result<&mut Managed, ApiError> {
        self.view(view)?;
        let closed = || ApiError::new(ErrorCode::HandleClosed, "the handle is dead; open again");
        let name = self.names.get(&handle.id).ok_or_else(closed)?;
        let managed = self.ledgers.get_mut(name).ok_or_else(closed)?;
        if managed.generation != handle.generation {
            return Err(closed());
        }
        Ok(managed)
    }

    pub(super) fn append(&mut self, view: u64, request: AppendRequest) -> Outcome<Appended> {
        match self.try_append(view, request) {
            Ok(outcome) => outcome,
            // A refusal may come as late as a success.
            Err(error) => self.answer(Err(error)),
        }
    }

    fn try_append(
        &mut self,
        view: u64,
        request: AppendRequest,
    ) -> Result<Outcome<Appended>, ApiError> {
        self.open_ledger(view, request.handle)?;
        if request.messages == 0 {
            return Err(ApiError::new(
                ErrorCode::InvalidArgument,
                "an entry takes up at least one message",
            ));
        }
        if self.disk_full {
            return Err(ApiError::new(
                ErrorCode::NoSpace,
                "the simulated disk is full",
            ));
        }
        if self.random.happens(self.faults.refused) {
            return Err(ApiError::new(
                ErrorCode::Refused,
                "the simulated broker refuses this append",
            ));
        }
        let unknown = self.random.happens(self.faults.unknown);
        let delay = self.delay();
        let (step, now_ms, rollover) = (self.step, self.now_ms, self.faults.ledger_entries);
        let partition = self
            .names
            .get(&request.handle.id)
            .cloned()
            .unwrap_or_default();
        let next_ledger = self.next_ledger;
        let managed = self.open_ledger(view, request.handle)?;
        let full = rollover > 0 && managed.is_full(rollover) && !managed.has_pending();
        let rolled = full && managed.roll(next_ledger, now_ms);
        let segments = request.segments.into_iter().map(Bytes::from).collect();
        let queued = managed.has_pending();
        managed.assign(request.messages, segments);
        managed.last_due = managed.last_due.max(step + delay);
        let due = managed.last_due;
        if rolled {
            self.next_ledger += 1;
        }
        if delay == 0 && !queued {
            return Ok(Outcome::Now(self.persist_or_close(&partition, unknown)));
        }
        let (reply, receiver) = oneshot::channel();
        self.schedule(
            due,
            Due::Append {
                partition,
                unknown,
                reply,
            },
        );
        Ok(Outcome::Later(receiver))
    }

    /// Completes the oldest pending append of a partition; `unknown`: nobody knows how.
    fn persist_or_close(&mut self, partition: &str, unknown: bool) -> Result<Appended, ApiError> {
        if !unknown {
            return self.persist_next(partition).ok_or_else(unknown_outcome);
        }
        if self.random.happens(500) {
            self.persist_next(partition);
        }
        self.keep_some(partition);
        self.close(partition, "an append had an unknown outcome");
        Err(unknown_outcome())
    }

    pub(super) fn read(
        &mut self,
        view: u64,
        requests: &[ReadRequest],
        max_bytes: u64,
    ) -> Result<Vec<Result<ReadAnswer, ApiError>>, ApiError> {
        self.view(view)?;
        let mut budget = max_bytes;
        let mut first = true;
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let ready = self.readiness();
            let splits = self.faults.split_segments;
            // Drawn aside, so that the closure below does not borrow the world.
            let mut random = self.random.clone();
            let answer = ready
                .and_then(|()| self.open_ledger(view, request.handle))
                .map(|managed| {
                    managed.read(request, &mut budget, &mut first, |bytes| {
                        split(bytes, splits, &mut random)
                    })
                });
            self.random = random;
            answers.push(answer);
        }
        Ok(answers)
    }

    pub(super) fn watch(
        &mut self,
        view: u64,
        handle: Handle,
        after_index: i64,
    ) -> Result<i64, ApiError> {
        let end = self.open_ledger(view, handle)?.end_index;
        let watches = &mut self.view(view)?.watches;
        if end > after_index {
            watches.remove(&handle);
        } else {
            watches.insert(handle, after_index);
        }
        Ok(end)
    }

    pub(super) fn audit(&self, partition: &str) -> Vec<(i64, u32, Bytes)> {
        let entries = self.ledgers.get(partition).into_iter();
        let entries = entries.flat_map(Managed::entries);
        let whole = |(_, stored): (_, &super::managed::Stored)| {
            (
                stored.index,
                stored.messages,
                Bytes::from(stored.segments.concat()),
            )
        };
        entries.map(whole).collect()
    }
}

fn unknown_outcome() -> ApiError {
    ApiError::new(
        ErrorCode::UnknownOutcome,
        "the simulated broker does not know whether the entry was written",
    )
}

fn split(bytes: &Bytes, splits: bool, random: &mut Random) -> Vec<Bytes> {
    if !splits || bytes.len() < 2 {
        return vec![bytes.clone()];
    }
    let at = 1 + random.up_to(bytes.len() as u64 - 2) as usize;
    vec![bytes.slice(..at), bytes.slice(at..)]
}
