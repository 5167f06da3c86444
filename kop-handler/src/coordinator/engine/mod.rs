//! Runs the shards: loads them when first needed, queues commands, writes decisions, watches deadlines.
//!
//! There is no task per shard or group. A command is decided on its caller's thread under the shard's lock; an append
//! that does not complete at once gets a task that follows it; one task sleeps until the earliest deadline of all.
//! A shard that nobody asks for is not loaded and costs one word.
//!
//! ```text
//! Idle ──first command──► Loading ──read to the end──► Active
//!  ▲                         │                            │ outcome unknown, or another owner
//!  └──── pause is over ── Broken ◄────────────────────────┘
//! ```

mod active;
mod life;
mod log_store;
mod store;
mod timers;
mod wrapped;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kafka_protocol::error::ResponseError;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OnceCell, Semaphore, oneshot};
use tracing::{Instrument, info_span, warn};

use self::active::{Active, Answer, Ran};
pub use self::log_store::LogStore;
pub use self::store::{Chunk, Pending, ShardLog, ShardStore, StoreFault};
use self::timers::{Due, Timers};
use super::group::message::{Command, GroupSettings, Listed, Now, Reply};
use super::group::{Census, Shard};
use crate::clock::Clock;
use crate::config::Limits;

/// Bounds of the engine; most are those of the same meaning in [`Limits`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Commands that wait for one shard to load; a further one is answered COORDINATOR_LOAD_IN_PROGRESS.
    pub max_waiting_for_load: usize,
    /// Decisions of one shard that wait for the next append; a further command is answered COORDINATOR_NOT_AVAILABLE.
    pub max_gathered_steps: usize,
    /// Bytes of those decisions.
    pub max_gathered_bytes: usize,
    /// Bytes of records in one append.
    pub max_append_bytes: usize,
    /// Bytes read at once while loading.
    pub load_chunk_bytes: usize,
    /// Shards that load at the same time.
    pub max_concurrent_loads: usize,
    /// First pause before a broken shard is loaded again, in ms; doubled each time.
    pub min_reload_pause_ms: u64,
    /// Longest such pause in ms.
    pub max_reload_pause_ms: u64,
    /// Pause before a deadline that was refused to take effect is tried again, in ms.
    pub refused_pause_ms: u64,
    /// `offsetCommitTimeoutMs`: how long a request waits for its append.
    pub append_timeout_ms: u64,
}

impl EngineLimits {
    /// Under the plugin's bounds; `append_timeout_ms` is `offsetCommitTimeoutMs`.
    #[must_use]
    pub const fn new(limits: &Limits, append_timeout_ms: u64) -> Self {
        Self {
            max_waiting_for_load: limits.max_waiting_for_load,
            max_gathered_steps: limits.max_gathered_decisions,
            max_gathered_bytes: limits.max_gathered_bytes,
            max_append_bytes: limits.max_coordinator_append,
            load_chunk_bytes: limits.load_chunk,
            max_concurrent_loads: limits.max_concurrent_loads,
            min_reload_pause_ms: 50,
            max_reload_pause_ms: 5_000,
            refused_pause_ms: 1_000,
            append_timeout_ms,
        }
    }
}

/// Something that waits for a shard to load.
enum Work {
    Command(Arc<str>, Command, Answer),
    List(Part<Listed>),
    Reading(String, Part<Arc<str>>),
}

/// Answers one shard's part of a question to all.
type Part<T> = oneshot::Sender<Result<Vec<T>, ResponseError>>;

impl Work {
    fn refuse(self, error: ResponseError) {
        // A requester that has gone needs no answer.
        match self {
            Self::Command(_, _, answer) => drop(answer.send(Reply::Unavailable(error))),
            Self::List(answer) => drop(answer.send(Err(error))),
            Self::Reading(_, answer) => drop(answer.send(Err(error))),
        }
    }
}

enum Phase {
    Idle,
    Loading(VecDeque<Work>),
    Active(Box<Active>),
    Broken { until_ms: u64, error: ResponseError },
}

