//! A data directory of each format that was ever released, kept for ever: this release reads all of them.
//!
//! `testdata/format-<n>/` is never edited. The catalog, mostly zeros, is kept as runs: `u32 offset in pages of 512 bytes |
//! 512 bytes` for each page that is not empty, after its length as u64.

use std::fs;
use std::path::{Path, PathBuf};

use handler_api::cursor::{CursorRequest, ListCursors, OpenCursor};
use handler_api::ledger::{
    DescribeLedgers, PropertiesChange, Rollover, Trim, TrimRequest, UpdateLedgerProperties,
};
use handler_api::metadata::{GetValue, PutRequest, PutValue};

use super::super::EmbeddedConfig;
use super::super::layout::FORMAT;
use super::super::maintain::checkpoint;
use super::{Broker, TOPIC, config, image, start, wait};

const PAGE: usize = 512;
const PARTITION: &str = "persistent://public/default/t-partition-0";

fn testdata(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/embedded/testdata/format-{format}"))
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut packed = (bytes.len() as u64).to_le_bytes().to_vec();
    for (number, page) in bytes.chunks(PAGE).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            packed.extend((number as u32).to_le_bytes());
            packed.extend_from_slice(page);
        }
    }
    packed
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let (length, mut rest) = packed.split_at(8);
    let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
    let mut bytes = vec![0; length];
    while let Some((number, tail)) = rest.split_at_checked(4) {
        let at = u32::from_le_bytes(number.try_into().unwrap()) as usize * PAGE;
        let size = PAGE.min(length - at);
        bytes[at..at + size].copy_from_slice(&tail[..size]);
        rest = &tail[size..];
    }
    bytes
}

/// What every fixture holds: two ledgers, the first entry trimmed, an unsealed end behind a checkpoint, torn.
fn fill(broker: &Broker) {
    broker.create(TOPIC, 2);
    let handle = broker.handle(PARTITION);
    for payload in [&b"one"[..], b"two", b"three"] {
        broker.append(handle, 2, payload).unwrap();
    }
    wait(broker.host.control::<Rollover>(&handle.into())).unwrap();
    let trim = TrimRequest {
        handle: Some(handle.into()),
        before_index: 2,
    };
    wait(broker.host.control::<Trim>(&trim)).unwrap();
    broker.append(handle, 1, b"four").unwrap();
    let properties = PropertiesChange {
        handle: Some(handle.into()),
        set: [("key".to_owned(), "value".to_owned())].into(),
        ..PropertiesChange::default()
    };
    wait(broker.host.control::<UpdateLedgerProperties>(&properties)).unwrap();
    let cursor = CursorRequest {
        handle: Some(handle.into()),
        name: "reader".into(),
        index: 3,
    };
    wait(broker.host.control::<OpenCursor>(&cursor)).unwrap();
    let value = PutRequest {
        path: "/path".into(),
        value: b"stored"[..].into(),
        expected_version: None,
    };
    wait(broker.host.control::<PutValue>(&value)).unwrap();
    checkpoint(&broker.broker.core).unwrap();
    broker.append(handle, 1, b"five").unwrap();
}

fn check(broker: &Broker) {
    let opened = broker.open(PARTITION);
    assert_eq!((opened.start_index, opened.end_index), (2, 7));
    assert_eq!(
        opened.properties,
        [("key".to_owned(), "value".to_owned())].into()
    );
    let handle = opened.handle.unwrap().into();
    let entries = [(3, "two"), (5, "three"), (6, "four"), (7, "five")];
    let expected: Vec<_> = entries
        .map(|(index, text)| (index, text.as_bytes().to_vec()))
        .into();
    assert_eq!(broker.read_all(handle, 0), expected);
    let ledgers = wait(broker.host.control::<DescribeLedgers>(&handle.into()))
        .unwrap()
        .ledgers;
    let ranges: Vec<_> = ledgers
        .iter()
        .map(|ledger| (ledger.first_index, ledger.last_index, ledger.sealed))
        .collect();
    assert_eq!(ranges, [(0, 5, true), (6, 7, false)]);
    let cursors = wait(broker.host.control::<ListCursors>(&handle.into()))
        .unwrap()
        .cursors;
    assert_eq!((cursors[0].name.as_str(), cursors[0].index), ("reader", 3));
    let path = handler_api::metadata::Path {
        path: "/path".into(),
    };
    assert_eq!(
        wait(broker.host.control::<GetValue>(&path)).unwrap().value[..],
        b"stored"[..]
    );
    assert_eq!(broker.append(handle, 1, b"six").unwrap().index, 8);
}

#[test]
fn directories_of_every_format_are_read() {
    for format in 1..=FORMAT {
        let from = testdata(format);
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ledgers")).unwrap();
        for file in fs::read_dir(&from).unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            let bytes = fs::read(file.path()).unwrap();
            match name.as_str() {
                "FORMAT" => fs::write(dir.path().join(name), bytes).unwrap(),
                "catalog.packed" => {
                    fs::write(dir.path().join("catalog.redb"), unpack(&bytes)).unwrap();
                }
                _ => fs::write(dir.path().join("ledgers").join(name), bytes).unwrap(),
            }
        }
        // Its ledgers only grow older: none is to be closed for its age.
        check(&start(EmbeddedConfig {
            max_rollover_ms: 0,
            ..config(dir.path())
        }));
    }
}

/// Makes the fixture of a new format; run once, by hand, when one is released.
#[test]
#[ignore = "makes the fixture of a new format"]
fn make_the_fixture_of_this_format() {
    let target = testdata(FORMAT);
    assert!(!target.exists(), "{} is never edited", target.display());
    fs::create_dir_all(&target).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    fill(&broker);
    let crashed = image(dir.path());
    fs::copy(crashed.path().join("FORMAT"), target.join("FORMAT")).unwrap();
    let catalog = fs::read(crashed.path().join("catalog.redb")).unwrap();
    fs::write(target.join("catalog.packed"), pack(&catalog)).unwrap();
    for file in super::ledger_files(crashed.path()) {
        let mut bytes = fs::read(&file).unwrap();
        // The newest ends in half a record, as a crash may leave it.
        if bytes.windows(4).any(|window| window == b"five") {
            bytes.extend_from_slice(b"half a record");
        }
        fs::write(target.join(file.file_name().unwrap()), bytes).unwrap();
    }
}
