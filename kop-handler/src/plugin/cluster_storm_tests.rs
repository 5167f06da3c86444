//! Seeded simulation of a cluster: bundles move, brokers are killed and come back, appends are delayed, refused and lost,
//! while producers, consumers and groups do what Kafka's clients do. An auditor watches every answer.
//!
//! It holds that
//! * a record that was acknowledged is in its partition, once, at the offset that was answered, and is read there,
//! * a consumer never meets a gap, and never an offset out of range,
//! * a commit that was acknowledged is never lost, and no fetch of it goes back,
//! * clients go on: everybody is done long before the end, whatever moved.
//!
//! `KOP_SIM_SEEDS=from..to` runs other seeds than the usual few; a failure names its seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use host_shim::sim::{Faults, SimHost};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    FetchRequest, FindCoordinatorRequest, GroupId, InitProducerIdRequest, OffsetCommitRequest,
    OffsetFetchRequest, ProduceRequest,
};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::cluster_testing::{Cluster, Dice, id, name, node, text};
use crate::wire::batch::{BatchBuilder, Batches, NewRecord};

const BROKERS: u32 = 3;
const PARTITIONS: i32 = 4;
/// Batches that each producer must get in, one producer per partition.
const BATCHES: usize = 60;
/// Commits that each group must get in.
const COMMITS: i64 = 30;
const GROUPS: usize = 3;
const TOPIC: &str = "t";
/// How long all of it may take in simulated time: generous, but far from what waiting out timeouts would take.
const END: Duration = Duration::from_secs(300);

/// What happens to the cluster.
#[derive(Clone, Copy, Debug)]
struct Weather {
    faults: Faults,
    /// Time between two moves of a bundle, at most.
    move_every_ms: u64,
    /// Time between two deaths of a broker, at most; 0: nobody dies.
    kill_every_ms: u64,
}

/// Errors that Kafka's clients answer by looking up and trying again.
fn is_retriable(code: i16) -> bool {
    kafka_protocol::error::ResponseError::try_from_code(code)
        .is_some_and(|error| error.is_retriable())
}

/// What was acknowledged.
#[derive(Default)]
struct Auditor {
    /// Offset of each acknowledged value, by partition.
    records: BTreeMap<i32, BTreeMap<String, i64>>,
    /// Highest acknowledged commit of each group.
    commits: BTreeMap<String, i64>,
    retries: usize,
}

struct World {
    cluster: Arc<Cluster>,
    dice: Dice,
    auditor: Mutex<Auditor>,
    seed: u64,
}

impl World {
    fn any_broker(&self) -> Option<u32> {
        let alive = self.cluster.alive();
        (!alive.is_empty()).then(|| *self.dice.pick(&alive))
    }

    async fn retry(&self) {
        self.auditor.lock().retries += 1;
        sleep(Duration::from_millis(20 + self.dice.below(80))).await;
    }

    fn acknowledge(&self, partition: i32, value: String, offset: i64) {
        let mut auditor = self.auditor.lock();
        let of_partition = auditor.records.entry(partition).or_default();
        of_partition.insert(value, offset);
    }

    /// The leader of a partition, as any broker knows it.
    async fn leader(&self, partition: i32) -> u32 {
        loop {
            if let Some(asked) = self.any_broker()
                && let Some(leader) = self
                    .cluster
                    .leader(asked, TOPIC, usize::try_from(partition).unwrap())
                    .await
            {
                return leader;
            }
            self.retry().await;
        }
    }

    async fn coordinator(&self, group: &str) -> u32 {
        let request = FindCoordinatorRequest::default().with_key(text(group));
        loop {
            if let Some(asked) = self.any_broker()
                && let Some(reply) = self.cluster.call(asked, 3, &request).await
            {
                assert!(
                    reply.error_code == 0 || is_retriable(reply.error_code),
                    "seed {}: FindCoordinator {}",
                    self.seed,
                    reply.error_code
                );
                let found = (1..=BROKERS).find(|broker| node(*broker) == reply.node_id.0);
                if let Some(found) = found {
                    return found;
                }
            }
            self.retry().await;
        }
    }
}