struct Cell {
    index: u32,
    phase: Mutex<Phase>,
    /// Failures in a row, which lengthen the pause before the next load.
    failures: AtomicU64,
    /// Told when nothing is being appended.
    idle: Notify,
}

/// What all shards hold, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCensus {
    /// Shards that are loaded.
    pub loaded: usize,
    /// What those hold.
    pub held: Census,
    /// Requests that are parked (members that wait for others).
    pub parked: usize,
}

/// The shards of one log topic.
pub struct Engine {
    clock: Arc<dyn Clock>,
    store: Arc<dyn ShardStore>,
    settings: Arc<GroupSettings>,
    limits: EngineLimits,
    runtime: Handle,
    cells: OnceCell<Vec<Arc<Cell>>>,
    timers: Arc<Timers>,
    loads: Semaphore,
    lives: AtomicU64,
    closed: AtomicBool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine that has loaded nothing. Its tasks run on `runtime`.
    #[must_use]
    pub fn new(
        clock: Arc<dyn Clock>,
        store: Arc<dyn ShardStore>,
        settings: GroupSettings,
        limits: EngineLimits,
        runtime: Handle,
    ) -> Arc<Self> {
        let engine = Arc::new(Self {
            clock,
            store,
            settings: Arc::new(settings),
            loads: Semaphore::new(limits.max_concurrent_loads),
            limits,
            cells: OnceCell::new(),
            timers: Arc::new(Timers::default()),
            lives: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            runtime,
        });
        engine.spawn_timer_task();
        engine
    }

    fn now(&self) -> Now {
        Now {
            wall_ms: self.clock.now_ms(),
            mono_ms: self.clock.monotonic_ms(),
        }
    }

    /// The clock that decisions are made by.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The settings of the machines.
    pub(crate) fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// The shard that a key belongs to; `None` if the topic does not exist and `create` is not set.
    ///
    /// # Errors
    /// What the client is to be told if the topic cannot be looked up or made.
    pub async fn shard_of(&self, key: &str, create: bool) -> Result<Option<u32>, ResponseError> {
        let cells = self.cells(create).await?;
        Ok(cells.map(|cells| shard_index(key, cells.len())))
    }

    async fn cells(&self, create: bool) -> Result<Option<&[Arc<Cell>]>, ResponseError> {
        if let Some(cells) = self.cells.get() {
            return Ok(Some(cells));
        }
        let count = match self.store.shards(create).await {
            Ok(Some(count)) if count > 0 => count,
            Ok(_) => return Ok(None),
            Err(fault) => {
                warn!(%fault, "the topic of the group coordinator cannot be opened");
                return Err(ResponseError::CoordinatorNotAvailable);
            }
        };
        let make = async || {
            let cell = |index| {
                Arc::new(Cell {
                    index,
                    phase: Mutex::new(Phase::Idle),
                    failures: AtomicU64::new(0),
                    idle: Notify::new(),
                })
            };
            (0..count).map(cell).collect()
        };
        Ok(Some(self.cells.get_or_init(make).await))
    }

    /// Runs a command on a group; the answer comes when what it rests on is durable. Once the engine knows its shards,
    /// the order of commands to one group is the order in which these futures are first polled.
    pub async fn submit(self: &Arc<Self>, group: &str, command: Command) -> Reply {
        let writes = !matches!(command, Command::Fetch(_) | Command::Describe);
        let cell = match self.cells(writes).await {
            Ok(Some(cells)) => cells.get(shard_index(group, cells.len()) as usize).cloned(),
            Ok(None) => None,
            Err(error) => return Reply::Unavailable(error),
        };
        let Some(cell) = cell else {
            // The topic does not exist, and so no group does: answer from an empty shard.
            let nobody = Shard::new(Arc::clone(&self.settings));
            let decision = nobody.decide(self.now(), group, 0, command);
            let unknown = Reply::Unavailable(ResponseError::CoordinatorNotAvailable);
            return decision.reply.unwrap_or(unknown);
        };
        let (answer, reply) = oneshot::channel();
        self.accept(&cell, Work::Command(Arc::from(group), command, answer));
        reply
            .await
            .unwrap_or(Reply::Unavailable(ResponseError::CoordinatorNotAvailable))
    }

