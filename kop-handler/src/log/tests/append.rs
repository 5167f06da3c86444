//! Appending: order, ownership, producer state, refusals, topic settings.

use super::*;
use crate::wire::batch::{Attributes, BatchView, Compression, ControlType};

#[test]
fn offsets_are_dense_and_an_answer_names_the_batch() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let mut next = 0;
    for count in [1, 5, 2, 1] {
        let info = bed
            .append(&partition, batch(&vec![NOW_MS; count]))
            .expect("an append");
        let count = i64::try_from(count).expect("small");
        assert_eq!(
            info,
            AppendInfo {
                base_offset: next,
                last_offset: next + count - 1,
                log_append_time_ms: -1,
                log_start_offset: 0,
            }
        );
        next += count;
        assert_eq!(partition.high_watermark(), next);
    }
    assert_eq!(bed.sim.entries(&partition_name(0)).len(), 4);
}

#[test]
fn a_stored_entry_is_kops_envelope_and_the_clients_bytes() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let sent = batch(&[NOW_MS, NOW_MS + 1]);
    bed.append(&partition, sent.clone()).expect("an append");
    let view = |sent: &Bytes| BatchView::parse(sent).expect("a batch");
    let (index, messages, entry) = bed.sim.entries(&partition_name(0)).remove(0);
    assert_eq!((index, messages), (1, 2));
    let expected = EntryFormat::Kafka.encode(&view(&sent), NOW_MS);
    assert_eq!(entry, expected.expect("an entry").concat());
    assert!(entry.ends_with(&sent));
}

#[test]
fn order_is_that_of_the_calls_whoever_polls_first_or_never() {
    let bed = Bed::new(3, Faults::slow());
    let partition = bed.open(0);
    let mut calls: Vec<_> = (0..20)
        .map(|n| {
            let records = sequenced(1, 0, n, 1, &n.to_string());
            Some(Box::pin(bed.logs.append(vec![client(&partition, records)])))
        })
        .collect();
    for n in (0..20).rev() {
        if n % 3 == 0 {
            drop(calls[n].take());
        } else if let Some(call) = calls[n].take() {
            let info = bed.run(call).remove(0).expect("an append");
            assert_eq!(info.base_offset, i64::try_from(n).expect("small"));
        }
    }
    bed.sim.settle();
    let values: Vec<_> = bed.records(&partition, 0);
    for (n, (offset, value)) in values.iter().enumerate() {
        assert_eq!(*offset, i64::try_from(n).expect("small"));
        assert_eq!(value, &n.to_string());
    }
    assert_eq!(values.len(), 20);
    // The dropped calls were taken in as well: a retry of each of the last five is a duplicate.
    for n in 15..20 {
        let info = bed
            .append(&partition, sequenced(1, 0, n, 1, &n.to_string()))
            .expect("a duplicate");
        assert_eq!(info.base_offset, i64::from(n));
    }
    assert_eq!(bed.sim.entries(&partition_name(0)).len(), 20);
}

#[test]
fn one_call_reaches_many_partitions_and_one_partition_twice() {
    let bed = Bed::new(5, Faults::slow());
    let (a, b) = (bed.open(0), bed.open(1));
    let appends = vec![
        client(&b, sequenced(1, 0, 0, 2, "b0")),
        client(&a, sequenced(1, 0, 0, 1, "a0")),
        client(&b, sequenced(1, 0, 2, 1, "b2")),
        client(&a, Bytes::from_static(b"nonsense")),
    ];
    let results = bed.run(bed.logs.append(appends));
    let bases: Vec<Option<i64>> = results
        .iter()
        .map(|result| result.as_ref().ok().map(|info| info.base_offset))
        .collect();
    assert_eq!(bases, [Some(0), Some(0), Some(2), None]);
    assert_eq!((a.high_watermark(), b.high_watermark()), (1, 3));
}

#[test]
fn a_retry_in_flight_is_answered_with_the_same_offset_when_that_is_durable() {
    let bed = Bed::new(8, Faults::slow());
    let partition = bed.open(0);
    let first = bed
        .logs
        .append(vec![client(&partition, sequenced(9, 0, 0, 3, "x"))]);
    let again = bed
        .logs
        .append(vec![client(&partition, sequenced(9, 0, 0, 3, "x"))]);
    let mut again = Box::pin(again);
    assert!(
        bed.poll(again.as_mut()).is_none(),
        "not before it is durable"
    );
    drop(first);
    let info = bed.run(again).remove(0).expect("a duplicate");
    assert_eq!((info.base_offset, info.last_offset), (0, 2));
    assert_eq!(bed.sim.entries(&partition_name(0)).len(), 1);
}

