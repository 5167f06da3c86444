//! Offsets by time, against looking at every record.

use super::*;
use crate::wire::batch::{Compression, ControlType};

/// Every record's timestamp, by offset; `None` for control records.
type All = Vec<Option<i64>>;

fn first_at(all: &All, start: usize, target: i64) -> Option<TimestampOffset> {
    all.iter()
        .enumerate()
        .skip(start)
        .find_map(|(offset, timestamp)| {
            timestamp
                .filter(|timestamp| *timestamp >= target)
                .map(|timestamp_ms| TimestampOffset {
                    timestamp_ms,
                    offset: i64::try_from(offset).expect("small"),
                })
        })
}

fn latest(all: &All, start: usize) -> Option<TimestampOffset> {
    let max = all.iter().skip(start).flatten().max()?;
    first_at(all, start, *max)
}

/// Batches of up to 9 records whose timestamps jump by up to 400 ms, some compressed, some control batches.
fn fill(bed: &Bed, partition: &Arc<Partition>, batches: u32) -> All {
    let mut all = All::new();
    for n in 0..batches {
        let random = || i64::try_from(bed.clock.random() % 400).expect("small");
        if n % 11 == 10 {
            let marker =
                BatchBuilder::end_transaction(ControlType::Commit, 5, 0, 0, NOW_MS + 3_000_000)
                    .expect("a marker");
            let append = Append {
                partition: Arc::clone(partition),
                records: marker,
                origin: Origin::Coordinator,
            };
            assert!(bed.run(bed.logs.append(vec![append])).remove(0).is_ok());
            all.push(None);
            continue;
        }
        let base = NOW_MS + i64::from(n) * 20;
        let timestamps: Vec<i64> = (0..=n % 9).map(|_| base + random()).collect();
        let codec = if n % 2 == 0 {
            Compression::None
        } else {
            Compression::Lz4
        };
        bed.append(
            partition,
            build(BatchBuilder::new(base).compression(codec), &timestamps),
        )
        .expect("an append");
        all.extend(timestamps.into_iter().map(Some));
    }
    all
}

fn check(bed: &Bed, partition: &Arc<Partition>, all: &All, start: usize) {
    let (from, to) = (NOW_MS - 10, NOW_MS + 100 * 20 + 500);
    for target in (from..to).step_by(13) {
        assert_eq!(
            bed.run(partition.offset_for_time(target)),
            Ok(first_at(all, start, target)),
            "{target} from {start}"
        );
    }
    assert_eq!(
        bed.run(partition.max_timestamp()),
        Ok(latest(all, start)),
        "latest from {start}"
    );
}

#[test]
fn the_first_record_that_is_late_enough_is_found_across_ledgers_trims_and_reloads() {
    for seed in 1..4 {
        let mut bed = Bed::new(
            seed,
            Faults {
                ledger_entries: 9,
                ..Faults::none()
            },
        );
        let partition = bed.open(0);
        let all = fill(&bed, &partition, 100);
        check(&bed, &partition, &all, 0);
        for start in [1, 50, 51, 52, 53, 300] {
            let offset = i64::try_from(start).expect("small");
            assert_eq!(bed.run(partition.delete_records(offset)), Ok(offset));
            check(&bed, &partition, &all, start);
        }
        bed.run(bed.logs.close());
        bed.sim.crash();
        bed.restart();
        check(&bed, &bed.open(0), &all, 300);
    }
}

#[test]
fn no_record_is_no_answer() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    assert_eq!(bed.run(partition.offset_for_time(0)), Ok(None));
    assert_eq!(bed.run(partition.max_timestamp()), Ok(None));
    bed.put(&partition, &[NOW_MS, NOW_MS - 100, NOW_MS]);
    assert_eq!(bed.run(partition.offset_for_time(NOW_MS + 1)), Ok(None));
    let first = TimestampOffset {
        timestamp_ms: NOW_MS,
        offset: 0,
    };
    assert_eq!(
        bed.run(partition.max_timestamp()),
        Ok(Some(first)),
        "the first of equal ones"
    );
    let after = TimestampOffset {
        timestamp_ms: NOW_MS,
        offset: 2,
    };
    assert_eq!(bed.run(partition.delete_records(1)), Ok(1));
    assert_eq!(
        bed.run(partition.offset_for_time(NOW_MS - 50)),
        Ok(Some(after))
    );
}
