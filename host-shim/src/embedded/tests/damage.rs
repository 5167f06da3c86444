//! Flipped bytes: found, named, and harmless to their neighbours.

use std::fs;
use std::path::{Path, PathBuf};

use handler_api::ledger::Rollover;
use handler_api::{ErrorCode, Position};

use super::super::record::{FILE_HEADER_BYTES, RECORD_HEADER_BYTES};
use super::{Broker, TOPIC, config, image, ledger_files, start, wait};

const PARTITION: &str = "persistent://public/default/t-partition-0";
const PAYLOAD: usize = 10;
const RECORD: usize = RECORD_HEADER_BYTES + PAYLOAD;
const ENTRIES: i64 = 7;

/// A directory with one ledger of seven entries of three messages, and its file.
fn seven_entries(sealed: bool) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let handle = broker.handle(PARTITION);
    for n in 0..ENTRIES {
        broker.append(handle, 3, &[n as u8; PAYLOAD]).unwrap();
    }
    if sealed {
        wait(broker.host.control::<Rollover>(&handle.into())).unwrap();
    }
    drop(broker);
    let file = ledger_files(dir.path()).remove(0);
    (dir, file)
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 0x41;
    fs::write(file, bytes).unwrap();
}

/// Every entry but the damaged one can be read, whichever index of it is asked for; the damaged one is named.
fn check(broker: &Broker, file: &Path, damaged: i64) {
    let handle = broker.handle(PARTITION);
    let offset = FILE_HEADER_BYTES + damaged as usize * RECORD;
    for index in 0..ENTRIES * 3 {
        let result = broker.read(handle, index, Position::UNKNOWN, 1);
        if index / 3 == damaged {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorCode::Corrupt, "index {index}");
            assert!(error.message.contains(&*file.to_string_lossy()), "{error}");
            assert!(
                error.message.contains(&format!("offset {offset}")),
                "{error}"
            );
        } else {
            let entries = result.unwrap().entries;
            assert_eq!(entries[0].index, index / 3 * 3 + 2, "index {index}");
            assert_eq!(
                entries[0].segments[0].bytes[..],
                [(index / 3) as u8; PAYLOAD]
            );
        }
    }
    // A long read delivers what lies before the damage.
    if damaged > 0 {
        let before = broker.read(handle, 0, Position::UNKNOWN, 1 << 20).unwrap();
        assert_eq!(before.entries.len() as i64, damaged);
    }
}

#[test]
fn a_flipped_byte_anywhere_in_an_entry_harms_no_other_entry() {
    for (sealed, entries) in [(false, vec![0, 3, 6]), (true, vec![3])] {
        let (dir, _) = seven_entries(sealed);
        for damaged in entries {
            for at in 0..RECORD {
                let copy = image(dir.path());
                let file = ledger_files(copy.path()).remove(0);
                let broker = start(config(copy.path()));
                flip(&file, FILE_HEADER_BYTES + damaged as usize * RECORD + at);
                check(&broker, &file, damaged);
            }
        }
    }
}

#[test]
fn damage_in_the_middle_is_no_torn_end() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(config(dir.path()));
    broker.create(TOPIC, 1);
    let handle = broker.handle(PARTITION);
    for n in 0..ENTRIES {
        broker.append(handle, 3, &[n as u8; PAYLOAD]).unwrap();
    }
    for at in [0, 4, 8, 12, 16, 24, 32, RECORD - 1] {
        let crashed = image(dir.path());
        let file = ledger_files(crashed.path()).remove(0);
        let length = fs::metadata(&file).unwrap().len();
        flip(&file, FILE_HEADER_BYTES + 3 * RECORD + at);
        let next = start(config(crashed.path()));
        assert_eq!(next.open(PARTITION).end_index, ENTRIES * 3 - 1, "byte {at}");
        assert_eq!(fs::metadata(&file).unwrap().len(), length);
        check(&next, &file, 3);
        assert_eq!(
            next.append(next.handle(PARTITION), 1, b"x").unwrap().index,
            ENTRIES * 3
        );
    }
}

#[test]
fn a_damaged_footer_only_makes_searches_slow() {
    let (dir, _) = seven_entries(true);
    let file = ledger_files(dir.path()).remove(0);
    let length = fs::metadata(&file).unwrap().len() as usize;
    let footer = FILE_HEADER_BYTES + ENTRIES as usize * RECORD;
    for at in [footer, footer + 5, length - 1] {
        let copy = image(dir.path());
        let file = ledger_files(copy.path()).remove(0);
        flip(&file, at);
        let broker = start(config(copy.path()));
        assert_eq!(
            broker.read_all(broker.handle(PARTITION), 0).len() as i64,
            ENTRIES
        );
        assert_eq!(broker.read_all(broker.handle(PARTITION), 13).len(), 3);
    }
}

#[test]
fn what_is_damaged_can_be_trimmed_away() {
    use handler_api::ledger::{Trim, TrimRequest};
    let (dir, file) = seven_entries(false);
    let broker = start(config(dir.path()));
    flip(&file, FILE_HEADER_BYTES + 3 * RECORD + 40);
    let handle = broker.handle(PARTITION);
    let trim = |before_index| {
        let request = TrimRequest {
            handle: Some(handle.into()),
            before_index,
        };
        wait(broker.host.control::<Trim>(&request))
            .unwrap()
            .start_index
    };
    assert_eq!(trim(10), 10, "into the damage");
    assert_eq!(trim(12), 12, "past it");
    assert_eq!(broker.read_all(handle, 0).len(), 3);
}
