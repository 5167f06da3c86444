//! The standalone broker: `kop standalone` serves the plugins of `protocols/` on the embedded store, `kop inspect` prints
//! what lies in it.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use host_shim::config::{HostConfig, Sources};
use host_shim::embedded::EmbeddedBroker;
use host_shim::host::{Broker, BrokerHost};
use host_shim::inspect::{InspectError, Inspection, What, inspect};
use host_shim::logging;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What `conf/standalone.conf` said when this was built: read when no file is named.
const BUILT_IN: &str = include_str!("../../../conf/standalone.conf");
/// The host's own runtime serves the web port and signals only; plugins and the store have threads of their own.
const WORKER_THREADS: usize = 1;
/// Exit code after a second signal, as a shell reports SIGINT.
const INTERRUPTED: i32 = 130;

/// A broker for protocol handler plugins.
#[derive(Parser)]
#[command(name = "kop", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts a broker on this machine, with its data in one directory.
    Standalone(Standalone),
    /// Prints what a data directory holds, while no broker uses it. Changes nothing.
    Inspect(Inspect),
}

#[derive(Args)]
struct Standalone {
    /// A file of settings, key=value as in Pulsar's broker.conf. Without it: conf/standalone.conf as it was when this was built.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the data lies. Goes before `dataDirectory` of the file.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// One setting; may be repeated. Goes before everything else.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

#[derive(Args)]
struct Inspect {
    /// The data directory.
    #[arg(long, value_name = "DIR", default_value = "data", global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What `kop inspect` prints; without one, the topics.
#[derive(Subcommand)]
enum Part {
    /// Topics, partitions, properties and cursors.
    Topics,
    /// Ledgers and their files, each read and checked.
    Ledgers,
    /// Entries of a topic or partition: positions, indexes, sizes, checksums, record batches.
    Entries {
        /// A full name, or the part behind `persistent://public/default/`.
        topic: String,
        /// First index (offset).
        #[arg(long, default_value_t = 0)]
        from: i64,
        /// Most entries.
        #[arg(long, default_value_t = 100)]
        limit: u64,
        /// Print the records of each batch too, unless it is compressed.
        #[arg(long)]
        records: bool,
    },
    /// Consumer groups and their committed offsets.
    Groups,
    /// The metadata store.
    Metadata,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err("give it as key=value".to_owned()),
    }
}

fn main() -> ExitCode {
    let started = Instant::now();
    let ended = match Arguments::parse().command {
        Command::Standalone(arguments) => standalone(arguments, started),
        Command::Inspect(arguments) => print(arguments),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn print(arguments: Inspect) -> Result<ExitCode, Box<dyn Error>> {
    let what = match arguments.part {
        None | Some(Part::Topics) => What::Topics,
        Some(Part::Ledgers) => What::Ledgers,
        Some(Part::Entries {
            topic,
            from,
            limit,
            records,
        }) => What::Entries {
            topic,
            from,
            limit,
            records,
        },
        Some(Part::Groups) => What::Groups,
        Some(Part::Metadata) => What::Metadata,
    };
    let inspection = Inspection {
        data_dir: arguments.data_dir,
        what,
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let printed = inspect(&inspection, &mut out);
    let damaged = match printed.and_then(|damaged| Ok(out.flush().map(|()| damaged)?)) {
        // `kop inspect … | head` has seen enough.
        Err(InspectError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => 0,
        printed => printed?,
    };
    if damaged > 0 {
        eprintln!("error: {damaged} damaged places");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn configuration(arguments: Standalone) -> Result<HostConfig, Box<dyn Error>> {
    let sources = Sources {
        text: None,
        data_dir: arguments.data_dir,
        set: arguments.set,
    };
    let sources = match arguments.config {
        Some(path) => sources.file(&path)?,
        None => Sources {
            text: Some((
                PathBuf::from("built-in standalone.conf"),
                BUILT_IN.to_owned(),
            )),
            ..sources
        },
    };
    Ok(sources.load()?)
}

fn standalone(arguments: Standalone, started: Instant) -> Result<ExitCode, Box<dyn Error>> {
    let config = configuration(arguments)?;
    logging::to_stderr(&config.log_level);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let embedded = config.embedded();
        let host = BrokerHost::builder(config).prepare()?;
        let store = EmbeddedBroker::open(embedded)?;
        let broker = tokio::select! {
            broker = host.start(Arc::new(store)) => broker?,
            name = signals.next() => {
                tracing::info!("{name} before the start was complete");
                return Ok(ExitCode::FAILURE);
            }
        };
        announce(&broker, started);
        let name = signals.next().await;
        tracing::info!("{name}: stopping; a second signal ends at once");
        tokio::select! {
            clean = broker.stop() => {
                Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            name = signals.next() => {
                tracing::warn!("{name} again: ending at once");
                std::process::exit(INTERRUPTED);
            }
        }
    });
    // A plugin that did not close in time must not hold up the end.
    runtime.shutdown_background();
    ended
}

/// Says, on the only line of stdout, where connections are accepted.
fn announce(broker: &Broker, started: Instant) {
    let took_ms = started.elapsed().as_millis();
    let line = format!(
        "accepting connections: {} (started in {took_ms} ms)\n",
        broker.summary()
    );
    // Whoever closed stdout does not want to know.
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(line.as_bytes());
    let _ = stdout.flush();
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The name of the next one.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
