//! librdkafka through `rdkafka`: the common scenario, and what a long-lived group does around it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kop_tests::broker::Broker;
use kop_tests::rd::{self, PATIENCE, Record};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};

const PARTITIONS: i32 = 4;
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const PER_CODEC: usize = 200;

fn member(bootstrap: &str, group: &str, more: &[(&str, &str)]) -> BaseConsumer {
    let settings = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
        ("heartbeat.interval.ms", "500"),
        ("session.timeout.ms", "10000"),
    ];
    let mut config = rd::config(bootstrap, &settings);
    for (key, value) in more {
        config.set(*key, *value);
    }
    config.create().expect("a consumer")
}

/// Polls every member into `values` until `done`; no value may come twice.
#[track_caller]
fn poll_until(
    members: &[&BaseConsumer],
    values: &mut BTreeMap<Vec<u8>, i32>,
    mut done: impl FnMut(&BTreeMap<Vec<u8>, i32>) -> bool,
) {
    let start = Instant::now();
    while !done(values) {
        assert!(start.elapsed() < PATIENCE, "only {} values", values.len());
        for member in members {
            match member.poll(Duration::from_millis(20)) {
                None | Some(Err(KafkaError::PartitionEOF(_))) => {}
                Some(Ok(message)) => {
                    let value = message.payload().unwrap_or_default().to_vec();
                    let twice = values.insert(value, message.partition());
                    assert!(
                        twice.is_none(),
                        "seen twice: {:?}",
                        message.payload_view::<str>()
                    );
                }
                Some(Err(error)) => panic!("{error}"),
            }
        }
    }
}

fn owned(member: &BaseConsumer) -> BTreeSet<i32> {
    let assignment = member.assignment().expect("an assignment");
    assignment
        .elements()
        .iter()
        .map(rdkafka::topic_partition_list::TopicPartitionListElem::partition)
        .collect()
}

fn marked(mark: &str) -> Vec<Record> {
    let record = |number: usize| Record {
        partition: Some(i32::try_from(number).expect("small") % PARTITIONS),
        key: Some(format!("k{number}").into_bytes()),
        value: Some(format!("{mark}-{number}-{}", "padding ".repeat(8)).into_bytes()),
        ..Record::default()
    };
    (0..PER_CODEC).map(record).collect()
}

/// The scenario with the given assignment strategy.
fn scenario(strategy: &str) {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "shared", PARTITIONS);
    for codec in CODECS {
        rd::produce(
            &bootstrap,
            "shared",
            &[("compression.type", codec), ("linger.ms", "20")],
            &marked(codec),
        );
    }
    let all = CODECS.len() * PER_CODEC;
    let more = [("partition.assignment.strategy", strategy)];
    let mut values = BTreeMap::new();
    let first = member(&bootstrap, "team", &more);
    first.subscribe(&["shared"]).expect("subscribed");
    poll_until(&[&first], &mut values, |values| values.len() >= all);
    for record in CODECS.iter().flat_map(|codec| marked(codec)) {
        let value = record.value.expect("a value");
        assert_eq!(
            values.get(&value),
            record.partition.as_ref(),
            "{}",
            String::from_utf8_lossy(&value)
        );
    }
    first
        .commit_consumer_state(CommitMode::Sync)
        .expect("committed");

    let second = member(&bootstrap, "team", &more);
    second.subscribe(&["shared"]).expect("subscribed");
    poll_until(&[&first, &second], &mut values, |_| {
        owned(&first).len() == 2 && owned(&second).len() == 2
    });
    assert!(owned(&first).is_disjoint(&owned(&second)));
    rd::produce(
        &bootstrap,
        "shared",
        &[("compression.type", "lz4")],
        &marked("second"),
    );
    poll_until(&[&first, &second], &mut values, |values| {
        values.len() == all + PER_CODEC
    });
    first
        .commit_consumer_state(CommitMode::Sync)
        .expect("committed");
    second
        .commit_consumer_state(CommitMode::Sync)
        .expect("committed");

    drop(second);
    poll_until(&[&first], &mut values, |_| owned(&first).len() == 4);
    drop(first);
    let committed: i64 = rd::committed(&bootstrap, "team", "shared", PARTITIONS)
        .iter()
        .sum();
    assert_eq!(committed, i64::try_from(all + PER_CODEC).expect("small"));

    rd::produce(
        &bootstrap,
        "shared",
        &[("compression.type", "zstd")],
        &marked("third"),
    );
    let mut rest = BTreeMap::new();
    let restarted = member(&bootstrap, "team", &more);
    restarted.subscribe(&["shared"]).expect("subscribed");
    poll_until(&[&restarted], &mut rest, |rest| rest.len() >= PER_CODEC);
    let expected: BTreeSet<Vec<u8>> = marked("third")
        .into_iter()
        .filter_map(|record| record.value)
        .collect();
    assert_eq!(
        rest.into_keys().collect::<BTreeSet<_>>(),
        expected,
        "it does not go on from its commit"
    );
}

