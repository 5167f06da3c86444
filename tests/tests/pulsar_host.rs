//! What a Pulsar broker as a host is asked by Kafka's clients at its edges: entries that are too large, entries from
//! before the broker counted, and writers that are not ours (in batches of two).

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use kop_fetch::process::{Service, eventually, run};
use kop_fetch::pulsar::Release;
use kop_tests::broker::{Broker, Flavour, Options, free_port};
use kop_tests::pulsar::standalone::{self, Ports};
use kop_tests::pulsar::{jvm, release};
use kop_tests::rd::{self, PATIENCE, Record};
use kop_tests::{or_skip, tools};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

/// How long a broker may take to start, and a client program to end.
const LIMIT: Duration = Duration::from_secs(120);

/// Writes messages with Pulsar's own client, each acknowledged; tries again while its topic's namespace is not made yet.
#[track_caller]
fn pulsar_writes(url: &str, topic: &str, values: &[&str]) {
    let hex = |value: &str| -> String { value.bytes().map(|byte| format!("{byte:02x}")).collect() };
    let lines = values
        .iter()
        .map(|value| format!("{{\"data\":\"{}\"}}\n", hex(value)));
    let lines: String = lines.collect();
    eventually("the namespace", PATIENCE, || {
        let mut program = tools::pulsar_python().expect("it was there");
        program.args([url, "produce", topic, "none", "2"]);
        let finished = run(program, Some(&lines), LIMIT);
        let is_early = finished.stdout.contains("Namespace not found");
        (!is_early).then(|| finished.expect_success("produce"))
    });
}

/// A consumer of partition 0 from the beginning on.
fn reader(bootstrap: &str, topic: &str) -> BaseConsumer {
    let settings = [("group.id", "reader"), ("enable.auto.commit", "false")];
    let consumer: BaseConsumer = rd::config(bootstrap, &settings)
        .create()
        .expect("a consumer");
    let mut assignment = TopicPartitionList::new();
    let added = assignment.add_partition_offset(topic, 0, Offset::Beginning);
    added.expect("a valid offset");
    consumer.assign(&assignment).expect("assigned");
    consumer
}

/// Offset and value of the next record.
#[track_caller]
fn next(consumer: &BaseConsumer) -> (i64, String) {
    let record = consumer
        .poll(PATIENCE)
        .expect("a record in time")
        .expect("a record");
    let value = record.payload().unwrap_or_default();
    (record.offset(), String::from_utf8_lossy(value).into_owned())
}

#[test]
fn an_entry_that_the_storage_does_not_take_is_refused_and_its_partition_lives() {
    let release = or_skip!(release());
    let broker = Broker::with(Options {
        flavour: Some(Flavour::Pulsar(release)),
        ..Options::default()
    });
    let bootstrap = broker.bootstrap();
    let large = [("max.message.bytes", "20000000")];
    rd::create_topic_with(&bootstrap, "large", 1, &large);
    rd::produce(&bootstrap, "large", &[], &rd::numbered(0, 0..1));
    let mut record = Record::to(0, "x");
    record.value = Some(vec![b'x'; 6_000_000]);
    let begun = Instant::now();
    let settings = [("message.max.bytes", "20000000")];
    let outcome = rd::try_produce(&bootstrap, "large", &settings, &[record]);
    let text = format!("{outcome:?}");
    assert!(text.contains("MessageSizeTooLarge"), "{text}");
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    let after = rd::produce(&bootstrap, "large", &[], &rd::numbered(0, 1..2));
    assert_eq!(after, [(0, 1)], "what was refused takes up no offset");
}

