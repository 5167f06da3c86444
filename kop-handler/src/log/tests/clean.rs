//! Cleaning compacted partitions: what stays, where it is found, what readers see meanwhile and afterwards.

use std::collections::BTreeMap;

use super::*;
use crate::log::clean::clean;
use crate::wire::batch::Compression;

/// A record as a reader sees it: offset, timestamp, key, value.
type Seen = (i64, i64, String, Option<String>);

fn bed() -> Bed {
    let bed = Bed::new(
        7,
        Faults {
            ledger_entries: 10,
            split_segments: true,
            ..Faults::none()
        },
    );
    bed.change_settings(|settings| {
        settings.compact = true;
        settings.delete = false;
        settings.min_cleanable_dirty_ratio = 0.0;
        settings.delete_retention_ms = 1000;
    });
    bed
}

/// Appends `batches` of one to four records over 20 keys, every sixth a tombstone; answers them all.
fn fill(bed: &Bed, partition: &Arc<Partition>, batches: u64) -> Vec<Seen> {
    let mut all = Vec::new();
    for n in 0..batches {
        let random = |most: u64| bed.clock.random() % most;
        let mut base = NOW_MS + i64::try_from(random(5000)).expect("small");
        let codec = if n % 3 == 0 {
            Compression::Zstd
        } else {
            Compression::None
        };
        let mut builder = BatchBuilder::new(base).compression(codec);
        let mut records = Vec::new();
        for _ in 0..=random(4) {
            base += i64::try_from(random(50)).expect("small");
            let key = format!("key-{}", random(20));
            let value = (random(6) != 0).then(|| format!("value-{n}"));
            builder
                .push(NewRecord::new(
                    base,
                    Some(key.as_bytes()),
                    value.as_deref().map(str::as_bytes),
                ))
                .expect("a record");
            records.push((base, key, value));
        }
        let info = bed
            .append(partition, builder.build().expect("a batch"))
            .expect("an append");
        for (offset, (timestamp, key, value)) in (info.base_offset..).zip(records) {
            all.push((offset, timestamp, key, value));
        }
    }
    all
}

fn seen(bed: &Bed, partition: &Arc<Partition>) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut next = partition.log_start_offset();
    loop {
        let fetched = bed.read(partition, next, 1 << 20).expect("a read");
        let batches = batches(&fetched);
        if batches.is_empty() {
            assert_eq!(next, partition.high_watermark(), "readers come to the end");
            return seen;
        }
        for (header, bytes) in batches {
            let view = crate::wire::batch::BatchView { header, bytes };
            for record in &view.records(1 << 20).expect("records") {
                let record = record.expect("a record");
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
                seen.push((
                    record.offset,
                    record.timestamp,
                    text(record.key.expect("a key")),
                    record.value.map(text),
                ));
            }
            next = header.last_offset() + 1;
        }
    }
}

/// What must be left of `all` after cleaning up to an offset; tombstones stay if `keep_tombstones`.
fn expected(all: &[Seen], clean_end: i64, keep_tombstones: bool) -> Vec<Seen> {
    let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
    for (offset, _, key, _) in all.iter().filter(|(offset, ..)| *offset < clean_end) {
        newest.insert(key, *offset);
    }
    all.iter()
        .filter(|(offset, _, key, value)| {
            *offset >= clean_end
                || (newest.get(key.as_str()) == Some(offset)
                    && (value.is_some() || keep_tombstones))
        })
        .cloned()
        .collect()
}

fn clean_end(partition: &Arc<Partition>) -> i64 {
    partition.lock().clean_end
}

#[test]
fn the_newest_record_of_each_key_is_left_at_its_offset() {
    let mut bed = bed();
    let partition = bed.open(0);
    let mut all = fill(&bed, &partition, 95);
    for _ in 0..3 {
        bed.run(clean(&partition)).expect("cleaned");
        let end = clean_end(&partition);
        assert!(end > 0 && end < partition.high_watermark());
        let left = expected(&all, end, true);
        assert!(left.len() < all.len() / 2);
        assert_eq!(seen(&bed, &partition), left);
        all = left;
        all.extend(fill(&bed, &partition, 60));
    }
    let before = reload::state(&partition);
    bed.run(bed.logs.close());
    bed.sim.crash();
    bed.restart();
    let partition = bed.open(0);
    assert_eq!(reload::state(&partition), before);
    assert_eq!(seen(&bed, &partition), all);
}

#[test]
fn every_offset_can_be_read_from_and_gaps_are_passed() {
    let bed = bed();
    let partition = bed.open(0);
    let all = fill(&bed, &partition, 80);
    bed.run(clean(&partition)).expect("cleaned");
    let left = expected(&all, clean_end(&partition), true);
    for offset in 0..partition.high_watermark() {
        let (header, _) = batches(&bed.read(&partition, offset, 1).expect("a read")).remove(0);
        assert!(header.last_offset() >= offset);
        let next = left
            .iter()
            .find(|(left, ..)| *left >= offset)
            .map(|(left, ..)| *left);
        assert!(
            next.is_none_or(|next| header.base_offset <= next),
            "{offset}: nothing is skipped"
        );
    }
}

