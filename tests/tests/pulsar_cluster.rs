//! Several brokers: each partition has one owner, every broker names it, the others send clients there; partitions and
//! coordinators move by unloading, stopping and killing, under load, and nothing that was acknowledged is lost.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, GroupId, HeartbeatRequest, MetadataRequest, MetadataResponse,
    OffsetFetchRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kop_handler::wire::batch::{BatchBuilder, NewRecord};
use kop_tests::or_skip;
use kop_tests::process::eventually;
use kop_tests::pulsar::cluster::{Cluster, Plan};
use kop_tests::pulsar::release;
use kop_tests::raw::Raw;
use kop_tests::rd::{self, PATIENCE, Record};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::Producer;
use rdkafka::{Offset, TopicPartitionList};

const METADATA: i16 = 12;
/// Kafka's codes that make a client look for the right broker.
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
const NOT_COORDINATOR: i16 = 16;
/// Each must lie in a bundle of its own often enough to have owners on all brokers.
const PARTITIONS: i32 = 8;
const NAMESPACE: &str = "public/default";

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn partition_topic(topic: &str, partition: i32) -> String {
    format!("{NAMESPACE}/{topic}-partition-{partition}")
}

fn metadata(address: SocketAddr, topic: &str) -> MetadataResponse {
    let topic = MetadataRequestTopic::default().with_name(Some(TopicName(text(topic))));
    let request = MetadataRequest::default().with_topics(Some(vec![topic]));
    Raw::connect(address).call(METADATA, &request)
}

/// The Kafka address of each partition's leader, as one broker tells it.
fn leaders(address: SocketAddr, topic: &str) -> BTreeMap<i32, String> {
    let reply = metadata(address, topic);
    let address_of = |id: BrokerId| {
        let broker = reply.brokers.iter().find(|broker| broker.node_id == id);
        broker.map_or_else(String::new, |it| format!("{}:{}", &*it.host, it.port))
    };
    let partitions = reply.topics[0].partitions.iter();
    partitions
        .map(|partition| (partition.partition_index, address_of(partition.leader_id)))
        .collect()
}

/// Spreads the partitions of a topic over all brokers, in turn.
fn spread(cluster: &mut Cluster, topic: &str) {
    let brokers = cluster.brokers.len();
    for partition in 0..PARTITIONS {
        let name = partition_topic(topic, partition);
        cluster.move_to(&name, partition as usize % brokers);
    }
    // Partitions of one bundle move together: what is asked for is that no broker is without any.
    for number in 0..brokers {
        let owns = (0..PARTITIONS).any(|it| cluster.owner(&partition_topic(topic, it)) == number);
        assert!(owns, "broker {number} owns no partition of {topic}");
    }
}

/// Waits until all brokers name the owners that Pulsar names.
fn agreed(cluster: &mut Cluster, topic: &str) -> BTreeMap<i32, usize> {
    eventually("brokers that agree on the owners", PATIENCE, || {
        let owners: BTreeMap<i32, usize> = (0..PARTITIONS)
            .map(|it| (it, cluster.owner(&partition_topic(topic, it))))
            .collect();
        let wanted: BTreeMap<i32, String> = owners
            .iter()
            .map(|(partition, owner)| (*partition, cluster.brokers[*owner].address().to_string()))
            .collect();
        let running: Vec<SocketAddr> = cluster
            .brokers
            .iter_mut()
            .filter_map(|it| it.is_running().then(|| it.address()))
            .collect();
        let all_agree = running.iter().all(|it| leaders(*it, topic) == wanted);
        all_agree.then_some(owners)
    })
}

fn one_record() -> Bytes {
    let mut batch = BatchBuilder::new(1_700_000_000_000);
    let record = NewRecord::new(1_700_000_000_000, None, Some(b"stray"));
    batch.push(record).expect("a record");
    batch.build().expect("a batch")
}

#[test]
fn every_broker_names_the_true_owners_and_the_others_send_clients_there() {
    let release = or_skip!(release());
    let mut cluster = Cluster::start(Plan::small(release));
    rd::create_topic(&cluster.bootstrap(), "spread", PARTITIONS);
    spread(&mut cluster, "spread");
    let owners = agreed(&mut cluster, "spread");

    let (&partition, &owner) = owners.first_key_value().expect("a partition");
    let other = cluster.brokers[(owner + 1) % cluster.brokers.len()].address();
    let mut wrong = Raw::connect(other);
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(one_record()));
    let produce = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(10_000)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(TopicName(text("spread")))
                .with_partition_data(vec![data]),
        ]);
    let reply = wrong.call(12, &produce);
    let code = reply.responses[0].partition_responses[0].error_code;
    assert_eq!(code, NOT_LEADER_OR_FOLLOWER, "Produce");

    let wanted = FetchPartition::default()
        .with_partition(partition)
        .with_partition_max_bytes(1 << 20);
    let fetch = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_session_epoch(-1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(TopicName(text("spread")))
                .with_partitions(vec![wanted]),
        ]);
    let reply = wrong.call(12, &fetch);
    let code = reply.responses[0].partitions[0].error_code;
    assert_eq!(code, NOT_LEADER_OR_FOLLOWER, "Fetch");

    // A client that knows one broker only reaches all partitions.
    let first = cluster.brokers[0].address().to_string();
    let records: Vec<Record> = (0..400)
        .map(|number| Record::to(number % PARTITIONS, format!("v{number}")))
        .collect();
    rd::produce(&first, "spread", &[], &records);
    let last = cluster.brokers[cluster.brokers.len() - 1].address();
    let read = rd::read_all(&last.to_string(), "spread", PARTITIONS);
    assert_eq!(read.len(), records.len(), "the stray record was refused");
}