#[test]
fn a_gap_is_refused_and_an_old_epoch_fenced() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let code = |records| bed.append(&partition, records).map_err(|r| r.fault.code());
    assert!(code(sequenced(9, 1, 0, 1, "x")).is_ok());
    assert_eq!(code(sequenced(9, 1, 2, 1, "x")), Err(45));
    assert_eq!(code(sequenced(9, 0, 1, 1, "x")), Err(47));
    assert!(code(sequenced(9, 1, 1, 1, "x")).is_ok());
    assert!(
        code(batch(&[NOW_MS])).is_ok(),
        "without a producer id nothing is checked"
    );
    assert!(code(batch(&[NOW_MS])).is_ok());
}

#[test]
fn a_full_disk_is_a_clear_error_and_the_sequence_goes_on_where_it_was() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    assert!(bed.append(&partition, sequenced(9, 0, 0, 1, "x")).is_ok());
    bed.sim.set_disk_full(true);
    for _ in 0..3 {
        let refused = bed
            .append(&partition, sequenced(9, 0, 1, 1, "y"))
            .expect_err("no room");
        assert!(matches!(refused.fault, Fault::StorageRefused(_)));
    }
    assert_eq!(bed.records(&partition, 0).len(), 1, "reads go on");
    bed.sim.set_disk_full(false);
    let info = bed
        .append(&partition, sequenced(9, 0, 1, 1, "y"))
        .expect("room again");
    assert_eq!(info.base_offset, 1);
}

#[test]
fn a_dead_partition_says_so_until_it_is_opened_again() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    bed.put(&partition, &[NOW_MS]);
    assert!(bed.sim.unload(&partition_name(0)));
    assert!(!partition.is_alive());
    let gone = bed.append(&partition, batch(&[NOW_MS])).expect_err("dead");
    assert!(matches!(gone.fault, Fault::NotLeader(_)));
    assert!(matches!(
        bed.read(&partition, 0, 100),
        Err(Fault::NotLeader(_))
    ));
    let again = bed.open(0);
    assert!(!Arc::ptr_eq(&again, &partition));
    assert_eq!(bed.put(&again, &[NOW_MS]), 1);
}

#[test]
fn transactions_and_markers_of_clients_are_refused() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let transactional = build(
        BatchBuilder::new(NOW_MS).producer(5, 0, 0).transactional(),
        &[NOW_MS],
    );
    let marker =
        BatchBuilder::end_transaction(ControlType::Commit, 5, 0, 0, NOW_MS).expect("a marker");
    for records in [transactional, marker] {
        let refused = bed.append(&partition, records).expect_err("refused");
        assert!(matches!(refused.fault, Fault::InvalidRecord(_)));
    }
    assert_eq!(partition.high_watermark(), 0);
}

#[test]
fn sizes_are_bounded_by_topic_and_segment() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let records = batch(&[NOW_MS; 10]);
    let code = || {
        bed.append(&partition, records.clone())
            .map(|_| ())
            .map_err(|refused| refused.fault.code())
    };
    bed.change_settings(|settings| settings.max_message_bytes = records.len());
    assert_eq!(code(), Ok(()));
    bed.change_settings(|settings| settings.max_message_bytes = records.len() - 1);
    assert_eq!(code(), Err(10));
    bed.change_settings(|settings| {
        settings.max_message_bytes = records.len();
        settings.segment_bytes = u64::try_from(records.len() - 1).expect("small");
    });
    assert_eq!(code(), Err(18));
}

#[test]
fn a_compacted_topic_wants_keys_and_names_the_records_without() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    bed.change_settings(|settings| settings.compact = true);
    let mut builder = BatchBuilder::new(NOW_MS);
    for key in [Some(&b"k"[..]), None, Some(b"k"), None] {
        builder
            .push(NewRecord::new(NOW_MS, key, Some(b"v")))
            .expect("a record");
    }
    let refused = bed
        .append(&partition, builder.build().expect("a batch"))
        .expect_err("no keys");
    assert_eq!(refused.fault.code(), 87);
    let places: Vec<i32> = refused.records.iter().map(|record| record.index).collect();
    assert_eq!(places, [1, 3]);
    assert_eq!(partition.high_watermark(), 0, "nothing is appended");
}

