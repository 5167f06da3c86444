//! What a crash leaves, and what the next start makes of it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use handler_api::ledger::{
    DescribeLedgers, ReplaceLedger, Replacement, ReplacementEntry, Rollover, Trim, TrimRequest,
};
use handler_api::topics::{DeleteTopic, TopicName};

use super::super::EmbeddedConfig;
use super::super::maintain::checkpoint;
use super::super::record::{FILE_HEADER_BYTES, RECORD_HEADER_BYTES};
use super::{Broker, TOPIC, config, image, ledger_files, start, wait};

const PARTITION: &str = "persistent://public/default/t-partition-0";

fn small_ledgers(dir: &Path) -> EmbeddedConfig {
    EmbeddedConfig {
        max_ledger_bytes: 2000,
        ..config(dir)
    }
}

fn fill(broker: &Broker, entries: u32) -> Vec<(i64, Vec<u8>)> {
    let handle = broker.handle(PARTITION);
    (0..entries)
        .map(|n| {
            let payload = vec![n as u8; 100];
            (
                broker.append(handle, n % 2 + 1, &payload).unwrap().index,
                payload,
            )
        })
        .collect()
}

#[test]
fn nothing_acknowledged_is_missing_after_a_crash_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(small_ledgers(dir.path()));
    broker.create(TOPIC, 1);
    let mut expected = Vec::new();
    for round in 0..6 {
        expected.extend(fill(&broker, 30));
        if round % 2 == 1 {
            checkpoint(&broker.broker.core).unwrap();
            expected.extend(fill(&broker, 5));
        }
        let crashed = image(dir.path());
        let next = start(small_ledgers(crashed.path()));
        assert_eq!(
            next.open(PARTITION).end_index,
            expected.last().unwrap().0,
            "round {round}"
        );
        assert_eq!(next.read_all(next.handle(PARTITION), 0), expected);
        let appended = next.append(next.handle(PARTITION), 1, b"on").unwrap();
        assert_eq!(appended.index, expected.last().unwrap().0 + 1);
    }
}

#[test]
fn a_second_crash_before_anything_was_opened_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(small_ledgers(dir.path()));
    broker.create(TOPIC, 1);
    let expected = fill(&broker, 50);
    let first = image(dir.path());
    let second = {
        let idle = start(small_ledgers(first.path()));
        let crashed = image(first.path());
        drop(idle);
        crashed
    };
    // Stopped cleanly without an opening, too.
    for dir in [&first, &second] {
        let broker = start(small_ledgers(dir.path()));
        assert_eq!(broker.read_all(broker.handle(PARTITION), 0), expected);
    }
}

#[test]
fn a_torn_end_is_cut_at_every_byte_and_only_there() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let handle = broker.handle(PARTITION);
    for payload in [&b"first"[..], b"second", b"the last one"] {
        broker.append(handle, 2, payload).unwrap();
    }
    let crashed = image(dir.path());
    let file = ledger_files(crashed.path()).remove(0);
    let whole = fs::read(&file).unwrap();
    let last = whole.len() - RECORD_HEADER_BYTES - b"the last one".len();
    for end in last..whole.len() {
        for tail in [&b""[..], &[0; 40], b"\xff\xff\xff\xff\xff"] {
            let torn = image(crashed.path());
            let file = ledger_files(torn.path()).remove(0);
            fs::write(&file, [whole.get(..end).unwrap(), tail].concat()).unwrap();
            let broker = start(config(torn.path()));
            let handle = broker.handle(PARTITION);
            let expected = [(1, b"first".to_vec()), (3, b"second".to_vec())];
            assert_eq!(broker.read_all(handle, 0), expected, "cut at {end}");
            assert_eq!(fs::metadata(&file).unwrap().len(), last as u64);
            assert_eq!(broker.append(handle, 1, b"next").unwrap().index, 4);
            assert_eq!(broker.read_all(handle, 4), [(4, b"next".to_vec())]);
        }
    }
}