#[test]
fn a_consumer_that_waits_is_woken_by_a_message_of_pulsars_client() {
    let release = or_skip!(release());
    or_skip!(tools::pulsar_python());
    let broker = Broker::with(Options {
        flavour: Some(Flavour::Pulsar(release)),
        ..Options::default()
    });
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "woken", 1);
    rd::produce(&bootstrap, "woken", &[], &rd::numbered(0, 0..1));
    let settings = [
        ("group.id", "woken"),
        ("fetch.wait.max.ms", "60000"),
        ("socket.timeout.ms", "90000"),
    ];
    let consumer: BaseConsumer = rd::config(&bootstrap, &settings)
        .create()
        .expect("a consumer");
    let mut assignment = TopicPartitionList::new();
    assignment
        .add_partition_offset("woken", 0, Offset::Beginning)
        .expect("a valid offset");
    consumer.assign(&assignment).expect("assigned");
    assert_eq!(next(&consumer), (0, "v0".to_owned()));
    // It waits now, for a minute if nobody wakes it.
    assert!(consumer.poll(Duration::from_secs(2)).is_none());
    let topic = "persistent://public/default/woken-partition-0";
    pulsar_writes(&broker.pulsar_url(), topic, &["from outside"]);
    let written = Instant::now();
    assert_eq!(next(&consumer), (1, "from outside".to_owned()));
    assert!(
        written.elapsed() < Duration::from_secs(5),
        "{:?}",
        written.elapsed()
    );
}

/// A standalone broker on ports and data that outlive it.
fn start(
    release: Release,
    ports: Ports,
    home: &Path,
    change: impl FnOnce(&mut kop_tests::pulsar::Settings),
) -> Service {
    let mut settings = standalone::settings(release, ports);
    change(&mut settings);
    let command = standalone::command(release, &settings, ports, home, &home.join("data"));
    let log = home.join("broker.log");
    let _ = fs::remove_file(&log);
    jvm::start("Pulsar", command.expect("a command"), &log).expect("a broker")
}

#[test]
fn messages_from_before_the_broker_counted_have_no_offsets_and_disturb_nobody() {
    let release = or_skip!(release());
    or_skip!(tools::pulsar_python());
    let home = tempfile::tempdir().expect("a folder");
    let ports = Ports {
        kafka: free_port(),
        web: free_port(),
        pulsar: free_port(),
        bookie: free_port(),
        zookeeper: free_port(),
    };
    let (url, topic) = (
        format!("pulsar://127.0.0.1:{}", ports.pulsar),
        "persistent://public/default/old",
    );
    let mut before = start(release, ports, home.path(), |settings| {
        settings.remove("messagingProtocols");
        settings.remove("brokerEntryMetadataInterceptors");
        settings.set("defaultRetentionTimeInMinutes", "-1");
        settings.set("defaultRetentionSizeInMB", "-1");
        settings.set("allowAutoTopicCreationType", "non-partitioned");
    });
    let ready = |_: &str| {
        let address = ([127, 0, 0, 1], ports.pulsar).into();
        TcpStream::connect_timeout(&address, Duration::from_secs(1))
            .ok()
            .map(drop)
    };
    before.wait_for(LIMIT, ready).expect("a broker");
    pulsar_writes(&url, topic, &["a", "b", "c"]);
    before.terminate(LIMIT).expect("it stops");

    let _after = start(release, ports, home.path(), |settings| {
        settings.set("defaultRetentionTimeInMinutes", "-1");
        settings.set("defaultRetentionSizeInMB", "-1");
    });
    let bootstrap = format!("127.0.0.1:{}", ports.kafka);
    let bounds = eventually("the bounds", LIMIT, || {
        let asking: BaseConsumer = rd::config(&bootstrap, &[]).create().ok()?;
        asking
            .fetch_watermarks("old", 0, Duration::from_secs(5))
            .ok()
    });
    assert_eq!(bounds, (0, 0), "nothing has an offset yet");
    let consumer = reader(&bootstrap, "old");
    rd::produce(&bootstrap, "old", &[], &[Record::to(0, "d")]);
    pulsar_writes(&url, topic, &["e"]);
    assert_eq!(next(&consumer), (0, "d".to_owned()));
    assert_eq!(next(&consumer), (1, "e".to_owned()));
    let again = reader(&bootstrap, "old");
    assert_eq!(
        next(&again),
        (0, "d".to_owned()),
        "also for one that begins later"
    );
}
