//! Apache Doris' Routine Load as a client: librdkafka with exactly the settings of its backend, explicit assignment, no
//! group membership, read_committed by default, an end that is told by EOF.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kop_tests::broker::{Broker, is_pulsar, is_reference};
use kop_tests::process::{eventually, run};
use kop_tests::rd::{self, PATIENCE, Record};
use kop_tests::{or_skip, tools};
use rdkafka::admin::NewPartitions;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

/// A handle as Doris' backend creates it.
fn handle(bootstrap: &str) -> BaseConsumer {
    let settings = [
        ("metadata.broker.list", bootstrap),
        ("group.id", "doris"),
        ("enable.partition.eof", "true"),
        ("enable.auto.offset.store", "false"),
        ("auto.offset.reset", "error"),
        ("statistics.interval.ms", "0"),
        ("socket.keepalive.enable", "true"),
        ("reconnect.backoff.ms", "100"),
        ("reconnect.backoff.max.ms", "10000"),
        ("api.version.request", "true"),
        ("api.version.fallback.ms", "0"),
        ("broker.version.fallback", "0.10.0"),
        ("broker.address.ttl", "0"),
    ];
    let mut config = rdkafka::ClientConfig::new();
    for (key, value) in settings {
        config.set(key, value);
    }
    config.create().expect("a handle")
}

fn assign(handle: &BaseConsumer, topic: &str, offsets: &[(i32, i64)]) {
    let mut list = TopicPartitionList::new();
    for &(partition, offset) in offsets {
        list.add_partition_offset(topic, partition, Offset::Offset(offset))
            .expect("a valid offset");
    }
    handle.assign(&list).expect("assigned");
}

fn position(handle: &BaseConsumer, topic: &str, partition: i32) -> Option<i64> {
    let positions = handle.position().expect("positions");
    positions
        .find_partition(topic, partition)
        .and_then(|found| found.offset().to_raw())
}

#[test]
fn case_1_all_rows_then_one_eof_per_partition_at_its_end() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "rows", 3);
    for partition in 0..3 {
        rd::produce(&bootstrap, "rows", &[], &rd::numbered(partition, 0..5_000));
    }
    let handle = handle(&bootstrap);
    let start = Instant::now();
    assign(&handle, "rows", &[(0, 0), (1, 0), (2, 0)]);
    let mut rows = [0; 3];
    let mut ends = Vec::new();
    while ends.len() < 3 {
        match handle.poll(Duration::from_secs(1)) {
            Some(Ok(message)) => {
                let partition = usize::try_from(message.partition()).expect("a partition");
                assert!(
                    !ends.contains(&message.partition()),
                    "a row after the end of {partition}"
                );
                assert_eq!(message.offset(), rows[partition]);
                assert_eq!(
                    message.payload(),
                    Some(format!("v{}", rows[partition]).as_bytes())
                );
                rows[partition] += 1;
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                assert_eq!(
                    position(&handle, "rows", partition),
                    Some(5_000),
                    "the end of {partition}"
                );
                ends.push(partition);
            }
            Some(Err(error)) => panic!("{error}"),
            None => assert!(
                start.elapsed() < Duration::from_secs(20),
                "no end: {rows:?}, {ends:?}"
            ),
        }
    }
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "it took {:?}",
        start.elapsed()
    );
    assert_eq!(rows, [5_000; 3]);
    // An end is told once, not at every long poll.
    let more = handle.poll(Duration::from_secs(2));
    assert!(
        more.is_none(),
        "after the ends came {:?}",
        more.map(|result| result.map(|message| message.offset()))
    );
}