/// The address that a broker names as the coordinator of a group; `None` while there is none.
fn coordinator(asked: SocketAddr, group: &str) -> Option<SocketAddr> {
    let request = FindCoordinatorRequest::default()
        .with_key_type(0)
        .with_coordinator_keys(vec![text(group)]);
    let reply = Raw::connect(asked).call(4, &request);
    let found = &reply.coordinators[0];
    let address = format!("{}:{}", &*found.host, found.port);
    (found.error_code == 0).then(|| address.parse().expect("an address"))
}

#[test]
fn all_brokers_name_one_coordinator_and_the_others_refuse_its_groups() {
    let release = or_skip!(release());
    let cluster = Cluster::start(Plan::small(release));
    let addresses: Vec<SocketAddr> = cluster.brokers.iter().map(|it| it.address()).collect();
    for group in ["a", "b", "c", "d"] {
        let named = eventually("one coordinator", PATIENCE, || {
            let named = coordinator(addresses[0], group)?;
            let all_agree = addresses[1..]
                .iter()
                .all(|it| coordinator(*it, group) == Some(named));
            all_agree.then_some(named)
        });
        for address in addresses.iter().filter(|it| **it != named) {
            let heartbeat = HeartbeatRequest::default()
                .with_group_id(GroupId(text(group)))
                .with_generation_id(1)
                .with_member_id(text("m"));
            let reply = Raw::connect(*address).call(4, &heartbeat);
            assert_eq!(reply.error_code, NOT_COORDINATOR, "Heartbeat of {group}");
            let offsets = OffsetFetchRequest::default().with_group_id(GroupId(text(group)));
            let reply = Raw::connect(*address).call(5, &offsets);
            assert_eq!(reply.error_code, NOT_COORDINATOR, "OffsetFetch of {group}");
        }
    }
}

/// What a load found out.
struct Load {
    acknowledged: Vec<(usize, (i32, i64))>,
    refused: Vec<(usize, KafkaError)>,
    /// The longest time between two acknowledgements.
    longest_gap: Duration,
}

fn value(number: usize) -> String {
    format!("{number} {}", "x".repeat(100))
}

/// Produces from another thread while `disturb` runs, and gives what became of each record.
fn under_load(bootstrap: &str, topic: &str, disturb: impl FnOnce()) -> Load {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| produce_until(bootstrap, topic, &done));
        std::thread::sleep(Duration::from_secs(1));
        disturb();
        std::thread::sleep(Duration::from_secs(1));
        done.store(true, Ordering::Relaxed);
        load.join().expect("the load ends")
    })
}

