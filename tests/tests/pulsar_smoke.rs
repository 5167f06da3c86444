//! Whether anything works at all, in one go: for releases of Pulsar and of Java that do not get every test in every run.

use std::time::Duration;

use kop_tests::broker::{Broker, Flavour, Options};
use kop_tests::process::eventually;
use kop_tests::pulsar::release;
use kop_tests::rd::{self, PATIENCE, Record};
use kop_tests::{or_skip, tools};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const PARTITIONS: i32 = 3;
const PER_CODEC: usize = 300;

/// Consumes as a member of a group until `count` records have come, commits and leaves.
#[track_caller]
fn consume(bootstrap: &str, group: &str, topic: &str, count: usize) {
    let settings = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
    ];
    let member: BaseConsumer = rd::config(bootstrap, &settings)
        .create()
        .expect("a consumer");
    member.subscribe(&[topic]).expect("subscribed");
    for number in 0..count {
        eventually(&format!("record {number}"), PATIENCE, || {
            member.poll(Duration::from_millis(500))?.ok().map(drop)
        });
    }
    member
        .commit_consumer_state(CommitMode::Sync)
        .expect("committed");
}

#[test]
fn records_of_each_codec_groups_and_topics_are_served_and_survive_a_stop_and_a_kill() {
    let release = or_skip!(release());
    let mut broker = Broker::with(Options {
        flavour: Some(Flavour::Pulsar(release)),
        ..Options::default()
    });
    println!("Pulsar {release} took {:?} to start", broker.started_in());
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "smoke", PARTITIONS);
    let total = CODECS.len() * PER_CODEC;
    for (round, codec) in CODECS.into_iter().enumerate() {
        let records: Vec<Record> = (0..PER_CODEC)
            .map(|number| {
                let partition = i32::try_from(number).expect("small") % PARTITIONS;
                Record::to(partition, format!("{codec} {number} {}", "-".repeat(100)))
            })
            .collect();
        let settings = [("compression.type", codec), ("linger.ms", "20")];
        let placed = rd::produce(&bootstrap, "smoke", &settings, &records);
        let per_partition = PER_CODEC / PARTITIONS as usize;
        let last = i64::try_from((round + 1) * per_partition - 1).expect("small");
        assert_eq!(
            placed.last().map(|(_, offset)| *offset),
            Some(last),
            "{codec}"
        );
    }
    consume(&bootstrap, "smokers", "smoke", total);
    let per_partition = i64::try_from(total).expect("small") / i64::from(PARTITIONS);
    let all = vec![per_partition; PARTITIONS as usize];
    assert_eq!(
        rd::committed(&bootstrap, "smokers", "smoke", PARTITIONS),
        all
    );
    assert_eq!(
        broker.admin().partitions("public/default/smoke"),
        Ok(u64::try_from(PARTITIONS).expect("small"))
    );
    let metrics = broker.admin().get("/metrics/").expect("metrics");
    assert!(metrics.contains("kop_server_MESSAGE_IN"), "{metrics}");

    for kill in [false, true] {
        if kill {
            broker.kill();
        } else {
            broker.stop().expect("it stops");
        }
        broker.restart();
        assert_eq!(
            rd::committed(&bootstrap, "smokers", "smoke", PARTITIONS),
            all
        );
        assert_eq!(
            rd::read_all(&bootstrap, "smoke", PARTITIONS).len(),
            total + usize::from(kill)
        );
        rd::produce(&bootstrap, "smoke", &[], &[Record::to(0, "after")]);
    }
    let log = broker.log();
    assert!(!log.contains("panicked"), "a panic in the log:\n{log}");
}

#[test]
fn kafkas_own_console_tools_do_their_work() {
    let kafka = or_skip!(tools::kafka());
    let release = or_skip!(release());
    let broker = Broker::with(Options {
        flavour: Some(Flavour::Pulsar(release)),
        ..Options::default()
    });
    let bootstrap = broker.bootstrap();
    let run = |class: &str, arguments: &str, input: Option<&str>| {
        let mut words = vec!["--bootstrap-server", &*bootstrap];
        words.extend(arguments.split(' '));
        let finished = kafka.tool(class, &words, input, PATIENCE);
        finished.expect_success(class).stdout
    };
    run(
        "org.apache.kafka.tools.TopicCommand",
        "--create --topic lines --partitions 2",
        None,
    );
    run(
        "org.apache.kafka.tools.ConsoleProducer",
        "--topic lines",
        Some("one\ntwo\nthree\n"),
    );
    let read = run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--topic lines --from-beginning --max-messages 3 --group desk",
        None,
    );
    let mut lines: Vec<&str> = read.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one", "three", "two"]);
    let described = run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--describe --group desk",
        None,
    );
    assert!(described.contains("lines"), "{described}");
}
