//! The simulated host: the services of a broker in memory, with delays, failed appends, crashes and lost ownership
//! drawn from a seed.
//!
//! ```
//! use host_shim::sim::{Faults, SimHost};
//!
//! let sim = SimHost::new(7);              // answers every call at once, and nothing fails
//! sim.create_topic("persistent://public/default/t", 4);
//! let host = sim.host();                  // what a plugin sees, as `handler_api::Host`
//! sim.set_faults(Faults::stormy());       // from now on answers wait for `step`, and some appends fail
//! while sim.step() {}                     // completes one thing after the other, in an order given by the seed
//! ```
//!
//! The same seed and the same order of calls give the same answers, delays and faults. Time stands still unless
//! [`SimHost::advance_ms`] moves it. It must not know Kafka, and has no thread, timer or runtime of its own: somebody
//! has to call [`SimHost::step`] (or poll [`SimHost::drive`]) when faults delay answers.

mod control;
mod managed;
mod policies;
mod random;
#[cfg(test)]
mod tests;
mod world;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use handler_api::{
    ApiError, AppendRequest, Appended, ErrorCode, Handle, Host, HostServices, Level, Owner,
    Position, ReadAnswer, ReadRequest, Reply,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::events::EventSink;
use world::{Effect, World};

/// What may go wrong, and how often. Probabilities are per mille of the calls (or entries) concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Most steps until an append is durable or another answer is given; 0: everything is done within the call.
    pub delay: u32,
    /// Appends that are refused: nothing is written, no index is taken up, the handle lives.
    pub refused: u32,
    /// Appends that end with an unknown outcome: the entry (and those behind it) may be there after all, and the
    /// handle is dead.
    pub unknown: u32,
    /// Reads and control operations that are answered `NotReady`, having done nothing.
    pub not_ready: u32,
    /// Steps at which a random open managed ledger loses its handle, as if ownership had moved away and back.
    pub unload: u32,
    /// Entries come back cut into other segments than they were appended in.
    pub split_segments: bool,
    /// Entries that a ledger takes before the host rolls over to the next; 0: never.
    pub ledger_entries: u32,
}

impl Faults {
    /// Everything works at once.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            delay: 0,
            refused: 0,
            unknown: 0,
            not_ready: 0,
            unload: 0,
            split_segments: false,
            ledger_entries: 1000,
        }
    }

    /// Answers come later, in another order; nothing fails.
    #[must_use]
    pub const fn slow() -> Self {
        Self {
            delay: 20,
            split_segments: true,
            ledger_entries: 20,
            ..Self::none()
        }
    }

    /// Everything at once, each often enough to be met in a few hundred calls.
    #[must_use]
    pub const fn stormy() -> Self {
        Self {
            refused: 20,
            unknown: 10,
            not_ready: 20,
            unload: 2,
            ..Self::slow()
        }
    }
}

/// A simulated broker. Clones are the same broker.
#[derive(Clone)]
pub struct SimHost {
    shared: Arc<Shared>,
}

struct Shared {
    world: Mutex<World>,
}

impl std::fmt::Debug for SimHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimHost").finish_non_exhaustive()
    }
}

