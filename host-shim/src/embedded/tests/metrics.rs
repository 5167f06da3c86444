//! The store's own metrics follow what is done.

use std::fs;
use std::os::unix::fs::FileExt;

use handler_api::ledger::{Rollover, Trim, TrimRequest};
use handler_api::{ErrorCode, Position};

use super::{Broker, TOPIC, config, ledger_files, start, wait};
use crate::embedded::EmbeddedConfig;

/// The value of one metric.
#[track_caller]
fn value(broker: &Broker, name: &str) -> f64 {
    let text = broker.broker.metrics();
    let start = format!("kop_store_{name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .parse()
        .unwrap()
}

/// Waits until a metric that follows in the background has a value.
#[track_caller]
fn becomes(broker: &Broker, name: &str, expected: f64) {
    for _ in 0..500 {
        if value(broker, name) == expected {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(value(broker, name), expected, "{name}");
}

#[test]
fn metrics_count_appends_syncs_reads_files_and_failures() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(EmbeddedConfig {
        max_message_size: 1_000,
        ..EmbeddedConfig::new(dir.path())
    });
    assert_eq!(value(&broker, "open_managed_ledgers"), 0.0);
    broker.create(TOPIC, 1);
    let handle = broker.handle("persistent://public/default/t-partition-0");
    for payload in [&b"12345"[..], b"1234567890", b"123"] {
        broker.append(handle, 1, payload).unwrap();
    }
    let too_large = broker.append(handle, 1, &[0; 100_000]).unwrap_err();
    assert_eq!(too_large.kind(), ErrorCode::TooLarge);
    assert_eq!(value(&broker, "open_managed_ledgers"), 1.0);
    assert_eq!(value(&broker, "open_files"), 1.0);
    assert_eq!(value(&broker, "appended_entries_total"), 3.0);
    assert_eq!(value(&broker, "appended_bytes_total"), 18.0);
    assert_eq!(value(&broker, "append_failures_total"), 1.0);
    let syncs = value(&broker, "syncs_total");
    assert!((1.0..=3.0).contains(&syncs), "{syncs}");
    assert!(value(&broker, "sync_seconds_total") > 0.0);
    assert_eq!(value(&broker, "unsynced_appends"), 0.0);
    assert_eq!(value(&broker, "disk_tasks"), 0.0);
    assert!(value(&broker, "usable_bytes") > 0.0);

    assert_eq!(broker.read_all(handle, 1).len(), 2);
    assert_eq!(value(&broker, "read_entries_total"), 2.0);
    assert_eq!(value(&broker, "read_bytes_total"), 13.0);
    let cold = &broker.broker.core.files.faults.cold;
    cold.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(broker.read_all(handle, 0).len(), 3);
    cold.store(false, std::sync::atomic::Ordering::SeqCst);
    assert!(value(&broker, "cold_reads_total") >= 1.0);
    assert_eq!(value(&broker, "read_entries_total"), 5.0);

    wait(broker.host.control::<Rollover>(&handle.into())).unwrap();
    broker.append(handle, 1, b"in another file").unwrap();
    assert_eq!(value(&broker, "ledger_files_created_total"), 2.0);
    assert_eq!(value(&broker, "ledger_files_removed_total"), 0.0);
    let trim = TrimRequest {
        handle: Some(handle.into()),
        before_index: 3,
    };
    wait(broker.host.control::<Trim>(&trim)).unwrap();
    becomes(&broker, "ledger_files_removed_total", 1.0);
}

#[test]
fn a_damaged_record_counts_each_time_it_is_met() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let handle = broker.handle("persistent://public/default/t-partition-0");
    broker.append(handle, 1, b"to be damaged").unwrap();
    let files = ledger_files(dir.path());
    let file = fs::OpenOptions::new().write(true).open(&files[0]).unwrap();
    // Within the payload, behind the headers of file and record.
    file.write_all_at(b"!", 64 + 32 + 3).unwrap();
    for met in [1.0, 2.0] {
        let error = broker
            .read(handle, 0, Position::UNKNOWN, 1_000)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorCode::Corrupt);
        assert_eq!(value(&broker, "corrupt_reads_total"), met);
    }
    assert_eq!(value(&broker, "append_failures_total"), 0.0);
}
