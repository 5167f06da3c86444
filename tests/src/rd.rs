//! Short forms of what tests do with librdkafka (through `rdkafka`): topics, producing with every acknowledgement
//! looked at, consuming to an end.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

/// A generous bound for one operation on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs one future to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => panic!("no runtime: {error}"),
    }
}

/// A configuration with these settings.
pub fn config(bootstrap: &str, settings: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    for (key, value) in settings {
        config.set(*key, *value);
    }
    config
}

/// An admin client.
#[track_caller]
pub fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    config(bootstrap, &[]).create().expect("an admin client")
}

/// The options of an admin request: waits until the operation is done.
pub fn admin_options() -> AdminOptions {
    AdminOptions::new()
        .operation_timeout(Some(PATIENCE))
        .request_timeout(Some(PATIENCE))
}

/// Creates a topic, or answers the broker's error.
pub fn try_create_topic(
    bootstrap: &str,
    topic: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<(), RDKafkaErrorCode> {
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (key, value) in configs {
        new = new.set(key, value);
    }
    let results = block_on(admin(bootstrap).create_topics([&new], &admin_options()))
        .expect("an answer to CreateTopics");
    results
        .into_iter()
        .next()
        .expect("one result")
        .map(|_| ())
        .map_err(|(_, code)| code)
}

/// Creates a topic and waits until its metadata shows every partition with a leader.
#[track_caller]
pub fn create_topic(bootstrap: &str, topic: &str, partitions: i32) {
    create_topic_with(bootstrap, topic, partitions, &[]);
}

/// Creates a topic with configs and waits as [`create_topic`] does.
#[track_caller]
pub fn create_topic_with(bootstrap: &str, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
    try_create_topic(bootstrap, topic, partitions, configs).expect("the topic is created");
    let consumer: BaseConsumer = config(bootstrap, &[]).create().expect("a consumer");
    crate::process::eventually("the new topic's metadata", PATIENCE, || {
        let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).ok()?;
        let found = metadata.topics().first()?;
        let led = found
            .partitions()
            .iter()
            .filter(|partition| partition.leader() >= 0)
            .count();
        (led == usize::try_from(partitions).ok()?).then_some(())
    });
}

/// One record to produce.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The partition; by the producer's partitioner if not given.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Milliseconds since the epoch; the producer's clock if not given.
    pub timestamp: Option<i64>,
    /// The headers.
    pub headers: Option<OwnedHeaders>,
}

impl Record {
    /// A record for a partition with a value only.
    pub fn to(partition: i32, value: impl Into<Vec<u8>>) -> Self {
        Self {
            partition: Some(partition),
            value: Some(value.into()),
            ..Self::default()
        }
    }
}

/// Where a record was acknowledged to be, or why it was not accepted.
pub type Acknowledgement = Result<(i32, i64), KafkaError>;

/// Keeps the acknowledgements of a producer by the number of the record.
#[derive(Default)]
pub struct Acknowledgements(Mutex<BTreeMap<usize, Acknowledgement>>);

impl Acknowledgements {
    /// Takes what is known so far.
    pub fn known(&self) -> BTreeMap<usize, Acknowledgement> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl ClientContext for Acknowledgements {}

impl ProducerContext for Acknowledgements {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<usize>) {
        let outcome = match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.clone()),
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(*number, outcome);
    }
}

/// A producer whose acknowledgements are kept.
#[track_caller]
pub fn producer(bootstrap: &str, settings: &[(&str, &str)]) -> BaseProducer<Acknowledgements> {
    config(bootstrap, settings)
        .create_with_context(Acknowledgements::default())
        .expect("a producer")
}

/// Queues one record; waits for room in the producer's queue.
#[track_caller]
pub fn send(
    producer: &BaseProducer<Acknowledgements>,
    topic: &str,
    number: usize,
    record: &Record,
) {
    let start = Instant::now();
    loop {
        let mut base: BaseRecord<'_, [u8], [u8], Box<usize>> =
            BaseRecord::with_opaque_to(topic, Box::new(number));
        base.partition = record.partition;
        base.key = record.key.as_deref();
        base.payload = record.value.as_deref();
        base.timestamp = record.timestamp;
        base.headers = record.headers.clone();
        match producer.send(base) {
            Ok(()) => return,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                if start.elapsed() < PATIENCE =>
            {
                producer.poll(Duration::from_millis(10));
            }
            Err((error, _)) => panic!("record {number} cannot be queued: {error}"),
        }
    }
}

