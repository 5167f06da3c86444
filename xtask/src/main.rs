//! Commands of this repository, run as `cargo xtask …` or by the aliases in `.cargo/config.toml`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod standalone;

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
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Standalone(arguments) => standalone::run(arguments),
    }
}
