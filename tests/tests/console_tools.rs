//! Apache Kafka's own console tools, by their classes: what an operator types must work as with Kafka.

use std::time::Duration;

use kop_tests::broker::{Broker, is_pulsar, is_reference};
use kop_tests::or_skip;
use kop_tests::process::{Finished, eventually};
use kop_tests::tools::{self, Kafka};

const LIMIT: Duration = Duration::from_secs(120);

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const CONFIGS: &str = "kafka.admin.ConfigCommand";
const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const OFFSETS: &str = "org.apache.kafka.tools.GetOffsetShell";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const PRODUCER_PERF: &str = "org.apache.kafka.tools.ProducerPerformance";
const CONSUMER_PERF: &str = "org.apache.kafka.tools.ConsumerPerformance";
const API_VERSIONS: &str = "org.apache.kafka.tools.BrokerApiVersionsCommand";

/// One broker and the tools against it.
struct Desk {
    kafka: Kafka,
    broker: Broker,
}

impl Desk {
    fn run(&self, class: &str, arguments: &str, input: Option<&str>) -> Finished {
        let bootstrap = self.broker.bootstrap();
        let mut all = vec!["--bootstrap-server", &bootstrap];
        all.extend(arguments.split_whitespace());
        self.kafka.tool(class, &all, input, LIMIT)
    }

    #[track_caller]
    fn must(&self, class: &str, arguments: &str, input: Option<&str>) -> String {
        self.run(class, arguments, input)
            .expect_success(&format!("{class} {arguments}"))
            .stdout
    }
}

#[test]
fn kafka_topics_creates_describes_alters_lists_and_deletes() {
    let desk = Desk {
        kafka: or_skip!(tools::kafka()),
        broker: Broker::start(),
    };
    let created = desk.must(
        TOPICS,
        "--create --topic orders --partitions 3 --config retention.ms=3600000",
        None,
    );
    assert!(created.contains("Created topic orders."), "{created}");

    let again = desk.run(TOPICS, "--create --topic orders --partitions 3", None);
    assert!(!again.success());
    assert!(
        format!("{}{}", again.stdout, again.stderr).contains("already exists"),
        "{again:?}"
    );
    desk.must(TOPICS, "--create --topic orders --if-not-exists", None);

    let described = desk.must(TOPICS, "--describe --topic orders", None);
    assert!(described.contains("PartitionCount: 3"), "{described}");
    assert!(described.contains("retention.ms=3600000"), "{described}");
    assert_eq!(described.matches("Leader: ").count(), 3, "{described}");
    assert!(!described.contains("Leader: none"), "{described}");

    desk.must(TOPICS, "--alter --topic orders --partitions 5", None);
    let described = desk.must(TOPICS, "--describe --topic orders", None);
    assert!(described.contains("PartitionCount: 5"), "{described}");
    let fewer = desk.run(TOPICS, "--alter --topic orders --partitions 2", None);
    assert!(!fewer.success(), "a topic lost partitions: {fewer:?}");

    assert!(
        desk.must(TOPICS, "--list", None)
            .lines()
            .any(|line| line == "orders")
    );
    desk.must(TOPICS, "--delete --topic orders", None);
    eventually("the deleted topic is not listed", LIMIT, || {
        (!desk
            .must(TOPICS, "--list", None)
            .lines()
            .any(|line| line == "orders"))
        .then_some(())
    });
    assert!(
        !desk
            .run(TOPICS, "--describe --topic orders", None)
            .success()
    );
}

