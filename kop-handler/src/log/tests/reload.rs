//! Loading: state after it equals state before it, from a snapshot or without one.

use super::*;
use crate::log::producers::Producers;
use crate::log::time_index::TimeIndex;

pub(super) fn state(partition: &Arc<Partition>) -> (Producers, TimeIndex, i64, (i64, i64)) {
    let state = partition.lock();
    (
        state.producers.clone(),
        state.times.clone(),
        state.taken_in,
        (partition.log_start_offset(), partition.high_watermark()),
    )
}

fn fill(bed: &Bed, partition: &Arc<Partition>, from: i32, to: i32) {
    for n in from..to {
        let producer = i64::from(n % 3);
        let timestamp = NOW_MS + i64::from((n * 7919) % 100);
        let builder = BatchBuilder::new(timestamp).producer(producer, 2, n / 3 * 2);
        bed.append(partition, build(builder, &[timestamp, timestamp - 5]))
            .expect("an append");
    }
}

#[test]
fn state_after_a_load_equals_state_before() {
    for snapshots in [vec![], vec![15], vec![0], vec![29], vec![5, 12, 22]] {
        let mut bed = Bed::new(
            2,
            Faults {
                ledger_entries: 7,
                ..Faults::none()
            },
        );
        let partition = bed.open(0);
        for n in 0..30 {
            fill(&bed, &partition, n, n + 1);
            if snapshots.contains(&n) {
                bed.run(bed.logs.save_due(true));
            }
        }
        let before = state(&partition);
        bed.sim.crash();
        bed.restart();
        let after = bed.open(0);
        assert_eq!(state(&after), before, "{snapshots:?}");
        fill(&bed, &after, 30, 33);
    }
}

#[test]
fn a_load_reads_only_what_is_behind_the_snapshot() {
    let mut bed = Bed::quiet();
    let partition = bed.open(0);
    fill(&bed, &partition, 0, 100);
    bed.run(bed.logs.close());
    fill(&bed, &partition, 100, 102);
    bed.sim.crash();
    bed.restart();
    let partition = bed.open(0);
    assert_eq!(partition.lock().unsaved.bytes, {
        let entries = bed.sim.entries(&partition_name(0));
        let batch = |bytes: &Bytes| crate::format::decode([bytes.clone()]).expect("ours").len();
        let bytes: usize = entries[100..]
            .iter()
            .map(|(_, _, bytes)| batch(bytes))
            .sum();
        u64::try_from(bytes).expect("small")
    });
}

#[test]
fn a_snapshot_ahead_of_the_log_is_cut_to_it() {
    // The end of the log was lost with the machine's memory; the snapshot was not.
    let mut bed = Bed::quiet();
    let partition = bed.open(0);
    fill(&bed, &partition, 0, 9);
    let text = {
        let mut state = partition.lock();
        let mut ahead = state.producers.clone();
        let batch = crate::log::producers::StoredBatch {
            first_sequence: 6,
            last_sequence: 7,
            base_offset: 18,
            last_offset: 19,
            timestamp_ms: NOW_MS,
        };
        ahead.replay(0, 2, batch, NOW_MS);
        std::mem::swap(&mut state.producers, &mut ahead);
        state.taken_in = 20;
        state.unsaved.since_ms = Some(0);
        ahead
    };
    bed.run(crate::log::upkeep::save(&partition))
        .expect("saved");
    bed.sim.crash();
    bed.restart();
    let partition = bed.open(0);
    assert_eq!(state(&partition).0, text);
    assert_eq!(partition.lock().taken_in, 18);
    fill(&bed, &partition, 9, 12);
}

#[test]
fn an_unusable_snapshot_is_replaced_by_reading_the_log() {
    let mut bed = Bed::quiet();
    let partition = bed.open(0);
    fill(&bed, &partition, 0, 12);
    bed.run(bed.logs.close());
    let before = state(&partition);
    let change = handler_api::ledger::PropertiesChange {
        handle: Some(partition.handle().into()),
        set: HashMap::from([(snapshot::PRODUCERS.to_owned(), "??".to_owned())]),
        remove: Vec::new(),
    };
    let host = partition.shared.host.clone();
    bed.run(host.control::<handler_api::ledger::UpdateLedgerProperties>(&change))
        .expect("changed");
    bed.sim.crash();
    bed.restart();
    assert_eq!(state(&bed.open(0)), before);
}

#[test]
fn many_who_open_at_once_share_one_partition() {
    let bed = Bed::new(6, Faults::slow());
    let names: Vec<String> = (0..PARTITIONS).map(partition_name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let opens = (0..10).map(|_| bed.logs.open(&names));
    let opened: Vec<Vec<Arc<Partition>>> = bed
        .run(futures_util::future::join_all(opens))
        .into_iter()
        .map(|all| all.into_iter().map(|one| one.expect("open")).collect())
        .collect();
    for all in &opened {
        for (one, first) in all.iter().zip(&opened[0]) {
            assert!(Arc::ptr_eq(one, first));
        }
    }
}

#[test]
fn an_unknown_partition_is_an_error_of_its_own() {
    let bed = Bed::quiet();
    let results = bed.run(bed.logs.open(&[&partition_name(0), &partition_name(99)]));
    assert!(results[0].is_ok());
    assert!(matches!(results[1], Err(Fault::UnknownTopicOrPartition(_))));
}
