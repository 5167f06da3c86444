//! Produce: idempotence, validation, codecs, headers, compacted topics.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{
    FetchRequest, InitProducerIdRequest, ProduceRequest, TransactionalId,
};
use kop_handler::wire::batch::{BatchBuilder, Compression, NewRecord, crc32c};
use kop_tests::broker::is_reference;
use kop_tests::process::eventually;
use kop_tests::raw::Raw;
use uuid::Uuid;

use crate::kit::{
    FETCH, PRODUCE, advertised, append, batch, batch_of, batches, create, end_offset, fetch,
    fetch_in, now_ms, produce, produce_in, produce_request, skips_compaction, start, text, values,
};

const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const CORRUPT_MESSAGE: i16 = 2;
const OUT_OF_ORDER_SEQUENCE: i16 = 45;
const INVALID_PRODUCER_EPOCH: i16 = 47;
const UNSUPPORTED_COMPRESSION: i16 = 76;
const INVALID_RECORD: i16 = 87;

/// A fresh producer id. A broker that has none left yet says so with an error to be retried.
#[track_caller]
fn producer(raw: &mut Raw) -> (i64, i16) {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(60_000);
    let reply = eventually("a producer id", Duration::from_secs(30), || {
        let reply = raw.call(5, &request);
        (reply.error_code != COORDINATOR_LOAD_IN_PROGRESS).then_some(reply)
    });
    assert_eq!(reply.error_code, 0);
    (reply.producer_id.0, reply.producer_epoch)
}

/// One record of an idempotent producer.
fn sequenced((id, epoch): (i64, i16), sequence: i32) -> Bytes {
    let mut builder = BatchBuilder::new(now_ms()).producer(id, epoch, sequence);
    let value = format!("sequence {sequence}");
    builder
        .push(NewRecord::new(now_ms(), None, Some(value.as_bytes())))
        .expect("a record");
    builder.build().expect("a batch")
}

/// Row 21.
#[test]
fn without_a_producer_id_the_same_batch_is_appended_again() {
    let (_broker, mut raw) = start();
    create(&mut raw, "plain", 1, &[]);
    let same = batch(&["same"]);
    assert_eq!(append(&mut raw, "plain", 0, same.clone()), 0);
    assert_eq!(append(&mut raw, "plain", 0, same), 1);
}

/// Row 22.
#[test]
fn a_retry_among_the_last_five_batches_gets_its_old_offset_and_a_gap_is_refused() {
    let (_broker, mut raw) = start();
    create(&mut raw, "idempotent", 1, &[]);
    let me = producer(&mut raw);
    for sequence in 0..7 {
        assert_eq!(
            append(&mut raw, "idempotent", 0, sequenced(me, sequence)),
            i64::from(sequence)
        );
    }
    for sequence in 2..7 {
        let again = produce(&mut raw, "idempotent", 0, sequenced(me, sequence));
        assert_eq!(
            (again.error_code, again.base_offset),
            (0, i64::from(sequence)),
            "retry of {sequence}"
        );
    }
    let gap = produce(&mut raw, "idempotent", 0, sequenced(me, 9));
    assert_eq!(gap.error_code, OUT_OF_ORDER_SEQUENCE);
    let old = produce(&mut raw, "idempotent", 0, sequenced(me, 0));
    assert_eq!(
        old.error_code, OUT_OF_ORDER_SEQUENCE,
        "no longer among the last five"
    );
    assert_eq!(
        append(&mut raw, "idempotent", 0, sequenced(me, 7)),
        7,
        "the producer goes on"
    );
    assert_eq!(end_offset(&mut raw, "idempotent"), 8);
}

