//! The producing half: the topic, and N rows as fast as librdkafka takes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kop_examples::clicks::{Rows, user};
use rdkafka::ClientConfig;
use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use crate::{Arguments, Key, rate};

/// How long one administrative step may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many rows are queued between two looks at the acknowledgements.
const POLL_EVERY: u64 = 512;
/// How often progress is told.
const TELL: Duration = Duration::from_secs(5);

/// Creates the topic unless it exists; returns how many partitions it has.
pub(crate) fn ensure_topic(arguments: &Arguments) -> Result<i32, String> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &arguments.bootstrap);
    let admin: AdminClient<DefaultClientContext> =
        config.create().map_err(|error| error.to_string())?;
    let topic = NewTopic::new(
        &arguments.topic,
        arguments.partitions,
        TopicReplication::Fixed(1),
    );
    let options = AdminOptions::new()
        .operation_timeout(Some(PATIENCE))
        .request_timeout(Some(PATIENCE));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let created = runtime
        .block_on(admin.create_topics([&topic], &options))
        .map_err(|error| error.to_string())?;
    match created.first() {
        Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {}
        Some(Err((name, code))) => return Err(format!("topic {name}: {code}")),
        None => return Err("no answer to CreateTopics".to_owned()),
    }
    let consumer: BaseConsumer = config.create().map_err(|error| error.to_string())?;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let metadata = consumer
            .fetch_metadata(Some(&arguments.topic), PATIENCE)
            .map_err(|error| error.to_string())?;
        if let Some(found) = metadata.topics().first()
            && !found.partitions().is_empty()
            && found
                .partitions()
                .iter()
                .all(|partition| partition.leader() >= 0)
        {
            return i32::try_from(found.partitions().len()).map_err(|error| error.to_string());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!(
        "topic {} has no leaders after {PATIENCE:?}",
        arguments.topic
    ))
}

/// Counts acknowledgements.
#[derive(Default)]
struct Acknowledged {
    rows: AtomicU64,
    failures: AtomicU64,
}

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => self.rows.fetch_add(1, Ordering::Relaxed),
            Err((error, _)) => {
                eprintln!("a row was not accepted: {error}");
                self.failures.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

/// Produces the rows and waits until each is acknowledged.
pub(crate) fn produce(arguments: &Arguments) -> Result<(), String> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &arguments.bootstrap)
        .set("client.id", "click-log");
    config
        .set("compression.type", &arguments.compression)
        .set("acks", "all")
        .set("enable.idempotence", "true");
    for (key, value) in &arguments.producer {
        config.set(key, value);
    }
    let producer: BaseProducer<Acknowledged> = config
        .create_with_context(Acknowledged::default())
        .map_err(|error| error.to_string())?;
    let start = Instant::now();
    let mut told = start;
    let mut rows = Rows::default();
    let mut key = String::new();
    for number in 0..arguments.records {
        key.clear();
        match arguments.key {
            Key::None => {}
            Key::User => key.push_str(&user(number).to_string()),
            Key::Row => key.push_str(&number.to_string()),
        }
        send(&producer, &arguments.topic, rows.row(number), &key)?;
        if number % POLL_EVERY == 0 {
            producer.poll(Duration::ZERO);
            if told.elapsed() > TELL {
                told = Instant::now();
                println!(
                    "produced {number} rows, {} rows/s",
                    rate(number, start.elapsed().as_secs_f64())
                );
            }
        }
    }
    producer
        .flush(Duration::from_secs(300))
        .map_err(|error| format!("not every row was answered: {error}"))?;
    let acknowledged = producer.context().rows.load(Ordering::Relaxed);
    let failures = producer.context().failures.load(Ordering::Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "produced {acknowledged} rows in {seconds:.1} s: {} rows/s",
        rate(acknowledged, seconds)
    );
    if failures > 0 || acknowledged != arguments.records {
        return Err(format!(
            "{failures} rows were not accepted, {acknowledged} of {} were",
            arguments.records
        ));
    }
    Ok(())
}

fn send(
    producer: &BaseProducer<Acknowledged>,
    topic: &str,
    row: &[u8],
    key: &str,
) -> Result<(), String> {
    loop {
        let mut record: BaseRecord<'_, str, [u8]> = BaseRecord::to(topic).payload(row);
        if !key.is_empty() {
            record = record.key(key);
        }
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                producer.poll(Duration::from_millis(5));
            }
            Err((error, _)) => return Err(error.to_string()),
        }
    }
}
