//! The two clients, with the same rows and the same settings: librdkafka in this process, Java in one of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kop_examples::clicks;
use kop_tests::rd;
use kop_tests::tools::{self, Kafka};
use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use crate::ClientKind;

/// How many different rows there are; they are sent in turn, so that making them costs the client nothing.
const ROWS: u64 = 100_000;
/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(900);

/// The rows of the click log that are produced.
pub(crate) struct Rows {
    rows: Vec<Vec<u8>>,
    file: PathBuf,
}

impl Rows {
    /// Makes the rows, and a file of them for the Java client.
    pub(crate) fn write(file: &Path) -> Result<Self, String> {
        let mut maker = clicks::Rows::default();
        let rows: Vec<Vec<u8>> = (0..ROWS).map(|number| maker.row(number).to_vec()).collect();
        let text = rows.join(&b'\n');
        std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self {
            rows,
            file: file.to_owned(),
        })
    }

    fn at(&self, number: u64) -> &[u8] {
        let slot = usize::try_from(number % ROWS).unwrap_or_default();
        self.rows.get(slot).map(Vec::as_slice).unwrap_or_default()
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    pub(crate) records: u64,
    pub(crate) took: Duration,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Run {
    pub(crate) fn rate(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// A client of one broker. Each run calls its `start` when everything is set up and the work begins.
pub(crate) struct Client {
    bootstrap: String,
    java: Option<Kafka>,
}

impl Client {
    pub(crate) fn new(kind: ClientKind, bootstrap: &str) -> Result<Self, String> {
        let java = if kind == ClientKind::Java {
            Some(tools::kafka()?)
        } else {
            None
        };
        Ok(Self {
            bootstrap: bootstrap.to_owned(),
            java,
        })
    }

    /// Produces `records` rows with acks=all and waits for every acknowledgement.
    pub(crate) fn produce(
        &self,
        topic: &str,
        records: u64,
        rows: &Rows,
        settings: &[(&str, &str)],
        start: &dyn Fn(),
    ) -> Result<Run, String> {
        match &self.java {
            Some(kafka) => {
                let file = rows.file.display().to_string();
                let mut arguments = vec![
                    "produce".to_owned(),
                    self.bootstrap.clone(),
                    topic.to_owned(),
                    records.to_string(),
                    file,
                ];
                arguments.extend(settings.iter().map(|(key, value)| format!("{key}={value}")));
                java(kafka, &arguments, start)
            }
            None => produce(&self.bootstrap, topic, records, rows, settings, None, start),
        }
    }

    /// Produces at a fixed rate and tells how long acknowledgements took.
    pub(crate) fn rate(
        &self,
        topic: &str,
        records: u64,
        rows: &Rows,
        per_second: u64,
        start: &dyn Fn(),
    ) -> Result<Run, String> {
        match &self.java {
            Some(kafka) => {
                let numbers = [
                    records.to_string(),
                    rows.file.display().to_string(),
                    per_second.to_string(),
                ];
                let mut arguments =
                    vec!["rate".to_owned(), self.bootstrap.clone(), topic.to_owned()];
                arguments.extend(numbers);
                java(kafka, &arguments, start)
            }
            None => produce(
                &self.bootstrap,
                topic,
                records,
                rows,
                &[],
                Some(per_second),
                start,
            ),
        }
    }

    /// Consumes `records` rows as the only member of a group.
    pub(crate) fn consume(
        &self,
        topic: &str,
        records: u64,
        start: &dyn Fn(),
    ) -> Result<Run, String> {
        match &self.java {
            Some(kafka) => {
                let arguments =
                    ["consume", &self.bootstrap, topic, &records.to_string()].map(str::to_owned);
                java(kafka, &arguments, start)
            }
            None => consume(&self.bootstrap, topic, records, start),
        }
    }
}

/// Counts acknowledgements, and keeps how long each took if asked to.
#[derive(Default)]
struct Acknowledged {
    failures: AtomicU64,
    timing: Option<Timing>,
}

/// How long acknowledgements took, in nanoseconds.
struct Timing {
    start: Instant,
    latencies: Mutex<Vec<usize>>,
}

impl Timing {
    fn elapsed(&self) -> usize {
        usize::try_from(self.start.elapsed().as_nanos()).unwrap_or(usize::MAX)
    }
}

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    /// Nanoseconds from the run's start to the sending, or `usize::MAX` where it does not matter.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: usize) {
        if result.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(timing) = &self.timing
            && let Ok(mut latencies) = timing.latencies.lock()
        {
            latencies.push(timing.elapsed().saturating_sub(sent));
        }
    }
}

fn produce(
    bootstrap: &str,
    topic: &str,
    records: u64,
    rows: &Rows,
    settings: &[(&str, &str)],
    per_second: Option<u64>,
    start: &dyn Fn(),
) -> Result<Run, String> {
    let mut config = rd::config(bootstrap, &[("acks", "all")]);
    for (key, value) in settings {
        config.set(*key, *value);
    }
    let timing = per_second.map(|_| Timing {
        start: Instant::now(),
        latencies: Mutex::default(),
    });
    let context = Acknowledged {
        timing,
        ..Acknowledged::default()
    };
    let producer: BaseProducer<Acknowledged> = config
        .create_with_context(context)
        .map_err(|error| error.to_string())?;
    producer
        .client()
        .fetch_metadata(Some(topic), LIMIT)
        .map_err(|error| error.to_string())?;
    start();
    let began = Instant::now();
    for number in 0..records {
        if let Some(per_second) = per_second {
            let due =
                Duration::from_nanos(number.saturating_mul(1_000_000_000) / per_second.max(1));
            while began.elapsed() < due {
                producer.poll(Duration::from_micros(200));
            }
        }
        send(&producer, topic, rows.at(number))?;
        if number % 256 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(LIMIT).map_err(|error| error.to_string())?;
    let took = began.elapsed();
    let failures = producer.context().failures.load(Ordering::Relaxed);
    if failures > 0 {
        return Err(format!("{failures} records of {topic} were not accepted"));
    }
    let mut run = Run {
        records,
        took,
        ..Run::default()
    };
    if let Some(timing) = &producer.context().timing
        && let Ok(mut latencies) = timing.latencies.lock()
    {
        latencies.sort_unstable();
        let at = |share: usize| {
            let nanoseconds = latencies
                .get(latencies.len() * share / 100)
                .copied()
                .unwrap_or_default();
            Duration::from_nanos(nanoseconds as u64)
        };
        (run.p50, run.p99) = (at(50), at(99));
    }
    Ok(run)
}

fn send(producer: &BaseProducer<Acknowledged>, topic: &str, row: &[u8]) -> Result<(), String> {
    loop {
        let sent = producer
            .context()
            .timing
            .as_ref()
            .map_or(usize::MAX, Timing::elapsed);
        let record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(topic, sent).payload(row);
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                producer.poll(Duration::from_millis(1))
            }
            Err((error, _)) => return Err(error.to_string()),
        }
    }
}

