//! One topic, two worlds: what Kafka clients write Pulsar's clients read, and the other way round, with
//! `entryFormat=pulsar` and for topics that Pulsar clients alone write in any format.
//!
//! The clients are Pulsar's own for Python and the `pulsar` crate, which share no line of code.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use kop_tests::broker::{Broker, Flavour, Options};
use kop_tests::or_skip;
use kop_tests::process::run;
use kop_tests::pulsar::release;
use kop_tests::rd::{self, PATIENCE, Record};
use kop_tests::tools::{pulsar_python, pulsar_rust};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};

const KAFKA_CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const PULSAR_CODECS: [&str; 5] = ["none", "lz4", "zlib", "zstd", "snappy"];
/// How long one run of a Pulsar client may take.
const LIMIT: Duration = Duration::from_secs(120);
/// The programs of Pulsar's clients, by name.
const CLIENTS: [(&str, Client); 2] = [("Python's", pulsar_python), ("the crate", pulsar_rust)];

type Client = fn() -> Result<Command, String>;

fn broker(format: &str) -> Result<Broker, String> {
    for (_, client) in CLIENTS {
        client()?;
    }
    let options = Options {
        flavour: Some(Flavour::Pulsar(release()?)),
        ..Options::default()
    };
    Ok(Broker::with(options.set("entryFormat", format)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One of Pulsar's clients at a broker, on partition 0 of a topic.
struct Pulsar<'a> {
    client: Client,
    broker: &'a Broker,
    topic: &'a str,
}

impl Pulsar<'_> {
    fn run(&self, command: &str, arguments: &[&str], input: Option<&str>) -> Vec<Value> {
        let mut program = (self.client)().expect("it was there");
        let topic = format!("persistent://public/default/{}-partition-0", self.topic);
        program.args([&*self.broker.pulsar_url(), command, &topic]);
        program.args(arguments);
        let finished = run(program, input, LIMIT).expect_success(command);
        let lines = finished.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// Writes these messages; all are acknowledged.
    #[track_caller]
    fn writes(&self, codec: &str, batch: usize, messages: &[Value]) {
        let lines: String = messages.iter().map(|it| format!("{it}\n")).collect();
        let ids = self.run("produce", &[codec, &batch.to_string()], Some(&lines));
        assert_eq!(ids.len(), messages.len());
    }

    /// Reads as many messages from the beginning on.
    #[track_caller]
    fn reads(&self, count: usize) -> Vec<Value> {
        let messages = self.run("consume", &[&count.to_string()], None);
        assert_eq!(messages.len(), count);
        messages
    }
}

/// A record as a Kafka client sees it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    offset: i64,
    key: Option<String>,
    value: Option<String>,
    headers: BTreeMap<String, Option<String>>,
    timestamp: Option<i64>,
}

/// What a Kafka client reads of partition 0 from the beginning on.
#[track_caller]
fn kafka_reads(broker: &Broker, topic: &str, count: usize) -> Vec<Seen> {
    let settings = [("group.id", "reader"), ("enable.auto.commit", "false")];
    let consumer: BaseConsumer = rd::config(&broker.bootstrap(), &settings)
        .create()
        .expect("a consumer");
    let mut assignment = TopicPartitionList::new();
    let added = assignment.add_partition_offset(topic, 0, Offset::Beginning);
    added.expect("a valid offset");
    consumer.assign(&assignment).expect("assigned");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let read = |_| {
        let record = consumer.poll(PATIENCE).expect("a record in time");
        let record = record.expect("a record");
        let headers = record.headers().into_iter().flat_map(Headers::iter);
        Seen {
            offset: record.offset(),
            key: record.key().map(text),
            value: record.payload().map(text),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.map(text)))
                .collect(),
            timestamp: record.timestamp().to_millis(),
        }
    };
    (0..count).map(read).collect()
}

const PER_CODEC: usize = 20;
const TIME: i64 = 1_790_000_000_000;

/// What Pulsar's clients must see of the records that the first test writes.
#[track_caller]
fn check_outwards(client: &str, messages: &[Value]) {
    for (place, message) in messages.iter().enumerate() {
        let (codec, number) = (KAFKA_CODECS[place / PER_CODEC], place % PER_CODEC);
        let expected = if number == 7 {
            String::new()
        } else {
            format!("{codec} {number}")
        };
        assert_eq!(
            message["data"],
            hex(expected.as_bytes()),
            "{client}: {message}"
        );
        let key = if number % 2 == 0 {
            format!("k{number}")
        } else {
            String::new()
        };
        assert_eq!(message["ordering_key"], key, "{client}: {message}");
        assert_eq!(message["properties"]["codec"], codec, "{client}: {message}");
        let time = TIME + i64::try_from(place).expect("small");
        assert_eq!(message["event_timestamp"], time, "{client}: {message}");
    }
}