#[test]
fn a_retry_is_known_after_a_restart() {
    let (mut broker, mut raw) = start();
    create(&mut raw, "remembered", 1, &[]);
    let me = producer(&mut raw);
    for sequence in 0..3 {
        append(&mut raw, "remembered", 0, sequenced(me, sequence));
    }
    drop(raw);
    broker.kill();
    broker.restart();
    let mut raw = Raw::connect(broker.address());
    crate::kit::wait_for_leaders(&mut raw, "remembered", 1);
    assert_eq!(append(&mut raw, "remembered", 0, sequenced(me, 2)), 2);
    assert_eq!(
        produce(&mut raw, "remembered", 0, sequenced(me, 4)).error_code,
        OUT_OF_ORDER_SEQUENCE
    );
    assert_eq!(append(&mut raw, "remembered", 0, sequenced(me, 3)), 3);
}

#[test]
fn an_older_epoch_of_a_producer_is_fenced() {
    let (_broker, mut raw) = start();
    create(&mut raw, "fenced", 1, &[]);
    let (id, epoch) = producer(&mut raw);
    append(&mut raw, "fenced", 0, sequenced((id, epoch), 0));
    append(&mut raw, "fenced", 0, sequenced((id, epoch + 1), 0));
    let zombie = produce(&mut raw, "fenced", 0, sequenced((id, epoch), 1));
    assert_eq!(zombie.error_code, INVALID_PRODUCER_EPOCH);
    let late = produce(&mut raw, "fenced", 0, sequenced((id, epoch + 2), 5));
    assert_eq!(
        late.error_code, OUT_OF_ORDER_SEQUENCE,
        "a new epoch begins at sequence 0"
    );
}

/// Row 23.
#[test]
fn producer_ids_are_given_out_once_each_in_every_version() {
    let (_broker, mut raw) = start();
    let (min, max) =
        advertised::<InitProducerIdRequest>(&mut raw).expect("InitProducerId is offered");
    assert_eq!(min, 0);
    let mut ids = vec![producer(&mut raw).0];
    for version in min..=max.min(5) {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000);
        let reply = raw.call(version, &request);
        assert_eq!(
            (reply.error_code, reply.producer_epoch),
            (0, 0),
            "version {version}"
        );
        ids.push(reply.producer_id.0);
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "{ids:?}");
}

/// The end of the surface page: a transactional id gets a fatal error, never one that clients retry for ever.
#[test]
fn transactions_that_are_not_built_are_refused_fatally_and_never_half_served() {
    if is_reference() {
        return;
    }
    let (_broker, mut raw) = start();
    create(&mut raw, "no-transactions", 1, &[]);
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(TransactionalId(text("tx"))))
        .with_transaction_timeout_ms(60_000);
    let error = raw.call(5, &request).error_code;
    let fatal = kafka_protocol::error::ResponseError::try_from_code(error).expect("an error");
    assert!(!fatal.is_retriable(), "{fatal:?}");
    let mut builder = BatchBuilder::new(now_ms())
        .producer(9, 0, 0)
        .transactional();
    builder
        .push(NewRecord::new(now_ms(), None, Some(b"v")))
        .expect("a record");
    let transactional = builder.build().expect("a batch");
    assert_eq!(
        produce(&mut raw, "no-transactions", 0, transactional).error_code,
        INVALID_RECORD
    );
    assert_eq!(end_offset(&mut raw, "no-transactions"), 0);
}

/// Rows 24 and 44: every version's layout, read to its last byte.
#[test]
fn every_version_of_produce_appends_and_answers_in_its_own_layout() {
    let (_broker, mut raw) = start();
    let id = create(&mut raw, "versions", 1, &[]);
    let (min, max) = advertised::<ProduceRequest>(&mut raw).expect("Produce is offered");
    assert_eq!((min, max), (3, 13));
    for (count, version) in (min..=max).enumerate() {
        let answer = produce_in(&mut raw, version, "versions", id, 0, batch(&["v"]));
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, count as i64),
            "version {version}"
        );
        assert_eq!(answer.log_append_time_ms, -1, "version {version}");
        if version >= 5 {
            assert_eq!(answer.log_start_offset, 0, "version {version}");
        }
    }
}

