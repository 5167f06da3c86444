//! Seeded simulation of members of groups while their coordinators move and brokers die.
//!
//! It holds that
//! * in one generation of a group a partition belongs to one member, whichever broker coordinated it,
//! * a member with a generation, whose heartbeats are answered in time, is not thrown out by a move alone,
//! * once nothing moves any more, every group is stable soon and all partitions are shared out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use host_shim::sim::{Faults, SimHost};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    SyncGroupRequest,
};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::cluster_testing::{Cluster, Dice, id, node, text};

const BROKERS: u32 = 3;
const GROUPS: usize = 3;
const MEMBERS: usize = 3;
const PARTITIONS: u8 = 6;
const SHARDS: u32 = 4;
/// How long coordinators move about.
const UNREST: Duration = Duration::from_secs(60);
/// How soon after it groups must be stable: sessions of members that were given up have to end first.
const CALM: Duration = Duration::from_secs(40);
const SESSION_MS: i32 = 10_000;

const UNKNOWN_MEMBER: i16 = 25;
const ILLEGAL_GENERATION: i16 = 22;
const REBALANCING: i16 = 27;

/// Who holds what, as the members themselves know it.
#[derive(Default)]
struct Auditor {
    owners: BTreeMap<(usize, i32, u8), String>,
    /// What each member holds now, and since which generation.
    held: BTreeMap<(usize, usize), (i32, Vec<u8>)>,
    generations: usize,
    thrown_out: usize,
}

struct World {
    cluster: Arc<Cluster>,
    dice: Dice,
    auditor: Mutex<Auditor>,
    seed: u64,
}

impl World {
    async fn coordinator(&self, group: usize) -> u32 {
        let request = FindCoordinatorRequest::default().with_key(text(&group_name(group)));
        loop {
            let alive = self.cluster.alive();
            if !alive.is_empty()
                && let Some(reply) = self
                    .cluster
                    .call(*self.dice.pick(&alive), 3, &request)
                    .await
                && let Some(found) = (1..=BROKERS).find(|broker| node(*broker) == reply.node_id.0)
            {
                return found;
            }
            self.pause().await;
        }
    }

    async fn pause(&self) {
        sleep(Duration::from_millis(20 + self.dice.below(80))).await;
    }

    fn assigned(&self, group: usize, member: usize, joined: &JoinGroupResponse, parts: &[u8]) {
        let mut auditor = self.auditor.lock();
        auditor.generations += 1;
        for part in parts {
            let key = (group, joined.generation_id, *part);
            let owner = auditor
                .owners
                .entry(key)
                .or_insert_with(|| joined.member_id.to_string());
            assert_eq!(
                owner.as_str(),
                joined.member_id.as_str(),
                "seed {}: group {group} generation {} partition {part} has two owners",
                self.seed,
                joined.generation_id
            );
        }
        let held = (joined.generation_id, parts.to_vec());
        auditor.held.insert((group, member), held);
    }
}

fn group_name(group: usize) -> String {
    format!("members-{group}")
}

/// One member, for ever: joins, syncs, beats, and does what the answers say.
async fn member(world: Arc<World>, group: usize, number: usize) {
    let mut member_id = String::new();
    loop {
        let coordinator = world.coordinator(group).await;
        let request = join_request(group, &member_id);
        let Some(joined) = world.cluster.call(coordinator, 3, &request).await else {
            world.pause().await;
            continue;
        };
        match joined.error_code {
            0 => member_id = joined.member_id.to_string(),
            UNKNOWN_MEMBER => member_id.clear(),
            _ => world.pause().await,
        }
        if joined.error_code != 0 || !sync(&world, coordinator, group, number, &joined).await {
            continue;
        }
        if beat(&world, group, &joined).await == UNKNOWN_MEMBER {
            world.auditor.lock().thrown_out += 1;
            member_id.clear();
        }
    }
}

fn join_request(group: usize, member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(GroupId(text(&group_name(group))))
        .with_session_timeout_ms(SESSION_MS)
        .with_rebalance_timeout_ms(SESSION_MS)
        .with_member_id(text(member_id))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![
            JoinGroupRequestProtocol::default()
                .with_name(text("range"))
                .with_metadata(Bytes::from_static(b"\0\0\0\0\0\0\xff\xff\xff\xff")),
        ])
}

/// Gets the member's share of a generation; whether it did.
async fn sync(
    world: &World,
    coordinator: u32,
    group: usize,
    number: usize,
    joined: &JoinGroupResponse,
) -> bool {
    let members = joined.members.len();
    // Empty for all but the leader.
    let assignments = joined.members.iter().enumerate().map(|(place, member)| {
        let parts: Vec<u8> = (0..PARTITIONS)
            .filter(|part| usize::from(*part) % members == place)
            .collect();
        SyncGroupRequestAssignment::default()
            .with_member_id(member.member_id.clone())
            .with_assignment(parts.into())
    });
    let request = SyncGroupRequest::default()
        .with_group_id(GroupId(text(&group_name(group))))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_assignments(assignments.collect());
    match world.cluster.call(coordinator, 2, &request).await {
        Some(synced) if synced.error_code == 0 => {
            world.assigned(group, number, joined, &synced.assignment);
            true
        }
        _ => {
            world.pause().await;
            false
        }
    }
}

