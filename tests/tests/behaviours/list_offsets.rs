//! ListOffsets: by time to the record, earliest, latest, the largest timestamp.

use std::path::Path;
use std::sync::Arc;

use handler_api::ledger::OpenLedgers;
use handler_api::topics::TopicNames;
use handler_api::{AppendRequest, Host, SharedBytes};
use host_shim::embedded::{EmbeddedBroker, EmbeddedConfig};
use host_shim::events::NoEvents;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::{DeleteRecordsRequest, ListOffsetsRequest};
use kop_handler::format::EntryFormat;
use kop_handler::wire::batch::{BatchBuilder, BatchView, Compression, ControlType, NewRecord};
use kop_tests::broker::{Broker, not_embedded};
use kop_tests::raw::Raw;
use kop_tests::skip::inapplicable;

use crate::kit::{
    LIST_OFFSETS, advertised, append, batch_of, create, end_offset, list_offset,
    list_offsets_request, now_ms, read_to_end, start, topic_name, wait_for_leaders,
};

/// A topic of two batches per codec-less topic: times 100, 200, 300 in one and 400, 350 in another, after a base.
fn timed(raw: &mut Raw, topic: &str, codec: Compression) -> i64 {
    create(raw, topic, 1, &[]);
    let base = now_ms() - 100_000;
    for times in [&[100, 200, 300][..], &[400, 350]] {
        let records: Vec<_> = times
            .iter()
            .map(|time| NewRecord::new(base + time, None, Some(b"timed")))
            .collect();
        append(raw, topic, 0, batch_of(codec, &records));
    }
    base
}

/// Rows 10, 11 and 12.
#[test]
fn a_time_finds_the_first_record_at_or_after_it_with_that_records_time() {
    let (_broker, mut raw) = start();
    for codec in Compression::ALL {
        let topic = format!("timed-{codec:?}");
        let base = timed(&mut raw, &topic, codec);
        let (min, max) =
            advertised::<ListOffsetsRequest>(&mut raw).expect("ListOffsets is offered");
        for version in min..=max {
            for (asked, offset, found) in [
                (0, 0, 100),
                (100, 0, 100),
                (101, 1, 200),
                (250, 2, 300),
                (301, 3, 400),
                (375, 3, 400),
                (400, 3, 400),
            ] {
                let answer = list_offset(&mut raw, version, &topic, base + asked);
                assert_eq!(
                    (answer.error_code, answer.offset, answer.timestamp),
                    (0, offset, base + found),
                    "{codec:?}, version {version}, time {asked}"
                );
            }
            let none = list_offset(&mut raw, version, &topic, base + 401);
            assert_eq!(
                (none.error_code, none.offset, none.timestamp),
                (0, -1, -1),
                "version {version}"
            );
        }
    }
}

#[test]
fn earliest_latest_and_the_largest_timestamp_are_found() {
    let (_broker, mut raw) = start();
    let base = timed(&mut raw, "ends", Compression::None);
    for version in 1..=LIST_OFFSETS {
        let earliest = list_offset(&mut raw, version, "ends", -2);
        assert_eq!(
            (earliest.error_code, earliest.offset, earliest.timestamp),
            (0, 0, -1)
        );
        let latest = list_offset(&mut raw, version, "ends", -1);
        assert_eq!(
            (latest.error_code, latest.offset, latest.timestamp),
            (0, 5, -1)
        );
        if version >= 7 {
            let largest = list_offset(&mut raw, version, "ends", -3);
            assert_eq!(
                (largest.error_code, largest.offset, largest.timestamp),
                (0, 3, base + 400)
            );
        }
        if version >= 8 {
            assert_eq!(
                list_offset(&mut raw, version, "ends", -4).offset,
                0,
                "earliest local"
            );
        }
        if version >= 9 {
            let tiered = list_offset(&mut raw, version, "ends", -5);
            assert_eq!(
                (tiered.error_code, tiered.offset),
                (0, -1),
                "latest tiered: there is none"
            );
        }
    }
}

#[test]
fn an_empty_partition_has_no_times() {
    let (_broker, mut raw) = start();
    create(&mut raw, "empty", 1, &[]);
    for (asked, offset) in [(-2, 0), (-1, 0), (-3, -1), (0, -1)] {
        let answer = list_offset(&mut raw, LIST_OFFSETS, "empty", asked);
        assert_eq!(
            (answer.error_code, answer.offset, answer.timestamp),
            (0, offset, -1),
            "time {asked}"
        );
    }
}

/// A record at `base` + 100 at offset 0 and behind it the marker that ends its transaction, stamped with the present.
fn marked(broker: &mut Broker, topic: &str, base: i64) -> Raw {
    let mut raw = Raw::connect(broker.address());
    create(&mut raw, topic, 1, &[]);
    // Transactions are not built: what another broker of the cluster would have written is put there at rest.
    let record = NewRecord::new(base + 100, None, Some(b"of the transaction"));
    append(&mut raw, topic, 0, batch_of(Compression::None, &[record]));
    drop(raw);
    broker.stop().expect("a clean stop");
    store_marker(
        &broker.data(),
        &format!("persistent://public/default/{topic}-partition-0"),
    );
    broker.restart();
    let mut raw = Raw::connect(broker.address());
    wait_for_leaders(&mut raw, topic, 1);
    raw
}

