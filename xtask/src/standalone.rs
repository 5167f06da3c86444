//! `cargo standalone`: build, put the plugin into `protocols/`, become the broker.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use crate::{root, target};

const PLUGIN: &str = "libkop_handler.so";
const CONFIG: &str = "conf/standalone.conf";

#[derive(Args)]
pub(crate) struct Standalone {
    /// Build only: put the plugin into protocols/ and stop.
    #[arg(long)]
    build_only: bool,
    /// Arguments of `kop standalone`: --config, --data-dir, --set key=value.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(asked: Standalone) -> ExitCode {
    match start(asked) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(asked: Standalone) -> Result<ExitCode, String> {
    let root = root()?;
    let target = build(&root)?;
    install(&target.join(PLUGIN), &root.join("protocols"))
        .map_err(|error| format!("cannot put {PLUGIN} into protocols/: {error}"))?;
    if asked.build_only {
        return Ok(ExitCode::SUCCESS);
    }
    let names_config =
        |argument: &String| argument == "--config" || argument.starts_with("--config=");
    let mut broker = Command::new(target.join("kop"));
    broker.current_dir(&root).arg("standalone");
    if !asked.arguments.iter().any(names_config) {
        broker.args(["--config", CONFIG]);
    }
    // In place of this process, so that signals reach the broker itself.
    let error = broker.args(&asked.arguments).exec();
    Err(format!("cannot start the broker: {error}"))
}

/// Builds both sides; returns where they lie.
fn build(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages = ["--package", "kop-handler", "--package", "host-shim"];
    let status = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--release"])
        .args(packages)
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err("the build failed".to_owned());
    }
    Ok(target(root).join("release"))
}

/// Copies beside the target and renames over it: a running broker keeps the file that it has mapped.
fn install(plugin: &Path, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let new = directory.join(format!("{PLUGIN}.new"));
    std::fs::copy(plugin, &new)?;
    std::fs::rename(&new, directory.join(PLUGIN))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        asked: Standalone,
    }

    fn parse(line: &[&str]) -> Standalone {
        let words = ["standalone"].iter().chain(line);
        Line::try_parse_from(words).unwrap().asked
    }

    #[test]
    fn arguments_of_the_broker_pass_through() {
        let line = ["--data-dir", "d", "--set", "a=b", "--set=c=d"];
        let asked = parse(&line);
        assert!(!asked.build_only);
        assert_eq!(asked.arguments, line);
        let asked = parse(&["--set", "a=b", "--build-only"]);
        assert_eq!(asked.arguments.len(), 3, "what follows is the broker's");
    }

    #[test]
    fn building_only_is_an_option_of_our_own() {
        let asked = parse(&["--build-only"]);
        assert!(asked.build_only && asked.arguments.is_empty());
    }

    #[test]
    fn a_plugin_is_put_in_place_by_renaming() {
        let directory = std::env::temp_dir().join(format!("xtask-install-{}", std::process::id()));
        let built = directory.join("built.so");
        std::fs::create_dir_all(&directory).unwrap();
        let protocols = directory.join("protocols");
        for content in ["first", "second"] {
            std::fs::write(&built, content).unwrap();
            install(&built, &protocols).unwrap();
            let installed = std::fs::read_to_string(protocols.join(PLUGIN)).unwrap();
            assert_eq!(installed, content);
        }
        assert_eq!(std::fs::read_dir(&protocols).unwrap().count(), 1);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