#[test]
fn kafka_configs_sets_shows_and_removes_a_topic_config() {
    let desk = Desk {
        kafka: or_skip!(tools::kafka()),
        broker: Broker::start(),
    };
    desk.must(TOPICS, "--create --topic configured --partitions 1", None);
    let topic = "--entity-type topics --entity-name configured";
    let compacted = format!("--alter {topic} --add-config cleanup.policy=[compact,delete]");
    let changed = desk.run(CONFIGS, &compacted, None);
    // Nothing inside Pulsar can compact a topic of Kafka's and keep its offsets: there it is refused, not forgotten.
    if is_pulsar() {
        assert!(!changed.success(), "compaction was promised: {changed:?}");
    } else {
        changed.expect_success(&compacted);
    }
    desk.must(
        CONFIGS,
        &format!("--alter {topic} --add-config retention.bytes=1000000"),
        None,
    );
    let shown = desk.must(CONFIGS, &format!("--describe {topic}"), None);
    assert!(
        shown.contains("retention.bytes=1000000")
            && shown.contains("cleanup.policy=compact,delete") != is_pulsar(),
        "{shown}"
    );
    assert!(shown.contains("DYNAMIC_TOPIC_CONFIG"), "{shown}");
    desk.must(
        CONFIGS,
        &format!("--alter {topic} --delete-config retention.bytes"),
        None,
    );
    let shown = desk.must(CONFIGS, &format!("--describe {topic}"), None);
    assert!(!shown.contains("retention.bytes"), "{shown}");
    let refused = desk.run(
        CONFIGS,
        &format!("--alter {topic} --add-config retention.ms=soon"),
        None,
    );
    assert!(
        !refused.success(),
        "a malformed value was accepted: {refused:?}"
    );
}

#[test]
fn the_console_producer_and_consumer_exchange_keys_values_and_headers() {
    let desk = Desk {
        kafka: or_skip!(tools::kafka()),
        broker: Broker::start(),
    };
    desk.must(TOPICS, "--create --topic lines --partitions 1", None);
    let input = "h1:one,h2:two\tk1\tv1\nh1:one\tk2\tv2\nNONE\tk3\tNONE\n";
    let properties = "--reader-property parse.key=true --reader-property parse.headers=true --reader-property null.marker=NONE";
    desk.must(
        PRODUCER,
        &format!("--topic lines {properties}"),
        Some(input),
    );
    let shown = "--formatter-property print.key=true --formatter-property print.headers=true \
                 --formatter-property print.offset=true --formatter-property print.partition=true";
    let output = desk.must(
        CONSUMER,
        &format!("--topic lines --from-beginning --max-messages 3 {shown}"),
        None,
    );
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(
        lines,
        [
            "Partition:0\tOffset:0\th1:one,h2:two\tk1\tv1",
            "Partition:0\tOffset:1\th1:one\tk2\tv2",
            "Partition:0\tOffset:2\tNO_HEADERS\tk3\tnull"
        ],
        "{output}"
    );
    for codec in ["gzip", "snappy", "lz4", "zstd"] {
        desk.must(
            PRODUCER,
            &format!("--topic lines --compression-codec {codec}"),
            Some(&format!("with {codec}\n")),
        );
    }
    let output = desk.must(
        CONSUMER,
        "--topic lines --partition 0 --offset 3 --max-messages 4",
        None,
    );
    assert_eq!(output, "with gzip\nwith snappy\nwith lz4\nwith zstd\n");
}

#[test]
fn a_topic_that_the_console_producer_names_is_created() {
    let desk = Desk {
        kafka: or_skip!(tools::kafka()),
        broker: Broker::start(),
    };
    desk.must(
        PRODUCER,
        "--topic made-by-producing",
        Some("first\nsecond\n"),
    );
    let output = desk.must(
        CONSUMER,
        "--topic made-by-producing --from-beginning --max-messages 2",
        None,
    );
    assert_eq!(output, "first\nsecond\n");
    let described = desk.must(TOPICS, "--describe --topic made-by-producing", None);
    assert!(described.contains("PartitionCount: 1"), "{described}");
}