impl SimHost {
    /// A broker without faults, with the namespace `public/default` and no topic.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_faults(seed, Faults::none())
    }

    /// A broker with faults from the start.
    #[must_use]
    pub fn with_faults(seed: u64, faults: Faults) -> Self {
        Self {
            shared: Arc::new(Shared {
                world: Mutex::new(World::new(seed, faults)),
            }),
        }
    }

    /// Changes what goes wrong from now on; what is under way keeps its delay.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.world.lock().faults = faults;
    }

    /// The services as a plugin sees them that hears no events.
    #[must_use]
    pub fn services(&self) -> Arc<dyn HostServices> {
        self.attach("", None)
    }

    /// The services as a plugin of one process life sees them: events and `end_moved` go to `sink`, `protocol_data`
    /// is what it advertises. [`SimHost::crash`] ends that life: attach again afterwards.
    #[must_use]
    pub fn attach(
        &self,
        protocol_data: &str,
        sink: Option<Arc<dyn EventSink>>,
    ) -> Arc<dyn HostServices> {
        self.attach_as(Self::BROKER, protocol_data, sink)
    }

    /// As [`SimHost::attach`], in a broker of this id: brokers share topics, ledgers and the metadata store, and each
    /// bundle of topics has one of them as its owner. A killed broker lives again.
    #[must_use]
    pub fn attach_as(
        &self,
        broker: &str,
        protocol_data: &str,
        sink: Option<Arc<dyn EventSink>>,
    ) -> Arc<dyn HostServices> {
        let (view, effects) = {
            let mut world = self.shared.world.lock();
            let id = world.add_view(broker, protocol_data, sink);
            let capabilities = world.capabilities;
            let view = View {
                shared: Arc::clone(&self.shared),
                id,
                capabilities,
            };
            (view, world.take_effects())
        };
        run(effects);
        Arc::new(view)
    }

    /// Id of the broker that plugins are in if nothing else is said.
    pub const BROKER: &str = "sim.local:6650";

    /// What plugins that are attached from now on are told that the host can do, bits of
    /// [`handler_api::capability`]. Without `TRIM_TO_ENTRY` whole ledgers are trimmed.
    pub fn set_capabilities(&self, capabilities: u64) {
        self.shared.world.lock().capabilities = capabilities;
    }

    /// Whether topics can have policies of their own; Pulsar's `topicLevelPoliciesEnabled`.
    pub fn set_topic_policies(&self, enabled: bool) {
        self.shared.world.lock().topic_policies = enabled;
    }

    /// Retention of a topic in ms and bytes, if it has one of its own.
    #[must_use]
    pub fn retention(&self, topic: &str) -> Option<(i64, i64)> {
        let world = self.shared.world.lock();
        world.topics.get(topic).and_then(|state| state.retention)
    }

    /// Retention of a namespace in ms and bytes.
    #[must_use]
    pub fn namespace_retention(&self, namespace: &str) -> Option<(i64, i64)> {
        let world = self.shared.world.lock();
        world.namespaces.get(namespace).copied()
    }

    /// Bundles that each namespace has; owners are drawn anew.
    pub fn set_bundles(&self, bundles: u32) {
        self.shared.world.lock().set_bundles(bundles);
    }

    /// Which broker owns a partition; `None` if nobody has asked for its bundle yet.
    #[must_use]
    pub fn owner_of(&self, partition: &str) -> Option<String> {
        self.shared.world.lock().owner_of(partition)
    }

    /// The bundle of a partition is unloaded and goes to a broker, or to whoever is drawn when it is asked for next.
    /// Its open partitions lose their handles, and appends under way end with an unknown outcome. Returns false if that
    /// broker owns it already.
    pub fn move_bundle(&self, partition: &str, to: Option<&str>) -> bool {
        self.change(|world| world.move_bundle(partition, to))
    }

    /// The process of a broker dies, as by SIGKILL: what its plugins were given answers only `Closing`, appends under
    /// way are kept or lost. The others still take it for the owner of what it owned. Returns false if there is none.
    pub fn kill(&self, broker: &str) -> bool {
        self.change(|world| world.kill(broker))
    }

    /// The session of a killed broker expires: it leaves the list, and what it owned goes to whoever is drawn.
    pub fn expire(&self, broker: &str) -> bool {
        self.change(|world| world.expire(broker))
    }

    /// Lookup calls so far, of all plugins.
    #[must_use]
    pub fn lookups(&self) -> u64 {
        self.shared.world.lock().lookups
    }

    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let (value, effects) = {
            let mut world = self.shared.world.lock();
            (change(&mut world), world.take_effects())
        };
        run(effects);
        value
    }

    /// As [`SimHost::services`], wrapped as a plugin gets it.
    #[must_use]
    pub fn host(&self) -> Host {
        Host::of(self.services())
    }

    /// As [`SimHost::attach`], wrapped as a plugin gets it.
    #[must_use]
    pub fn host_for(&self, sink: Arc<dyn EventSink>) -> Host {
        Host::of(self.attach("", Some(sink)))
    }

    /// Creates a topic (0 partitions: a non-partitioned one) and its namespace, as an administrator would beforehand.
    /// Returns false if it exists or its name cannot be.
    pub fn create_topic(&self, name: &str, partitions: u32) -> bool {
        self.change(|world| world.admin_create(name, partitions))
    }

    /// Completes what is due next: one append that gets durable, or one answer. Returns false if nothing waits.
    pub fn step(&self) -> bool {
        self.change(World::step)
    }

    /// Steps until nothing waits any more.
    pub fn settle(&self) {
        while self.step() {}
    }

    /// Whether something waits for a step.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.shared.world.lock().is_busy()
    }

    /// A future that never ends and makes one step each time it is polled: run it beside the code under test, on the
    /// same single-threaded executor, where calling [`SimHost::step`] by hand is in the way.
    pub fn drive(&self) -> impl Future<Output = ()> + Send + use<> {
        Drive { sim: self.clone() }
    }

    /// The process dies and comes back: all handles and watches are gone, and appends under way are kept or lost
    /// (per managed ledger those up to some point are kept). What hosts were given before answers only `Closing`, and
    /// pending answers fail. Nobody is told: those who would listen died too.
    pub fn crash(&self) {
        self.change(World::crash);
    }

    /// The partition's ownership leaves this broker and comes back at once: its handle dies, appends under way end
    /// with an unknown outcome, and the plugin is told. Returns false if it is not open.
    pub fn unload(&self, partition: &str) -> bool {
        self.change(|world| world.unload(partition, "unloaded by the test"))
    }

    /// Another broker (`Some`) or this one (`None`) owns a partition from now on.
    pub fn set_owner(&self, partition: &str, owner: Option<Owner>) {
        self.change(|world| world.set_owner(partition, owner));
    }

    /// While the disk is full, every append is answered `NoSpace`; reads go on.
    pub fn set_disk_full(&self, full: bool) {
        self.shared.world.lock().disk_full = full;
    }

    /// Moves the host's clock, which stamps ledgers and topics.
    pub fn advance_ms(&self, ms: i64) {
        self.shared.world.lock().now_ms += ms;
    }

    /// What lies on the simulated disk for a partition: index of the last message, number of messages and bytes of
    /// every durable entry. For auditors.
    #[must_use]
    pub fn entries(&self, partition: &str) -> Vec<(i64, u32, Bytes)> {
        self.shared.world.lock().audit(partition)
    }

    /// Lines that plugins logged, oldest first, at most [`SimHost::KEPT_LOG_LINES`].
    #[must_use]
    pub fn log_lines(&self) -> Vec<String> {
        self.shared.world.lock().log.iter().cloned().collect()
    }

    /// Log lines that are kept; older ones go.
    pub const KEPT_LOG_LINES: usize = 10_000;
}

