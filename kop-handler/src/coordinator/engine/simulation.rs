//! Seeded simulation: consumers that join, read, commit, fall silent and come back, over a log whose appends are slow,
//! refused, lost or answered into the void, and a broker that crashes. An auditor watches every answer.
//!
//! It holds that
//! * an offset that was acknowledged is never lost, and no fetch goes back behind one,
//! * in one generation of a group a partition belongs to one member,
//! * a member that was given a generation and keeps to the rules is not thrown out while nothing fails,
//! * what a reload makes of the log is what was in memory,
//! * when everyone has gone, the groups are empty and nobody waits.
//!
//! `KOP_SIM_SEEDS=from..to` runs other seeds than the usual few; a failure names its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::testing::{Fate, MemoryStore, PausedClock, Plan, next_random};
use super::tests::limits;
use super::{Engine, Phase, shard_index};
use crate::coordinator::Groups;
use crate::coordinator::group::Shard;
use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::{Durable, commit, member, partitions};
use crate::coordinator::record;

const SHARDS: u32 = 3;
const GROUPS: usize = 4;
const CONSUMERS_PER_GROUP: usize = 4;
const PARTITIONS: i32 = 6;
const RUN_MS: u64 = 180_000;

/// How wild a run is.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// Of a thousand appends, how many fail, and how.
    refused: u64,
    lost: u64,
    unheard: u64,
    closed: u64,
    max_delay_ms: u64,
    /// How often the broker crashes, in ms; 0 for never.
    crash_every_ms: u64,
}

const CALM: Weather = Weather {
    refused: 0,
    lost: 0,
    unheard: 0,
    closed: 0,
    max_delay_ms: 20,
    crash_every_ms: 0,
};
const FULL_DISK: Weather = Weather {
    refused: 300,
    ..CALM
};
const STORM: Weather = Weather {
    refused: 50,
    lost: 30,
    unheard: 30,
    closed: 10,
    max_delay_ms: 400,
    crash_every_ms: 0,
};
const CRASHES: Weather = Weather {
    crash_every_ms: 20_000,
    ..STORM
};