#[test]
fn a_ledger_is_only_scanned_behind_its_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let handle = broker.handle(PARTITION);
    broker.append(handle, 1, b"before").unwrap();
    checkpoint(&broker.broker.core).unwrap();
    broker.append(handle, 1, b"after").unwrap();
    let crashed = image(dir.path());
    let file = ledger_files(crashed.path()).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    // What the checkpoint covers is not looked at again, so this does not disturb the recovery.
    bytes[FILE_HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1;
    fs::write(&file, bytes).unwrap();
    let broker = start(config(crashed.path()));
    assert_eq!(broker.open(PARTITION).end_index, 1);
    assert_eq!(
        broker.read_all(broker.handle(PARTITION), 1),
        [(1, b"after".to_vec())]
    );
}

#[test]
fn a_clean_stop_leaves_nothing_to_scan() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let expected = fill(&broker, 10);
    drop(broker);
    let broker = start(config(dir.path()));
    assert_eq!(broker.read_all(broker.handle(PARTITION), 0), expected);
    let partition = broker.broker.core.handles.named(PARTITION).unwrap();
    assert!(
        !partition.dirty.load(std::sync::atomic::Ordering::SeqCst),
        "opening found all as noted"
    );
}

#[test]
fn waste_is_removed_and_never_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(small_ledgers(dir.path()));
    broker.create(TOPIC, 1);
    fill(&broker, 60);
    let all = image(dir.path());
    let handle = broker.handle(PARTITION);
    let trim = TrimRequest {
        handle: Some(handle.into()),
        before_index: 50,
    };
    let start_index = wait(broker.host.control::<Trim>(&trim))
        .unwrap()
        .start_index;
    let kept = broker.read_all(handle, 0);
    let crashed = image(dir.path());
    // As if the files had not been removed before the crash, a ledger had just been made, and one was half copied.
    for file in ledger_files(all.path()) {
        let target = crashed
            .path()
            .join("ledgers")
            .join(file.file_name().unwrap());
        fs::copy(&file, target).unwrap();
    }
    let ledgers = crashed.path().join("ledgers");
    fs::write(ledgers.join("0000000000900000-0.ledger"), b"").unwrap();
    fs::write(ledgers.join("0000000000900001-0.ledger"), [0; 64]).unwrap();
    fs::write(ledgers.join("README"), b"not ours").unwrap();
    let next = start(small_ledgers(crashed.path()));
    assert_eq!(next.open(PARTITION).start_index, start_index);
    assert_eq!(next.read_all(next.handle(PARTITION), 0), kept);
    let named = ledger_files(crashed.path());
    assert!(named.len() < ledger_files(all.path()).len());
    assert!(ledgers.join("README").exists());
    assert!(!ledgers.join("0000000000900000-0.ledger").exists());
    assert!(!ledgers.join("0000000000900001-0.ledger").exists());
}

#[test]
fn files_of_a_deleted_topic_are_not_adopted_by_its_next_life() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(small_ledgers(dir.path()));
    broker.create(TOPIC, 1);
    fill(&broker, 20);
    let before = image(dir.path());
    wait(
        broker
            .host
            .control::<DeleteTopic>(&TopicName { name: TOPIC.into() }),
    )
    .unwrap();
    broker.create(TOPIC, 1);
    let crashed = image(dir.path());
    for file in ledger_files(before.path()) {
        fs::copy(
            &file,
            crashed
                .path()
                .join("ledgers")
                .join(file.file_name().unwrap()),
        )
        .unwrap();
    }
    let next = start(small_ledgers(crashed.path()));
    let opened = next.open(PARTITION);
    assert_eq!((opened.start_index, opened.end_index), (0, -1));
    assert!(ledger_files(crashed.path()).is_empty());
}