/// Sets the checksum of a batch anew.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Malformed batches and Kafka's code for each.
fn malformed() -> Vec<(&'static str, i16, Vec<u8>)> {
    let good = batch(&["a", "b", "c"]).to_vec();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        sealed(bytes)
    };
    let mut wrong_crc = good.clone();
    wrong_crc[20] ^= 1;
    vec![
        ("wrong checksum", CORRUPT_MESSAGE, wrong_crc),
        (
            "count above the offsets",
            INVALID_RECORD,
            changed(&|b| b[60] = 4),
        ),
        (
            "count below the offsets",
            INVALID_RECORD,
            changed(&|b| b[60] = 2),
        ),
        (
            "one record too few",
            INVALID_RECORD,
            changed(&|b| {
                b[26] = 3;
                b[60] = 4;
            }),
        ),
        (
            "one record too many",
            INVALID_RECORD,
            changed(&|b| {
                b[26] = 1;
                b[60] = 2;
            }),
        ),
        ("base offset 5", INVALID_RECORD, changed(&|b| b[7] = 5)),
        (
            "two batches",
            INVALID_RECORD,
            [good.clone(), good.clone()].concat(),
        ),
        ("magic 1", INVALID_RECORD, changed(&|b| b[16] = 1)),
        ("magic 9", CORRUPT_MESSAGE, changed(&|b| b[16] = 9)),
        ("cut short", INVALID_RECORD, good[..good.len() - 1].to_vec()),
        ("empty", INVALID_RECORD, Vec::new()),
        ("control bit", INVALID_RECORD, changed(&|b| b[22] |= 0x20)),
        (
            "producer without sequence",
            INVALID_RECORD,
            changed(&|b| b[43..51].fill(0)),
        ),
        (
            "length 3",
            CORRUPT_MESSAGE,
            changed(&|b| b[8..12].copy_from_slice(&3i32.to_be_bytes())),
        ),
    ]
}

/// Row 26.
#[test]
fn malformed_batches_are_refused_with_kafkas_codes_and_nothing_is_appended() {
    let (_broker, mut raw) = start();
    let id = create(&mut raw, "malformed", 1, &[]);
    for (what, error, bytes) in malformed() {
        for version in [3, 8, 9, 12, 13] {
            let answer = produce_in(&mut raw, version, "malformed", id, 0, bytes.clone().into());
            assert_eq!(
                (answer.error_code, answer.base_offset),
                (error, -1),
                "{what}, version {version}"
            );
        }
    }
    assert_eq!(end_offset(&mut raw, "malformed"), 0);
    assert_eq!(
        append(&mut raw, "malformed", 0, batch(&["good"])),
        0,
        "the partition is unharmed"
    );
}

/// Row 26: what cannot be read is not let in, whatever Kafka does with it.
#[test]
fn records_that_lie_about_their_offsets_are_refused() {
    if is_reference() {
        return; // Kafka stores them uncompressed and fails with an unknown error on compressed ones.
    }
    let (_broker, mut raw) = start();
    create(&mut raw, "liars", 1, &[]);
    for codec in Compression::ALL {
        let record = |offset: u8| [12, 0, 0, offset * 2, 1, 1, 0];
        let records = [record(0), record(2)].concat();
        let packed = kop_handler::wire::batch::compress(codec, &records).expect("packed");
        let mut bytes = batch(&["a", "b"])[..61].to_vec();
        bytes.extend(packed);
        let length = bytes.len() as i32 - 12;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[22] |= codec.id();
        let answer = produce(&mut raw, "liars", 0, sealed(bytes).into());
        assert_eq!(answer.error_code, INVALID_RECORD, "{codec:?}");
    }
    assert_eq!(end_offset(&mut raw, "liars"), 0);
}

/// Row 26, its last sentence.
#[test]
fn an_append_time_bit_set_by_the_client_is_accepted_and_taken_back() {
    let (_broker, mut raw) = start();
    create(&mut raw, "bit", 1, &[]);
    let mut bytes = batch(&["v"]).to_vec();
    bytes[22] |= 0x08;
    append(&mut raw, "bit", 0, sealed(bytes).into());
    let stored = batches(&fetch(&mut raw, "bit", 0, 0)).remove(0);
    assert_eq!(stored.bytes[22] & 0x08, 0);
    assert!(stored.has_right_crc());
}

