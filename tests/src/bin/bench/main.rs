//! Our broker beside Apache Kafka on one machine: the same clients, the same records, the same durability, in turn.
//!
//! Run it as `cargo xtask bench -- --help`, which builds everything in release mode first.

mod clients;
mod report;
mod subject;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use kop_tests::tools;

use crate::clients::Client;
use crate::report::{Figure, Results};
use crate::subject::Subject;

/// A broker to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Kind {
    /// Apache Kafka 4.3.1, default settings, one node.
    Kafka,
    /// Ours.
    Kop,
}

/// A client to measure with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum ClientKind {
    Librdkafka,
    Java,
}

/// Measures our broker beside Apache Kafka.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often each broker is started, warmed and measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Records of one produce or consume run.
    #[arg(long, default_value_t = 5_000_000)]
    records: u64,
    /// Records that go through each broker before it is measured: Kafka's code is only then compiled.
    #[arg(long, default_value_t = 20_000_000)]
    warm_records: u64,
    /// Partitions of each topic.
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Records per second of the run at a fixed rate.
    #[arg(long, default_value_t = 20_000)]
    rate: u64,
    /// Seconds of the run at a fixed rate; 0 leaves it out.
    #[arg(long, default_value_t = 15)]
    rate_seconds: u64,
    /// GiB of memory touched before each run, so that its first touch is not charged to a broker.
    #[arg(long, default_value_t = 3)]
    touch_gib: usize,
    /// Which brokers.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "kafka,kop")]
    brokers: Vec<Kind>,
    /// Which clients.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "librdkafka,java"
    )]
    clients: Vec<ClientKind>,
    /// Fails if a target of the project is missed.
    #[arg(long)]
    check: bool,
    /// Where the results are written, as text and as JSON; `target/bench` if not given.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// The producers' settings that are compared.
const SETTINGS: [(&str, &[(&str, &str)]); 2] = [
    ("default", &[]),
    (
        "batch 128K linger 10",
        &[("batch.size", "131072"), ("linger.ms", "10")],
    ),
];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(met) if met || !arguments.check => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("bench: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| tools::target().join("bench"));
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let rows = clients::Rows::write(&out.join("rows"))?;
    let mut results = Results::default();
    for round in 0..arguments.rounds {
        // The one that comes first changes, so that neither always has the fresher machine.
        let mut kinds = arguments.brokers.clone();
        kinds.sort();
        if round % 2 == 1 {
            kinds.reverse();
        }
        for kind in kinds {
            println!("round {} of {}: {kind:?}", round + 1, arguments.rounds);
            measure(arguments, kind, round, &rows, &mut results)?;
        }
    }
    let met = results.write(&out, arguments.records, arguments.rounds)?;
    println!("written to {}", out.display());
    Ok(met)
}

/// One broker, started, warmed and measured with every client and setting.
fn measure(
    arguments: &Arguments,
    kind: Kind,
    round: usize,
    rows: &clients::Rows,
    results: &mut Results,
) -> Result<(), String> {
    touch(arguments.touch_gib);
    let subject = Subject::start(kind)?;
    results.add(
        kind,
        "start-up",
        Figure::Milliseconds,
        subject.started_in().as_secs_f64() * 1e3,
    );
    let bootstrap = subject.bootstrap();
    warm(arguments, &subject, rows)?;
    for &client_kind in &arguments.clients {
        let client = Client::new(client_kind, &bootstrap)?;
        for (settings_name, settings) in SETTINGS {
            let name = format!("{client_kind:?}, {settings_name}").to_lowercase();
            let topic = format!("bench-{}-{}", name.replace([' ', ','], "-"), round);
            subject.create_topic(&topic, arguments.partitions);
            touch(arguments.touch_gib);
            let (produced, cpu) = subject.charged(|start| {
                client.produce(&topic, arguments.records, rows, settings, start)
            })?;
            results.add(
                kind,
                &format!("produce, {name}"),
                Figure::RecordsPerSecond,
                produced.rate(),
            );
            results.add(
                kind,
                &format!("produce, {name}"),
                Figure::CpuPerRecord,
                per_record(cpu, produced.records),
            );
            touch(arguments.touch_gib);
            let (consumed, cpu) =
                subject.charged(|start| client.consume(&topic, arguments.records, start))?;
            results.add(
                kind,
                &format!("consume, {name}"),
                Figure::RecordsPerSecond,
                consumed.rate(),
            );
            results.add(
                kind,
                &format!("consume, {name}"),
                Figure::CpuPerRecord,
                per_record(cpu, consumed.records),
            );
            subject.delete_topic(&topic);
        }
        if arguments.rate_seconds > 0 {
            let name = format!("{client_kind:?}").to_lowercase();
            let topic = format!("rate-{name}-{round}");
            subject.create_topic(&topic, arguments.partitions);
            let records = arguments.rate * arguments.rate_seconds;
            let (steady, cpu) = subject
                .charged(|start| client.rate(&topic, records, rows, arguments.rate, start))?;
            let row = format!("{} records/s, {name}", arguments.rate);
            results.add(kind, &row, Figure::P50, steady.p50.as_secs_f64() * 1e3);
            results.add(kind, &row, Figure::P99, steady.p99.as_secs_f64() * 1e3);
            results.add(
                kind,
                &row,
                Figure::CpuPerRecord,
                per_record(cpu, steady.records),
            );
            subject.delete_topic(&topic);
        }
    }
    let (peak, anonymous) = subject.memory();
    results.add(
        kind,
        "memory",
        Figure::PeakRss,
        peak as f64 / f64::from(1 << 20),
    );
    results.add(
        kind,
        "memory",
        Figure::PeakAnonymous,
        anonymous as f64 / f64::from(1 << 20),
    );
    subject.stop()
}

/// Produces and consumes before anything is measured.
fn warm(arguments: &Arguments, subject: &Subject, rows: &clients::Rows) -> Result<(), String> {
    if arguments.warm_records == 0 {
        return Ok(());
    }
    subject.create_topic("warm", arguments.partitions);
    let client = Client::new(ClientKind::Librdkafka, &subject.bootstrap())?;
    client.produce("warm", arguments.warm_records, rows, &[], &|| {})?;
    client.consume("warm", arguments.warm_records, &|| {})?;
    subject.delete_topic("warm");
    Ok(())
}

fn per_record(cpu: Duration, records: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / records.max(1) as f64
}

/// Touches memory and lets it go: a virtual machine may have given its free memory back to its host, and whoever
/// touches it first pays for getting it again.
fn touch(gib: usize) {
    let mut memory = vec![0_u8; gib << 30];
    for page in memory.chunks_mut(4_096) {
        if let Some(first) = page.first_mut() {
            *first = 1;
        }
    }
    std::hint::black_box(&memory);
}
