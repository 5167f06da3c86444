//! Commands of this repository, run as `cargo xtask …` or by the aliases in `.cargo/config.toml`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod nar;
mod standalone;
mod step;
mod toolchains;
mod verify;

/// Commands of this repository.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds plugin and host in release mode and starts the standalone broker; further arguments go to it.
    Standalone(standalone::Standalone),
    /// Runs every check: format, lints, documentation, unit, golden, simulation, ABI, and real clients.
    Verify(verify::Verify),
    /// Builds the file that goes into a Pulsar broker's protocols/.
    Nar(nar::Nar),
    /// Measures our broker beside Apache Kafka; `--help` after `--` shows what can be set.
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Standalone(arguments) => standalone::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Nar(arguments) => nar::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    }
}

/// The repository: cargo sets the directory of this package.
fn root() -> Result<PathBuf, String> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("run this through cargo")?;
    let root = Path::new(&package).parent().map(Path::to_owned);
    root.ok_or_else(|| "this package has no parent directory".to_owned())
}

/// Cargo's target directory.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |directory| root.join(directory))
}
