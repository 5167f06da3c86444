//! Building, and reading back through the own iterator and through the codec.

use super::*;
use crate::wire::batch::{BatchView, Headers, MAX_UNPACKED_BYTES};

type Pair<'a> = (&'a [u8], Option<&'a [u8]>);

const HEADERS: &[Pair<'static>] = &[
    (b"trace", Some(b"1")),
    (b"trace", Some(b"2")),
    (b"null", None),
    (b"", Some(b"")),
    (b"\xff\xfe", Some(b"not utf-8")),
];

fn pairs(headers: Headers<'_>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    headers
        .map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec)))
        .collect()
}

fn sample(codec: Compression) -> Bytes {
    let mut builder = BatchBuilder::new(5000)
        .compression(codec)
        .producer(9, 2, 70);
    for n in 0..50i64 {
        let value = vec![n as u8; 20 * n as usize];
        let record = NewRecord {
            timestamp: 5000 + n * 3 - 70,
            key: (n % 3 != 0).then_some(&b"key"[..]),
            value: (n % 5 != 0).then_some(&value[..]),
            headers: if n % 2 == 0 { HEADERS } else { &[] },
        };
        builder.push(record).unwrap();
    }
    builder.build().unwrap()
}

#[test]
fn records_come_back_in_every_codec_with_duplicate_headers_and_nulls() {
    for codec in Compression::ALL {
        let view = BatchView::parse(&sample(codec)).unwrap();
        assert!(view.has_right_crc());
        assert_eq!(view.header.max_timestamp, 5000 + 49 * 3 - 70);
        let records = view.records(MAX_UNPACKED_BYTES).unwrap();
        let all: Vec<_> = records.iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), 50);
        for (n, record) in all.iter().enumerate() {
            assert_eq!(record.offset, n as i64);
            assert_eq!(record.timestamp, 5000 + n as i64 * 3 - 70);
            assert_eq!(record.key, (n % 3 != 0).then_some(&b"key"[..]));
            assert_eq!(
                record.value.map(<[u8]>::len),
                (n % 5 != 0).then_some(20 * n)
            );
            let expected = if n % 2 == 0 { HEADERS } else { &[] };
            let expected: Vec<_> = expected
                .iter()
                .map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec)))
                .collect();
            assert_eq!(pairs(record.headers), expected);
        }
    }
}

#[test]
fn the_codec_crate_reads_what_we_build() {
    use kafka_protocol::records::RecordBatchDecoder;
    let mut builder = BatchBuilder::new(1).producer(9, 2, 70);
    builder.push(NewRecord::new(1, Some(b"k"), None)).unwrap();
    builder.push(NewRecord::new(2, None, Some(b"v"))).unwrap();
    let set = RecordBatchDecoder::decode(&mut builder.build().unwrap()).unwrap();
    let seen: Vec<_> = set
        .records
        .iter()
        .map(|r| {
            (
                r.offset,
                r.timestamp,
                r.key.as_deref(),
                r.value.as_deref(),
                r.sequence,
                r.producer_id,
            )
        })
        .collect();
    let expected = [
        (0, 1, Some(&b"k"[..]), None, 70, 9),
        (1, 2, None, Some(&b"v"[..]), 71, 9),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn an_end_of_transaction_is_one_control_record_with_the_coordinators_epoch() {
    let bytes = BatchBuilder::end_transaction(ControlType::Commit, 42, 3, 17, 1_000).unwrap();
    let view = BatchView::parse(&bytes).unwrap();
    assert!(view.header.attributes.is_control() && view.header.attributes.is_transactional());
    assert_eq!(
        (view.header.producer_id, view.header.producer_epoch),
        (42, 3)
    );
    assert_eq!(
        (view.header.base_sequence, view.header.last_sequence()),
        (-1, -1)
    );
    let records = view.records(1000).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    assert_eq!(
        ControlType::from_key(record.key.unwrap()),
        Some(ControlType::Commit)
    );
    assert_eq!(record.value, Some(&[0, 0, 0, 0, 0, 17][..]));
    assert_eq!(ControlType::from_key(&[0, 0, 0, 2]), None);
    assert_eq!(ControlType::from_key(&[0, 0, 0]), None);
}

#[test]
fn compaction_keeps_offsets_timestamps_and_span() {
    for codec in Compression::ALL {
        for horizon in [None, Some(9_999)] {
            let source = BatchView::parse(&sample(codec)).unwrap();
            let records = source.records(MAX_UNPACKED_BYTES).unwrap();
            let kept = records
                .iter()
                .map(Result::unwrap)
                .filter(|r| r.offset % 7 == 3);
            let bytes = BatchBuilder::retain(&source.header, kept, horizon).unwrap();
            let view = BatchView::parse(&bytes).unwrap();
            assert!(view.has_right_crc());
            assert_eq!(
                view.header.attributes.has_delete_horizon(),
                horizon.is_some()
            );
            assert_eq!(view.header.last_offset(), source.header.last_offset());
            assert_eq!(view.header.last_sequence(), source.header.last_sequence());
            assert_eq!(view.header.record_count, 7);
            let after = view.records(MAX_UNPACKED_BYTES).unwrap();
            for record in &after {
                let record = record.unwrap();
                let before = records.iter().nth(record.offset as usize).unwrap().unwrap();
                assert_eq!(
                    (record.timestamp, record.key, record.value),
                    (before.timestamp, before.key, before.value)
                );
                assert_eq!(pairs(record.headers), pairs(before.headers));
            }
        }
    }
}

#[test]
fn a_batch_may_lose_all_its_records_and_still_span_its_offsets() {
    let source = BatchView::parse(&sample(Compression::None)).unwrap();
    let bytes = BatchBuilder::retain(&source.header, [], None).unwrap();
    let view = BatchView::parse(&bytes).unwrap();
    assert_eq!(
        (view.header.record_count, view.header.offset_span()),
        (0, 50)
    );
    assert_eq!(view.records(0).unwrap().iter().count(), 0);
}

#[test]
fn records_that_do_not_hold_together_end_the_iteration_with_an_error() {
    let bytes = sample(Compression::None);
    for cut in HEADER_BYTES..bytes.len() {
        let mut short = bytes[..cut].to_vec();
        let length = (cut - LENGTH_PREFIX_BYTES) as i32;
        short[8..12].copy_from_slice(&length.to_be_bytes());
        let view = BatchView::parse(&short.into()).unwrap();
        let records = view.records(MAX_UNPACKED_BYTES).unwrap();
        assert!(records.iter().any(|r| r.is_err()), "cut at {cut}");
    }
}