/// An idempotent producer of one partition, with one batch in flight.
async fn producer(world: Arc<World>, partition: i32) {
    let id = producer_id(&world).await;
    let mut sequence = 0;
    for number in 0..BATCHES {
        let count = 1 + i32::try_from(world.dice.below(3)).unwrap();
        let value = format!("{partition}-{number}");
        let mut builder = BatchBuilder::new(1_000).producer(id, 0, sequence);
        for _ in 0..count {
            let record = NewRecord::new(1_000, None, Some(value.as_bytes()));
            builder.push(record).unwrap();
        }
        let offset = append(&world, partition, builder.build().unwrap()).await;
        world.acknowledge(partition, value, offset);
        sequence += count;
        sleep(Duration::from_millis(world.dice.below(40))).await;
    }
}

async fn producer_id(world: &World) -> i64 {
    let request = InitProducerIdRequest::default().with_transactional_id(None);
    loop {
        if let Some(asked) = world.any_broker()
            && let Some(reply) = world.cluster.call(asked, 4, &request).await
            && reply.error_code == 0
        {
            return reply.producer_id.0;
        }
        world.retry().await;
    }
}

/// Sends a batch until it is acknowledged; its base offset.
async fn append(world: &World, partition: i32, records: Bytes) -> i64 {
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(records));
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(name(TOPIC))
                .with_partition_data(vec![data]),
        ]);
    loop {
        let leader = world.leader(partition).await;
        if let Some(reply) = world.cluster.call(leader, 9, &request).await {
            let answer = &reply.responses[0].partition_responses[0];
            if answer.error_code == 0 {
                return answer.base_offset;
            }
            assert!(
                is_retriable(answer.error_code),
                "seed {}: Produce {} {:?}",
                world.seed,
                answer.error_code,
                answer.error_message
            );
        }
        world.retry().await;
    }
}

/// Reads a partition until it has seen all that its producer sends: offset and value of each record.
async fn consumer(world: Arc<World>, partition: i32) {
    let last = format!("{partition}-{}", BATCHES - 1);
    let mut next = 0;
    let mut seen: BTreeMap<String, i64> = BTreeMap::new();
    while !seen.contains_key(&last) {
        let leader = world.leader(partition).await;
        let request = fetch_request(partition, next);
        let Some(reply) = world.cluster.call(leader, 11, &request).await else {
            world.retry().await;
            continue;
        };
        let answer = &reply.responses[0].partitions[0];
        if answer.error_code != 0 {
            assert!(
                is_retriable(answer.error_code),
                "seed {}: Fetch at {next}: {}",
                world.seed,
                answer.error_code
            );
            world.retry().await;
            continue;
        }
        for batch in Batches::new(answer.records.clone().unwrap_or_default()) {
            let batch = batch.unwrap();
            assert_eq!(batch.header.base_offset, next, "seed {}: a gap", world.seed);
            assert_eq!(batch.header.leader_epoch, -1);
            for record in &batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                seen.entry(value).or_insert(record.offset);
            }
            next = batch.header.last_offset() + 1;
        }
    }
    // Whatever was acknowledged so far was read where it was acknowledged.
    let auditor = world.auditor.lock();
    for (value, offset) in auditor.records.get(&partition).into_iter().flatten() {
        assert_eq!(
            seen.get(value),
            Some(offset),
            "seed {}: {value}",
            world.seed
        );
    }
}

fn fetch_request(partition: i32, offset: i64) -> FetchRequest {
    let asked = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(name(TOPIC))
                .with_partitions(vec![asked]),
        ])
}

/// Commits growing offsets, and fetches them back.
async fn group(world: Arc<World>, number: usize) {
    let group = format!("group-{number}");
    for offset in 1..=COMMITS {
        commit(&world, &group, offset).await;
        world.auditor.lock().commits.insert(group.clone(), offset);
        assert_eq!(
            committed(&world, &group).await,
            offset,
            "seed {}",
            world.seed
        );
        sleep(Duration::from_millis(world.dice.below(60))).await;
    }
}