#[test]
fn case_2_a_handle_without_assignment_commits_for_a_group_without_members() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "rows", 2);
    rd::produce(&bootstrap, "rows", &[], &rd::numbered(0, 0..10));
    let offsets = |first: i64, second: i64| {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("rows", 0, Offset::Offset(first))
            .expect("a valid offset");
        list.add_partition_offset("rows", 1, Offset::Offset(second))
            .expect("a valid offset");
        list
    };
    let committing = handle(&bootstrap);
    let mut commit = committing.commit(&offsets(7, 0), CommitMode::Sync);
    let start = Instant::now();
    // Kafka's coordinator is still loading when its first client comes; ours answers when it listens.
    while commit.is_err() && is_reference() && start.elapsed() < PATIENCE {
        commit = committing.commit(&offsets(7, 0), CommitMode::Sync);
    }
    commit.expect("the commit is accepted");
    assert_eq!(rd::committed(&bootstrap, "doris", "rows", 2), [7, 0]);
    committing
        .commit(&offsets(10, 0), CommitMode::Async)
        .expect("the commit is sent");
    eventually("the asynchronous commit", PATIENCE, || {
        (rd::committed(&bootstrap, "doris", "rows", 2) == [10, 0]).then_some(())
    });
    let groups = committing
        .fetch_group_list(Some("doris"), PATIENCE)
        .expect("the group can be described");
    let group = groups.groups().first().expect("the group is listed");
    assert_eq!((group.state(), group.members().len()), ("Empty", 0));
}

#[test]
fn case_3_batches_that_end_in_the_middle_lose_and_repeat_nothing() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "rows", 3);
    for (partition, codec) in [(0, "none"), (1, "lz4"), (2, "zstd")] {
        let settings = [
            ("compression.type", codec),
            ("linger.ms", "50"),
            ("batch.num.messages", "1000"),
        ];
        rd::produce(
            &bootstrap,
            "rows",
            &settings,
            &rd::numbered(partition, 0..4_000),
        );
    }
    let pool = [handle(&bootstrap), handle(&bootstrap), handle(&bootstrap)];
    let mut next = [0_i64; 3];
    let start = Instant::now();
    let mut batch = 0;
    while next != [4_000; 3] {
        assert!(start.elapsed() < PATIENCE * 2, "only {next:?}");
        // Each batch, every handle gets another partition: fetches land in the middle of stored batches.
        for (number, handle) in pool.iter().enumerate() {
            let partition = (number + batch) % 3;
            let id = i32::try_from(partition).expect("a partition");
            assign(handle, "rows", &[(id, next[partition])]);
            let mut rows = 0;
            while rows < 300 {
                match handle.poll(Duration::from_secs(1)) {
                    Some(Ok(message)) => {
                        assert_eq!(
                            (message.partition(), message.offset()),
                            (id, next[partition])
                        );
                        assert_eq!(
                            message.payload(),
                            Some(format!("v{}", next[partition]).as_bytes())
                        );
                        next[partition] += 1;
                        rows += 1;
                    }
                    Some(Err(KafkaError::PartitionEOF(_))) => break,
                    Some(Err(error)) => panic!("{error}"),
                    None => assert!(start.elapsed() < PATIENCE * 2, "only {next:?}"),
                }
            }
            handle.unassign().expect("unassigned");
        }
        batch += 1;
    }
}

#[test]
fn case_4_watermarks_of_an_empty_a_filled_and_a_trimmed_partition() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "rows", 2);
    let handle = handle(&bootstrap);
    let ask = |partition| {
        handle
            .fetch_watermarks("rows", partition, PATIENCE)
            .expect("watermarks")
    };
    assert_eq!(ask(0), (0, 0));
    rd::produce(&bootstrap, "rows", &[], &rd::numbered(0, 0..1_000));
    assert_eq!(ask(0), (0, 1_000));
    assert_eq!(ask(1), (0, 0));

    let first_hundred = ask_often(&ask, 100);
    ask_often(&ask, 800);
    let last_hundred = ask_often(&ask, 100);
    let bound = first_hundred * 4 + Duration::from_millis(500);
    assert!(
        last_hundred < bound,
        "queries became slow: {first_hundred:?}, then {last_hundred:?}"
    );

    let mut before = TopicPartitionList::new();
    before
        .add_partition_offset("rows", 0, Offset::Offset(400))
        .expect("a valid offset");
    let trimmed = rd::block_on(rd::admin(&bootstrap).delete_records(&before, &rd::admin_options()));
    let trimmed = trimmed.expect("an answer to DeleteRecords");
    let error = trimmed.elements().first().map(|element| element.error());
    assert!(matches!(error, Some(Ok(()))), "{error:?}");
    assert_eq!(ask(0), (400, 1_000));
}

fn ask_often(ask: &dyn Fn(i32) -> (i64, i64), times: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..times {
        assert_eq!(ask(0), (0, 1_000));
    }
    start.elapsed()
}