#[test]
fn kafka_get_offsets_answers_earliest_latest_times_and_the_maximum() {
    let desk = Desk {
        kafka: or_skip!(tools::kafka()),
        broker: Broker::start(),
    };
    desk.must(TOPICS, "--create --topic counted --partitions 2", None);
    let bootstrap = desk.broker.bootstrap();
    let records: Vec<_> = [1_000, 3_000, 2_000, 4_000]
        .iter()
        .map(|&timestamp| kop_tests::rd::Record {
            partition: Some(0),
            value: Some(b"v".to_vec()),
            timestamp: Some(1_700_000_000_000 + timestamp),
            ..Default::default()
        })
        .collect();
    // One record per batch, so that each has a timestamp of its own in the index.
    for record in &records {
        kop_tests::rd::produce(&bootstrap, "counted", &[], std::slice::from_ref(record));
    }
    let ask = |time: &str| {
        let answer = desk.must(OFFSETS, &format!("--topic counted --time {time}"), None);
        let mut lines: Vec<String> = answer.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(ask("latest"), ["counted:0:4", "counted:1:0"]);
    assert_eq!(ask("earliest"), ["counted:0:0", "counted:1:0"]);
    assert_eq!(ask("1700000001500")[0], "counted:0:1");
    assert_eq!(ask("1700000003500")[0], "counted:0:3");
    assert_eq!(ask("max-timestamp")[0], "counted:0:3");
    let after = ask("1700000009000");
    assert!(
        after.iter().all(|line| line.ends_with(':')),
        "an offset was found after the last record: {after:?}"
    );
}

#[test]
fn kafka_consumer_groups_lists_describes_resets_and_deletes() {
    let desk = Desk {
        kafka: or_skip!(tools::kafka()),
        broker: Broker::start(),
    };
    desk.must(TOPICS, "--create --topic grouped --partitions 1", None);
    desk.must(PRODUCER, "--topic grouped", Some("a\nb\nc\nd\n"));
    let read = desk.must(
        CONSUMER,
        "--topic grouped --group desk --from-beginning --max-messages 3",
        None,
    );
    assert_eq!(read, "a\nb\nc\n");

    assert!(
        desk.must(GROUPS, "--list", None)
            .lines()
            .any(|line| line == "desk")
    );
    let described = desk.must(GROUPS, "--describe --group desk", None);
    let row: Vec<&str> = described
        .lines()
        .find(|line| line.starts_with("desk"))
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(
        row.get(1..6),
        Some(["grouped", "0", "3", "4", "1"].as_slice()),
        "{described}"
    );
    let state = desk.must(GROUPS, "--describe --group desk --state", None);
    assert!(state.contains("Empty"), "{state}");

    let rest = desk.must(
        CONSUMER,
        "--topic grouped --group desk --max-messages 1",
        None,
    );
    assert_eq!(rest, "d\n");
    desk.must(
        GROUPS,
        "--reset-offsets --group desk --topic grouped --to-offset 1 --execute",
        None,
    );
    let rest = desk.must(
        CONSUMER,
        "--topic grouped --group desk --max-messages 3",
        None,
    );
    assert_eq!(rest, "b\nc\nd\n");
    desk.must(
        GROUPS,
        "--reset-offsets --group desk --topic grouped --to-earliest --execute",
        None,
    );
    desk.must(
        GROUPS,
        "--delete-offsets --group desk --topic grouped",
        None,
    );
    desk.must(GROUPS, "--delete --group desk", None);
    assert!(
        !desk
            .must(GROUPS, "--list", None)
            .lines()
            .any(|line| line == "desk")
    );
}

#[test]
fn the_performance_tools_run_through() {
    let desk = Desk {
        kafka: or_skip!(tools::kafka()),
        broker: Broker::start(),
    };
    desk.must(TOPICS, "--create --topic fast --partitions 4", None);
    let bootstrap = desk.broker.bootstrap();
    let arguments = format!(
        "--topic fast --num-records 50000 --record-size 115 --throughput -1 --command-property bootstrap.servers={bootstrap} \
         acks=all"
    );
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let produced = desk
        .kafka
        .tool(PRODUCER_PERF, &arguments, None, LIMIT)
        .expect_success("the producer's performance tool");
    assert!(
        produced.stdout.contains("50000 records sent"),
        "{}",
        produced.stdout
    );
    let consumed = desk.must(
        CONSUMER_PERF,
        "--topic fast --num-records 50000 --timeout 60000",
        None,
    );
    assert!(consumed.contains(", 50000, "), "{consumed}");
}

#[test]
fn kafka_broker_api_versions_understands_what_is_advertised() {
    let desk = Desk {
        kafka: or_skip!(tools::kafka()),
        broker: Broker::start(),
    };
    let shown = desk.must(API_VERSIONS, "", None);
    for api in [
        "Produce(0)",
        "Fetch(1)",
        "ListOffsets(2)",
        "Metadata(3)",
        "ApiVersions(18)",
        "InitProducerId(22)",
    ] {
        let line = shown
            .lines()
            .find(|line| line.contains(api))
            .unwrap_or_else(|| panic!("{api} is missing: {shown}"));
        assert!(line.contains("[usable: "), "{line}");
    }
    if !is_reference() {
        assert!(
            !shown.contains("UNKNOWN("),
            "an API that the tool does not know: {shown}"
        );
    }
}