/// Row 62, and the record errors of row 24.
#[test]
fn a_null_key_on_a_compacted_topic_is_refused_record_by_record() {
    if skips_compaction() {
        return;
    }
    let (_broker, mut raw) = start();
    let id = create(&mut raw, "compacted", 1, &[("cleanup.policy", "compact")]);
    let now = now_ms();
    for codec in Compression::ALL {
        let records = [
            NewRecord::new(now, Some(b"k"), Some(b"v")),
            NewRecord::new(now, None, Some(b"v")),
            NewRecord::new(now, Some(b"k"), None),
            NewRecord::new(now, None, None),
        ];
        let bytes = batch_of(codec, &records);
        for version in [7, 8, 11, 13] {
            let answer = produce_in(&mut raw, version, "compacted", id, 0, bytes.clone());
            assert_eq!(
                answer.error_code, INVALID_RECORD,
                "{codec:?}, version {version}"
            );
            if version >= 8 {
                let indexes: Vec<_> = answer.record_errors.iter().map(|e| e.batch_index).collect();
                assert_eq!(indexes, [1, 3], "{codec:?}, version {version}");
                assert!(answer.error_message.is_some());
            }
        }
    }
    assert_eq!(end_offset(&mut raw, "compacted"), 0);
    append(
        &mut raw,
        "compacted",
        0,
        batch_of(Compression::None, &[NewRecord::new(now, Some(b""), None)]),
    );
}

/// Rows 65 and 66.
#[test]
fn headers_keep_their_order_duplicates_and_null_values() {
    let (_broker, mut raw) = start();
    create(&mut raw, "headers", 1, &[]);
    let headers: [(&[u8], Option<&[u8]>); 4] = [
        (b"b", Some(b"1")),
        (b"a", None),
        (b"b", Some(b"2")),
        (b"a", Some(b"")),
    ];
    for codec in Compression::ALL {
        let with = NewRecord {
            headers: &headers,
            ..NewRecord::new(now_ms(), None, Some(b"with"))
        };
        let without = NewRecord::new(now_ms(), None, Some(b"without"));
        let base = append(&mut raw, "headers", 0, batch_of(codec, &[with, without]));
        let view = batches(&fetch(&mut raw, "headers", 0, base)).remove(0);
        let records = view.records(1 << 20).expect("records");
        let found: Vec<_> = records.iter().map(|r| r.expect("a record")).collect();
        let kept: Vec<_> = found[0].headers.map(|h| (h.key, h.value)).collect();
        assert_eq!(kept, headers, "{codec:?}");
        assert_eq!(found[1].headers.declared(), 0);
    }
}

/// Row 69.
#[test]
fn every_codec_is_accepted_and_comes_back_as_it_was_sent() {
    let (_broker, mut raw) = start();
    create(&mut raw, "codecs", 1, &[]);
    for codec in Compression::ALL {
        let values: Vec<String> = (0..100).map(|n| format!("{codec:?} value {n}")).collect();
        let records: Vec<_> = values
            .iter()
            .map(|v| NewRecord::new(now_ms(), None, Some(v.as_bytes())))
            .collect();
        let sent = batch_of(codec, &records);
        let base = append(&mut raw, "codecs", 0, sent.clone());
        let view = batches(&fetch(&mut raw, "codecs", 0, base)).remove(0);
        assert_eq!(view.header.base_offset, base);
        assert_eq!(
            view.bytes[16..],
            sent[16..],
            "{codec:?}: all but offset and epoch"
        );
    }
}

