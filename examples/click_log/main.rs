//! The click-log job: produce N rows of JSON, then load them as Apache Doris' Routine Load does.
//!
//! `cargo run --release --example click_log -- --bootstrap 127.0.0.1:9092 --records 1000000`
//!
//! It exits with 0 only if exactly N rows were loaded and none was in error.

mod load;
mod produce;
mod task;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rdkafka::ClientConfig;

/// Where a job without saved progress begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
enum Start {
    /// At the end as it is before this run produces: only this run's rows.
    OffsetEnd,
    /// At the oldest record: the topic must hold nothing else, or there are more rows than N.
    OffsetBeginning,
}

/// What a record's key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Key {
    /// No key: the producer spreads the records.
    None,
    /// The user: one user's clicks stay in order.
    User,
    /// The number of the row.
    Row,
}

/// Produces a click log and loads it as Doris Routine Load does.
#[derive(Debug, Parser)]
struct Arguments {
    /// A broker, HOST:PORT.
    #[arg(long, default_value = "127.0.0.1:9092")]
    bootstrap: String,
    /// The topic; it is created if it does not exist.
    #[arg(long, default_value = "test")]
    topic: String,
    /// Partitions of a topic that is created.
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// How many rows to produce and to load.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// The key of each record.
    #[arg(long, value_enum, default_value_t = Key::None)]
    key: Key,
    /// none, gzip, snappy, lz4 or zstd.
    #[arg(long, default_value = "none")]
    compression: String,
    /// A setting of librdkafka for the producer, KEY=VALUE; may be given several times.
    #[arg(long = "producer", value_name = "KEY=VALUE", value_parser = setting)]
    producer: Vec<(String, String)>,
    /// A `property.KEY` of the load job: a setting of librdkafka for its consumers; may be given several times.
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = setting)]
    property: Vec<(String, String)>,
    /// Where the load begins (`kafka_default_offsets`).
    #[arg(long, value_enum, default_value_t = Start::OffsetEnd)]
    start: Start,
    /// Load only: the rows are in the topic already (or somebody else produces them).
    #[arg(long)]
    no_produce: bool,
    /// Concurrent tasks (`desired_concurrent_number`).
    #[arg(long, default_value_t = 3)]
    tasks: usize,
    /// A batch is closed after this many seconds (`max_batch_interval`).
    #[arg(long, default_value_t = 20)]
    max_batch_interval: u64,
    /// A batch is closed after this many rows (`max_batch_rows`).
    #[arg(long, default_value_t = 300_000)]
    max_batch_rows: i64,
    /// A batch is closed after this many bytes of values (`max_batch_size`).
    #[arg(long, default_value_t = 209_715_200)]
    max_batch_size: i64,
    /// Gives up when no row was loaded for this many seconds.
    #[arg(long, default_value_t = 60)]
    idle_limit: u64,
}

impl Arguments {
    /// librdkafka's settings of the load's handles, as Doris' backend gives them (`property.*` comes last).
    fn consumer(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        let settings = [
            ("metadata.broker.list", self.bootstrap.as_str()),
            ("group.id", "doris"),
            ("client.id", "doris.client"),
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
        for (key, value) in settings {
            config.set(key, value);
        }
        for (key, value) in &self.property {
            config.set(key, value);
        }
        config
    }

    fn idle_limit(&self) -> Duration {
        Duration::from_secs(self.idle_limit)
    }
}

/// Reads one KEY=VALUE.
fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Records per second.
fn rate(records: u64, seconds: f64) -> u64 {
    (records as f64 / seconds.max(1e-6)) as u64
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let partitions = produce::ensure_topic(arguments)?;
    // The job exists, with its offsets fixed, before the first row is produced.
    let job = load::Job::create(arguments, partitions)?;
    if !arguments.no_produce {
        produce::produce(arguments)?;
    }
    let loaded = job.run()?;
    let seconds = loaded.elapsed.as_secs_f64();
    println!(
        "loaded {} rows, {} error rows, {} bytes in {seconds:.1} s: {} rows/s, {:.1} MB/s; {} tasks, {} offset commits, {} of them failed",
        loaded.rows,
        loaded.errors,
        loaded.bytes,
        rate(loaded.rows, seconds),
        loaded.bytes as f64 / 1e6 / seconds.max(1e-6),
        loaded.tasks,
        loaded.commits,
        loaded.failed_commits,
    );
    let complete = loaded.rows == arguments.records && loaded.errors == 0;
    if !complete {
        println!("expected {} rows and no error row", arguments.records);
    }
    Ok(complete)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("click_log: {problem}");
            ExitCode::FAILURE
        }
    }
}