#[test]
fn the_scenario_with_eager_rebalancing() {
    scenario("range,roundrobin");
}

#[test]
fn the_scenario_with_cooperative_rebalancing() {
    scenario("cooperative-sticky");
}

#[test]
fn a_static_member_that_returns_keeps_its_partitions_without_a_rebalance() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "shared", PARTITIONS);
    let join = |name: &str| {
        let more = [("group.instance.id", name), ("session.timeout.ms", "30000")];
        let member = member(&bootstrap, "statics", &more);
        member.subscribe(&["shared"]).expect("subscribed");
        member
    };
    let mut none = BTreeMap::new();
    let stays = join("one");
    let leaves = join("two");
    poll_until(&[&stays, &leaves], &mut none, |_| {
        owned(&stays).len() == 2 && owned(&leaves).len() == 2
    });
    let (kept, mine) = (owned(&stays), owned(&leaves));
    drop(leaves);
    let back = join("two");
    poll_until(&[&stays, &back], &mut none, |_| {
        assert_eq!(owned(&stays), kept, "the other member was rebalanced");
        owned(&back).len() == 2
    });
    assert_eq!(owned(&back), mine);
}

#[test]
fn headers_come_back_in_order_with_duplicates_and_nulls() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "headers", 1);
    let headers = OwnedHeaders::new()
        .insert(Header {
            key: "a",
            value: Some("1"),
        })
        .insert(Header {
            key: "b",
            value: None::<&str>,
        })
        .insert(Header {
            key: "a",
            value: Some("2"),
        })
        .insert(Header {
            key: "",
            value: Some(""),
        });
    let record = Record {
        headers: Some(headers),
        ..Record::to(0, "v")
    };
    rd::produce(
        &bootstrap,
        "headers",
        &[("compression.type", "snappy")],
        &[record],
    );
    let reader = member(&bootstrap, "reader", &[]);
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset("headers", 0, rdkafka::Offset::Beginning)
        .expect("a valid offset");
    reader.assign(&list).expect("assigned");
    let message = kop_tests::process::eventually("the record", PATIENCE, || {
        reader.poll(Duration::from_secs(1))
    });
    let message = message.expect("a record");
    let found: Vec<(String, Option<Vec<u8>>)> = message
        .headers()
        .expect("headers")
        .iter()
        .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
        .collect();
    let expected = [
        ("a", Some("1")),
        ("b", None),
        ("a", Some("2")),
        ("", Some("")),
    ];
    let expected =
        expected.map(|(key, value)| (key.to_owned(), value.map(|text| text.as_bytes().to_vec())));
    assert_eq!(found, expected);
}

#[test]
fn a_topic_is_created_by_producing_to_it_and_an_idempotent_producer_keeps_order() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    let settings = [
        ("enable.idempotence", "true"),
        ("batch.num.messages", "7"),
        ("linger.ms", "0"),
    ];
    let acknowledged = rd::produce(
        &bootstrap,
        "made-by-producing",
        &settings,
        &rd::numbered(0, 0..3_000),
    );
    assert!(
        acknowledged
            .iter()
            .enumerate()
            .all(|(number, found)| *found == (0, i64::try_from(number).expect("small")))
    );
    let read = rd::read_all(&bootstrap, "made-by-producing", 1);
    let values: Vec<_> = read.into_iter().filter_map(|record| record.3).collect();
    let expected: Vec<_> = rd::numbered(0, 0..3_000)
        .into_iter()
        .filter_map(|record| record.value)
        .collect();
    assert_eq!(values, expected);
}

#[test]
fn a_waiting_consumer_is_woken_by_the_append_and_not_by_the_end_of_its_long_poll() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "woken", 1);
    let settings = [
        ("fetch.wait.max.ms", "10000"),
        ("socket.timeout.ms", "30000"),
    ];
    let reader = member(&bootstrap, "reader", &settings);
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset("woken", 0, rdkafka::Offset::Beginning)
        .expect("a valid offset");
    reader.assign(&list).expect("assigned");
    assert!(
        reader.poll(Duration::from_secs(1)).is_none(),
        "nothing was produced yet"
    );
    let producer = rd::producer(&bootstrap, &[("linger.ms", "0")]);
    // The first record also pays for connections and metadata; the others show the wake-up.
    for number in 0..5 {
        rd::send(&producer, "woken", number, &Record::to(0, "x"));
        let start = Instant::now();
        let message = loop {
            rdkafka::producer::Producer::flush(&producer, PATIENCE).expect("acknowledged");
            if let Some(message) = reader.poll(Duration::from_secs(12)) {
                break message.expect("a record");
            }
            assert!(start.elapsed() < PATIENCE, "never woken");
        };
        assert_eq!(message.offset(), i64::try_from(number).expect("small"));
        assert!(
            number == 0 || start.elapsed() < Duration::from_secs(3),
            "woken after {:?}",
            start.elapsed()
        );
    }
}