#[test]
fn tombstones_stay_for_their_time_and_then_go() {
    let bed = bed();
    let partition = bed.open(0);
    let mut all = fill(&bed, &partition, 80);
    bed.run(clean(&partition)).expect("cleaned");
    let first_end = clean_end(&partition);
    let left = expected(&all, first_end, true);
    assert!(
        left.iter()
            .any(|(offset, _, _, value)| *offset < first_end && value.is_none())
    );
    assert_eq!(seen(&bed, &partition), left);
    bed.clock.advance_ms(1001);
    all = left;
    all.extend(fill(&bed, &partition, 40));
    bed.run(clean(&partition)).expect("cleaned");
    let end = clean_end(&partition);
    for (offset, _, key, value) in seen(&bed, &partition) {
        assert!(
            offset >= first_end || value.is_some(),
            "{key} at {offset} was to go"
        );
    }
    let without_old_tombstones: Vec<Seen> = expected(&all, end, true)
        .into_iter()
        .filter(|(offset, _, _, value)| *offset >= first_end || value.is_some())
        .collect();
    assert_eq!(seen(&bed, &partition), without_old_tombstones);
}

#[test]
fn searches_by_time_see_what_is_left() {
    let bed = bed();
    let partition = bed.open(0);
    let all = fill(&bed, &partition, 80);
    bed.run(clean(&partition)).expect("cleaned");
    let left = expected(&all, clean_end(&partition), true);
    for target in (NOW_MS..NOW_MS + 5300).step_by(11) {
        let first = left
            .iter()
            .find(|(_, timestamp, ..)| *timestamp >= target)
            .map(|(offset, timestamp, ..)| TimestampOffset {
                timestamp_ms: *timestamp,
                offset: *offset,
            });
        assert_eq!(
            bed.run(partition.offset_for_time(target)),
            Ok(first),
            "{target}"
        );
    }
    let latest = left.iter().map(|(_, timestamp, ..)| *timestamp).max();
    let found = bed.run(partition.max_timestamp()).expect("a search");
    assert_eq!(found.map(|found| found.timestamp_ms), latest);
}

#[test]
fn a_reader_that_cleaning_overtakes_goes_on_behind_what_it_has() {
    let bed = bed();
    let partition = bed.open(0);
    let all = fill(&bed, &partition, 60);
    let fetched = bed.read(&partition, 0, 400).expect("a read");
    let next = batches(&fetched)
        .last()
        .map(|(header, _)| header.last_offset() + 1)
        .expect("a batch");
    bed.run(clean(&partition)).expect("cleaned");
    let rest: Vec<i64> = bed
        .records(&partition, next)
        .into_iter()
        .map(|(offset, _)| offset)
        .collect();
    let left: Vec<i64> = expected(&all, clean_end(&partition), true)
        .into_iter()
        .map(|(offset, ..)| offset)
        .filter(|offset| *offset >= next)
        .collect();
    assert_eq!(rest, left);
}

#[test]
fn a_log_that_is_cleaned_whole_still_leads_readers_to_its_end() {
    let bed = bed();
    let partition = bed.open(0);
    for n in 0..12 {
        let mut builder = BatchBuilder::new(NOW_MS);
        builder
            .push(NewRecord::new(NOW_MS, Some(b"gone"), None))
            .expect("a record");
        bed.append(&partition, builder.build().expect("a batch"))
            .expect("an append");
        if n == 5 {
            bed.run(clean(&partition)).expect("cleaned");
        }
    }
    let handle = handler_api::ledger::HandleRef::from(partition.handle());
    let host = partition.shared.host.clone();
    for _ in 0..3 {
        bed.run(host.control::<handler_api::ledger::Rollover>(&handle))
            .expect("rolled");
        bed.change_settings(|settings| settings.max_compaction_lag_ms = 0);
        partition.lock().clean_end = 0;
        bed.run(clean(&partition)).expect("cleaned");
        bed.clock.advance_ms(1001);
    }
    assert_eq!(seen(&bed, &partition), []);
    assert_eq!(
        bed.sim.entries(&partition_name(0)).len(),
        1,
        "one empty batch at the end"
    );
    assert_eq!(bed.put(&partition, &[NOW_MS]), 12);
}

#[test]
fn upkeep_cleans_compacted_partitions_and_leaves_others_alone() {
    for compact in [true, false] {
        let bed = bed();
        bed.change_settings(|settings| settings.compact = compact);
        let partition = bed.open(0);
        let all = fill(&bed, &partition, 80);
        bed.run(bed.logs.check());
        let left = seen(&bed, &partition);
        if compact {
            assert_eq!(left, expected(&all, clean_end(&partition), true));
            assert!(left.len() < all.len());
        } else {
            assert_eq!(left, all);
        }
    }
}

#[test]
fn what_was_deleted_by_hand_is_not_looked_at() {
    let bed = bed();
    let partition = bed.open(0);
    fill(&bed, &partition, 80);
    let middle = partition.high_watermark() / 2;
    assert_eq!(bed.run(partition.delete_records(middle)), Ok(middle));
    bed.run(clean(&partition)).expect("cleaned");
    assert!(
        seen(&bed, &partition)
            .iter()
            .any(|(offset, ..)| *offset >= middle)
    );
    assert_eq!(partition.log_start_offset(), middle);
}