/// Numbers out of one seed.
#[derive(Clone)]
struct Dice(Arc<Mutex<u64>>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    fn below(&self, bound: u64) -> u64 {
        next_random(&mut self.0.lock()) % bound.max(1)
    }

    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

type Partition = (String, i32);

/// Watches every answer.
#[derive(Default)]
struct Auditor {
    /// Next offset to commit, per partition of a group: they only grow, so that "lost" and "went back" can be told.
    next: BTreeMap<Partition, i64>,
    acknowledged: BTreeMap<Partition, i64>,
    /// Owner of a partition in a generation of a group.
    owners: BTreeMap<(String, i32, i32), String>,
    commits: usize,
    failed: usize,
    generations: BTreeSet<(String, i32)>,
    thrown_out: usize,
}

impl Auditor {
    fn attempt(&mut self, partition: &Partition) -> i64 {
        let next = self.next.entry(partition.clone()).or_default();
        *next += 1;
        *next
    }

    fn acknowledge(&mut self, partition: &Partition, offset: i64) {
        self.commits += 1;
        let highest = self.acknowledged.entry(partition.clone()).or_default();
        *highest = offset.max(*highest);
    }

    fn acknowledged(&self, partition: &Partition) -> i64 {
        self.acknowledged.get(partition).copied().unwrap_or(-1)
    }

    /// `least` was acknowledged before the fetch began.
    fn fetched(&self, partition: &Partition, least: i64, found: i64) {
        let most = self.next.get(partition).copied().unwrap_or(-1);
        assert!(
            found >= least,
            "{partition:?}: {least} was acknowledged, {found} is fetched"
        );
        assert!(found <= most, "{partition:?}: {found} was never committed");
    }

    fn assigned(&mut self, group: &str, generation: i32, member: &str, partitions: &[i32]) {
        self.generations.insert((group.to_owned(), generation));
        for partition in partitions {
            let key = (group.to_owned(), generation, *partition);
            let owner = self.owners.entry(key).or_insert_with(|| member.to_owned());
            assert_eq!(
                owner, member,
                "{group} generation {generation} partition {partition} has two owners"
            );
        }
    }
}

/// What the consumers of a run share: the coordinator of the moment, and the auditor.
struct World {
    groups: Mutex<Groups>,
    auditor: Mutex<Auditor>,
    dice: Dice,
    /// Consumers go away from then on.
    ending: Mutex<bool>,
}

impl World {
    fn groups(&self) -> Groups {
        self.groups.lock().clone()
    }

    fn over(&self) -> bool {
        *self.ending.lock()
    }
}

/// One consumer: a loop of joining and reading until the run is over.
struct Consumer {
    world: Arc<World>,
    group: String,
    name: String,
    instance: Option<String>,
    id: String,
    joins: usize,
}

/// Why a consumer stopped reading.
enum Next {
    Rejoin,
    Over,
}

impl Consumer {
    fn request(&mut self) -> Join {
        self.joins += 1;
        Join {
            member_id: self.id.clone(),
            instance_id: self.instance.clone(),
            fresh_id: format!("{}", self.joins),
            require_known_member_id: self.instance.is_none(),
            session_timeout_ms: 6_000,
            rebalance_timeout_ms: 10_000,
            ..member(&self.name)
        }
    }

    async fn run(mut self) {
        while !self.world.over() {
            let joined = {
                let (groups, request) = (self.world.groups(), self.request());
                groups.join(&self.group, request).await
            };
            match joined.error {
                None => {
                    self.id.clone_from(&joined.member_id);
                    match self.serve(joined).await {
                        Next::Rejoin => {}
                        Next::Over => break,
                    }
                }
                Some(ResponseError::MemberIdRequired) => self.id = joined.member_id,
                Some(error) => self.failed(error).await,
            }
        }
        if !self.id.is_empty() && self.world.dice.one_in(2) {
            let leaving = Leaving {
                member_id: self.id.clone(),
                instance_id: self.instance.clone(),
            };
            let _ = self.world.groups().leave(&self.group, vec![leaving]).await; // else its session ends
        }
    }

    /// Does what clients do on an error.
    async fn failed(&mut self, error: ResponseError) {
        match error {
            ResponseError::UnknownMemberId => {
                if !self.id.is_empty() {
                    self.world.auditor.lock().thrown_out += 1;
                }
                self.id.clear();
            }
            ResponseError::FencedInstanceId => self.id.clear(),
            ResponseError::IllegalGeneration | ResponseError::RebalanceInProgress => {}
            ResponseError::CoordinatorNotAvailable
            | ResponseError::NotCoordinator
            | ResponseError::CoordinatorLoadInProgress => {
                sleep(Duration::from_millis(100 + self.world.dice.below(100))).await;
            }
            other => panic!("no client understands {other:?} here"),
        }
    }

    async fn serve(&mut self, joined: JoinReply) -> Next {
        let generation = joined.generation;
        let assignments = if joined.leader == self.id && !joined.skip_assignment {
            share_out(&joined.members)
        } else {
            Vec::new()
        };
        let sync = Sync {
            member_id: self.id.clone(),
            instance_id: self.instance.clone(),
            generation,
            protocol_type: Some("consumer".into()),
            protocol: joined.protocol,
            assignments,
        };
        let synced = self.world.groups().sync(&self.group, sync).await;
        if let Some(error) = synced.error {
            self.failed(error).await;
            return Next::Rejoin;
        }
        let mine: Vec<i32> = synced.assignment.iter().map(|n| i32::from(*n)).collect();
        // A static member's place goes on under a new id; the auditor knows it by its instance.
        let owner = self.instance.clone().unwrap_or_else(|| self.id.clone());
        self.world
            .auditor
            .lock()
            .assigned(&self.group, generation, &owner, &mine);
        for partition in &mine {
            self.fetch(*partition).await;
        }
        self.read(generation, &mine).await
    }

    async fn fetch(&self, partition: i32) {
        let key = (self.group.clone(), partition);
        let least = self.world.auditor.lock().acknowledged(&key);
        let topics = Some(vec![partitions("t", &[partition])]);
        let fetched = self
            .world
            .groups()
            .fetch(&self.group, FetchOffsets { topics })
            .await;
        if let Ok(topics) = fetched {
            let found = topics[0].partitions[0].offset;
            self.world.auditor.lock().fetched(&key, least, found);
        }
    }

    /// Sends heartbeats, fetches and commits until something says to join again.
    async fn read(&mut self, generation: i32, mine: &[i32]) -> Next {
        loop {
            let dice = self.world.dice.clone();
            sleep(Duration::from_millis(500 + dice.below(2_000))).await;
            if self.world.over() {
                return Next::Over;
            }
            if dice.one_in(60) {
                // It dies without a word, and comes back as another process does: without its member id.
                sleep(Duration::from_millis(dice.below(15_000))).await;
                self.id.clear();
                return Next::Rejoin;
            }
            let beat = Heartbeat {
                member_id: self.id.clone(),
                instance_id: self.instance.clone(),
                generation,
            };
            let mut outcome = self.world.groups().heartbeat(&self.group, beat).await;
            let chosen = dice.below(mine.len() as u64);
            if let (Ok(()), Some(partition)) = (outcome, mine.get(usize::try_from(chosen).unwrap()))
            {
                if dice.one_in(3) {
                    self.fetch(*partition).await;
                } else {
                    outcome = self.commit(generation, *partition).await;
                }
            }
            match outcome {
                // A member of a generation that is over may still hold its place: it goes on until it is told to join.
                Ok(()) => {}
                Err(
                    error @ (ResponseError::CoordinatorNotAvailable
                    | ResponseError::NotCoordinator
                    | ResponseError::CoordinatorLoadInProgress),
                ) => self.failed(error).await,
                Err(error) => {
                    self.failed(error).await;
                    return Next::Rejoin;
                }
            }
        }
    }

    async fn commit(&self, generation: i32, partition: i32) -> Result<(), ResponseError> {
        let key = (self.group.clone(), partition);
        let offset = self.world.auditor.lock().attempt(&key);
        let request = Commit {
            instance_id: self.instance.clone(),
            ..commit(&self.id, generation, "t", partition, offset)
        };
        match self.world.groups().commit(&self.group, request).await {
            Ok(_) => self.world.auditor.lock().acknowledge(&key, offset),
            Err(error) => {
                self.world.auditor.lock().failed += 1;
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The leader's work: each partition to one member, as a list of bytes.
fn share_out(members: &[JoinedMember]) -> Vec<(String, Bytes)> {
    let mut shares: Vec<Vec<u8>> = vec![Vec::new(); members.len()];
    for partition in 0..PARTITIONS {
        let place = usize::try_from(partition).unwrap() % members.len();
        shares[place].push(u8::try_from(partition).unwrap());
    }
    let shares = shares.into_iter().map(Bytes::from);
    members
        .iter()
        .map(|m| m.member_id.clone())
        .zip(shares)
        .collect()
}

fn engine(store: &Arc<MemoryStore>, clock: &Arc<PausedClock>) -> Arc<Engine> {
    let settings = GroupSettings::default();
    let (clock, store) = (Arc::clone(clock), Arc::clone(store));
    Engine::new(clock, store, settings, limits(), Handle::current())
}

/// What the log alone says of a shard.
fn replayed(store: &MemoryStore, shard: u32) -> Durable {
    let mut machine = Shard::new(Arc::new(GroupSettings::default()));
    for record in store.records(shard) {
        let record = record::decode(&record.key, record.value.as_deref())
            .unwrap()
            .unwrap();
        machine.replay(record);
    }
    machine.durable()
}

async fn simulate(seed: u64, weather: Weather) -> Auditor {
    let dice = Dice::new(seed);
    let store = MemoryStore::new(SHARDS);
    let clock = PausedClock::new(seed ^ 0xC10C);
    let planner = {
        let dice = dice.clone();
        move || {
            let roll = dice.below(1_000);
            let bounds = [
                (Fate::Refused, weather.refused),
                (Fate::Lost, weather.lost),
                (Fate::KeptUnheard, weather.unheard),
                (Fate::Closed, weather.closed),
            ];
            let mut below = 0;
            let fate = bounds.into_iter().find(|(_, share)| {
                below += share;
                roll < below
            });
            let delay_ms = if dice.one_in(4) {
                0
            } else {
                dice.below(weather.max_delay_ms)
            };
            Plan {
                fate: fate.map_or(Fate::Kept, |(fate, _)| fate),
                delay_ms,
            }
        }
    };
    store.plan_by(Box::new(planner));
    let mut running = engine(&store, &clock);
    let world = Arc::new(World {
        groups: Mutex::new(Groups::new(Arc::clone(&running))),
        auditor: Mutex::default(),
        dice: dice.clone(),
        ending: Mutex::new(false),
    });
    let mut consumers = Vec::new();
    for group in 0..GROUPS {
        for number in 0..CONSUMERS_PER_GROUP {
            let name = format!("c{number}");
            let consumer = Consumer {
                world: Arc::clone(&world),
                group: format!("group-{group}"),
                instance: (group == 0 && number < 2).then(|| format!("i{number}")),
                name,
                id: String::new(),
                joins: 0,
            };
            consumers.push(tokio::spawn(consumer.run()));
        }
    }

    let mut left_ms = RUN_MS;
    while left_ms > 0 {
        let step_ms = if weather.crash_every_ms == 0 {
            left_ms
        } else {
            (1 + dice.below(2 * weather.crash_every_ms)).min(left_ms)
        };
        sleep(Duration::from_millis(step_ms)).await;
        left_ms -= step_ms;
        if left_ms > 0 {
            // The broker is killed: whatever it had open is useless, whoever waited loses the connection.
            store.restarted();
            let old = std::mem::replace(&mut running, engine(&store, &clock));
            *world.groups.lock() = Groups::new(Arc::clone(&running));
            for shard in 0..SHARDS {
                old.lose(shard);
            }
            old.closed.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }

    // The weather clears, everyone goes, sessions end.
    store.plan_by(Box::new(|| Plan {
        fate: Fate::Kept,
        delay_ms: 1,
    }));
    *world.ending.lock() = true;
    for consumer in consumers {
        consumer
            .await
            .unwrap_or_else(|panic| panic!("seed {seed}: {panic}"));
    }
    let groups = world.groups();
    for _ in 0..30 {
        sleep(Duration::from_secs(10)).await;
        let _ = groups.list(&[], &[]).await; // whatever broke down is loaded again
    }
    let listed = groups.list(&[], &[]).await.unwrap();
    assert!(
        listed.iter().all(|g| g.state == "Empty"),
        "seed {seed}: {listed:?}"
    );
    assert_eq!(
        running.census().parked,
        0,
        "seed {seed}: somebody waits for ever"
    );

    let auditor = std::mem::take(&mut *world.auditor.lock());
    for ((group, partition), offset) in &auditor.acknowledged {
        let topics = Some(vec![partitions("t", &[*partition])]);
        let fetched = groups.fetch(group, FetchOffsets { topics }).await.unwrap();
        let found = fetched[0].partitions[0].offset;
        assert!(
            found >= *offset,
            "seed {seed}: {group} {partition}: {offset} was acknowledged, {found} is left"
        );
    }
    for (index, cell) in running.cells.get().unwrap().iter().enumerate() {
        let Phase::Active(active) = &*cell.phase.lock() else {
            panic!("seed {seed}: shard {index} is not loaded");
        };
        let shard = u32::try_from(index).unwrap();
        assert_eq!(
            active.machine.durable(),
            replayed(&store, shard),
            "seed {seed} shard {index}"
        );
    }
    auditor
}

fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("KOP_SIM_SEEDS") else {
        return usual;
    };
    let (from, to) = text.split_once("..").expect("KOP_SIM_SEEDS=from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

fn run(usual: std::ops::Range<u64>, weather: Weather, check: impl Fn(u64, &Auditor)) {
    for seed in seeds(usual) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let auditor = runtime.block_on(simulate(seed, weather));
        assert!(
            auditor.commits > 100,
            "seed {seed}: only {} commits",
            auditor.commits
        );
        assert!(
            auditor.generations.len() > GROUPS,
            "seed {seed}: nothing ever rebalanced"
        );
        check(seed, &auditor);
    }
}

#[test]
fn nothing_is_lost_and_nobody_is_thrown_out_while_all_is_well() {
    run(0..6, CALM, |seed, auditor| {
        assert_eq!(auditor.thrown_out, 0, "seed {seed}");
    });
}

#[test]
fn nothing_is_lost_while_the_disk_is_full_now_and_then() {
    run(100..106, FULL_DISK, |seed, auditor| {
        assert!(auditor.failed > 10, "seed {seed}: hardly anything failed");
    });
}

#[test]
fn nothing_is_lost_when_appends_fail_in_every_way() {
    run(200..206, STORM, |seed, auditor| {
        assert!(auditor.failed > 10, "seed {seed}: hardly anything failed");
    });
}

#[test]
fn nothing_is_lost_when_the_broker_crashes() {
    run(300..306, CRASHES, |_, _| ());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let once = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let auditor = runtime.block_on(simulate(7, STORM));
        (
            auditor.commits,
            auditor.failed,
            auditor.acknowledged,
            auditor.owners,
        )
    };
    assert_eq!(once(), once());
}

#[test]
fn all_groups_are_spread_over_the_shards() {
    let shards: BTreeSet<u32> = (0..GROUPS)
        .map(|n| shard_index(&format!("group-{n}"), SHARDS as usize))
        .collect();
    assert!(shards.len() > 1);
}
