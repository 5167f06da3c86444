//! Reading: limits, ranges, offsets, sharing.

use super::*;

fn sizes(fetched: &Fetched) -> Vec<i64> {
    batches(fetched)
        .iter()
        .map(|(header, _)| header.base_offset)
        .collect()
}

#[test]
fn batches_come_whole_with_their_offsets_and_our_leader_epoch() {
    let bed = Bed::new(
        1,
        Faults {
            split_segments: true,
            ..Faults::none()
        },
    );
    let partition = bed.open(0);
    for count in [1, 40, 200, 3] {
        bed.put(&partition, &vec![NOW_MS; count]);
    }
    let fetched = bed.read(&partition, 0, 1 << 20).expect("a read");
    assert_eq!(sizes(&fetched), [0, 1, 41, 241]);
    assert_eq!(
        (
            fetched.high_watermark,
            fetched.last_stable_offset,
            fetched.log_start_offset
        ),
        (244, 244, 0)
    );
    for (header, _) in batches(&fetched) {
        assert_eq!(header.leader_epoch, partition.leader_epoch());
    }
    let inside = bed.read(&partition, 100, 1 << 20).expect("a read");
    assert_eq!(
        sizes(&inside),
        [41, 241],
        "the whole batch, also from inside"
    );
    let end = bed.read(&partition, 244, 1 << 20).expect("a read");
    assert_eq!((end.size, end.high_watermark), (0, 244));
}

#[test]
fn only_offsets_of_the_partition_can_be_read() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    for offset in [-1, 1, i64::MAX, i64::MIN] {
        assert!(
            matches!(
                bed.read(&partition, offset, 100),
                Err(Fault::OffsetOutOfRange(_))
            ),
            "{offset}"
        );
    }
    bed.put(&partition, &[NOW_MS; 10]);
    assert!(bed.read(&partition, 10, 100).is_ok());
    assert!(matches!(
        bed.read(&partition, 11, 100),
        Err(Fault::OffsetOutOfRange(_))
    ));
    assert_eq!(bed.run(partition.delete_records(5)), Ok(5));
    assert!(matches!(
        bed.read(&partition, 4, 100),
        Err(Fault::OffsetOutOfRange(_))
    ));
    assert_eq!(sizes(&bed.read(&partition, 5, 100).expect("a read")), [0]);
}

#[test]
fn limits_hold_per_partition_and_over_all_and_the_first_batch_comes_whatever_its_size() {
    let bed = Bed::quiet();
    let partitions = [bed.open(0), bed.open(1), bed.open(2)];
    let records = batch(&[NOW_MS; 20]);
    let size = records.len();
    for partition in &partitions[1..] {
        for _ in 0..10 {
            bed.append(partition, records.clone()).expect("an append");
        }
    }
    // The first partition is empty.
    let read = |each: usize, all: usize, at_least_one: bool| -> Vec<usize> {
        let reads = partitions
            .iter()
            .map(|partition| Read {
                partition: Arc::clone(partition),
                offset: 0,
                max_bytes: each,
                isolation: Isolation::ReadCommitted,
            })
            .collect();
        bed.run(bed.logs.read(reads, all, at_least_one))
            .into_iter()
            .map(|fetched| {
                let fetched = fetched.expect("a read");
                assert_eq!(fetched.size % size, 0, "whole batches");
                batches(&fetched).len()
            })
            .collect()
    };
    assert_eq!(read(3 * size, 100 * size, true), [0, 3, 3]);
    assert_eq!(read(3 * size - 1, 100 * size, true), [0, 2, 2]);
    assert_eq!(read(100 * size, 4 * size, true), [0, 4, 0]);
    assert_eq!(read(3 * size, 4 * size, true), [0, 3, 1]);
    assert_eq!(read(3 * size, 4 * size - 1, true), [0, 3, 0]);
    assert_eq!(
        read(1, 1, true),
        [0, 1, 0],
        "one batch from the first that has any"
    );
    assert_eq!(read(0, 0, true), [0, 1, 0]);
    assert_eq!(read(size - 1, 100 * size, false), [0, 0, 0]);
    assert_eq!(read(size, 100 * size, false), [0, 1, 1]);
}

#[test]
fn reading_in_sequence_gives_every_record_once_across_ledgers() {
    let bed = Bed::new(
        4,
        Faults {
            ledger_entries: 3,
            split_segments: true,
            ..Faults::none()
        },
    );
    let partition = bed.open(0);
    let mut next = 0;
    for n in 0..50u32 {
        let count = usize::try_from(n % 7 + 1).expect("small");
        assert_eq!(bed.put(&partition, &vec![NOW_MS; count]), next);
        next += i64::try_from(count).expect("small");
    }
    for step in [1, 200, 1000, 1 << 20] {
        let mut offset = 0;
        while offset < next {
            let fetched = bed.read(&partition, offset, step).expect("a read");
            for (header, _) in batches(&fetched) {
                assert_eq!(header.base_offset, offset);
                offset = header.last_offset() + 1;
            }
        }
    }
}

#[test]
fn large_batches_are_shared_with_the_hosts_memory_and_small_ones_joined() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    for count in [1, 1, 1, 400, 1, 1] {
        bed.put(&partition, &vec![NOW_MS; count]);
    }
    let stored = bed.sim.entries(&partition_name(0));
    assert!(stored[3].2.len() > 4000);
    let fetched = bed.read(&partition, 0, 1 << 20).expect("a read");
    assert_eq!(fetched.records.len(), 3, "joined, shared, joined");
    let large = batches(&fetched)[3].1.len();
    assert_eq!(fetched.records[1].len(), large - 16);
    let again = bed.read(&partition, 0, 1 << 20).expect("a read");
    assert_eq!(
        fetched.records[1].as_ptr(),
        again.records[1].as_ptr(),
        "both are the stored bytes"
    );
}

#[test]
fn one_bad_partition_does_not_spoil_the_others() {
    let bed = Bed::quiet();
    let (a, b, c) = (bed.open(0), bed.open(1), bed.open(2));
    for partition in [&a, &b, &c] {
        bed.put(partition, &[NOW_MS]);
    }
    bed.sim.unload(&partition_name(1));
    let read = |partition: &Arc<Partition>, offset| Read {
        partition: Arc::clone(partition),
        offset,
        max_bytes: 1000,
        isolation: Isolation::ReadUncommitted,
    };
    let results = bed.run(
        bed.logs
            .read(vec![read(&a, 7), read(&b, 0), read(&c, 0)], 1000, true),
    );
    assert!(matches!(results[0], Err(Fault::OffsetOutOfRange(_))));
    assert!(matches!(results[1], Err(Fault::NotLeader(_))));
    assert!(results[2].as_ref().is_ok_and(|fetched| fetched.size > 0));
}
