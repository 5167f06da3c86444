//! Kafka's own AdminClient asks two hundred things, sensible and not, and hears what Apache Kafka 4.3.1 answers.
//!
//! `kafka-4.3.1.txt` holds the answers of a Kafka 4.3.1 node with its default settings, as `AdminProbe.java` prints
//! them. With `KOP_TEST_REFERENCE=kafka` the test asks Kafka itself, which shows whether the file is still true.

use std::collections::BTreeMap;
use std::time::Duration;

use kop_tests::broker::{Broker, is_reference};
use kop_tests::or_skip;
use kop_tests::process::run;
use kop_tests::tools;

const LIMIT: Duration = Duration::from_secs(300);

/// Where we knowingly answer otherwise than Kafka; see `kop-handler/GAPS.md`.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "factor 2",
        "InvalidReplicationFactorException: Unable to replicate the partition 2 time(s): Kafka clients see one replica, and the host replicates beneath it. Use 1, or -1 for the default.",
    ),
    (
        "create __consumer_offsets",
        "InvalidTopicException: The topic '__consumer_offsets' is internal: the broker creates it when it is needed.",
    ),
    (
        "alter BROKER NODE SET node.id=5",
        "InvalidRequestException: Cannot update these configs dynamically: [node.id]. They come from the broker's configuration file.",
    ),
    (
        "describe topic nope",
        "UnknownTopicOrPartitionException: The topic 'nope' does not exist.",
    ),
    (
        "topic configuration max.message.bytes",
        "INT 5242880 DEFAULT_CONFIG [DEFAULT_CONFIG:message.max.bytes=5242880] documented true sensitive false read-only false",
    ),
    (
        "topic configuration min.insync.replicas",
        "INT 1 DEFAULT_CONFIG [DEFAULT_CONFIG:min.insync.replicas=1] documented true sensitive false read-only false",
    ),
];

fn answers(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once(" -> "))
        .collect()
}

#[test]
fn the_admin_client_hears_what_kafka_would_answer() {
    let kafka = or_skip!(tools::kafka());
    let broker = Broker::start();
    let mut command = kafka.program("AdminProbe");
    command.arg(broker.bootstrap());
    let asked = run(command, None, LIMIT).expect_success("AdminProbe");
    let heard = answers(&asked.stdout);
    let mut expected = answers(include_str!("kafka-4.3.1.txt"));
    assert!(expected.len() > 200, "{} answers", expected.len());
    if !is_reference() {
        for (question, answer) in DIFFERENCES {
            let kafkas = expected.insert(question, answer);
            assert!(
                kafkas.is_some_and(|kafkas| kafkas != *answer),
                "{question} is no difference"
            );
        }
    }
    let wrong: Vec<String> = expected
        .iter()
        .filter(|(question, answer)| heard.get(*question) != Some(*answer))
        .map(|(question, answer)| {
            let heard = heard.get(question).unwrap_or(&"nothing");
            format!("{question}\n  expected {answer}\n  heard    {heard}")
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(heard.len(), expected.len());
}