async fn commit(world: &World, group: &str, offset: i64) {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(name(TOPIC))
                .with_partitions(vec![partition]),
        ]);
    loop {
        let coordinator = world.coordinator(group).await;
        if let Some(reply) = world.cluster.call(coordinator, 8, &request).await {
            let code = reply.topics[0].partitions[0].error_code;
            if code == 0 {
                return;
            }
            assert!(
                is_retriable(code),
                "seed {}: OffsetCommit {code}",
                world.seed
            );
        }
        world.retry().await;
    }
}

async fn committed(world: &World, group: &str) -> i64 {
    let wanted = OffsetFetchRequestTopic::default()
        .with_name(name(TOPIC))
        .with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(Some(vec![wanted]));
    loop {
        let coordinator = world.coordinator(group).await;
        if let Some(reply) = world.cluster.call(coordinator, 5, &request).await {
            if reply.error_code == 0 {
                return reply.topics[0].partitions[0].committed_offset;
            }
            assert!(
                is_retriable(reply.error_code),
                "seed {}: OffsetFetch {}",
                world.seed,
                reply.error_code
            );
        }
        world.retry().await;
    }
}

/// What is moved: a bundle with one of these in it.
fn movables() -> Vec<String> {
    let data =
        (0..PARTITIONS).map(|n| format!("persistent://public/default/{TOPIC}-partition-{n}"));
    let groups =
        (0..4).map(|n| format!("persistent://public/__kafka/__consumer_offsets-partition-{n}"));
    data.chain(groups).collect()
}

async fn move_bundles(world: Arc<World>, every_ms: u64) {
    let movables = movables();
    loop {
        sleep(Duration::from_millis(1 + world.dice.below(every_ms))).await;
        let partition = world.dice.pick(&movables);
        let to = match world.dice.below(3) {
            0 => None,
            _ => world.any_broker().map(id),
        };
        world.cluster.sim.move_bundle(partition, to.as_deref());
    }
}

/// Kills a broker now and then. Its session ends some seconds later, or it is back before.
async fn kill_brokers(world: Arc<World>, every_ms: u64) {
    loop {
        sleep(Duration::from_millis(1 + world.dice.below(every_ms))).await;
        let alive = world.cluster.alive();
        if alive.len() < 2 {
            continue;
        }
        let victim = *world.dice.pick(&alive);
        world.cluster.kill(victim);
        sleep(Duration::from_millis(1 + world.dice.below(5_000))).await;
        if world.dice.below(2) == 0 {
            world.cluster.sim.expire(&id(victim));
            sleep(Duration::from_millis(1 + world.dice.below(5_000))).await;
        }
        world.cluster.start_broker(victim).await;
    }
}