/// Row 68.
#[test]
fn zstd_needs_produce_7_and_fetch_10() {
    let (_broker, mut raw) = start();
    let id = create(&mut raw, "zstd", 1, &[("compression.type", "zstd")]);
    let record = [NewRecord::new(now_ms(), None, Some(&[b'z'; 100]))];
    let bytes = batch_of(Compression::Zstd, &record);
    for version in 3..=13 {
        let error = produce_in(&mut raw, version, "zstd", id, 0, bytes.clone()).error_code;
        assert_eq!(
            error,
            if version < 7 {
                UNSUPPORTED_COMPRESSION
            } else {
                0
            },
            "Produce {version}"
        );
    }
    let (min, max) = advertised::<FetchRequest>(&mut raw).expect("Fetch is offered");
    for version in min..=max {
        let error = fetch_in(&mut raw, version, "zstd", id, 0, 0).error_code;
        assert_eq!(
            error,
            // Kafka 4.3.1 has dropped the check: a client that cannot know zstd meets bytes that it cannot read.
            if version < 10 && !is_reference() {
                UNSUPPORTED_COMPRESSION
            } else {
                0
            },
            "Fetch {version}"
        );
    }
}

#[test]
fn acks_0_is_answered_by_nothing_and_other_numbers_by_an_error() {
    let (_broker, mut raw) = start();
    create(&mut raw, "acks", 1, &[]);
    let request = produce_request(PRODUCE, "acks", Uuid::nil(), 0, Some(batch(&["silent"])));
    raw.send(PRODUCE, &request.clone().with_acks(0));
    assert!(raw.is_silent_for(Duration::from_millis(500)));
    let reply = raw.call(PRODUCE, &request.clone().with_acks(1));
    assert_eq!(
        reply.responses[0].partition_responses[0].base_offset, 1,
        "the silent one was appended"
    );
    for acks in [2, -2, 7] {
        let reply = raw.call(PRODUCE, &request.clone().with_acks(acks));
        assert_eq!(
            reply.responses[0].partition_responses[0].error_code, 21,
            "acks {acks}"
        );
    }
    let data = fetch(&mut raw, "acks", 0, 0);
    assert_eq!(values(&data, 0).len(), 2);
}

#[test]
fn a_batch_above_the_topics_limit_is_too_large() {
    let (_broker, mut raw) = start();
    create(&mut raw, "small", 1, &[("max.message.bytes", "2000")]);
    let value = "x".repeat(3000);
    assert_eq!(
        produce(&mut raw, "small", 0, batch(&[&value])).error_code,
        10
    );
    assert_eq!(append(&mut raw, "small", 0, batch(&[&value[..1000]])), 0);
}

#[test]
fn append_time_topics_stamp_records_and_tell_the_time() {
    let (_broker, mut raw) = start();
    create(
        &mut raw,
        "stamped",
        1,
        &[("message.timestamp.type", "LogAppendTime")],
    );
    let before = now_ms();
    let old = [
        NewRecord::new(1000, None, Some(b"old")),
        NewRecord::new(2000, None, Some(b"older")),
    ];
    let answer = produce(&mut raw, "stamped", 0, batch_of(Compression::Lz4, &old));
    assert_eq!(answer.error_code, 0);
    assert!(
        (before..=now_ms()).contains(&answer.log_append_time_ms),
        "{}",
        answer.log_append_time_ms
    );
    let view = batches(&fetch(&mut raw, "stamped", 0, 0)).remove(0);
    assert!(view.has_right_crc());
    for record in &view.records(1 << 20).expect("records") {
        assert_eq!(
            record.expect("a record").timestamp,
            answer.log_append_time_ms
        );
    }
}

#[test]
fn unknown_topics_partitions_and_ids_are_told_as_such() {
    let (_broker, mut raw) = start();
    create(&mut raw, "there", 1, &[]);
    assert_eq!(produce(&mut raw, "absent", 0, batch(&["v"])).error_code, 3);
    assert_eq!(produce(&mut raw, "there", 1, batch(&["v"])).error_code, 3);
    let unknown = produce_in(&mut raw, 13, "", Uuid::from_u128(99), 0, batch(&["v"]));
    assert_eq!(unknown.error_code, 100);
    assert_eq!(
        fetch_in(&mut raw, FETCH, "there", Uuid::nil(), 0, 0).error_code,
        0
    );
}