/// Produces the records in order and returns what became of each.
#[track_caller]
pub fn try_produce(
    bootstrap: &str,
    topic: &str,
    settings: &[(&str, &str)],
    records: &[Record],
) -> Vec<Acknowledgement> {
    let producer = producer(bootstrap, settings);
    for (number, record) in records.iter().enumerate() {
        send(&producer, topic, number, record);
    }
    producer.flush(PATIENCE).expect("everything is answered");
    producer.poll(Duration::ZERO);
    let known = producer.context().known();
    assert_eq!(known.len(), records.len(), "every record has an outcome");
    known.into_values().collect()
}

/// Produces the records in order; all must be accepted. Returns (partition, offset) of each.
#[track_caller]
pub fn produce(
    bootstrap: &str,
    topic: &str,
    settings: &[(&str, &str)],
    records: &[Record],
) -> Vec<(i32, i64)> {
    let outcomes = try_produce(bootstrap, topic, settings, records);
    outcomes
        .into_iter()
        .map(|outcome| outcome.expect("the record is acknowledged"))
        .collect()
}

/// Numbered values for a partition: `v0`, `v1`, …
pub fn numbered(partition: i32, numbers: std::ops::Range<usize>) -> Vec<Record> {
    numbers
        .map(|number| Record::to(partition, format!("v{number}")))
        .collect()
}

/// A consumed record: partition, offset, key, value.
pub type Consumed = (i32, i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Reads whole partitions from their start to their end, with explicit assignment.
#[track_caller]
pub fn read_all(bootstrap: &str, topic: &str, partitions: i32) -> Vec<Consumed> {
    let settings = [
        ("group.id", "reader"),
        ("enable.partition.eof", "true"),
        ("enable.auto.commit", "false"),
    ];
    let consumer: BaseConsumer = config(bootstrap, &settings).create().expect("a consumer");
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment
            .add_partition_offset(topic, partition, Offset::Beginning)
            .expect("a valid offset");
    }
    consumer.assign(&assignment).expect("assigned");
    let mut open = partitions;
    let mut found = Vec::new();
    let start = Instant::now();
    while open > 0 {
        assert!(
            start.elapsed() < PATIENCE * 2,
            "{topic}: {open} partitions have not ended, {} records read",
            found.len()
        );
        match consumer.poll(Duration::from_millis(500)) {
            None => {}
            Some(Ok(message)) => found.push((
                message.partition(),
                message.offset(),
                message.key().map(<[u8]>::to_vec),
                message.payload().map(<[u8]>::to_vec),
            )),
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(error)) => panic!("{topic}: {error}"),
        }
    }
    found
}

/// The committed offsets of a group for every partition of a topic (-1: none).
#[track_caller]
pub fn committed(bootstrap: &str, group: &str, topic: &str, partitions: i32) -> Vec<i64> {
    let consumer: BaseConsumer = config(bootstrap, &[("group.id", group)])
        .create()
        .expect("a consumer");
    let mut wanted = TopicPartitionList::new();
    wanted.add_partition_range(topic, 0, partitions - 1);
    // A coordinator that is still loading says so: ask again.
    let found = crate::process::eventually("committed offsets", PATIENCE, || {
        consumer.committed_offsets(wanted.clone(), PATIENCE).ok()
    });
    found
        .elements()
        .iter()
        .map(|element| {
            element
                .offset()
                .to_raw()
                .filter(|offset| *offset >= 0)
                .unwrap_or(-1)
        })
        .collect()
}

/// Deletes all groups and topics but the broker's own, or says what stays.
pub fn empty(bootstrap: &str, limit: Duration) -> Result<(), String> {
    let broken = |error: KafkaError| error.to_string();
    let options = AdminOptions::new()
        .operation_timeout(Some(limit))
        .request_timeout(Some(limit));
    let consumer: BaseConsumer = config(bootstrap, &[]).create().map_err(broken)?;
    let admin = admin(bootstrap);
    let listed = consumer.fetch_group_list(None, limit).map_err(broken)?;
    let groups: Vec<&str> = listed.groups().iter().map(|group| group.name()).collect();
    let mut staying = Vec::new();
    if !groups.is_empty() {
        let deleted = block_on(admin.delete_groups(&groups, &options)).map_err(broken)?;
        staying.extend(deleted.into_iter().filter_map(Result::err));
    }
    let metadata = consumer.fetch_metadata(None, limit).map_err(broken)?;
    let names = metadata.topics().iter().map(|topic| topic.name());
    let topics: Vec<&str> = names.filter(|name| !name.starts_with("__")).collect();
    if !topics.is_empty() {
        let deleted = block_on(admin.delete_topics(&topics, &options)).map_err(broken)?;
        staying.extend(deleted.into_iter().filter_map(Result::err));
    }
    match staying.first() {
        None => Ok(()),
        Some((name, code)) => Err(format!("{name} stays: {code}")),
    }
}