#[test]
fn what_kafka_clients_write_in_the_pulsar_format_pulsars_client_reads() {
    let broker = or_skip!(broker("pulsar"));
    rd::create_topic(&broker.bootstrap(), "outwards", 1);
    for (round, codec) in KAFKA_CODECS.into_iter().enumerate() {
        let records: Vec<Record> = (0..PER_CODEC)
            .map(|number| {
                let headers = OwnedHeaders::new().insert(Header {
                    key: "codec",
                    value: Some(codec),
                });
                Record {
                    partition: Some(0),
                    key: (number % 2 == 0).then(|| format!("k{number}").into_bytes()),
                    value: (number != 7).then(|| format!("{codec} {number}").into_bytes()),
                    timestamp: Some(
                        TIME + i64::try_from(round * PER_CODEC + number).expect("small"),
                    ),
                    headers: Some(headers),
                }
            })
            .collect();
        let settings = [("compression.type", codec), ("linger.ms", "50")];
        rd::produce(&broker.bootstrap(), "outwards", &settings, &records);
    }
    let total = KAFKA_CODECS.len() * PER_CODEC;
    for (name, client) in CLIENTS {
        let pulsar = Pulsar {
            client,
            broker: &broker,
            topic: "outwards",
        };
        check_outwards(name, &pulsar.reads(total));
    }
    // And Kafka clients read it back as it was written.
    let seen = kafka_reads(&broker, "outwards", total);
    for (place, record) in seen.iter().enumerate() {
        let (codec, number) = (KAFKA_CODECS[place / PER_CODEC], place % PER_CODEC);
        assert_eq!(record.offset, i64::try_from(place).expect("small"));
        assert_eq!(
            record.value,
            (number != 7).then(|| format!("{codec} {number}"))
        );
        assert_eq!(record.key, (number % 2 == 0).then(|| format!("k{number}")));
        assert_eq!(record.headers.get("codec"), Some(&Some(codec.to_owned())));
    }
}

#[track_caller]
fn pulsar_messages_are_read(format: &str) {
    let broker = or_skip!(broker(format));
    rd::create_topic(&broker.bootstrap(), "inwards", 1);
    let mut expected = Vec::new();
    let runs = PULSAR_CODECS.map(|codec| [0, 1, 7].map(|batch| (codec, batch)));
    for (round, (codec, batch)) in runs.into_iter().flatten().enumerate() {
        let pulsar = Pulsar {
            client: CLIENTS[round % CLIENTS.len()].1,
            broker: &broker,
            topic: "inwards",
        };
        let messages: Vec<Value> = (0..20)
            .map(|number| {
                json!({
                    "data": hex(format!("{codec} {batch} {number}").as_bytes()),
                    "partition_key": format!("k{number}"),
                    "properties": {"batch": batch.to_string(), "codec": codec},
                    "event_timestamp": 1_790_000_000_000_u64 + number,
                })
            })
            .collect();
        pulsar.writes(codec, batch, &messages);
        for number in 0..20 {
            expected.push((codec, batch, number));
        }
    }
    let seen = kafka_reads(&broker, "inwards", expected.len());
    for (place, (record, (codec, batch, number))) in seen.iter().zip(expected).enumerate() {
        let at = format!("{format}: {record:?}");
        assert_eq!(record.offset, i64::try_from(place).expect("small"), "{at}");
        assert_eq!(
            record.value,
            Some(format!("{codec} {batch} {number}")),
            "{at}"
        );
        assert_eq!(record.key, Some(format!("k{number}")), "{at}");
        assert_eq!(
            record.headers.get("codec"),
            Some(&Some(codec.to_owned())),
            "{at}"
        );
        let size = Some(batch.to_string());
        assert_eq!(record.headers.get("batch"), Some(&size), "{at}");
        assert_eq!(record.timestamp, Some(1_790_000_000_000 + number), "{at}");
    }
}

#[test]
fn what_pulsars_client_writes_batched_or_not_in_each_codec_kafka_clients_read() {
    pulsar_messages_are_read("pulsar");
}

#[test]
fn what_pulsars_client_writes_to_a_topic_of_the_kafka_format_kafka_clients_read_too() {
    pulsar_messages_are_read("kafka");
}

#[test]
fn records_of_both_worlds_in_one_partition_keep_their_order_for_readers_of_both() {
    let broker = or_skip!(broker("pulsar"));
    rd::create_topic(&broker.bootstrap(), "mixed", 1);
    let mut expected = Vec::new();
    for round in 0..3 {
        let records: Vec<Record> = (0..10)
            .map(|number| Record::to(0, format!("kafka {round} {number}")))
            .collect();
        rd::produce(&broker.bootstrap(), "mixed", &[], &records);
        let messages: Vec<Value> = (0..10)
            .map(|number| json!({"data": hex(format!("pulsar {round} {number}").as_bytes())}))
            .collect();
        let pulsar = Pulsar {
            client: CLIENTS[round % CLIENTS.len()].1,
            broker: &broker,
            topic: "mixed",
        };
        pulsar.writes("none", 4, &messages);
        for world in ["kafka", "pulsar"] {
            expected.extend((0..10).map(|number| format!("{world} {round} {number}")));
        }
    }
    let seen = kafka_reads(&broker, "mixed", expected.len());
    let values: Vec<&str> = seen.iter().filter_map(|it| it.value.as_deref()).collect();
    assert_eq!(values, expected);
    let offsets: Vec<i64> = seen.iter().map(|it| it.offset).collect();
    assert_eq!(offsets, (0..60).collect::<Vec<_>>());
    let written: Vec<String> = expected.iter().map(|it| hex(it.as_bytes())).collect();
    for (name, client) in CLIENTS {
        let pulsar = Pulsar {
            client,
            broker: &broker,
            topic: "mixed",
        };
        let messages = pulsar.reads(expected.len());
        let data = messages.iter().filter_map(|it| it["data"].as_str());
        assert_eq!(data.collect::<Vec<_>>(), written, "{name}");
    }
}
