//! The broker is killed (SIGKILL) under load and started again: what was acknowledged is there, once, and in order.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use kop_tests::broker::Broker;
use kop_tests::rd::{self, PATIENCE, Record};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::Producer;
use rdkafka::{Offset, TopicPartitionList};

const PARTITIONS: i32 = 4;

/// How long load goes on before the kill of a round: different each time, so that kills meet different moments.
fn until_kill(round: u32) -> Duration {
    Duration::from_millis(250 + u64::from(round * 387 % 1_100))
}

/// Produces through `rounds` kills and one clean end; returns the outcome of each record.
fn load_through_kills(
    broker: &mut Broker,
    rounds: u32,
    settings: &[(&str, &str)],
) -> Vec<rd::Acknowledgement> {
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "load", PARTITIONS);
    let mut all = vec![
        ("linger.ms", "5"),
        ("reconnect.backoff.max.ms", "200"),
        ("message.timeout.ms", "240000"),
    ];
    all.extend_from_slice(settings);
    let producer = rd::producer(&bootstrap, &all);
    let mut number = 0;
    let mut batch = |limit: Duration| {
        let start = Instant::now();
        while start.elapsed() < limit {
            for _ in 0..100 {
                let partition = i32::try_from(number).expect("small") % PARTITIONS;
                rd::send(
                    &producer,
                    "load",
                    number,
                    &Record::to(partition, value(number)),
                );
                number += 1;
            }
            producer.poll(Duration::from_millis(1));
            // Bounds the load: what a disk can hold and a test can read back.
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    for round in 0..rounds {
        batch(until_kill(round));
        broker.kill();
        batch(Duration::from_millis(100));
        broker.restart();
    }
    batch(Duration::from_millis(300));
    producer
        .flush(Duration::from_secs(300))
        .expect("everything is answered");
    producer.poll(Duration::ZERO);
    let known = producer.context().known();
    assert_eq!(known.len(), number, "every record has an outcome");
    known.into_values().collect()
}

fn value(number: usize) -> String {
    format!("{number} {}", "x".repeat(100))
}

fn number(value: &Option<Vec<u8>>) -> usize {
    let text = String::from_utf8(value.clone().expect("a value")).expect("text");
    text.split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Checks that offsets are dense, and returns the record number at each place.
fn read_dense(broker: &Broker) -> BTreeMap<(i32, i64), usize> {
    let mut next = [0; PARTITIONS as usize];
    let mut found = BTreeMap::new();
    for (partition, offset, _, value) in rd::read_all(&broker.bootstrap(), "load", PARTITIONS) {
        let slot = usize::try_from(partition).expect("a partition");
        assert_eq!(offset, next[slot], "a gap in partition {partition}");
        next[slot] += 1;
        found.insert((partition, offset), number(&value));
    }
    found
}

fn acknowledged_records_survive(rounds: u32) {
    let mut broker = Broker::start();
    let outcomes = load_through_kills(&mut broker, rounds, &[]);
    let stored = read_dense(&broker);
    let mut acknowledged = 0;
    for (number, outcome) in outcomes.iter().enumerate() {
        if let Ok(place) = outcome {
            acknowledged += 1;
            // Without idempotence a record may be there twice; the offset that was told must be one of its places.
            assert_eq!(
                stored.get(place),
                Some(&number),
                "acknowledged at {place:?}"
            );
        }
    }
    assert!(
        acknowledged > 1_000,
        "only {acknowledged} records were acknowledged: no load"
    );
}

fn an_idempotent_producer_is_exact(rounds: u32) {
    let mut broker = Broker::start();
    let settings = [
        ("enable.idempotence", "true"),
        ("max.in.flight.requests.per.connection", "5"),
    ];
    let outcomes = load_through_kills(&mut broker, rounds, &settings);
    assert!(
        outcomes.len() > 1_000,
        "only {} records: no load",
        outcomes.len()
    );
    let stored = read_dense(&broker);
    let mut times: HashMap<usize, u32> = HashMap::new();
    let mut last: HashMap<i32, usize> = HashMap::new();
    for (&(partition, offset), &number) in &stored {
        *times.entry(number).or_default() += 1;
        if let Some(before) = last.insert(partition, number) {
            assert!(
                before < number,
                "out of order at {partition}-{offset}: {number} after {before}"
            );
        }
    }
    for (number, outcome) in outcomes.iter().enumerate() {
        assert!(outcome.is_ok(), "record {number}: {outcome:?}");
        assert_eq!(times.get(&number), Some(&1), "record {number}");
    }
}

fn acknowledged_commits_survive(rounds: u32) {
    let mut broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "load", 1);
    let mut next = 1;
    for round in 0..rounds {
        let settings = [
            ("group.id", "committing"),
            ("socket.timeout.ms", "5000"),
            ("reconnect.backoff.max.ms", "200"),
        ];
        let consumer: BaseConsumer = rd::config(&bootstrap, &settings)
            .create()
            .expect("a consumer");
        let commit = |offset: i64| {
            let mut offsets = TopicPartitionList::new();
            offsets
                .add_partition_offset("load", 0, Offset::Offset(offset))
                .expect("a valid offset");
            consumer.commit(&offsets, CommitMode::Sync)
        };
        let mut acknowledged = 0;
        let start = Instant::now();
        while start.elapsed() < until_kill(round) || acknowledged == 0 {
            if commit(next).is_ok() {
                acknowledged = next;
            }
            next += 1;
            assert!(start.elapsed() < PATIENCE, "no commit is accepted");
        }
        broker.kill();
        let unanswered = next;
        drop(consumer);
        broker.restart();
        let found = rd::committed(&bootstrap, "committing", "load", 1)[0];
        assert!(
            found >= acknowledged && found <= unanswered,
            "{found} is committed, {acknowledged} was acknowledged"
        );
    }
}

#[test]
fn acknowledged_records_survive_kills() {
    acknowledged_records_survive(3);
}

#[test]
fn an_idempotent_producer_is_exact_through_kills() {
    an_idempotent_producer_is_exact(3);
}

#[test]
fn acknowledged_commits_survive_kills() {
    acknowledged_commits_survive(3);
}

#[test]
#[ignore = "takes minutes: left to --long"]
fn acknowledged_records_survive_many_kills() {
    acknowledged_records_survive(40);
}

#[test]
#[ignore = "takes minutes: left to --long"]
fn an_idempotent_producer_is_exact_through_many_kills() {
    an_idempotent_producer_is_exact(40);
}

#[test]
#[ignore = "takes minutes: left to --long"]
fn acknowledged_commits_survive_many_kills() {
    acknowledged_commits_survive(40);
}
