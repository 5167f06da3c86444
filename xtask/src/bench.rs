//! `cargo xtask bench`: builds the broker and the benchmark in release mode and runs it.

use std::process::{Command, ExitCode};

use clap::Args;

use crate::{root, target};

#[derive(Args)]
pub(crate) struct Bench {
    /// Arguments of the benchmark: rounds, records, what to compare.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(asked: &Bench) -> ExitCode {
    match start(asked) {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn start(asked: &Bench) -> Result<ExitCode, String> {
    let root = root()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages = [
        "--package",
        "kop-handler",
        "--package",
        "host-shim",
        "--package",
        "kop-tests",
    ];
    let mut build = Command::new(cargo);
    build
        .current_dir(&root)
        .args(["build", "--release"])
        .args(packages);
    let built = build
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !built.success() {
        return Err("the build failed".to_owned());
    }
    let mut bench = Command::new(target(&root).join("release/bench"));
    bench
        .current_dir(&root)
        .env("KOP_TEST_BUILT", "1")
        .args(&asked.arguments);
    let status = bench
        .status()
        .map_err(|error| format!("cannot run the benchmark: {error}"))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