#[test]
fn a_crash_around_a_replacement_leaves_the_old_or_the_new_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let old = fill(&broker, 10);
    let handle = broker.handle(PARTITION);
    wait(broker.host.control::<Rollover>(&handle.into())).unwrap();
    let ledger = wait(broker.host.control::<DescribeLedgers>(&handle.into()))
        .unwrap()
        .ledgers
        .remove(0);
    let before = image(dir.path());
    let replacement = Replacement {
        handle: Some(handle.into()),
        ledger: ledger.id,
        replaced: 0,
        entries: vec![ReplacementEntry {
            index: 4,
            messages: 1,
            payload: b"only"[..].into(),
        }],
    };
    wait(broker.host.control::<ReplaceLedger>(&replacement)).unwrap();
    let after = image(dir.path());
    // Crashed before the commit, with the new file written: the old one counts, the other goes.
    for file in ledger_files(after.path()) {
        fs::copy(
            &file,
            before
                .path()
                .join("ledgers")
                .join(file.file_name().unwrap()),
        )
        .unwrap();
    }
    let next = start(config(before.path()));
    assert_eq!(next.read_all(next.handle(PARTITION), 0), old);
    assert!(
        !ledger_files(before.path())
            .iter()
            .any(|file| file.to_string_lossy().contains("-1.ledger"))
    );
    // The leftover of the failed attempt does not stop the next.
    let handle = next.handle(PARTITION);
    let again = Replacement {
        handle: Some(handle.into()),
        ..replacement
    };
    wait(next.host.control::<ReplaceLedger>(&again)).unwrap();
    assert_eq!(next.read_all(handle, 0), [(4, b"only".to_vec())]);
    // Crashed after the commit, with the old file still there.
    let old_file = ledger_files(dir.path());
    let next = start(config(after.path()));
    assert_eq!(
        next.read_all(next.handle(PARTITION), 0),
        [(4, b"only".to_vec())]
    );
    assert!(ledger_files(after.path()).len() <= old_file.len());
}

#[test]
fn a_missing_or_shortened_file_does_not_brick_the_partition() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let written = fill(&broker, 10);
    drop(broker);
    for missing in [true, false] {
        let damaged = image(dir.path());
        let file = ledger_files(damaged.path()).remove(0);
        if missing {
            fs::remove_file(&file).unwrap();
        } else {
            let half = FILE_HEADER_BYTES + 5 * (RECORD_HEADER_BYTES + 100) + 7;
            OpenOptions::new()
                .write(true)
                .open(&file)
                .unwrap()
                .set_len(half as u64)
                .unwrap();
        }
        let broker = start(config(damaged.path()));
        let handle = broker.handle(PARTITION);
        // Indexes that were given out are not given out again.
        let next = broker.append(handle, 1, b"next").unwrap();
        assert_eq!(next.index, written[9].0 + 1);
        assert_eq!(
            broker.read_all(handle, next.index),
            [(next.index, b"next".to_vec())]
        );
        if !missing {
            assert_eq!(broker.read_all(handle, 0)[..5], written[..5]);
        }
    }
}

#[test]
fn an_appended_but_torn_footer_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let expected = fill(&broker, 10);
    let handle = broker.handle(PARTITION);
    wait(broker.host.control::<Rollover>(&handle.into())).unwrap();
    broker.append(handle, 1, b"later").unwrap();
    let crashed = image(dir.path());
    let file = ledger_files(crashed.path()).remove(0);
    let length = fs::metadata(&file).unwrap().len();
    let mut handle = OpenOptions::new()
        .write(true)
        .append(false)
        .open(&file)
        .unwrap();
    handle.set_len(length - 3).unwrap();
    handle.flush().unwrap();
    let next = start(config(crashed.path()));
    let read = next.read_all(next.handle(PARTITION), 0);
    assert_eq!(read[..10], expected);
    assert_eq!(read[10].1, b"later");
    assert_eq!(fs::metadata(&file).unwrap().len(), length);
}
