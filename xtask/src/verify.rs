//! `cargo verify`: every check of this repository, each step with its time, the totals at the end.
//!
//! Everything is compiled once, in the dev profile and with one set of features: the test programs are built by one
//! `cargo test --no-run` and then run directly, sorted into steps by their names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::toolchains;
use crate::{root, step, target};

/// How long one step may take; the long variants may take `LONG_LIMIT`.
const LIMIT: Duration = Duration::from_secs(30 * 60);
const LONG_LIMIT: Duration = Duration::from_secs(3 * 60 * 60);
/// Tests of one program that run side by side. Those that start brokers and JVMs are many processes each.
const THREADS: usize = 2;
/// How much of a failed step's output is shown, in bytes. The whole is in its log.
const SHOWN: usize = 12 * 1_024;

#[derive(Args)]
pub(crate) struct Verify {
    /// A missing toolchain, or anything else that would be skipped, is a failure.
    #[arg(long)]
    require_all: bool,
    /// Also the full matrices, soaks and kill runs.
    #[arg(long)]
    long: bool,
    /// Only the steps whose name contains this (the build is always done).
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// A built test program.
struct Program {
    step: &'static str,
    name: String,
    executable: PathBuf,
    package: PathBuf,
}

#[derive(Default)]
struct Totals {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
}

impl Totals {
    fn tests(&self) -> usize {
        self.passed + self.failed.len() + self.skipped
    }
}

struct Verifier {
    asked: Verify,
    root: PathBuf,
    cargo: PathBuf,
    logs: PathBuf,
    skips: PathBuf,
    totals: Totals,
    /// Steps that ran, the build apart.
    reported: usize,
}

/// Unit tests that are steps of their own, by words in the tests' names.
const UNIT_PARTS: [(&str, &[&str]); 2] = [
    ("golden", &["golden"]),
    ("simulation", &["simulation", "storm", "sim::"]),
];

/// Steps of test programs, in the order in which they run. The first whose words are in the package's and the program's
/// name takes it.
const STEPS: [(&str, &[&str]); 5] = [
    ("golden", &["golden", "sweep"]),
    ("simulation", &["simul", "sim::", "seeds"]),
    ("abi", &["abi-tests", "contract", "handler-api"]),
    ("interop", &["kop-tests"]),
    ("rooms", &[""]),
];

pub(crate) fn run(asked: Verify) -> ExitCode {
    match Verifier::new(asked).and_then(Verifier::verify) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

impl Verifier {
    fn new(asked: Verify) -> Result<Self, String> {
        let root = root()?;
        let logs = target(&root).join("verify");
        let broken = |error: std::io::Error| format!("{}: {error}", logs.display());
        let _ = std::fs::remove_dir_all(&logs);
        std::fs::create_dir_all(&logs).map_err(broken)?;
        let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        let skips = logs.join("skips");
        Ok(Self {
            asked,
            root,
            cargo,
            logs,
            skips,
            totals: Totals::default(),
            reported: 0,
        })
    }

    fn verify(mut self) -> Result<bool, String> {
        let start = Instant::now();
        self.toolchains();
        self.cargo_step("format", &["fmt", "--all", "--check"], &[]);
        let clippy = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ];
        self.cargo_step("lints", &clippy, &[]);
        let docs = ["doc", "--workspace", "--no-deps"];
        self.cargo_step("documentation", &docs, &[("RUSTDOCFLAGS", "-D warnings")]);
        if let Some(programs) = self.build()? {
            let units: Vec<&Program> = programs
                .iter()
                .filter(|program| program.step == "unit")
                .collect();
            let parts: Vec<&str> = UNIT_PARTS
                .iter()
                .flat_map(|(_, words)| words.iter().copied())
                .collect();
            let rest: Vec<&str> = parts.iter().flat_map(|word| ["--skip", word]).collect();
            for program in &units {
                self.test(program, "unit", &rest);
            }
            self.doc_tests();
            for (step, _) in STEPS {
                let before = self.totals.tests();
                let words = UNIT_PARTS
                    .iter()
                    .find(|(part, _)| *part == step)
                    .map(|(_, words)| *words);
                for program in words.map_or(&[][..], |_| &units[..]) {
                    self.test(program, step, words.unwrap_or_default());
                }
                for program in programs.iter().filter(|program| program.step == step) {
                    self.test(program, step, &[]);
                }
                if self.asked.only.is_none() && self.totals.tests() == before {
                    self.totals.failed.push(format!("{step}: no test ran"));
                }
            }
        }
        self.close(start.elapsed());
        if let Some(only) = &self.asked.only
            && self.reported == 0
        {
            return Err(format!("no step has `{only}` in its name"));
        }
        Ok(self.totals.failed.is_empty())
    }

    fn wanted(&self, step: &str) -> bool {
        self.asked
            .only
            .as_ref()
            .is_none_or(|only| step.contains(only.as_str()))
    }

    /// Names what is missing; each test that needs it says so itself and is counted as skipped.
    fn toolchains(&mut self) {
        for toolchain in toolchains::missing() {
            println!(
                "missing: {} (`{}`), needed for {}",
                toolchain.name, toolchain.program, toolchain.needed_for
            );
            if self.asked.require_all {
                self.totals
                    .failed
                    .push(format!("toolchain {}", toolchain.name));
            }
        }
    }

    fn limit(&self) -> Duration {
        if self.asked.long { LONG_LIMIT } else { LIMIT }
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(&self.root).args(arguments);
        command
    }

    /// Runs a step whose exit code alone says whether it passed.
    fn cargo_step(&mut self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) {
        if !self.wanted(name) {
            return;
        }
        let mut command = self.cargo(arguments);
        command.envs(environment.iter().copied());
        let start = Instant::now();
        let (good, output) = self.finish(name, command);
        self.reported += 1;
        report(name, good, start.elapsed(), "");
        if good {
            self.totals.passed += 1;
        } else {
            self.totals.failed.push(name.to_owned());
            show(&output);
        }
    }

    /// Runs a command to its end; says whether it succeeded, and everything that it printed.
    fn finish(&self, name: &str, command: Command) -> (bool, String) {
        let log = self
            .logs
            .join(format!("{}.log", name.replace(['/', ' '], "-")));
        let ended = step::run(command, &log, self.limit());
        let mut output = std::fs::read(&log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        match ended {
            Ok(Some(status)) => return (status.success(), output),
            Ok(None) => output.push_str(&format!("\nkilled after {:?}\n", self.limit())),
            Err(problem) => output.push_str(&problem),
        }
        (false, output)
    }

    /// Builds every program and test once; gives the test programs, or nothing if something does not compile.
    fn build(&mut self) -> Result<Option<Vec<Program>>, String> {
        let start = Instant::now();
        let tests = [
            "test",
            "--workspace",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ];
        let (good, output) = self.finish("build", self.cargo(&tests));
        let (good, output) = if good {
            let programs = programs(&output);
            let (good, output) = self.finish(
                "build-programs",
                self.cargo(&["build", "--workspace", "--lib", "--bins", "--examples"]),
            );
            if good {
                report("build", true, start.elapsed(), "");
                self.totals.passed += 1;
                return Ok(Some(programs));
            }
            (good, output)
        } else {
            (good, output)
        };
        report("build", good, start.elapsed(), "");
        self.totals.failed.push("build".to_owned());
        let readable: Vec<&str> = output
            .lines()
            .filter(|line| !line.starts_with('{'))
            .collect();
        show(&readable.join("\n"));
        Ok(None)
    }

    fn doc_tests(&mut self) {
        if !self.wanted("unit") {
            return;
        }
        let start = Instant::now();
        let (good, output) = self.finish("doctests", self.cargo(&["test", "--workspace", "--doc"]));
        self.count("unit doctests", good, &output, start.elapsed());
    }

    /// Runs the tests of a program that `filter` (arguments of the runner) leaves.
    fn test(&mut self, program: &Program, step: &str, filter: &[&str]) {
        let name = format!("{step} {}", program.name);
        if !self.wanted(&name) {
            return;
        }
        let mut command = Command::new(&program.executable);
        command
            .current_dir(&program.package)
            .env("CARGO", &self.cargo)
            .env("CARGO_MANIFEST_DIR", &program.package);
        command
            .env("KOP_TEST_BUILT", "1")
            .env("KOP_TEST_SKIPS", &self.skips)
            .env("RUST_BACKTRACE", "1");
        if self.asked.require_all {
            command.env("KOP_REQUIRE_ALL", "1");
        }
        if self.asked.long {
            command.env("KOP_TEST_LONG", "1").arg("--include-ignored");
        }
        command
            .arg(format!("--test-threads={THREADS}"))
            .arg("--show-output")
            .args(filter);
        let start = Instant::now();
        let (good, output) = self.finish(&name, command);
        self.count(&name, good, &output, start.elapsed());
    }

    /// Adds a test runner's closing lines to the totals.
    fn count(&mut self, name: &str, good: bool, output: &str, took: Duration) {
        let tally = Tally::of(output);
        if good && tally == Tally::default() {
            // A program without tests of this step.
            return;
        }
        // Tests that skipped themselves ended well for their runner.
        let skips: Vec<String> = std::fs::read_to_string(&self.skips)
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        let _ = std::fs::remove_file(&self.skips);
        self.reported += 1;
        let passed = tally.passed.saturating_sub(skips.len());
        let skipped = tally.ignored + skips.len();
        self.totals.passed += passed;
        self.totals.skipped += skipped;
        report(
            name,
            good,
            took,
            &format!(
                "{passed} passed, {} failed, {skipped} skipped",
                tally.failed.len()
            ),
        );
        for skip in skips {
            println!("    skipped {skip}");
        }
        for step in output.lines().filter(|line| line.starts_with("left out: ")) {
            println!("    {step}");
        }
        if good {
            return;
        }
        if tally.failed.is_empty() {
            self.totals.failed.push(name.to_owned());
        }
        self.totals
            .failed
            .extend(tally.failed.iter().map(|test| format!("{name}: {test}")));
        show(output);
    }

    fn close(&self, took: Duration) {
        println!(
            "\n{} s in all; logs in {}",
            took.as_secs(),
            self.logs.display()
        );
        for failure in &self.totals.failed {
            println!("failed: {failure}");
        }
        println!(
            "{} passed, {} failed, {} skipped",
            self.totals.passed,
            self.totals.failed.len(),
            self.totals.skipped
        );
    }
}

/// One line per step.
fn report(name: &str, good: bool, took: Duration, more: &str) {
    let verdict = if good { "ok" } else { "FAILED" };
    println!("{verdict:>6} {:>6.1} s  {name}  {more}", took.as_secs_f64());
}

/// The end of a failed step's output.
fn show(output: &str) {
    let mut from = output.len().saturating_sub(SHOWN);
    while !output.is_char_boundary(from) {
        from += 1;
    }
    for line in output.get(from..).unwrap_or_default().lines() {
        println!("    | {line}");
    }
}

/// What the standard test runner said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    ignored: usize,
    failed: Vec<String>,
}

impl Tally {
    fn of(output: &str) -> Self {
        let mut tally = Self::default();
        for line in output.lines() {
            if let Some(result) = line.strip_prefix("test result: ") {
                tally.passed += number_before(result, " passed");
                tally.ignored += number_before(result, " ignored");
            } else if let Some(test) = line
                .strip_prefix("test ")
                .and_then(|rest| rest.strip_suffix(" ... FAILED"))
            {
                tally.failed.push(test.to_owned());
            }
        }
        tally
    }
}

fn number_before(text: &str, word: &str) -> usize {
    let number = text
        .split_once(word)
        .and_then(|(before, _)| before.rsplit(' ').next());
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

/// The test programs among cargo's messages.
fn programs(messages: &str) -> Vec<Program> {
    let mut found = BTreeMap::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let is_test = message["profile"]["test"].as_bool().unwrap_or(false);
        let (Some(executable), Some(manifest)) = (
            message["executable"].as_str(),
            message["manifest_path"].as_str(),
        ) else {
            continue;
        };
        if !is_test {
            continue;
        }
        let target = message["target"]["name"].as_str().unwrap_or("test");
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        let package = Path::new(manifest)
            .parent()
            .unwrap_or_else(|| Path::new("."))
            .to_owned();
        let id = message["package_id"].as_str().unwrap_or_default();
        let owner = package_name(id, &package);
        let name = if owner == target {
            owner
        } else {
            format!("{owner} {target}")
        };
        let program = Program {
            step: step_of(kind, &name),
            name: name.clone(),
            executable: executable.into(),
            package,
        };
        found.insert((name, executable.to_owned()), program);
    }
    found.into_values().collect()
}

/// The name in cargo's package id: `path+file:///…/tests#kop-tests@0.1.0` or `…/xtask#0.1.0`.
fn package_name(id: &str, folder: &Path) -> String {
    let named = id
        .rsplit_once('#')
        .and_then(|(_, rest)| rest.split_once('@'))
        .map(|(name, _)| name.to_owned());
    named.unwrap_or_else(|| {
        folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    })
}

/// The step that a test program belongs to.
fn step_of(kind: &str, name: &str) -> &'static str {
    if kind != "test" {
        return "unit";
    }
    let holds = |words: &[&str]| words.iter().any(|word| name.contains(word));
    STEPS
        .iter()
        .find(|(_, words)| holds(words))
        .map_or("rooms", |(step, _)| step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_and_failed_tests_are_counted() {
        let output = "test a ... ok\ntest b::c ... FAILED\ntest d ... ignored\n\
                      test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n\
                      test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured\n";
        let tally = Tally::of(output);
        assert_eq!(
            tally,
            Tally {
                passed: 21,
                ignored: 1,
                failed: vec!["b::c".to_owned()]
            }
        );
    }

    #[test]
    fn test_programs_are_found_and_sorted_into_steps() {
        let artifact = |id: &str, manifest: &str, name: &str, kind: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": id, "manifest_path": manifest,
                "target": {"name": name, "kind": [kind]}, "profile": {"test": test}, "executable": format!("/t/{name}"),
            })
            .to_string()
        };
        let messages = [
            artifact(
                "path+file:///r/tests#kop-tests@0.1.0",
                "/r/tests/Cargo.toml",
                "doris",
                "test",
                true,
            ),
            artifact(
                "path+file:///r/tests#kop-tests@0.1.0",
                "/r/tests/Cargo.toml",
                "golden",
                "test",
                true,
            ),
            artifact(
                "path+file:///r/xtask#0.1.0",
                "/r/xtask/Cargo.toml",
                "xtask",
                "bin",
                true,
            ),
            artifact(
                "path+file:///r/host-shim#0.1.0",
                "/r/host-shim/Cargo.toml",
                "kop",
                "bin",
                false,
            ),
            artifact(
                "path+file:///r/host-shim#0.1.0",
                "/r/host-shim/Cargo.toml",
                "contract",
                "test",
                true,
            ),
            artifact(
                "path+file:///r/host-shim#0.1.0",
                "/r/host-shim/Cargo.toml",
                "recovery",
                "test",
                true,
            ),
        ]
        .join("\n");
        let found: Vec<(String, &str)> = programs(&messages)
            .into_iter()
            .map(|program| (program.name, program.step))
            .collect();
        let expected = [
            ("host-shim contract", "abi"),
            ("host-shim recovery", "rooms"),
            ("kop-tests doris", "interop"),
            ("kop-tests golden", "golden"),
            ("xtask", "unit"),
        ];
        assert_eq!(found, expected.map(|(name, step)| (name.to_owned(), step)));
    }
}
