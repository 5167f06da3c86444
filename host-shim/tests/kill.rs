//! Killed at any moment, the embedded broker comes back with every acknowledged entry.
//!
//! The test runs itself as a child process that appends from several threads and says on its standard output what was
//! acknowledged; the parent kills it with SIGKILL, opens the directory and looks.

#![expect(clippy::expect_used, reason = "assertions of tests")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use handler_api::ledger::Rollover;
use handler_api::topics::{CreateTopic, Topic};
use handler_api::{Host, Position};
use host_shim::embedded::{EmbeddedBroker, EmbeddedConfig};
use support::{append, open, read, wait};

const DIRECTORY: &str = "KOP_KILL_DIR";
const SYNC: &str = "KOP_KILL_SYNC";
const PARTITIONS: u32 = 4;
const ROUNDS: u32 = 6;

fn start(dir: &Path, sync_data: bool) -> (EmbeddedBroker, Host) {
    support::start(EmbeddedConfig {
        sync_data,
        // Many rollovers and checkpoints, so that a kill falls into them too.
        max_ledger_bytes: 20_000,
        checkpoint_interval_ms: 20,
        max_open_files: 16,
        ..EmbeddedConfig::new(dir)
    })
}

fn partition(number: u32) -> String {
    format!("persistent://public/default/killed-partition-{number}")
}

fn payload(number: u32, index: i64) -> Vec<u8> {
    let length = usize::try_from(index * 37 % 900).expect("small") + 12;
    let seed = [&number.to_le_bytes()[..], &index.to_le_bytes()].concat();
    seed.into_iter().cycle().take(length).collect()
}

/// The child: appends until it is killed.
#[test]
#[ignore = "run by the test below, as a process of its own"]
fn child() {
    let Some(dir) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        panic!("{DIRECTORY} is not set");
    };
    let (_broker, host) = start(&dir, std::env::var_os(SYNC).is_some());
    let topic = Topic {
        name: "persistent://public/default/killed".into(),
        partitions: PARTITIONS,
        ..Topic::default()
    };
    // From the second round on it exists.
    let _ = wait(host.control::<CreateTopic>(&topic));
    std::thread::scope(|scope| {
        for number in 0..PARTITIONS {
            let host = host.clone();
            scope.spawn(move || {
                let handle = open(&host, partition(number));
                let mut next = host.watch(handle, i64::MAX).expect("it is open") + 1;
                loop {
                    let appended = append(&host, handle, payload(number, next));
                    let index = appended.expect("there is room").index;
                    assert_eq!(index, next);
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "ack {number} {index}").expect("the parent listens");
                    drop(out);
                    if next % 211 == 0 {
                        wait(host.control::<Rollover>(&handle.into())).expect("there is room");
                    }
                    next += 1;
                }
            });
        }
    });
}

/// Lets a child append for a while and kills it; answers the last index that it acknowledged per partition.
fn append_and_kill(dir: &Path, sync_data: bool, life: Duration) -> HashMap<u32, i64> {
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(DIRECTORY, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if sync_data {
        command.env(SYNC, "1");
    }
    let mut child = command.spawn().expect("a child starts");
    let output = child.stdout.take().expect("it is piped");
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let reader = std::thread::spawn(move || {
        let mut acknowledged = HashMap::new();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            if words.next() == Some("ack")
                && let (Some(number), Some(index)) = (words.next(), words.next())
                && let (Ok(number), Ok(index)) = (number.parse::<u32>(), index.parse::<i64>())
            {
                acknowledged.insert(number, index);
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
        acknowledged
    });
    // On a busy machine it may take a while until anything happens.
    let deadline = Instant::now() + Duration::from_secs(60);
    while count.load(Ordering::SeqCst) < 100 {
        assert!(Instant::now() < deadline, "the child does nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(life);
    child.kill().expect("the child still runs");
    child.wait().expect("it ended");
    reader.join().expect("the reader does not panic")
}

fn check(dir: &Path, number: u32, acknowledged: i64) {
    let (_broker, host) = start(dir, false);
    let handle = open(&host, partition(number));
    let end = host.watch(handle, i64::MAX).expect("it is open");
    assert!(
        end >= acknowledged,
        "partition {number} ends at {end}, {acknowledged} was acknowledged"
    );
    let (mut index, mut position) = (0, Position::UNKNOWN);
    while index <= end {
        let answer = read(&host, handle, index, position);
        assert!(!answer.entries.is_empty(), "nothing at {index} of {end}");
        for entry in &answer.entries {
            assert_eq!(entry.index, index, "dense");
            let bytes: Vec<u8> = entry
                .segments
                .iter()
                .flat_map(|segment| segment.bytes.to_vec())
                .collect();
            assert!(
                bytes == payload(number, index),
                "entry {index} of partition {number}"
            );
            index += 1;
        }
        position = answer.next;
    }
}

fn survives(sync_data: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut all: HashMap<u32, i64> = HashMap::new();
    for round in 0..ROUNDS {
        let life = Duration::from_millis(u64::from(round) * 67);
        let acknowledged = append_and_kill(dir.path(), sync_data, life);
        assert!(
            !acknowledged.is_empty() || round == 0,
            "round {round} did nothing"
        );
        all.extend(acknowledged);
        // Every other round comes up on what the one before left, without an opening in between.
        if round % 2 == 1 {
            for number in 0..PARTITIONS {
                check(dir.path(), number, all.get(&number).copied().unwrap_or(-1));
            }
        }
    }
    assert!(
        all.values().all(|index| *index > 10),
        "too little happened: {all:?}"
    );
}

#[test]
fn acknowledged_entries_survive_a_kill_after_the_write() {
    survives(false);
}

#[test]
fn acknowledged_entries_survive_a_kill_after_the_sync() {
    survives(true);
}
