//! Snapshots, retention, rolling and deletion by hand.

use super::*;

fn check(bed: &Bed) {
    bed.run(bed.logs.check());
}

/// Ten batches of two records in ledgers of two.
fn fill(bed: &Bed, partition: &Arc<Partition>) {
    for _ in 0..10 {
        bed.put(partition, &[NOW_MS, NOW_MS]);
    }
}

fn bed() -> Bed {
    let bed = Bed::new(
        1,
        Faults {
            ledger_entries: 2,
            ..Faults::none()
        },
    );
    bed.change_settings(|settings| settings.retention_ms = -1);
    bed
}

#[test]
fn deleted_records_stay_deleted_at_the_very_offset() {
    let mut bed = bed();
    let partition = bed.open(0);
    fill(&bed, &partition);
    assert_eq!(bed.run(partition.delete_records(7)), Ok(7));
    assert_eq!(
        bed.run(partition.delete_records(3)),
        Ok(7),
        "what is gone stays gone"
    );
    assert!(matches!(
        bed.run(partition.delete_records(21)),
        Err(Fault::OffsetOutOfRange(_))
    ));
    assert!(matches!(
        bed.run(partition.delete_records(-2)),
        Err(Fault::OffsetOutOfRange(_))
    ));
    assert_eq!(
        bed.sim.entries(&partition_name(0)).len(),
        7,
        "three whole entries went"
    );
    bed.sim.crash();
    bed.restart();
    let partition = bed.open(0);
    assert_eq!(partition.log_start_offset(), 7);
    assert!(matches!(
        bed.read(&partition, 6, 100),
        Err(Fault::OffsetOutOfRange(_))
    ));
    assert_eq!(bed.run(partition.delete_records(-1)), Ok(20));
    assert_eq!(
        (partition.log_start_offset(), partition.high_watermark()),
        (20, 20)
    );
    assert_eq!(bed.read(&partition, 20, 100).expect("empty").size, 0);
    assert_eq!(bed.put(&partition, &[NOW_MS]), 20);
}

#[test]
fn retention_by_time_and_size_trims_open_and_unopened_partitions() {
    for open in [true, false] {
        let mut bed = bed();
        let partition = bed.open(0);
        fill(&bed, &partition);
        bed.run(bed.logs.close());
        if !open {
            bed.sim.crash();
            bed.restart();
        }
        check(&bed);
        assert_eq!(bed.sim.entries(&partition_name(0)).len(), 10);
        let bytes: usize = bed
            .sim
            .entries(&partition_name(0))
            .iter()
            .map(|(_, _, bytes)| bytes.len())
            .sum();
        bed.change_settings(|settings| {
            settings.retention_bytes = i64::try_from(bytes / 2).expect("small")
        });
        check(&bed);
        assert_eq!(bed.sim.entries(&partition_name(0)).len(), 6, "open: {open}");
        if open {
            assert_eq!(partition.log_start_offset(), 8);
        }
        bed.clock.advance_ms(1001);
        bed.change_settings(|settings| settings.retention_ms = 1000);
        check(&bed);
        assert_eq!(
            bed.sim.entries(&partition_name(0)).len(),
            0,
            "the open ledger is sealed and goes"
        );
        let partition = bed.open(0);
        assert_eq!(
            (partition.log_start_offset(), partition.high_watermark()),
            (20, 20)
        );
        assert_eq!(bed.put(&partition, &[NOW_MS]), 20);
    }
}

#[test]
fn a_full_ledger_is_rolled_without_waiting_for_the_check() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    bed.change_settings(|settings| settings.segment_bytes = 300);
    bed.put(&partition, &[NOW_MS]);
    bed.run(bed.logs.save_due(false));
    bed.put(&partition, &[NOW_MS; 20]);
    bed.run(bed.logs.save_due(false));
    bed.put(&partition, &[NOW_MS]);
    bed.put(&partition, &[NOW_MS]);
    let ledgers: std::collections::BTreeSet<i64> =
        partition.lock().times.ledgers().map(|(id, _)| id).collect();
    assert_eq!(ledgers.len(), 2);
}

#[test]
fn a_snapshot_is_written_when_it_is_due_and_not_before() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let saved = || {
        let names = handler_api::topics::TopicNames {
            names: vec![partition_name(0)],
        };
        let host = partition.shared.host.clone();
        let opened = bed
            .run(host.control::<handler_api::ledger::OpenLedgers>(&names))
            .expect("open")
            .ledgers
            .remove(0);
        snapshot::restore(&opened.properties, i64::MAX).end_offset
    };
    bed.put(&partition, &[NOW_MS]);
    bed.run(bed.logs.save_due(false));
    assert_eq!(saved(), None);
    bed.clock.advance_ms(60_000);
    bed.run(bed.logs.save_due(false));
    assert_eq!(saved(), Some(1));
    bed.put(&partition, &[NOW_MS]);
    bed.run(bed.logs.save_due(false));
    assert_eq!(saved(), Some(1));
    bed.run(bed.logs.close());
    assert_eq!(saved(), Some(2));
    assert!(
        bed.logs.shared.unsaved.lock().is_empty(),
        "an idle partition is on no list"
    );
}

#[test]
fn producers_expire_by_when_they_were_seen_here() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    bed.append(&partition, sequenced(1, 0, 0, 1, "x"))
        .expect("an append");
    bed.clock.advance_ms(86_400_000);
    bed.append(&partition, sequenced(2, 0, 0, 1, "x"))
        .expect("an append");
    bed.run(bed.logs.close());
    assert_eq!(partition.lock().producers.len(), 2);
    bed.clock.advance_ms(1);
    bed.append(&partition, sequenced(2, 0, 1, 1, "x"))
        .expect("an append");
    bed.run(bed.logs.close());
    assert_eq!(partition.lock().producers.len(), 1);
}