/// Runs what must happen outside the lock.
fn run(effects: Vec<Effect>) {
    for effect in effects {
        match effect {
            Effect::EndMoved(sink, handle, position, index) => {
                sink.end_moved(handle, position, index);
            }
            Effect::Event(sink, op, payload) => sink.event(op, payload),
            Effect::Answer(answer) => answer(),
        }
    }
}

struct Drive {
    sim: SimHost,
}

impl Future for Drive {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.sim.step();
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The services as one plugin sees them in one life of the process.
struct View {
    shared: Arc<Shared>,
    id: u64,
    capabilities: u64,
}

/// How an operation of the world ends: now, or when the receiver hears of it.
enum Outcome<T> {
    Now(Result<T, ApiError>),
    Later(oneshot::Receiver<Result<T, ApiError>>),
}

impl<T> Outcome<T> {
    async fn wait(self) -> Result<T, ApiError> {
        match self {
            Self::Now(result) => result,
            // The sender goes unheard when the process crashes.
            Self::Later(receiver) => receiver.await.unwrap_or_else(|_| Err(died())),
        }
    }
}

impl<T: Send + 'static> From<Outcome<T>> for Reply<T> {
    fn from(outcome: Outcome<T>) -> Self {
        match outcome {
            Outcome::Now(result) => Self::Ready(result),
            later @ Outcome::Later(_) => Self::pending(later.wait()),
        }
    }
}

fn died() -> ApiError {
    ApiError::new(ErrorCode::Closing, "the simulated broker crashed")
}

impl View {
    fn with<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        let (value, effects) = {
            let mut world = self.shared.world.lock();
            (work(&mut world), world.take_effects())
        };
        run(effects);
        value
    }
}

impl HostServices for View {
    fn capabilities(&self) -> u64 {
        self.capabilities
    }

    fn log_enabled(&self, _level: Level) -> bool {
        true
    }

    fn log(&self, level: Level, target: &str, message: &str) {
        self.with(|world| world.add_log_line(format!("{level:?} {target}: {message}")));
    }

    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        self.with(|world| {
            let result = world.lookup(self.id, &topics);
            world.answer(result).into()
        })
    }

    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        let outcomes: Vec<Outcome<Appended>> = self.with(|world| {
            let append = |request| world.append(self.id, request);
            requests.into_iter().map(append).collect()
        });
        let is_done = |outcome: &Outcome<Appended>| matches!(outcome, Outcome::Now(_));
        if outcomes.iter().all(is_done) {
            let done = outcomes.into_iter().filter_map(|outcome| match outcome {
                Outcome::Now(result) => Some(result),
                Outcome::Later(_) => None,
            });
            return Reply::ok(done.collect());
        }
        Reply::pending(async move {
            let mut results = Vec::with_capacity(outcomes.len());
            for outcome in outcomes {
                results.push(outcome.wait().await);
            }
            Ok(results)
        })
    }

    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        self.with(|world| {
            let result = world.read(self.id, &requests, max_bytes);
            world.answer(result).into()
        })
    }

    fn find(&self, handle: Handle, index: i64) -> Reply<Position> {
        self.with(|world| {
            let result = world
                .open_ledger(self.id, handle)
                .map(|managed| managed.find(index));
            world.answer(result).into()
        })
    }

    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        self.with(|world| world.watch(self.id, handle, after_index))
    }

    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
        self.with(|world| {
            let result = world.control(self.id, op, version, &request);
            world.answer(result).into()
        })
    }
}