#[test]
fn case_5_offsets_for_times_before_inside_and_after() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "rows", 1);
    let base = 1_700_000_000_000;
    let records: Vec<Record> = (0..1_000)
        .map(|number| Record {
            timestamp: Some(base + 10 * number),
            ..Record::to(0, format!("v{number}"))
        })
        .collect();
    rd::produce(&bootstrap, "rows", &[("linger.ms", "20")], &records);
    let handle = handle(&bootstrap);
    let at = |time: i64| {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("rows", 0, Offset::Offset(time))
            .expect("a time");
        let found = handle.offsets_for_times(list, PATIENCE).expect("an answer");
        let element = found.find_partition("rows", 0).expect("the partition");
        element.error().expect("no error");
        element.offset()
    };
    assert_eq!(at(base - 5_000), Offset::Offset(0));
    assert_eq!(at(base), Offset::Offset(0));
    assert_eq!(at(base + 4_995), Offset::Offset(500));
    assert_eq!(at(base + 5_000), Offset::Offset(500));
    assert_eq!(at(base + 9_990), Offset::Offset(999));
    // No record: the offset -1, which librdkafka calls the end.
    assert_eq!(at(base + 9_991), Offset::End);
}

/// Polls for the error of an assignment outside the log.
#[track_caller]
fn out_of_range(handle: &BaseConsumer, offset: i64) {
    assign(handle, "rows", &[(0, offset)]);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "no error at {offset}");
        match handle.poll(Duration::from_secs(1)) {
            None => {}
            Some(Err(KafkaError::MessageConsumption(code))) => {
                assert_eq!(code, RDKafkaErrorCode::AutoOffsetReset, "at {offset}");
                break;
            }
            Some(other) => panic!("at {offset}: {:?}", other.map(|message| message.offset())),
        }
    }
    handle.unassign().expect("unassigned");
}

#[test]
fn case_6_an_offset_outside_the_log_is_an_error_and_no_hang() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "rows", 1);
    rd::produce(&bootstrap, "rows", &[], &rd::numbered(0, 0..1_000));
    let mut before = TopicPartitionList::new();
    before
        .add_partition_offset("rows", 0, Offset::Offset(400))
        .expect("a valid offset");
    rd::block_on(rd::admin(&bootstrap).delete_records(&before, &rd::admin_options()))
        .expect("trimmed");
    let handle = handle(&bootstrap);
    out_of_range(&handle, 1_010);
    out_of_range(&handle, 399);
    // The handle is still good.
    assign(&handle, "rows", &[(0, 400)]);
    let first = eventually("the first row", PATIENCE, || {
        handle.poll(Duration::from_secs(1))
    });
    assert_eq!(first.expect("a row").offset(), 400);

    // Doris reacts to the text, which only other bindings pass on.
    let mut python = or_skip!(tools::python());
    python.args(["out_of_range", &bootstrap, "rows"]);
    let finished = run(python, None, Duration::from_secs(120)).expect_success("the client program");
    assert!(
        finished.stdout.contains("ok out_of_range"),
        "{}",
        finished.stdout
    );
}

#[test]
fn case_8_metadata_of_all_of_one_and_of_an_unknown_topic() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "one", 1);
    rd::create_topic(&bootstrap, "seven", 7);
    let handle = handle(&bootstrap);
    let shape = |topic: Option<&str>| {
        let metadata = handle
            .fetch_metadata(topic, Duration::from_secs(5))
            .expect("metadata");
        let broker = metadata.brokers().first().expect("a broker");
        assert_eq!(format!("{}:{}", broker.host(), broker.port()), bootstrap);
        let mut topics: Vec<(String, Vec<i32>)> = Vec::new();
        for topic in metadata
            .topics()
            .iter()
            .filter(|topic| !topic.name().starts_with("__"))
        {
            assert!(
                topic.error().is_none(),
                "{}: {:?}",
                topic.name(),
                topic.error()
            );
            assert!(
                topic
                    .partitions()
                    .iter()
                    .all(|partition| partition.leader() == broker.id())
            );
            let mut ids: Vec<i32> = topic
                .partitions()
                .iter()
                .map(rdkafka::metadata::MetadataPartition::id)
                .collect();
            ids.sort_unstable();
            topics.push((topic.name().to_owned(), ids));
        }
        topics.sort();
        topics
    };
    let one = ("one".to_owned(), vec![0]);
    let seven = ("seven".to_owned(), (0..7).collect::<Vec<i32>>());
    assert_eq!(shape(None), [one, seven.clone()]);
    assert_eq!(shape(Some("seven")), [seven]);

    let unknown = handle
        .fetch_metadata(Some("nothing"), Duration::from_secs(5))
        .expect("metadata");
    let topic = unknown
        .topics()
        .first()
        .expect("an answer for the unknown topic");
    assert!(
        topic.error().is_some() && topic.partitions().is_empty(),
        "{:?}",
        topic.error()
    );
    assert!(
        shape(None).iter().all(|(name, _)| name != "nothing"),
        "the unknown topic was created"
    );
}

