//! The click-log job of the examples, end to end: it must say that everything was loaded, and fail if it was not.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use kop_tests::broker::{BUILT, Broker};
use kop_tests::process::{Finished, run};
use kop_tests::skip::flag;
use kop_tests::{rd, tools};

const LIMIT: Duration = Duration::from_secs(300);

/// The built example.
fn example() -> PathBuf {
    let program = tools::profile_directory().join("examples/click_log");
    if !flag(BUILT) {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(tools::repository()).args([
            "build",
            "-q",
            "-p",
            "kop-examples",
            "--example",
            "click_log",
        ]);
        if tools::profile_directory().ends_with("release") {
            command.arg("--release");
        }
        run(command, None, Duration::from_secs(900)).expect_success("building the example");
    }
    program
}

fn job(broker: &Broker, arguments: &str, limit: Duration) -> Finished {
    let mut command = Command::new(example());
    command
        .args(["--bootstrap", &broker.bootstrap()])
        .args(arguments.split_whitespace());
    run(command, None, limit)
}

#[test]
fn every_row_is_loaded_with_each_codec_and_the_offsets_are_committed() {
    let broker = Broker::start();
    let mut topics = 0;
    for (codec, key) in [
        ("none", "none"),
        ("lz4", "user"),
        ("zstd", "row"),
        ("gzip", "none"),
        ("snappy", "user"),
    ] {
        topics += 1;
        let start = if topics % 2 == 0 {
            "OFFSET_BEGINNING"
        } else {
            "OFFSET_END"
        };
        let arguments = format!(
            "--records 60000 --topic rows{topics} --compression {codec} --key {key} --start {start}"
        );
        let finished = job(&broker, &arguments, LIMIT).expect_success(&arguments);
        assert!(
            finished.stdout.contains("loaded 60000 rows, 0 error rows"),
            "{}",
            finished.stdout
        );
        assert!(finished.stdout.contains("lag 0"), "{}", finished.stdout);
        assert!(
            finished.stdout.contains("0 of them failed"),
            "{}",
            finished.stdout
        );
        let committed: i64 =
            rd::committed(&broker.bootstrap(), "doris", &format!("rows{topics}"), 4)
                .iter()
                .sum();
        assert_eq!(committed, 60_000);
    }
}

#[test]
fn batches_are_closed_by_rows_and_the_rest_is_loaded_by_later_tasks() {
    let broker = Broker::start();
    let finished = job(
        &broker,
        "--records 30000 --max-batch-rows 1000 --partitions 3",
        LIMIT,
    )
    .expect_success("the job");
    assert!(
        finished.stdout.contains("loaded 30000 rows, 0 error rows"),
        "{}",
        finished.stdout
    );
    let tasks = finished
        .stdout
        .split("; ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|n| n.parse::<u32>().ok());
    assert!(
        tasks.is_some_and(|tasks| tasks >= 30),
        "{}",
        finished.stdout
    );
}

#[test]
fn rows_that_are_missing_or_malformed_fail_the_job() {
    let broker = Broker::start();
    rd::create_topic(&broker.bootstrap(), "test", 1);
    rd::produce(&broker.bootstrap(), "test", &[], &rd::numbered(0, 0..3));
    let malformed = job(
        &broker,
        "--records 100 --start OFFSET_BEGINNING --idle-limit 5",
        LIMIT,
    );
    assert!(!malformed.success(), "{malformed:?}");
    assert!(
        malformed.stdout.contains("loaded 100 rows, 3 error rows"),
        "{}",
        malformed.stdout
    );
    let missing = job(&broker, "--records 100 --no-produce --idle-limit 3", LIMIT);
    assert!(!missing.success(), "{missing:?}");
    assert!(
        missing.stdout.contains("loaded 0 rows"),
        "{}",
        missing.stdout
    );
}

#[test]
#[ignore = "takes minutes: left to --long"]
fn five_million_rows_are_loaded() {
    let broker = Broker::start();
    let finished = job(
        &broker,
        "--records 5000000 --compression lz4",
        Duration::from_secs(1_800),
    )
    .expect_success("the job");
    assert!(
        finished
            .stdout
            .contains("loaded 5000000 rows, 0 error rows"),
        "{}",
        finished.stdout
    );
}