/// Appends the marker of a committed transaction to a partition of a broker at rest.
fn store_marker(data: &Path, partition: &str) {
    let broker = EmbeddedBroker::open(EmbeddedConfig::new(data)).expect("the data directory");
    let host = Host::of(broker.attach(String::new(), Arc::new(NoEvents)));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let names = TopicNames {
            names: vec![partition.to_owned()],
        };
        let opened = host
            .control::<OpenLedgers>(&names)
            .await
            .expect("an answer");
        let handle = opened.ledgers[0].handle.expect("a handle");
        let now = now_ms();
        let marker = BatchBuilder::end_transaction(ControlType::Commit, 1, 0, 0, now);
        let format = EntryFormat::parse("kafka").expect("a format");
        let marker = BatchView::parse(&marker.expect("a batch")).expect("a batch");
        let segments = format.encode(&marker, now).expect("an entry");
        let entry = AppendRequest {
            handle: handle.into(),
            messages: 1,
            flags: AppendRequest::MARKER,
            segments: segments.into_iter().map(SharedBytes::from).collect(),
        };
        let answers = host.append(vec![entry]).await.expect("an answer");
        assert_eq!(answers[0].as_ref().map(|done| done.index), Ok(1));
    });
    drop(host);
    broker.close();
}

/// Row 15: the end of a transaction is no record, however late its time is.
#[test]
fn a_time_never_finds_a_control_batch() {
    // Kafka 4.3.1 finds the marker; clients skip it, so that they see no difference.
    if let Some(reason) = not_embedded("the marker that is stored at rest") {
        return inapplicable(&reason);
    }
    let mut broker = Broker::start();
    let base = now_ms() - 100_000;
    let mut raw = marked(&mut broker, "marked", base);
    assert_eq!(end_offset(&mut raw, "marked"), 2);
    let found = |raw: &mut Raw, version: i16, asked: i64| {
        let answer = list_offset(raw, version, "marked", asked);
        assert_eq!(answer.error_code, 0);
        (answer.offset, answer.timestamp)
    };
    for version in 1..=LIST_OFFSETS {
        assert_eq!(found(&mut raw, version, base + 100), (0, base + 100));
        assert_eq!(found(&mut raw, version, base + 101), (-1, -1));
        if version >= 7 {
            assert_eq!(found(&mut raw, version, -3), (0, base + 100), "the largest");
        }
    }
    let record = NewRecord::new(base + 500, None, Some(b"behind the marker"));
    assert_eq!(
        append(
            &mut raw,
            "marked",
            0,
            batch_of(Compression::None, &[record])
        ),
        2
    );
    for version in 1..=LIST_OFFSETS {
        assert_eq!(found(&mut raw, version, base + 101), (2, base + 500));
        assert_eq!(found(&mut raw, version, base + 501), (-1, -1));
        if version >= 7 {
            assert_eq!(found(&mut raw, version, -3), (2, base + 500), "the largest");
        }
    }
    let read: Vec<_> = read_to_end(&mut raw, "marked", 0, 0);
    assert_eq!(read.len(), 3, "the marker is there, for clients to skip");
}

/// Row 13.
#[test]
fn version_0_is_not_advertised() {
    let (_broker, mut raw) = start();
    assert_eq!(
        advertised::<ListOffsetsRequest>(&mut raw).map(|(min, _)| min),
        Some(1)
    );
}

/// Rows 17 and 34, as far as there are no open transactions.
#[test]
fn the_last_stable_offset_is_the_end_without_open_transactions() {
    let (_broker, mut raw) = start();
    timed(&mut raw, "stable", Compression::None);
    for version in 2..=LIST_OFFSETS {
        let reply = raw.call(version, &list_offsets_request("stable", -1, 1));
        assert_eq!(reply.topics[0].partitions[0].offset, 5);
    }
}

/// Row 18.
#[test]
fn the_start_moves_only_by_deletion_and_time_searches_stop_at_it() {
    let (_broker, mut raw) = start();
    let base = timed(&mut raw, "trimmed", Compression::None);
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(0)
        .with_offset(2);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic_name("trimmed"))
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(10_000);
    let reply = raw.call(2, &request);
    let answer = &reply.topics[0].partitions[0];
    assert_eq!((answer.error_code, answer.low_watermark), (0, 2));
    assert_eq!(list_offset(&mut raw, LIST_OFFSETS, "trimmed", -2).offset, 2);
    for (asked, offset, found) in [(0, 2, 300), (150, 2, 300), (350, 3, 400)] {
        let answer = list_offset(&mut raw, LIST_OFFSETS, "trimmed", base + asked);
        assert_eq!(
            (answer.offset, answer.timestamp),
            (offset, base + found),
            "time {asked}"
        );
    }
}

#[test]
fn an_unknown_partition_is_told_as_such() {
    let (_broker, mut raw) = start();
    create(&mut raw, "known", 1, &[]);
    for version in 1..=LIST_OFFSETS {
        assert_eq!(list_offset(&mut raw, version, "unknown", -1).error_code, 3);
        let mut request = list_offsets_request("known", -1, 0);
        request.topics[0].partitions[0].partition_index = 1;
        assert_eq!(
            raw.call(version, &request).topics[0].partitions[0].error_code,
            3
        );
    }
}