#[test]
fn case_9_partitions_are_added_and_the_broker_restarts_while_rows_are_loaded() {
    let mut broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "rows", 1);
    rd::produce(&bootstrap, "rows", &[], &rd::numbered(0, 0..1_000));
    let handle = handle(&bootstrap);
    assign(&handle, "rows", &[(0, 0)]);
    assert_eq!(
        load(&handle, 1_000),
        0,
        "transport errors without a restart"
    );

    let grown = NewPartitions::new("rows", 2);
    rd::block_on(rd::admin(&bootstrap).create_partitions([&grown], &rd::admin_options()))
        .expect("partitions added");
    eventually(
        "the added partition in the metadata",
        Duration::from_secs(10),
        || {
            let metadata = handle
                .fetch_metadata(Some("rows"), Duration::from_secs(5))
                .ok()?;
            (metadata.topics().first()?.partitions().len() == 2).then_some(())
        },
    );
    rd::produce(&bootstrap, "rows", &[], &rd::numbered(1, 0..500));
    assign(&handle, "rows", &[(0, 1_000), (1, 0)]);
    load(&handle, 500);

    broker.stop().expect("a clean stop");
    broker.restart();
    rd::produce(&bootstrap, "rows", &[], &rd::numbered(1, 500..900));
    let errors = load(&handle, 400);
    // A JVM is away for many seconds.
    let bound = if is_reference() || is_pulsar() {
        100
    } else {
        3
    };
    assert!(errors <= bound, "{errors} transport errors");
}

/// Reads so many rows; returns how many transport errors were seen on the way.
#[track_caller]
fn load(handle: &BaseConsumer, rows: usize) -> usize {
    let start = Instant::now();
    let (mut seen, mut errors) = (0, 0);
    while seen < rows {
        assert!(start.elapsed() < PATIENCE, "{seen} of {rows} rows");
        match handle.poll(Duration::from_secs(1)) {
            Some(Ok(_)) => seen += 1,
            Some(Err(KafkaError::PartitionEOF(_))) | None => {}
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::BrokerTransportFailure))) => {
                errors += 1;
            }
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AllBrokersDown))) => {}
            Some(Err(error)) => panic!("{error}"),
        }
    }
    errors
}

#[test]
fn case_11_empty_and_null_values_advance_the_offsets() {
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "rows", 1);
    let empty = Record {
        value: Some(Vec::new()),
        ..Record::to(0, "")
    };
    let null = Record {
        key: Some(b"k".to_vec()),
        value: None,
        ..Record::to(0, "")
    };
    let records = [
        Record::to(0, "first"),
        empty.clone(),
        null.clone(),
        Record::to(0, "middle"),
        null,
        empty,
    ];
    rd::produce(&bootstrap, "rows", &[], &records);
    let handle = handle(&bootstrap);
    assign(&handle, "rows", &[(0, 0)]);
    let mut found = Vec::new();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "{found:?}");
        match handle.poll(Duration::from_secs(1)) {
            Some(Ok(message)) => found.push((
                message.offset(),
                message.payload().unwrap_or_default().len(),
            )),
            Some(Err(KafkaError::PartitionEOF(0))) => break,
            Some(Err(error)) => panic!("{error}"),
            None => {}
        }
    }
    assert_eq!(found, [(0, 5), (1, 0), (2, 0), (3, 6), (4, 0), (5, 0)]);
    assert_eq!(position(&handle, "rows", 0), Some(6));
    let offsets: BTreeSet<i64> = rd::read_all(&bootstrap, "rows", 1)
        .iter()
        .map(|record| record.1)
        .collect();
    assert_eq!(offsets, (0..6).collect());
}
