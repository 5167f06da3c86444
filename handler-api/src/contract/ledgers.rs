//! Facts about the ledgers of a managed ledger.

use std::collections::HashMap;

use super::{Bench, PARTITION, Subject, from, kind};
use crate::host::capability;
use crate::ledger::{
    DescribeLedgers, Ledger, PropertiesChange, ReplaceLedger, Replacement, ReplacementEntry,
    Rollover, StartMoved, StorageUse, Trim, TrimRequest, UpdateLedgerProperties,
};
use crate::topics::TopicNames;
use crate::{ErrorCode, Handle};

impl Bench {
    fn ledgers(&self, handle: Handle) -> Vec<Ledger> {
        self.control::<DescribeLedgers>(&handle.into())
            .unwrap()
            .ledgers
    }

    fn roll_over(&self, handle: Handle) {
        self.control::<Rollover>(&handle.into()).unwrap();
    }

    fn trim(&self, handle: Handle, before_index: i64) -> i64 {
        let request = TrimRequest {
            handle: Some(handle.into()),
            before_index,
        };
        self.control::<Trim>(&request).unwrap().start_index
    }
}

/// Ledgers lie next to each other; entries are read across their borders.
pub fn rolling_over_keeps_entries_and_indexes(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let mut expected = Vec::new();
    for round in 0..4u8 {
        for n in 0..5u8 {
            let appended = bench.append(handle, 2, &[round, n]).unwrap();
            expected.push((appended.index, vec![round, n]));
        }
        bench.roll_over(handle);
    }
    bench.roll_over(handle);
    let ledgers = bench.ledgers(handle);
    let full: Vec<_> = ledgers.iter().filter(|ledger| ledger.entries > 0).collect();
    assert_eq!(
        full.len(),
        4,
        "an empty ledger is not rolled over: {ledgers:?}"
    );
    for (n, ledger) in full.iter().enumerate() {
        assert!(ledger.sealed);
        assert_eq!((ledger.entries, ledger.replaced), (5, 0));
        // A host may count what it stores beside each entry.
        assert!((10..10 + 5 * 100).contains(&ledger.bytes), "{ledger:?}");
        let first = n as i64 * 10;
        assert_eq!((ledger.first_index, ledger.last_index), (first, first + 9));
        assert!(ledger.created_ms > 0 && ledger.last_append_ms >= ledger.created_ms);
    }
    assert!(ledgers.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert!(ledgers.iter().rev().skip(1).all(|ledger| ledger.sealed));
    for start in 0..expected.len() {
        assert_eq!(bench.read_all(handle, expected[start].0), expected[start..]);
    }
    let next = bench.append(handle, 1, b"next").unwrap();
    assert_eq!(next.index, 40);
    assert!(next.position.ledger > full[3].id);
}

/// Where the host can, to any entry; else to a ledger's border. Never further than asked.
pub fn trimming_moves_the_start_to_an_entry(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let exact = bench.host.has(capability::TRIM_TO_ENTRY);
    for _ in 0..3 {
        for _ in 0..4 {
            bench.append(handle, 3, b"x").unwrap();
        }
        bench.roll_over(handle);
    }
    assert_eq!(bench.trim(handle, 0), 0);
    assert_eq!(
        bench.trim(handle, 13),
        12,
        "the entry that holds 13 stays; it is the second ledger's first"
    );
    bench.until("the event", || {
        let events = bench.witness.events::<StartMoved>();
        events
            .iter()
            .any(|event| event.start_index == 12 && event.handle == Some(handle.into()))
    });
    let start = bench.trim(handle, 20);
    assert_eq!(start, if exact { 18 } else { 12 });
    let answer = bench.read(from(handle, 0), 1 << 20).unwrap();
    assert_eq!(answer.start_index, start);
    assert_eq!(
        answer.entries[0].index,
        start + 2,
        "a read from before the start begins there"
    );
    assert_eq!(
        bench.wait(bench.host.find(handle, 3)).unwrap(),
        answer.entries[0].position
    );
    assert_eq!(bench.trim(handle, 5), start, "the start does not move back");
    let ledgers = bench.ledgers(handle);
    assert!(
        ledgers
            .iter()
            .all(|ledger| ledger.last_index >= start || ledger.entries == 0 || !ledger.sealed)
    );
    assert_eq!(bench.opened(PARTITION).unwrap().start_index, start);
}

/// Giving up everything does not reset the index.
pub fn a_trimmed_ledger_goes_on_where_it_was(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    for _ in 0..5 {
        bench.append(handle, 2, b"x").unwrap();
    }
    bench.roll_over(handle);
    assert_eq!(bench.trim(handle, i64::MAX), 10);
    let answer = bench.read(from(handle, 0), 1 << 20).unwrap();
    assert_eq!(
        (answer.start_index, answer.end_index, answer.entries.len()),
        (10, 9, 0)
    );
    assert_eq!(bench.append(handle, 1, b"y").unwrap().index, 10);
    assert_eq!(bench.read_all(handle, 0), [(10, b"y".to_vec())]);
}

fn kept(index: i64, messages: u32, payload: &'static [u8]) -> ReplacementEntry {
    ReplacementEntry {
        index,
        messages,
        payload: payload.into(),
    }
}

/// Readers see the old entries or the new ones; indexes stay, gaps are passed over.
pub fn a_sealed_ledger_is_replaced_in_one_step(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    if !bench.host.has(capability::REPLACE_LEDGER) {
        return;
    }
    for n in 0..6u8 {
        bench.append(handle, 2, &[n]).unwrap();
    }
    bench.roll_over(handle);
    let after = bench.append(handle, 1, b"after").unwrap();
    let ledger = bench.ledgers(handle).remove(0);
    let replacement = |replaced, entries| Replacement {
        handle: Some(handle.into()),
        ledger: ledger.id,
        replaced,
        entries,
    };
    let entries = vec![kept(3, 2, b"three"), kept(10, 1, b"ten")];
    bench
        .control::<ReplaceLedger>(&replacement(0, entries))
        .unwrap();
    let tail = (after.index, b"after".to_vec());
    let (three, ten) = ((3, b"three".to_vec()), (10, b"ten".to_vec()));
    for (from, expected) in [
        (0, vec![three.clone(), ten.clone(), tail.clone()]),
        (3, vec![three, ten.clone(), tail.clone()]),
        (4, vec![ten, tail.clone()]),
        (11, vec![tail.clone()]),
    ] {
        assert_eq!(bench.read_all(handle, from), expected, "from {from}");
    }
    let described = bench.ledgers(handle).remove(0);
    assert_eq!(
        (described.replaced, described.entries, described.bytes),
        (1, 2, 8)
    );
    assert_eq!(
        bench.opened(PARTITION).unwrap().start_index,
        0,
        "the start is not moved by it"
    );
    // And once more, to nothing.
    bench
        .control::<ReplaceLedger>(&replacement(1, Vec::new()))
        .unwrap();
    assert_eq!(bench.read_all(handle, 0), [tail]);
    assert_eq!(
        bench.append(handle, 1, b"x").unwrap().index,
        after.index + 1
    );
}

/// Another replacement came first, the ledger is open or unknown, entries are out of order or out of range.
pub fn a_replacement_that_does_not_fit_is_refused(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    if !bench.host.has(capability::REPLACE_LEDGER) {
        return;
    }
    for _ in 0..5 {
        bench.append(handle, 2, b"x").unwrap();
    }
    bench.roll_over(handle);
    bench.append(handle, 1, b"open").unwrap();
    let before = bench.read_all(handle, 0);
    let ledgers = bench.ledgers(handle);
    let replace = |ledger, replaced, entries| {
        kind(bench.control::<ReplaceLedger>(&Replacement {
            handle: Some(handle.into()),
            ledger,
            replaced,
            entries,
        }))
    };
    let sealed = ledgers[0].id;
    assert_eq!(replace(sealed, 1, Vec::new()), ErrorCode::Conflict);
    assert_eq!(
        replace(ledgers[1].id, 0, Vec::new()),
        ErrorCode::InvalidArgument
    );
    assert_eq!(replace(i64::MAX, 0, Vec::new()), ErrorCode::NotFound);
    for entries in [
        vec![kept(10, 1, b"beyond")],
        vec![kept(0, 2, b"before")],
        vec![kept(3, 0, b"no messages")],
        vec![kept(3, 1, b"a"), kept(3, 1, b"again")],
        vec![kept(5, 1, b"a"), kept(6, 2, b"overlaps")],
    ] {
        assert_eq!(
            replace(sealed, 0, entries.clone()),
            ErrorCode::InvalidArgument,
            "{entries:?}"
        );
    }
    assert_eq!(bench.read_all(handle, 0), before);
}

/// Properties of a managed ledger are set and removed one by one.
pub fn ledger_properties_are_kept(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let change = |set: &[(&str, &str)], remove: &[&str]| {
        bench
            .control::<UpdateLedgerProperties>(&PropertiesChange {
                handle: Some(handle.into()),
                set: set
                    .iter()
                    .map(|(key, value)| ((*key).into(), (*value).into()))
                    .collect(),
                remove: remove.iter().map(|key| (*key).into()).collect(),
            })
            .unwrap()
            .properties
    };
    change(&[("a", "1"), ("b", "2")], &[]);
    let now = change(&[("c", "3")], &["a", "nothing"]);
    let expected = HashMap::from([("b".into(), "2".into()), ("c".into(), "3".into())]);
    assert_eq!(now, expected);
    assert_eq!(bench.opened(PARTITION).unwrap().properties, expected);
}

/// Bytes per name, unknown ones 0.
pub fn storage_use_counts_bytes(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    bench.append(handle, 1, &[0; 1000]).unwrap();
    let names = TopicNames {
        names: vec![PARTITION.into(), PARTITION.replace("contract", "nothing")],
    };
    let report = bench.control::<StorageUse>(&names).unwrap();
    assert_eq!(report.bytes.len(), 2);
    assert!(report.bytes[0] >= 1000);
    assert_eq!(report.bytes[1], 0);
}
