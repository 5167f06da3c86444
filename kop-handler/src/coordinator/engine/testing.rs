//! A store in memory whose appends take time and fail as they are told, and a clock that follows tokio's paused one.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::store::{Chunk, Pending, ShardLog, ShardStore, StoreFault};
use crate::clock::Clock;
use crate::coordinator::record::KeyValue;

/// A clock that moves with tokio's, which a test pauses.
#[derive(Debug)]
pub(crate) struct PausedClock {
    start: Instant,
    seed: Mutex<u64>,
}

impl PausedClock {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            seed: Mutex::new(seed),
        })
    }
}

impl Clock for PausedClock {
    fn now_ms(&self) -> i64 {
        1_000_000_000_000 + i64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    fn random(&self) -> u64 {
        next_random(&mut self.seed.lock())
    }
}

/// SplitMix64.
pub(crate) fn next_random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// How an append ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Durable.
    Kept,
    /// Refused: not written.
    Refused,
    /// Reported as failed, and not written.
    Lost,
    /// Reported as failed, yet written.
    KeptUnheard,
    /// The log was closed: not written.
    Closed,
}

/// One append that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) fate: Fate,
    pub(crate) delay_ms: u64,
}

#[derive(Default)]
struct State {
    exists: bool,
    /// Per shard: its entries, durable ones first.
    logs: Vec<Vec<Vec<KeyValue>>>,
    /// Which opening of each shard is the valid one.
    openings: Vec<u64>,
    plans: VecDeque<Plan>,
    /// Faults of opens that are to come.
    open_faults: VecDeque<StoreFault>,
    opened: usize,
    appends: usize,
}

/// Makes up the plans of appends as they come.
pub(crate) type Planner = Box<dyn FnMut() -> Plan + Send>;

/// Told of every append, with its shard, before the call of it returns; no lock of the store is held.
pub(crate) type Witness = Box<dyn Fn(u32) + Send + Sync>;

/// Shards in memory.
pub(crate) struct MemoryStore {
    state: Arc<Mutex<State>>,
    planner: Arc<Mutex<Option<Planner>>>,
    witness: Arc<OnceLock<Witness>>,
    shards: u32,
}

impl MemoryStore {
    pub(crate) fn new(shards: u32) -> Arc<Self> {
        let state = State {
            logs: vec![Vec::new(); shards as usize],
            openings: vec![0; shards as usize],
            ..State::default()
        };
        Arc::new(Self {
            state: Arc::new(Mutex::new(state)),
            planner: Arc::new(Mutex::new(None)),
            witness: Arc::new(OnceLock::new()),
            shards,
        })
    }

    /// The next appends end so; those after them are kept at once.
    pub(crate) fn plan(&self, plans: impl IntoIterator<Item = (Fate, u64)>) {
        let plans = plans
            .into_iter()
            .map(|(fate, delay_ms)| Plan { fate, delay_ms });
        self.state.lock().plans.extend(plans);
    }

    pub(crate) fn plan_by(&self, planner: Planner) {
        *self.planner.lock() = Some(planner);
    }

    /// From now on, appends are witnessed.
    pub(crate) fn witness_by(&self, witness: Witness) {
        assert!(self.witness.set(witness).is_ok(), "there is one witness");
    }

    pub(crate) fn fail_opens(&self, faults: impl IntoIterator<Item = StoreFault>) {
        self.state.lock().open_faults.extend(faults);
    }

    pub(crate) fn records(&self, shard: u32) -> Vec<KeyValue> {
        self.state.lock().logs[shard as usize].concat()
    }

    pub(crate) fn entries(&self, shard: u32) -> usize {
        self.state.lock().logs[shard as usize].len()
    }

    pub(crate) fn opened(&self) -> usize {
        self.state.lock().opened
    }

    pub(crate) fn appends(&self) -> usize {
        self.state.lock().appends
    }

    pub(crate) fn exists(&self) -> bool {
        self.state.lock().exists
    }

    /// The same bytes for another process; whatever the former one has open is useless.
    pub(crate) fn restarted(self: &Arc<Self>) -> Arc<Self> {
        for opening in &mut self.state.lock().openings {
            *opening += 1;
        }
        Arc::clone(self)
    }
}

struct MemoryLog {
    store: Arc<Mutex<State>>,
    planner: Arc<Mutex<Option<Planner>>>,
    witness: Arc<OnceLock<Witness>>,
    shard: usize,
    opening: u64,
}

impl ShardStore for MemoryStore {
    fn shards(&self, create: bool) -> Pending<Option<u32>> {
        let mut state = self.state.lock();
        state.exists |= create;
        let shards = state.exists.then_some(self.shards);
        Box::pin(std::future::ready(Ok(shards)))
    }

    fn served(&self, count: u32) -> Pending<Vec<u32>> {
        Box::pin(std::future::ready(Ok((0..count).collect())))
    }

    fn open(&self, shard: u32) -> Pending<Arc<dyn ShardLog>> {
        let store = Arc::clone(&self.state);
        let planner = Arc::clone(&self.planner);
        let witness = Arc::clone(&self.witness);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let shard = shard as usize;
            let mut state = store.lock();
            state.opened += 1;
            if let Some(fault) = state.open_faults.pop_front() {
                return Err(fault);
            }
            state.openings[shard] += 1;
            let opening = state.openings[shard];
            drop(state);
            Ok(Arc::new(MemoryLog {
                store,
                planner,
                witness,
                shard,
                opening,
            }) as Arc<dyn ShardLog>)
        })
    }
}

impl ShardLog for MemoryLog {
    fn append(&self, records: Vec<KeyValue>) -> Pending<()> {
        let store = Arc::clone(&self.store);
        let (shard, opening) = (self.shard, self.opening);
        let mut state = store.lock();
        state.appends += 1;
        if state.openings[shard] != opening {
            let closed = StoreFault::NotOwner("opened anew".into());
            return Box::pin(std::future::ready(Err(closed)));
        }
        let kept = Plan {
            fate: Fate::Kept,
            delay_ms: 0,
        };
        let planned = state.plans.pop_front();
        let plan = planned
            .or_else(|| self.planner.lock().as_mut().map(|plan| plan()))
            .unwrap_or(kept);
        if matches!(plan.fate, Fate::Kept | Fate::KeptUnheard) {
            state.logs[shard].push(records); // its place is fixed now
        }
        if matches!(plan.fate, Fate::Lost | Fate::KeptUnheard | Fate::Closed) {
            state.openings[shard] += 1; // this opening is dead
        }
        drop(state);
        if let Some(witness) = self.witness.get() {
            witness(u32::try_from(shard).unwrap());
        }
        Box::pin(async move {
            if plan.delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(plan.delay_ms)).await;
            }
            match plan.fate {
                Fate::Kept => Ok(()),
                Fate::Refused => Err(StoreFault::Refused("disk full".into())),
                Fate::Lost | Fate::KeptUnheard => Err(StoreFault::Failed("no answer".into())),
                Fate::Closed => Err(StoreFault::NotOwner("moved".into())),
            }
        })
    }

    fn is_open(&self) -> bool {
        self.store.lock().openings[self.shard] == self.opening
    }

    fn read(&self, from: i64, _: usize) -> Pending<Chunk> {
        let from = usize::try_from(from).unwrap();
        let state = self.store.lock();
        let log = &state.logs[self.shard];
        let chunk = Chunk {
            records: log.get(from).cloned().unwrap_or_default(),
            next: (from + 1 < log.len()).then(|| i64::try_from(from + 1).unwrap()),
        };
        drop(state);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_micros(100)).await;
            Ok(chunk)
        })
    }
}