fn consume(bootstrap: &str, topic: &str, records: u64, start: &dyn Fn()) -> Result<Run, String> {
    let group = format!("{topic}-librdkafka");
    let settings = [
        ("group.id", group.as_str()),
        ("auto.offset.reset", "earliest"),
    ];
    let consumer: BaseConsumer = rd::config(bootstrap, &settings)
        .create()
        .map_err(|error| error.to_string())?;
    start();
    let asked = Instant::now();
    consumer
        .subscribe(&[topic])
        .map_err(|error| error.to_string())?;
    let (mut seen, mut first) = (0, None);
    while seen < records {
        match consumer.poll(Duration::from_millis(500)) {
            None => {}
            Some(Ok(_)) => {
                first.get_or_insert_with(Instant::now);
                seen += 1;
            }
            Some(Err(error)) => return Err(error.to_string()),
        }
        if seen % 65_536 == 0 && asked.elapsed() > LIMIT {
            return Err(format!(
                "only {seen} of {records} records of {topic} were consumed"
            ));
        }
    }
    Ok(Run {
        records,
        took: first.unwrap_or(asked).elapsed(),
        ..Run::default()
    })
}

/// Runs the Java client: waits until it is ready, starts it, reads what it measured.
fn java(kafka: &Kafka, arguments: &[String], start: &dyn Fn()) -> Result<Run, String> {
    let mut command: Command = kafka.measuring_program("BenchClient");
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut child = command
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let measured = talk(&mut child, start);
    let status = child.wait().map_err(|error| error.to_string())?;
    let measured = measured?;
    if !status.success() {
        return Err(format!("the Java client ended with {status}"));
    }
    Ok(measured)
}

fn talk(child: &mut std::process::Child, start: &dyn Fn()) -> Result<Run, String> {
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the Java client has no pipes".to_owned());
    };
    let mut lines = BufReader::new(stdout).lines();
    let mut next = || -> Result<String, String> {
        let line = lines.next().ok_or("the Java client ended early")?;
        line.map_err(|error| error.to_string())
    };
    while next()? != "ready" {}
    start();
    stdin.write_all(b"\n").map_err(|error| error.to_string())?;
    let line = next()?;
    let measured: serde_json::Value =
        serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
    let number = |key: &str| {
        measured
            .get(key)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or_default()
    };
    if number("failed") > 0 {
        return Err(format!("the Java client: {line}"));
    }
    let seconds = measured
        .get("seconds")
        .and_then(serde_json::Value::as_f64)
        .unwrap_or_default();
    Ok(Run {
        records: number("records"),
        took: Duration::from_secs_f64(seconds),
        p50: Duration::from_micros(number("p50_us")),
        p99: Duration::from_micros(number("p99_us")),
    })
}