    /// All groups of all shards, which are loaded for it.
    ///
    /// # Errors
    /// What the client is to be told if a shard cannot be loaded. Shards of other brokers are left out.
    pub async fn list(self: &Arc<Self>) -> Result<Vec<Listed>, ResponseError> {
        self.ask_all(Work::List).await
    }

    /// The groups that hold offsets of a topic.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub(crate) async fn groups_reading(
        self: &Arc<Self>,
        topic: &str,
    ) -> Result<Vec<Arc<str>>, ResponseError> {
        self.ask_all(|answer| Work::Reading(topic.to_owned(), answer))
            .await
    }

    /// Asks all shards the same and puts the answers together.
    async fn ask_all<T>(
        self: &Arc<Self>,
        question: impl Fn(Part<T>) -> Work,
    ) -> Result<Vec<T>, ResponseError> {
        let Some(cells) = self.cells(false).await? else {
            return Ok(Vec::new());
        };
        let count = u32::try_from(cells.len()).unwrap_or(u32::MAX);
        let served = self.store.served(count).await.map_err(|fault| {
            warn!(%fault, "the owners of the group coordinator's shards cannot be looked up");
            ResponseError::CoordinatorNotAvailable
        })?;
        let mut asked = Vec::new();
        for cell in served
            .into_iter()
            .filter_map(|shard| cells.get(shard as usize))
        {
            let (answer, part) = oneshot::channel();
            self.accept(cell, question(answer));
            asked.push(part);
        }
        let mut all = Vec::new();
        for part in asked {
            match part.await {
                Ok(Ok(mut some)) => all.append(&mut some),
                Ok(Err(ResponseError::NotCoordinator)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(ResponseError::CoordinatorNotAvailable),
            }
        }
        Ok(all)
    }

    /// A log of the shard was closed. If it is the one that the shard lives on, and not an earlier one, its life ends.
    ///
    /// Returns before it takes effect and takes no lock: a host may tell of it from within an append, and whoever
    /// appends holds the shard.
    pub fn lose(self: &Arc<Self>, shard: u32) {
        let cells = self.cells.get().map(Vec::as_slice).unwrap_or_default();
        let Some(cell) = cells.get(shard as usize).cloned() else {
            return; // never opened here
        };
        let engine = Arc::clone(self);
        self.runtime.spawn(async move {
            let mut phase = cell.phase.lock();
            if matches!(&*phase, Phase::Active(active) if active.is_cut_off()) {
                engine.end_life(&cell, &mut phase, ResponseError::NotCoordinator);
            }
        });
    }

    /// This broker owns a shard now: who asks for it need not wait for the pause after it was found elsewhere. Takes
    /// effect soon after it returns, as [`Self::lose`].
    pub fn gain(self: &Arc<Self>, shard: u32) {
        let cells = self.cells.get().map(Vec::as_slice).unwrap_or_default();
        let Some(cell) = cells.get(shard as usize).cloned() else {
            return; // never opened here
        };
        self.runtime.spawn(async move {
            let mut phase = cell.phase.lock();
            if matches!(&*phase, Phase::Broken { .. }) {
                *phase = Phase::Idle;
                cell.failures.store(0, Ordering::SeqCst);
            }
        });
    }

    /// What is held, for metrics.
    #[must_use]
    pub fn census(&self) -> EngineCensus {
        let mut census = EngineCensus::default();
        for cell in self.cells.get().map(Vec::as_slice).unwrap_or_default() {
            if let Phase::Active(active) = &*cell.phase.lock() {
                let held = active.machine.census();
                census.loaded += 1;
                census.parked += active.waiting();
                census.held.groups += held.groups;
                census.held.members += held.members;
                census.held.offsets += held.offsets;
            }
        }
        census
    }

    /// Takes no more commands, waits for the appends under way and answers everyone who waits.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.timers.sooner.notify_one();
        for cell in self.cells.get().map(Vec::as_slice).unwrap_or_default() {
            loop {
                let idle = cell.idle.notified();
                if self.put_down(cell) {
                    break;
                }
                idle.await;
            }
        }
    }

    /// Ends a shard's life if nothing is being appended.
    fn put_down(&self, cell: &Cell) -> bool {
        let mut phase = cell.phase.lock();
        match &*phase {
            Phase::Active(active) if !active.is_idle() => return false,
            Phase::Active(_) | Phase::Loading(_) => {
                self.end_life(cell, &mut phase, ResponseError::CoordinatorNotAvailable);
            }
            Phase::Idle | Phase::Broken { .. } => {}
        }
        true
    }

    fn accept(self: &Arc<Self>, cell: &Arc<Cell>, work: Work) {
        if self.closed.load(Ordering::SeqCst) {
            return work.refuse(ResponseError::CoordinatorNotAvailable);
        }
        let now = self.now();
        let mut phase = cell.phase.lock();
        match &mut *phase {
            Phase::Active(active) => self.work(cell, active, work),
            Phase::Loading(waiting) if waiting.len() >= self.limits.max_waiting_for_load => {
                work.refuse(ResponseError::CoordinatorLoadInProgress);
            }
            Phase::Loading(waiting) => waiting.push_back(work),
            Phase::Broken { until_ms, error } if *until_ms > now.mono_ms => work.refuse(*error),
            Phase::Idle | Phase::Broken { .. } => {
                *phase = Phase::Loading(VecDeque::from([work]));
                let engine = Arc::clone(self);
                let loading = Arc::clone(cell);
                let span = info_span!("shard", partition = cell.index);
                let load = async move { engine.load(&loading).await };
                self.runtime.spawn(load.instrument(span));
            }
        }
        self.end_if_dead(cell, &mut phase);
    }

    fn work(self: &Arc<Self>, cell: &Arc<Cell>, active: &mut Active, work: Work) {
        match work {
            Work::Command(group, command, answer) => {
                self.run(cell, active, &group, command, Some(answer));
            }
            Work::List(answer) => drop(answer.send(Ok(active.machine.list()))),
            Work::Reading(topic, answer) => {
                drop(answer.send(Ok(active.machine.groups_reading(&topic))));
            }
        }
    }

    fn run(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        active: &mut Active,
        group: &Arc<str>,
        command: Command,
        answer: Option<Answer>,
    ) {
        let now = self.now();
        match active.run(now, group, command, answer, &self.limits) {
            // What is due is due at once, and would be refused again at once.
            Ran::NotTaken => {
                let later_ms = now.mono_ms.saturating_add(self.limits.refused_pause_ms);
                self.arm(cell, active, group, later_ms);
            }
            // Heartbeats, commits and questions: to look through a large group for them is not worth it.
            Ran::SameDeadlines if active.armed.contains_key(group) => {}
            Ran::SameDeadlines | Ran::NewDeadlines => self.arm(cell, active, group, 0),
        }
        self.append(cell, active);
    }

    /// Sees to it that the group is looked at when its next deadline comes, but not before `not_before_ms`.
    fn arm(&self, cell: &Cell, active: &mut Active, group: &Arc<str>, not_before_ms: u64) {
        let Some(at_ms) = active.machine.next_deadline_ms(group) else {
            return;
        };
        let at_ms = at_ms.max(not_before_ms);
        if active.armed.get(group).is_some_and(|armed| *armed <= at_ms) {
            return;
        }
        active.armed.insert(Arc::clone(group), at_ms);
        self.timers.arm(Due {
            at_ms,
            shard: cell.index,
            life: active.life,
            group: Some(Arc::clone(group)),
        });
    }
}

/// The shard of a key among `count`: Java's `String.hashCode`, modulo without a sign, as KoP does it.
#[must_use]
pub fn shard_index(key: &str, count: usize) -> u32 {
    let hash = key.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    let count = i64::try_from(count.max(1)).unwrap_or(i64::MAX);
    u32::try_from(i64::from(hash).rem_euclid(count)).unwrap_or(0)
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
