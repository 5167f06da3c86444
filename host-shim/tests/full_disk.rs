//! A volume that really is full: a small tmpfs in a mount namespace of its own.
//!
//! The test runs itself as a child under `unshare`, which needs no privilege where user namespaces are allowed. Where
//! they are not, it is skipped, and counted as that. The size limit of files (`ulimit -f`), which every process may
//! set, is checked everywhere.

#![expect(clippy::expect_used, reason = "assertions of tests")]

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use handler_api::topics::{CreateTopic, DeleteTopic, Topic, TopicName};
use handler_api::{ApiError, Appended, ErrorCode, Handle, Host, Position};
use host_shim::embedded::{EmbeddedBroker, EmbeddedConfig};
use support::{read, wait};

const DIRECTORY: &str = "KOP_FULL_DIR";
const RESERVE: u64 = 4 * 1024 * 1024;

fn start(dir: &Path, reserve_bytes: u64) -> (EmbeddedBroker, Host) {
    support::start(EmbeddedConfig {
        sync_data: false,
        reserve_bytes,
        ..EmbeddedConfig::new(dir)
    })
}

fn topic(name: &str) -> String {
    format!("persistent://public/default/{name}")
}

fn create(host: &Host, name: &str) -> Handle {
    let request = Topic {
        name: topic(name),
        partitions: 1,
        ..Topic::default()
    };
    wait(host.control::<CreateTopic>(&request)).expect("there is room for a row");
    open(host, name)
}

fn open(host: &Host, name: &str) -> Handle {
    support::open(host, format!("{}-partition-0", topic(name)))
}

fn append(host: &Host, handle: Handle, bytes: usize) -> Result<Appended, ApiError> {
    support::append(host, handle, vec![1; bytes])
}

/// Entries from the start to the end, each of them whole.
fn count(host: &Host, handle: Handle) -> i64 {
    let (mut index, mut position) = (0, Position::UNKNOWN);
    loop {
        let answer = read(host, handle, index, position);
        if answer.entries.is_empty() {
            return index;
        }
        for entry in &answer.entries {
            assert_eq!(entry.index, index);
            index += 1;
        }
        position = answer.next;
    }
}

fn child(arguments: &str, test: &str, dir: &Path) -> std::io::Result<Output> {
    let program = std::env::current_exe().expect("this test has a path");
    Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", arguments, "sh"])
        .arg(program)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(DIRECTORY, dir)
        .output()
}

fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os(DIRECTORY).expect("run by the test below"))
}

/// The child: fills the volume, reads, frees space by deleting a topic, and goes on.
#[test]
#[ignore = "run by the test below, in a mount namespace of its own"]
fn on_a_full_volume() {
    let dir = directory();
    for reserve in [RESERVE, 0] {
        let (broker, host) = start(&dir.join(reserve.to_string()), reserve);
        let ballast = create(&host, "ballast");
        let log = create(&host, "log");
        append(&host, log, 1000).expect("there is room");
        for _ in 0..20 {
            append(&host, ballast, 100_000).expect("there is room");
        }
        let mut written = 1;
        let error = loop {
            match append(&host, log, 50_000) {
                Ok(appended) => {
                    assert_eq!(appended.index, written);
                    written += 1;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorCode::NoSpace, "{error}");
        assert!(error.message.contains("free space"), "{error}");
        for _ in 0..3 {
            assert!(append(&host, log, 50_000).is_err());
        }
        assert_eq!(count(&host, log), written);
        if reserve == 0 {
            // Nothing is left for the catalog: what was acknowledged is there all the same.
            drop(broker);
            continue;
        }
        let name = TopicName {
            name: topic("ballast"),
        };
        wait(host.control::<DeleteTopic>(&name)).expect("the reserve has room for it");
        // Its file is removed in the background.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while append(&host, log, 50_000).is_err() {
            assert!(std::time::Instant::now() < deadline, "writes do not resume");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(count(&host, log), written + 1);
        drop(broker);
        let (_broker, host) = start(&dir.join(reserve.to_string()), reserve);
        assert_eq!(count(&host, open(&host, "log")), written + 1);
    }
    println!("all of it was checked");
}

/// Records a skip as `kop-tests` does (see its `skip.rs`), which lies above this crate: in the file named by
/// `KOP_TEST_SKIPS`, or as a failure if everything is required.
fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(
        !std::env::var("KOP_REQUIRE_ALL").is_ok_and(|value| !value.is_empty() && value != "0"),
        "everything is required, but {test} cannot run: {reason}"
    );
    println!("SKIPPED {test}: {reason}");
    if let Some(path) = std::env::var_os("KOP_TEST_SKIPS") {
        let line = format!("{test}: {}\n", reason.replace('\n', " "));
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("the file of skips can be written");
    }
}

#[test]
fn a_full_volume_refuses_writes_serves_reads_and_resumes() {
    let dir = tempfile::tempdir().expect("a directory");
    let mount = format!(
        "mount -t tmpfs -o size=48m tmpfs '{}' && exec \"$@\"",
        dir.path().display()
    );
    let output = match child(&mount, "on_a_full_volume", dir.path()) {
        Ok(output) => output,
        Err(error) => return skip(&format!("unshare does not start: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !text.contains("running 1 test") {
        return skip(&format!("no mount namespace here: {}", errors.trim()));
    }
    assert!(text.contains("all of it was checked"), "{text}\n{errors}");
}

/// The child: files cannot grow beyond 2 MiB.
#[test]
#[ignore = "run by the test below, with a limit on the size of files"]
fn under_a_file_size_limit() {
    let (broker, host) = start(&directory(), 0);
    let handle = create(&host, "log");
    let mut written = 0;
    let error = loop {
        match append(&host, handle, 100_000) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorCode::Refused, "{error}");
    assert!((10..=21).contains(&written), "{written}");
    assert_eq!(count(&host, handle), written);
    assert_eq!(
        append(&host, handle, 100).expect("a small one fits").index,
        written
    );
    drop(broker);
    let (_broker, host) = start(&directory(), 0);
    assert_eq!(count(&host, open(&host, "log")), written + 1);
    println!("all of it was checked");
}

#[test]
fn a_write_that_stops_half_way_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = std::env::current_exe().expect("this test has a path");
    // Blocks of 512 bytes; the signal that comes with the limit is ignored, so that the write fails with EFBIG.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$@\"", "sh"])
        .arg(program)
        .args([
            "--exact",
            "under_a_file_size_limit",
            "--ignored",
            "--nocapture",
        ])
        .env(DIRECTORY, dir.path())
        .output()
        .expect("sh starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("all of it was checked"), "{text}\n{errors}");
}