/// One run; how often clients had to try again.
async fn storm(seed: u64, weather: Weather) -> usize {
    let sim = SimHost::new(seed);
    assert!(sim.create_topic(
        &format!("persistent://public/default/{TOPIC}"),
        u32::try_from(PARTITIONS).unwrap()
    ));
    let format = if seed.is_multiple_of(2) {
        "kafka"
    } else {
        "pulsar"
    };
    let settings = [("offsetsTopicNumPartitions", "4"), ("entryFormat", format)];
    let cluster = Cluster::start(sim.clone(), BROKERS, &settings).await;
    let dice = Dice::new(seed);
    sim.set_faults(weather.faults);
    let driving = cluster.drive(dice.clone());
    let world = Arc::new(World {
        cluster,
        dice,
        auditor: Mutex::default(),
        seed,
    });
    let mut clients = JoinSet::new();
    for partition in 0..PARTITIONS {
        clients.spawn(producer(Arc::clone(&world), partition));
        clients.spawn(consumer(Arc::clone(&world), partition));
    }
    for number in 0..GROUPS {
        clients.spawn(group(Arc::clone(&world), number));
    }
    let mut chaos = JoinSet::new();
    chaos.spawn(move_bundles(Arc::clone(&world), weather.move_every_ms));
    if weather.kill_every_ms > 0 {
        chaos.spawn(kill_brokers(Arc::clone(&world), weather.kill_every_ms));
    }
    let all = async {
        while let Some(done) = clients.join_next().await {
            done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    };
    timeout(END, all)
        .await
        .unwrap_or_else(|_| panic!("seed {seed}: clients do not get on"));
    chaos.shutdown().await;
    for broker in (1..=BROKERS).filter(|broker| !world.cluster.alive().contains(broker)) {
        sim.expire(&id(broker));
        world.cluster.start_broker(broker).await;
    }
    sim.set_faults(Faults::none());
    audit(&world).await;
    driving.abort();
    world.auditor.lock().retries
}

/// What lies in the partitions and in the groups at the end.
async fn audit(world: &World) {
    for partition in 0..PARTITIONS {
        let partition_name = format!("persistent://public/default/{TOPIC}-partition-{partition}");
        let mut next = 0;
        for (index, messages, _) in world.cluster.sim.entries(&partition_name) {
            assert_eq!(index - i64::from(messages) + 1, next, "offsets are dense");
            next = index + 1;
        }
        let records = read_all(world, partition, next).await;
        let acknowledged = world.auditor.lock().records.remove(&partition).unwrap();
        assert_eq!(acknowledged.len(), BATCHES, "seed {}", world.seed);
        assert_eq!(
            records, acknowledged,
            "seed {}: once, and in place",
            world.seed
        );
    }
    for number in 0..GROUPS {
        let group = format!("group-{number}");
        assert_eq!(
            committed(world, &group).await,
            COMMITS,
            "seed {}",
            world.seed
        );
    }
}

/// Base offset of each batch, by its value; a value that is there twice fails the test.
async fn read_all(world: &World, partition: i32, end: i64) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    let mut next = 0;
    while next < end {
        let leader = world.leader(partition).await;
        let Some(reply) = world
            .cluster
            .call(leader, 11, &fetch_request(partition, next))
            .await
        else {
            world.retry().await;
            continue;
        };
        let answer = &reply.responses[0].partitions[0];
        for batch in Batches::new(answer.records.clone().unwrap_or_default()) {
            let batch = batch.unwrap();
            let records = batch.records(1 << 20).unwrap();
            let first = records.into_iter().next().unwrap().unwrap();
            let value = String::from_utf8(first.value.unwrap().to_vec()).unwrap();
            let twice = found.insert(value.clone(), batch.header.base_offset);
            assert_eq!(twice, None, "seed {}: {value} is there twice", world.seed);
            next = batch.header.last_offset() + 1;
        }
    }
    found
}

fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let given = std::env::var("KOP_SIM_SEEDS").ok();
    let range = given.as_deref().and_then(|text| text.split_once(".."));
    range.map_or(usual, |(from, to)| {
        from.parse().unwrap()..to.parse().unwrap()
    })
}

const MOVES: Weather = Weather {
    faults: Faults {
        delay: 40,
        ..Faults::none()
    },
    move_every_ms: 100,
    kill_every_ms: 0,
};

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_while_bundles_move() {
    let mut retries = 0;
    for seed in seeds(0..8) {
        retries += storm(seed, MOVES).await;
    }
    assert!(retries > 0, "nothing moved under anybody");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_while_brokers_die() {
    let weather = Weather {
        kill_every_ms: 2_000,
        ..MOVES
    };
    for seed in seeds(100..108) {
        storm(seed, weather).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_while_everything_fails_now_and_then() {
    let weather = Weather {
        faults: Faults {
            refused: 0,
            unload: 1,
            ..Faults::stormy()
        },
        move_every_ms: 300,
        kill_every_ms: 4_000,
    };
    for seed in seeds(200..208) {
        storm(seed, weather).await;
    }
}
