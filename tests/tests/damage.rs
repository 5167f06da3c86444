//! A flipped byte on the disk: the partition that it hits answers with a clear error, at that offset and no other;
//! all other partitions are read in full, and the log names the file and the place.

use std::path::{Path, PathBuf};
use std::time::Instant;

use kop_tests::broker::{Broker, not_embedded};
use kop_tests::process::eventually;
use kop_tests::rd::{self, PATIENCE, Record};
use kop_tests::skip::inapplicable;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

const TOPIC: &str = "damaged";
const PARTITIONS: i32 = 3;
const RECORDS: i64 = 30;
/// The partition and the offset of the record that is hit.
const HIT: (i32, i64) = (1, 12);

fn value(partition: i32, offset: i64) -> String {
    format!("<record {offset} of partition {partition}>")
}

/// Flips one bit of the only place below `directory` that holds `needle`; answers the file and the offset in it.
fn flip(directory: &Path, needle: &[u8]) -> (PathBuf, usize) {
    let mut found = Vec::new();
    for file in std::fs::read_dir(directory).expect("the ledgers' directory") {
        let path = file.expect("a file").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        let places = bytes
            .windows(needle.len())
            .enumerate()
            .filter(|(_, window)| *window == needle);
        found.extend(places.map(|(at, _)| (path.clone(), at)));
    }
    assert_eq!(found.len(), 1, "the record lies at {found:?}");
    let (path, at) = found.remove(0);
    let mut bytes = std::fs::read(&path).expect("a readable file");
    bytes[at + 1] ^= 0x20;
    std::fs::write(&path, bytes).expect("a writable file");
    (path, at)
}

/// What a consumer of all partitions gets: per partition the offsets read, and the first error.
struct Seen {
    offsets: Vec<Vec<i64>>,
    errors: Vec<Option<RDKafkaErrorCode>>,
}

/// Reads each partition from `from` on until its end or its first error.
fn read(bootstrap: &str, partitions: &[i32], from: i64) -> Seen {
    let settings = [
        ("group.id", "reader"),
        ("enable.partition.eof", "true"),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "error"),
    ];
    let consumer: BaseConsumer = rd::config(bootstrap, &settings)
        .create()
        .expect("a consumer");
    let count = usize::try_from(PARTITIONS).expect("small");
    let mut seen = Seen {
        offsets: vec![Vec::new(); count],
        errors: vec![None; count],
    };
    // One after the other: the error event of this client does not say which partition it is about.
    for &partition in partitions {
        let slot = usize::try_from(partition).expect("small");
        let mut assignment = TopicPartitionList::new();
        assignment
            .add_partition_offset(TOPIC, partition, Offset::Offset(from))
            .expect("a valid offset");
        consumer.assign(&assignment).expect("assigned");
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "partition {partition} hangs");
            match consumer.poll(std::time::Duration::from_millis(200)) {
                None => {}
                Some(Ok(message)) => {
                    assert_eq!(message.partition(), partition);
                    let expected = value(partition, message.offset());
                    assert_eq!(message.payload(), Some(expected.as_bytes()));
                    seen.offsets[slot].push(message.offset());
                }
                Some(Err(KafkaError::PartitionEOF(_))) => break,
                Some(Err(KafkaError::MessageConsumption(code))) => {
                    seen.errors[slot] = Some(code);
                    break;
                }
                Some(Err(error)) => panic!("partition {partition}: {error}"),
            }
        }
    }
    seen
}

#[test]
fn a_flipped_byte_is_an_error_of_its_partition_alone_and_the_log_says_where() {
    if let Some(reason) = not_embedded("the format of segment files") {
        return inapplicable(&reason);
    }
    let mut broker = Broker::start();
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, TOPIC, PARTITIONS);
    // A batch for each record, so that only one of them is hit.
    for offset in 0..RECORDS {
        let records: Vec<Record> = (0..PARTITIONS)
            .map(|partition| Record::to(partition, value(partition, offset)))
            .collect();
        for (partition, at) in rd::produce(&bootstrap, TOPIC, &[], &records) {
            assert_eq!(at, offset, "partition {partition}");
        }
    }
    assert!(broker.stop().expect("it stops").success());
    let needle = value(HIT.0, HIT.1);
    let (path, place) = flip(&broker.data().join("ledgers"), needle.as_bytes());
    broker.restart();

    let seen = read(&bootstrap, &[0, 1, 2], 0);
    let all: Vec<i64> = (0..RECORDS).collect();
    let before: Vec<i64> = (0..HIT.1).collect();
    assert_eq!(seen.offsets, [all.clone(), before, all]);
    assert_eq!(
        seen.errors,
        [None, Some(RDKafkaErrorCode::InvalidMessage), None],
        "CORRUPT_MESSAGE"
    );

    // What lies behind the damage is not lost, and the partition still takes writes.
    let seen = read(&bootstrap, &[HIT.0], HIT.1 + 1);
    let behind: Vec<i64> = (HIT.1 + 1..RECORDS).collect();
    assert_eq!((&seen.offsets[1], seen.errors[1]), (&behind, None));
    let next = Record::to(HIT.0, value(HIT.0, RECORDS));
    assert_eq!(
        rd::produce(&bootstrap, TOPIC, &[], &[next]),
        [(HIT.0, RECORDS)]
    );

    let file = path.file_name().expect("a name").to_string_lossy();
    let line = eventually("a line of the log", PATIENCE, || {
        let log = broker.log();
        let found = log
            .lines()
            .find(|line| line.contains(&*file) && line.contains("damaged"))?;
        Some(found.to_owned())
    });
    let told: usize = line
        .split("at offset ")
        .nth(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect())
        .and_then(|digits: String| digits.parse().ok())
        .unwrap_or_else(|| panic!("no offset in {line}"));
    assert!(
        told < place && place - told < 512,
        "{line}, but the byte lies at {place}"
    );
}
