//! How the program ends when a plugin does not.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// This test lies in `<target>/debug/deps`, the program two above; cargo builds it, if it has not yet.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    let built = Command::new(env!("CARGO"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(["build", "--package", "host-shim", "--bin", "kop"])
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{text}");
    target.join("debug/kop")
}

/// A broker with the probe, which never closes.
fn start(directory: &Path, timeout_ms: u32) -> Child {
    let file = "libprobe_handler.so";
    let test = std::env::current_exe().unwrap();
    std::fs::copy(test.with_file_name(file), directory.join(file)).unwrap();
    let mut child = Command::new(program())
        .arg("standalone")
        .arg("--data-dir")
        .arg(directory.join("data"))
        .args([
            "--set",
            "messagingProtocols=probe",
            "--set",
            "webServicePort=",
        ])
        .args(["--set", "probeClose=never", "--set"])
        .arg(format!("protocolHandlerDirectory={}", directory.display()))
        .arg("--set")
        .arg(format!("brokerShutdownTimeoutMs={timeout_ms}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with("accepting connections"), "{line}");
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn wait(child: &mut Child) -> Option<i32> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("the broker does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_end_is_bounded_by_broker_shutdown_timeout_ms() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = start(directory.path(), 300);
    let begin = Instant::now();
    signal(&child, Signal::TERM);
    assert_eq!(wait(&mut child), Some(1));
    assert!(begin.elapsed() >= Duration::from_millis(300));
    let mut log = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    assert!(
        log.contains("probe did not close: not within brokerShutdownTimeoutMs=300"),
        "{log}"
    );
}

#[test]
fn a_second_signal_ends_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = start(directory.path(), 600_000);
    signal(&child, Signal::INT);
    // Until it has said so, a second signal could be merged with the first.
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("a second signal ends at once") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0);
    }
    signal(&child, Signal::TERM);
    assert_eq!(wait(&mut child), Some(130));
}