#[test]
fn the_brokers_time_is_set_where_the_topic_says_so() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    bed.change_settings(|settings| settings.timestamp_type = TimestampType::LogAppendTime);
    let records = sequenced(4, 0, 0, 2, "x");
    bed.clock.advance_ms(77);
    let info = bed.append(&partition, records.clone()).expect("an append");
    assert_eq!(info.log_append_time_ms, NOW_MS + 77);
    bed.clock.advance_ms(1000);
    let again = bed.append(&partition, records).expect("a duplicate");
    assert_eq!(
        again.log_append_time_ms,
        NOW_MS + 77,
        "that of the stored batch"
    );
    let (header, _) = batches(&bed.read(&partition, 0, 1000).expect("a read")).remove(0);
    assert_eq!(
        header.attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
    assert_eq!(header.max_timestamp, NOW_MS + 77);
}

#[test]
fn timestamps_out_of_the_topics_range_are_refused() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    bed.change_settings(|settings| {
        settings.timestamp_before_max_ms = 1000;
        settings.timestamp_after_max_ms = 500;
    });
    for (offset_ms, is_fine) in [(-1000, true), (-1001, false), (500, true), (501, false)] {
        let result = bed.append(&partition, batch(&[NOW_MS, NOW_MS + offset_ms]));
        assert_eq!(result.is_ok(), is_fine, "{offset_ms}");
        if let Err(refused) = result {
            assert_eq!(refused.fault.code(), 32);
            assert_eq!(refused.records.len(), 1);
        }
    }
}

#[test]
fn batches_pass_as_they_are_or_in_the_topics_codec() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let mut next = 0;
    for wanted in [
        None,
        Some(Compression::None),
        Some(Compression::Gzip),
        Some(Compression::Snappy),
        Some(Compression::Lz4),
        Some(Compression::Zstd),
    ] {
        bed.change_settings(|settings| settings.compression = wanted);
        for sent in Compression::ALL {
            let timestamps = [NOW_MS, NOW_MS + 5, NOW_MS + 2];
            let records = build(
                BatchBuilder::new(NOW_MS).compression(sent).producer(
                    1,
                    0,
                    i32::try_from(next).expect("small"),
                ),
                &timestamps,
            );
            assert_eq!(
                bed.append(&partition, records.clone())
                    .map(|info| info.base_offset),
                Ok(next)
            );
            let (header, bytes) =
                batches(&bed.read(&partition, next, 1 << 20).expect("a read")).remove(0);
            assert_eq!(header.attributes.compression(), Ok(wanted.unwrap_or(sent)));
            assert_eq!((header.max_timestamp, header.producer_id), (NOW_MS + 5, 1));
            if wanted.is_none_or(|wanted| wanted == sent) {
                assert_eq!(bytes[16..], records[16..], "not touched");
            }
            let values: Vec<Bytes> = bed
                .records(&partition, next)
                .into_iter()
                .map(|(_, value)| value)
                .collect();
            assert_eq!(values, ["0", "1", "2"]);
            next += 3;
        }
    }
}

#[test]
fn zstd_needs_a_newer_produce() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let records = build(
        BatchBuilder::new(NOW_MS).compression(Compression::Zstd),
        &[NOW_MS],
    );
    for (version, is_fine) in [(6, false), (7, true)] {
        let append = Append {
            partition: Arc::clone(&partition),
            records: records.clone(),
            origin: Origin::Client { version },
        };
        let result = bed.run(bed.logs.append(vec![append])).remove(0);
        assert_eq!(
            result.map(|_| ()).map_err(|refused| refused.fault.code()),
            if is_fine { Ok(()) } else { Err(76) }
        );
    }
}

#[test]
fn a_batch_of_a_coordinator_may_be_a_marker_and_has_no_producer_state() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let marker =
        BatchBuilder::end_transaction(ControlType::Abort, 5, 0, 0, NOW_MS).expect("a marker");
    let append = Append {
        partition: Arc::clone(&partition),
        records: marker,
        origin: Origin::Coordinator,
    };
    let info = bed
        .run(bed.logs.append(vec![append.clone(), append]))
        .remove(1)
        .expect("an append");
    assert_eq!(info.base_offset, 1);
    let (header, _) = batches(&bed.read(&partition, 1, 1000).expect("a read")).remove(0);
    assert!(header.attributes.is_control());
    assert_eq!(
        header.attributes.0 & Attributes::CONTROL,
        Attributes::CONTROL
    );
}
