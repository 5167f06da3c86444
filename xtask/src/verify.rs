//! `cargo verify`: every check of this repository, each step with its time, the totals at the end.
//!
//! Everything is compiled once, in the dev profile and with one set of features: the test programs are built by one
//! `cargo test --no-run` and then run directly, sorted into steps by their names.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;

use crate::toolchains;
use crate::{root, step, target};

mod legs;
mod programs;
mod tally;

use legs::LEGS;
use programs::{PULSAR, Program, STEPS, programs};
use tally::Tally;

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

/// Steps that build the NAR: for this machine as it is tested, and as it is shipped.
const NAR: &str = "nar";
const SHIPPED: &str = "nar shipped";

/// Unit tests that are steps of their own, by words in the tests' names.
const UNIT_PARTS: [(&str, &[&str]); 2] = [
    ("golden", &["golden"]),
    ("simulation", &["simulation", "storm", "sim::"]),
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
                self.test(program, "unit", &rest, &[]);
            }
            self.doc_tests();
            for (step, _) in STEPS.into_iter().filter(|(step, _)| *step != PULSAR) {
                let before = self.totals.tests();
                let words = UNIT_PARTS
                    .iter()
                    .find(|(part, _)| *part == step)
                    .map(|(_, words)| *words);
                for program in words.map_or(&[][..], |_| &units[..]) {
                    self.test(program, step, words.unwrap_or_default(), &[]);
                }
                for program in programs.iter().filter(|program| program.step == step) {
                    self.test(program, step, &[], &[]);
                }
                self.expect_tests(step, before);
            }
            self.inside_pulsar(&programs);
        }
        self.close(start.elapsed());
        if let Some(only) = &self.asked.only
            && self.reported == 0
        {
            return Err(format!("no step has `{only}` in its name"));
        }
        Ok(self.totals.failed.is_empty())
    }

    /// A step in which nothing ran has not passed.
    fn expect_tests(&mut self, step: &str, before: usize) {
        if self.asked.only.is_none() && self.totals.tests() == before {
            self.totals.failed.push(format!("{step}: no test ran"));
        }
    }

    /// Builds the NAR, as it is tested and as it is shipped, and runs the tests inside real Pulsar brokers.
    fn inside_pulsar(&mut self, programs: &[Program]) {
        if let Some(toolchain) = toolchains::missing_for_pulsar() {
            // With `--require-all` that it is missing is a failure already.
            println!("    skipped inside Pulsar: {} is missing", toolchain.name);
            self.totals.skipped += 1;
            return;
        }
        // Through cargo: the build before has replaced the file of this very program.
        let nar = |arguments: &[&str]| self.cargo(&[&["xtask", "nar"], arguments].concat());
        let (tested, shipped) = (nar(&["--debug", "--built"]), nar(&[]));
        if !self.command_step(NAR, tested) {
            return;
        }
        if self.asked.long {
            self.command_step(SHIPPED, shipped);
        }
        let long = self.asked.long;
        for leg in LEGS.into_iter().filter(|leg| leg.is_due(long)) {
            let before = self.totals.tests();
            let environment = [("KOP_TEST_HOST", leg.host), ("KOP_TEST_JDK", leg.jdk)];
            for program in programs.iter().filter(|it| leg.runs(it, long)) {
                self.test(program, leg.name, &[], &environment);
            }
            self.expect_tests(leg.name, before);
        }
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
        let mut command = self.cargo(arguments);
        command.envs(environment.iter().copied());
        self.command_step(name, command);
    }

    /// Runs a step whose exit code alone says whether it passed; false if it did not.
    fn command_step(&mut self, name: &str, command: Command) -> bool {
        if !self.wanted(name) {
            return true;
        }
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
        good
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
    fn test(
        &mut self,
        program: &Program,
        step: &str,
        filter: &[&str],
        environment: &[(&str, &str)],
    ) {
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
            .env("RUST_BACKTRACE", "1")
            .envs(environment.iter().copied());
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