/// Beats until the member has to join again; why it has to.
async fn beat(world: &World, group: usize, joined: &JoinGroupResponse) -> i16 {
    let request = HeartbeatRequest::default()
        .with_group_id(GroupId(text(&group_name(group))))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone());
    let mut coordinator = world.coordinator(group).await;
    loop {
        sleep(Duration::from_millis(500)).await;
        let answer = world.cluster.call(coordinator, 2, &request).await;
        match answer.map(|beat| beat.error_code) {
            Some(0) => {}
            Some(code @ (UNKNOWN_MEMBER | ILLEGAL_GENERATION | REBALANCING)) => return code,
            // It moved, or died: look again.
            Some(_) | None => coordinator = world.coordinator(group).await,
        }
    }
}

/// Moves coordinators about, and kills a broker now and then if asked to.
async fn unrest(world: &World, kills: bool) {
    let end = Instant::now() + UNREST;
    while Instant::now() < end {
        sleep(Duration::from_millis(1 + world.dice.below(1_500))).await;
        let shard = world.dice.below(u64::from(SHARDS));
        let partition = format!("persistent://public/__kafka/__consumer_offsets-partition-{shard}");
        let to = id(1 + u32::try_from(world.dice.below(u64::from(BROKERS))).unwrap());
        world.cluster.sim.move_bundle(&partition, Some(&to));
        if kills && world.dice.below(12) == 0 {
            let victim = *world.dice.pick(&world.cluster.alive());
            world.cluster.kill(victim);
            sleep(Duration::from_millis(1 + world.dice.below(4_000))).await;
            world.cluster.sim.expire(&id(victim));
            world.cluster.start_broker(victim).await;
        }
    }
}

/// One run; how many members were thrown out, and how many shares were handed out.
async fn run(seed: u64, kills: bool) -> (usize, usize) {
    let sim = SimHost::new(seed);
    let shards = SHARDS.to_string();
    let settings = [("offsetsTopicNumPartitions", shards.as_str())];
    let cluster = Cluster::start(sim.clone(), BROKERS, &settings).await;
    let dice = Dice::new(seed);
    sim.set_faults(Faults {
        delay: 20,
        ..Faults::none()
    });
    let driving = cluster.drive(dice.clone());
    let world = Arc::new(World {
        cluster,
        dice,
        auditor: Mutex::default(),
        seed,
    });
    let mut members = JoinSet::new();
    for group in 0..GROUPS {
        for number in 0..MEMBERS {
            members.spawn(member(Arc::clone(&world), group, number));
        }
    }
    unrest(&world, kills).await;
    sleep(CALM).await;
    for group in 0..GROUPS {
        assert_shared_out(&world, group);
    }
    members.shutdown().await;
    driving.abort();
    let auditor = world.auditor.lock();
    (auditor.thrown_out, auditor.generations)
}

/// All members are in the same generation and hold every partition between them.
fn assert_shared_out(world: &World, group: usize) {
    let auditor = world.auditor.lock();
    let held: Vec<&(i32, Vec<u8>)> = (0..MEMBERS)
        .filter_map(|number| auditor.held.get(&(group, number)))
        .collect();
    let generation = held.iter().map(|(generation, _)| *generation).max();
    let mut parts: Vec<u8> = held
        .iter()
        .filter(|(of, _)| Some(*of) == generation)
        .flat_map(|(_, parts)| parts.clone())
        .collect();
    parts.sort_unstable();
    let all: Vec<u8> = (0..PARTITIONS).collect();
    assert_eq!(parts, all, "seed {}: group {group}: {held:?}", world.seed);
}

/// Joining one after the other, each member of a group makes a generation for all at most.
const FIRST_SHARES: usize = GROUPS * MEMBERS * MEMBERS;

#[tokio::test(start_paused = true)]
async fn members_keep_their_generation_while_coordinators_move() {
    for seed in 0..6 {
        let (thrown_out, shares) = run(seed, false).await;
        assert_eq!(thrown_out, 0, "seed {seed}");
        assert!(
            shares <= FIRST_SHARES + GROUPS * MEMBERS,
            "seed {seed}: {shares} shares: moves made groups rebalance"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn groups_find_together_again_when_brokers_die() {
    for seed in 100..106 {
        let (_, shares) = run(seed, true).await;
        assert!(shares >= GROUPS * MEMBERS, "seed {seed}: {shares} shares");
    }
}