fn produce_until(bootstrap: &str, topic: &str, done: &AtomicBool) -> Load {
    let settings = [
        ("enable.idempotence", "true"),
        ("linger.ms", "5"),
        ("reconnect.backoff.max.ms", "500"),
        ("message.timeout.ms", "120000"),
    ];
    let producer = rd::producer(bootstrap, &settings);
    let (mut number, mut known) = (0, 0);
    let (mut last, mut longest_gap) = (Instant::now(), Duration::ZERO);
    while !done.load(Ordering::Relaxed) {
        for _ in 0..20 {
            let partition = i32::try_from(number).expect("small") % PARTITIONS;
            let record = Record::to(partition, value(number));
            rd::send(&producer, topic, number, &record);
            number += 1;
        }
        producer.poll(Duration::from_millis(5));
        let now_known = producer.context().known().len();
        if now_known > known {
            longest_gap = longest_gap.max(last.elapsed());
            (known, last) = (now_known, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    producer
        .flush(Duration::from_secs(120))
        .expect("everything is answered");
    producer.poll(Duration::ZERO);
    let outcomes = producer.context().known();
    assert_eq!(outcomes.len(), number, "every record has an outcome");
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    for (number, outcome) in outcomes {
        match outcome {
            Ok(place) => acknowledged.push((number, place)),
            Err(error) => refused.push((number, error)),
        }
    }
    Load {
        acknowledged,
        refused,
        longest_gap,
    }
}

/// Every acknowledged record is where it was said to be, once, and in the order of its producer.
#[track_caller]
fn check_load(cluster: &mut Cluster, topic: &str, load: &Load, enough: usize) {
    let refused = &load.refused;
    let count = refused.len();
    assert_eq!(count, 0, "refused for good: {:?}…", refused.first());
    let count = load.acknowledged.len();
    assert!(count >= enough, "only {count} records: no load");
    let mut stored: BTreeMap<(i32, i64), usize> = BTreeMap::new();
    let mut seen = BTreeMap::new();
    for (partition, offset, _, value) in rd::read_all(&cluster.living(), topic, PARTITIONS) {
        let text = String::from_utf8(value.expect("a value")).expect("text");
        let number: usize = text
            .split(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number");
        stored.insert((partition, offset), number);
        assert_eq!(
            seen.insert(number, ()),
            None,
            "record {number} is there twice"
        );
    }
    for (number, place) in &load.acknowledged {
        assert_eq!(stored.get(place), Some(number), "acknowledged at {place:?}");
    }
    let mut before = BTreeMap::new();
    for ((partition, _), number) in &stored {
        let last = before.insert(*partition, *number);
        assert!(
            last < Some(*number),
            "partition {partition} is out of order"
        );
    }
}

#[test]
fn unloading_under_load_loses_nothing_and_clients_go_on_within_seconds() {
    let release = or_skip!(release());
    let mut cluster = Cluster::start(Plan::small(release));
    let bootstrap = cluster.bootstrap();
    rd::create_topic(&bootstrap, "unloaded", PARTITIONS);
    spread(&mut cluster, "unloaded");
    let load = under_load(&bootstrap, "unloaded", || {
        for partition in 0..PARTITIONS {
            let topic = partition_topic("unloaded", partition);
            let next = (cluster.owner(&topic) + 1) % cluster.brokers.len();
            cluster.move_to(&topic, next);
        }
    });
    check_load(&mut cluster, "unloaded", &load, 1_000);
    let gap = load.longest_gap;
    assert!(gap < Duration::from_secs(10), "a gap of {gap:?}");
    agreed(&mut cluster, "unloaded");
}

#[test]
fn stopping_a_broker_and_killing_one_under_load_lose_no_record() {
    let release = or_skip!(release());
    let mut cluster = Cluster::start(Plan::small(release));
    let bootstrap = cluster.bootstrap();
    rd::create_topic(&bootstrap, "moved", PARTITIONS);
    spread(&mut cluster, "moved");
    let load = under_load(&bootstrap, "moved", || {
        cluster.stop(1).expect("it stops");
        cluster.restart(1);
        spread(&mut cluster, "moved");
        cluster.kill(1);
        let owners = agreed(&mut cluster, "moved");
        assert!(owners.values().all(|owner| *owner == 0));
    });
    check_load(&mut cluster, "moved", &load, 1_000);
    cluster.restart(1);
    agreed(&mut cluster, "moved");
}

#[test]
fn commits_survive_the_move_of_their_coordinator() {
    let release = or_skip!(release());
    let mut cluster = Cluster::start(Plan::small(release));
    let bootstrap = cluster.bootstrap();
    rd::create_topic(&bootstrap, "committed", 1);
    rd::produce(&bootstrap, "committed", &[], &rd::numbered(0, 0..500));
    let settings = [
        ("group.id", "movers"),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "earliest"),
        ("session.timeout.ms", "30000"),
    ];
    let member: BaseConsumer = rd::config(&bootstrap, &settings)
        .create()
        .expect("a consumer");
    member.subscribe(&["committed"]).expect("subscribed");
    let mut done = 0;
    for round in 0..4 {
        let read = eventually("a record", PATIENCE, || {
            let record = member.poll(Duration::from_millis(500))?.ok()?;
            Some(record.offset())
        });
        assert!(
            read >= done,
            "record {read} again after {done} was committed"
        );
        done = read + 1;
        let mut offsets = TopicPartitionList::new();
        let offset = Offset::Offset(done);
        let added = offsets.add_partition_offset("committed", 0, offset);
        added.expect("a valid offset");
        eventually("a commit", PATIENCE, || {
            member.commit(&offsets, CommitMode::Sync).ok()
        });
        let asked = cluster.brokers[0].address();
        let before = eventually("a coordinator", PATIENCE, || coordinator(asked, "movers"));
        let number = cluster.brokers.iter().position(|it| it.address() == before);
        let number = number.expect("one of ours");
        if round == 1 {
            cluster.kill(number);
        } else {
            cluster.stop(number).expect("it stops");
        }
        let survivor = cluster.brokers[1 - number].address();
        eventually("another coordinator", PATIENCE, || {
            (coordinator(survivor, "movers")? == survivor).then_some(())
        });
        let found = rd::committed(&survivor.to_string(), "movers", "committed", 1);
        assert_eq!(found, [done], "round {round}");
        cluster.restart(number);
    }
}
