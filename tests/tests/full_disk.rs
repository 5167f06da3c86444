//! A full disk: a clear error to the producer, reads go on, writes resume when there is room, nothing acknowledged is lost.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kop_tests::broker::{Broker, Options, not_embedded};
use kop_tests::process::{eventually, run};
use kop_tests::rd::{self, PATIENCE, Record};
use kop_tests::skip::{inapplicable, skip};
use kop_tests::tools;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// A small file system in memory; gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, megabytes: u32) -> Result<Self, String> {
        if !rustix::process::getuid().is_root() {
            return Err("mounting a small file system needs root".to_owned());
        }
        std::fs::create_dir_all(at).map_err(|error| error.to_string())?;
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(at);
        let finished = run(command, None, Duration::from_secs(10));
        if finished.success() {
            Ok(Self(at.to_owned()))
        } else {
            Err(format!("no tmpfs: {}", finished.stderr.trim()))
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        command.arg("-l").arg(&self.0);
        run(command, None, Duration::from_secs(10));
    }
}

#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_recovers() {
    // Kafka takes its only log directory offline and stops; ours is to do better.
    if let Some(reason) = not_embedded("the store on a full disk") {
        return inapplicable(&reason);
    }
    let home = tempfile::tempdir_in(tools::target()).expect("a directory");
    let disk = match SmallDisk::mount(&home.path().join("disk"), 64) {
        Ok(disk) => disk,
        Err(reason) => return skip(&reason),
    };
    let ballast = disk.0.join("ballast");
    std::fs::write(&ballast, vec![0; 24 << 20]).expect("room for the ballast");
    let options = Options {
        data: Some(disk.0.join("data")),
        ..Options::default()
    };
    let mut broker = Broker::with(options);
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "full", 1);

    // One record a batch of 64 KiB, each answer looked at, until one is refused.
    let settings = [
        ("retries", "0"),
        ("message.timeout.ms", "20000"),
        ("max.in.flight.requests.per.connection", "1"),
    ];
    let record = |number: usize| {
        Record::to(
            0,
            [number.to_string().as_bytes(), &[b' '; 64 << 10]].concat(),
        )
    };
    let mut accepted = 0;
    let refusal = loop {
        assert!(accepted < 2_000, "the disk never fills");
        match rd::try_produce(&bootstrap, "full", &settings, &[record(accepted)]).remove(0) {
            Ok((0, offset)) => {
                assert_eq!(offset, i64::try_from(accepted).expect("small"));
                accepted += 1;
            }
            Ok(other) => panic!("acknowledged at {other:?}"),
            Err(error) => break error,
        }
    };
    assert!(
        accepted > 50,
        "refused after {accepted} records of 64 KiB: {refusal}"
    );
    let storage = KafkaError::MessageProduction(RDKafkaErrorCode::KafkaStorageError);
    assert_eq!(refusal, storage, "what the producer is told");
    assert!(broker.is_running(), "the broker ended");
    assert!(
        broker.log().to_lowercase().contains("no space left"),
        "the log does not say why"
    );

    let read = rd::read_all(&bootstrap, "full", 1);
    assert_eq!(read.len(), accepted, "reads go on");

    std::fs::remove_file(&ballast).expect("the ballast goes");
    eventually("writes resume", PATIENCE, || {
        rd::try_produce(&bootstrap, "full", &settings, &[record(accepted)])
            .remove(0)
            .ok()
    });
    let read = rd::read_all(&bootstrap, "full", 1);
    assert_eq!(
        read.len(),
        accepted + 1,
        "nothing that was refused was stored"
    );

    broker.kill();
    broker.restart();
    let read = rd::read_all(&bootstrap, "full", 1);
    assert_eq!(read.len(), accepted + 1);
    for (number, (_, offset, _, value)) in read.iter().enumerate() {
        assert_eq!(*offset, i64::try_from(number).expect("small"));
        let value = value.as_deref().expect("a value");
        assert!(
            value.starts_with(format!("{number} ").as_bytes()),
            "another record at {number}"
        );
    }
    drop(broker);
}
