//! Message sets as the clients of old wrote them.

use bytes::BufMut;

use super::*;
use crate::wire::batch::{BatchView, TimestampType, compress};

fn put_message(
    out: &mut Vec<u8>,
    offset: i64,
    (magic, attributes, timestamp): (u8, u8, i64),
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) {
    let mut body = Vec::new();
    body.put_u8(magic);
    body.put_u8(attributes);
    if magic == 1 {
        body.put_i64(timestamp);
    }
    for bytes in [key, value] {
        match bytes {
            None => body.put_i32(-1),
            Some(bytes) => {
                body.put_i32(bytes.len() as i32);
                body.put_slice(bytes);
            }
        }
    }
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    out.put_i64(offset);
    out.put_i32(body.len() as i32 + 4);
    out.put_u32(crc.sum());
    out.put_slice(&body);
}

fn inner(magic: u8) -> Vec<u8> {
    let mut out = Vec::new();
    put_message(&mut out, 0, (magic, 0, 100), Some(b"a"), Some(b"1"));
    put_message(&mut out, 1, (magic, 0, 90), None, Some(b""));
    put_message(&mut out, 2, (magic, 0, 110), Some(b""), None);
    out
}

type Row = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn rows(batch: &Bytes) -> Vec<Row> {
    let view = BatchView::parse(batch).expect("a batch");
    assert!(view.has_right_crc());
    let records = view.records(1 << 20).expect("records");
    records
        .iter()
        .map(|record| {
            let record = record.expect("a record");
            let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            (
                record.offset,
                record.timestamp,
                own(record.key),
                own(record.value),
            )
        })
        .collect()
}

fn expected(timestamps: [i64; 3]) -> Vec<Row> {
    vec![
        (0, timestamps[0], Some(b"a".to_vec()), Some(b"1".to_vec())),
        (1, timestamps[1], None, Some(vec![])),
        (2, timestamps[2], Some(vec![]), None),
    ]
}

#[test]
fn messages_without_compression_get_the_offsets_of_their_entry() {
    for (magic, timestamps) in [(0, [-1; 3]), (1, [100, 90, 110])] {
        let batch = convert(&inner(magic).into(), 3).expect("a set");
        assert_eq!(rows(&batch), expected(timestamps));
    }
}

#[test]
fn packed_messages_are_unpacked() {
    for (id, codec) in [
        (1, Compression::Gzip),
        (2, Compression::Snappy),
        (3, Compression::Lz4),
    ] {
        for magic in [0, 1] {
            let packed = compress(codec, &inner(magic)).expect("packed");
            let mut set = Vec::new();
            put_message(&mut set, 2, (magic, id, 110), None, Some(&packed));
            let batch = convert(&set.into(), 3).expect("a set");
            let timestamps = if magic == 0 { [-1; 3] } else { [100, 90, 110] };
            assert_eq!(rows(&batch), expected(timestamps), "{codec:?} {magic}");
        }
    }
}

#[test]
fn lz4_with_the_wrong_header_checksum_of_old_clients_is_read() {
    let mut packed = compress(Compression::Lz4, &inner(0)).expect("packed");
    assert_eq!(with_right_lz4_header(packed.clone().into()), packed);
    let at = packed
        .iter()
        .zip(&with_right_lz4_header({
            let mut other = packed.clone();
            other[6] ^= 0xff;
            other.into()
        }))
        .position(|(a, b)| a != b);
    assert_eq!(at, None, "the library's own checksum is the right one");
    packed[6] ^= 0xff;
    let mut set = Vec::new();
    put_message(&mut set, 2, (0, 3, 0), None, Some(&packed));
    assert_eq!(
        rows(&convert(&set.into(), 3).expect("a set")),
        expected([-1; 3])
    );
}

#[test]
fn the_brokers_time_of_a_packed_message_holds_for_all_in_it() {
    let packed = compress(Compression::Gzip, &inner(1)).expect("packed");
    let mut set = Vec::new();
    put_message(
        &mut set,
        2,
        (1, 1 | LOG_APPEND_TIME, 777),
        None,
        Some(&packed),
    );
    let batch = convert(&set.into(), 3).expect("a set");
    assert_eq!(rows(&batch), expected([777; 3]));
    let view = BatchView::parse(&batch).expect("a batch");
    assert_eq!(
        view.header.attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
}

#[test]
fn a_set_spans_the_offsets_of_its_entry_and_never_more() {
    let set = Bytes::from(inner(1));
    let batch = convert(&set, 5).expect("a set");
    let view = BatchView::parse(&batch).expect("a batch");
    assert_eq!(
        (view.header.offset_span(), view.header.record_count),
        (5, 3)
    );
    assert!(convert(&set, 2).is_err());
    assert!(convert(&Bytes::new(), 1).is_err());
}

#[test]
fn what_is_cut_or_packed_twice_is_an_error() {
    let whole = Bytes::from(inner(1));
    for length in 1..whole.len() {
        let _ = convert(&whole.slice(..length), 3);
    }
    assert!(convert(&whole.slice(..whole.len() - 1), 3).is_err());
    let once = compress(Compression::Gzip, &inner(1)).expect("packed");
    let mut middle = Vec::new();
    put_message(&mut middle, 2, (1, 1, 0), None, Some(&once));
    let twice = compress(Compression::Gzip, &middle).expect("packed");
    let mut set = Vec::new();
    put_message(&mut set, 2, (1, 1, 0), None, Some(&twice));
    assert!(convert(&set.into(), 3).is_err());
}

#[test]
fn arbitrary_bytes_are_an_error_and_nothing_worse() {
    proptest::proptest!(|(bytes: Vec<u8>, messages in 1u32..10)| {
        let _ = convert(&bytes.into(), messages);
    });
}
