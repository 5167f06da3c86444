//! Pulsar's format: KoP's bytes, our own way there and back, and what Pulsar's producers write.

use bytes::{BufMut, Bytes};

use super::*;
use crate::format::metadata::{Envelope, fields};
use crate::format::{DecodeError, EncodeError, EntryFormat, fixtures, gap, proto};
use crate::wire::batch::{
    BatchBuilder, BatchHeader, BatchView, Compression, ControlType, NewRecord, crc32c,
};

fn view(batch: &Bytes) -> BatchView {
    let view = BatchView::parse(batch).expect("a batch");
    assert!(view.has_right_crc());
    view
}

fn read(entry: impl IntoIterator<Item = Bytes>) -> Result<BatchView, DecodeError> {
    let batch = crate::format::decode(entry)?;
    Ok(view(&batch.contiguous()))
}

/// The metadata of an entry with a checksum, and its payload.
fn parts(entry: &Bytes) -> (Bytes, Bytes) {
    assert_eq!(&entry[..2], [0x0e, 0x01]);
    let crc = u32::from_be_bytes(entry[2..6].try_into().expect("four bytes"));
    assert_eq!(crc, crc32c(&entry[6..]), "the checksum covers the rest");
    let size = u32::from_be_bytes(entry[6..10].try_into().expect("four bytes")) as usize;
    (entry.slice(10..10 + size), entry.slice(10 + size..))
}

#[test]
fn what_kop_stores_without_loss_is_stored_byte_for_byte_alike() {
    let [(_, kop), ..] = fixtures::all();
    let mut same = 0;
    for stored in kop.partitions.iter().flatten() {
        let (metadata, _) = parts(&stored.entry);
        let envelope = Envelope::read(&metadata).expect("metadata");
        // Pulsar's own producers, and the idempotent one, whose batches get a property more from us.
        if !envelope.producer_name.is_empty() || is_idempotent(&stored.entry) {
            continue;
        }
        let batch = read([stored.entry.clone()]).expect("an entry of KoP");
        let entry = EntryFormat::Pulsar.encode(&batch, 0).expect("encoded");
        assert_eq!(entry.concat(), stored.entry, "index {}", stored.index);
        same += 1;
    }
    assert!(same > 25, "{same}");
}

/// Whether the values say that the idempotent producer of the fixtures wrote them.
fn is_idempotent(entry: &Bytes) -> bool {
    entry.windows(11).any(|text| text == b"idempotent ")
}

#[test]
fn a_batch_of_an_idempotent_producer_is_kops_but_for_one_property() {
    let [(_, kop), ..] = fixtures::all();
    let mut seen = 0;
    for stored in kop.partitions.iter().flatten() {
        let (metadata, payload) = parts(&stored.entry);
        let envelope = Envelope::read(&metadata).expect("metadata");
        if !is_idempotent(&stored.entry) {
            continue;
        }
        seen += 1;
        let batch = read([stored.entry.clone()]).expect("an entry of KoP");
        let sequence = i32::try_from(envelope.sequence_id).expect("a sequence");
        let records = batch.records(1 << 20).expect("records");
        let mut builder = BatchBuilder::new(batch.header.base_timestamp).producer(7, 2, sequence);
        for record in &records {
            let record = record.expect("a record");
            builder
                .push(NewRecord::new(record.timestamp, record.key, record.value))
                .expect("a record");
        }
        let ours = view(&builder.build().expect("a batch"));
        let entry = EntryFormat::Pulsar
            .encode(&ours, 0)
            .expect("encoded")
            .concat();
        let (ours, our_payload) = parts(&entry.into());
        assert_eq!(our_payload, payload);
        let mut properties = Envelope::read(&ours).expect("metadata").properties();
        assert_eq!(
            properties.next().map(|(name, _)| name),
            Some(extra::PROPERTY)
        );
        assert_eq!(properties.next(), None);
        let without: Vec<u8> = without_properties(&ours);
        assert_eq!(without, metadata);
    }
    assert_eq!(seen, 5);
}

fn without_properties(mut metadata: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while !metadata.is_empty() {
        let before = metadata;
        let (number, _) = proto::field(&mut metadata).expect("a field");
        if number != fields::PROPERTY {
            out.extend_from_slice(&before[..before.len() - metadata.len()]);
        }
    }
    out
}

type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;
type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Headers);

fn rows(batch: &BatchView) -> Vec<(i64, Row)> {
    let records = batch.records(1 << 26).expect("records");
    records
        .iter()
        .map(|record| {
            let record = record.expect("a record");
            let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            let headers = record.headers.map(|h| (h.key.to_vec(), own(h.value)));
            let row = (
                record.timestamp,
                own(record.key),
                own(record.value),
                headers.collect(),
            );
            (record.offset - batch.header.base_offset, row)
        })
        .collect()
}

fn build(mut builder: BatchBuilder, rows: &[Row]) -> BatchView {
    for (timestamp, key, value, headers) in rows {
        let headers: Vec<_> = headers
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
            .collect();
        builder
            .push(NewRecord {
                timestamp: *timestamp,
                key: key.as_deref(),
                value: value.as_deref(),
                headers: &headers,
            })
            .expect("a record");
    }
    view(&builder.build().expect("a batch"))
}

fn there_and_back(batch: &BatchView) -> BatchView {
    let entry = EntryFormat::Pulsar.encode(batch, 77).expect("encoded");
    parts(&entry.concat().into());
    read(entry).expect("what we wrote")
}

fn same_producer(a: &BatchHeader, b: &BatchHeader) {
    let of = |h: &BatchHeader| (h.producer_id, h.producer_epoch, h.base_sequence);
    assert_eq!(of(a), of(b));
    let flags = |h: &BatchHeader| h.attributes.0 & !7;
    assert_eq!(flags(a), flags(b));
}

#[test]
fn whatever_a_client_writes_comes_back_to_it() {
    use proptest::collection::vec;
    use proptest::prelude::*;
    let bytes = || vec(any::<u8>(), 0..20);
    let text = || "[a-zż]{0,5}".prop_map(String::into_bytes);
    let value = prop_oneof![text().prop_map(Some), bytes().prop_map(Some), Just(None)];
    let headers = vec((prop_oneof![text(), bytes()], value), 0..4);
    let time = prop_oneof![Just(-1), Just(0), Just(1_656_313_445_000i64), any::<i64>()];
    let row = (
        time,
        prop::option::of(bytes()),
        prop::option::of(vec(any::<u8>(), 0..200)),
        headers,
    );
    let codec = prop::sample::select(Compression::ALL.to_vec());
    let producer = prop::option::of((0..i64::MAX, 0..i16::MAX, 0..i32::MAX));
    proptest!(|(rows_in in vec(row, 1..12), codec in codec, producer in producer, transactional: bool)| {
        let mut builder = BatchBuilder::new(rows_in[0].0).compression(codec);
        if let Some((id, epoch, sequence)) = producer {
            builder = builder.producer(id, epoch, sequence);
            if transactional {
                builder = builder.transactional();
            }
        }
        let sent = build(builder, &rows_in);
        let back = there_and_back(&sent);
        prop_assert_eq!(rows(&back), rows(&sent));
        prop_assert_eq!(back.header.attributes.compression(), Ok(Compression::None));
        same_producer(&back.header, &sent.header);
        prop_assert_eq!(back.header.offset_span(), sent.header.offset_span());
    });
}

#[test]
fn the_brokers_time_and_binary_headers_come_back_and_pulsar_sees_text() {
    let headers: Headers = vec![
        (b"bin".to_vec(), Some(vec![0xff, 0x01])),
        (b"rep".to_vec(), Some(b"1".to_vec())),
        (b"rep".to_vec(), Some(b"2".to_vec())),
        (b"null".to_vec(), None),
    ];
    let sent = build(
        BatchBuilder::new(5000).log_append_time(),
        &[(5000, None, Some(b"v".to_vec()), headers)],
    );
    let entry = EntryFormat::Pulsar.encode(&sent, 77).expect("encoded");
    let back = read(entry.clone()).expect("what we wrote");
    assert_eq!(rows(&back), rows(&sent));
    same_producer(&back.header, &sent.header);
    let payload = &entry[1];
    let size = u32::from_be_bytes(payload[..4].try_into().expect("four bytes")) as usize;
    let seen: Vec<_> =
        crate::format::metadata::Properties::of(&payload[4..4 + size], single::PROPERTY).collect();
    let replaced = "\u{fffd}\u{1}".as_bytes();
    let expected: [(&[u8], &[u8]); 4] = [
        (b"bin", replaced),
        (b"rep", b"1"),
        (b"rep", b"2"),
        (b"null", b""),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_packed_batch_is_stored_packed_with_a_codec_that_pulsar_has() {
    let value = vec![b'x'; 10_000];
    let rows_in: Vec<Row> = (0..10)
        .map(|n| (n + 1, None, Some(value.clone()), vec![]))
        .collect();
    for (codec, stored_as) in [(0, 0), (1, 2), (2, 1), (3, 1), (4, 3)] {
        let codec = Compression::ALL[codec];
        let sent = build(BatchBuilder::new(1).compression(codec), &rows_in);
        let entry = EntryFormat::Pulsar.encode(&sent, 0).expect("encoded");
        let (metadata, payload) = parts(&entry.concat().into());
        let envelope = Envelope::read(&metadata).expect("metadata");
        assert_eq!(envelope.compression, stored_as, "{codec:?}");
        assert_eq!(payload.len() < 10_000, stored_as != 0, "{codec:?}");
        assert_eq!(rows(&read(entry).expect("read")), rows(&sent));
    }
}

#[test]
fn markers_come_back_with_their_coordinators_epoch() {
    for kind in [ControlType::Commit, ControlType::Abort] {
        let sent = BatchBuilder::end_transaction(kind, 1 << 40, 3, 12, 1000).expect("a marker");
        let sent = view(&sent);
        let back = there_and_back(&sent);
        assert_eq!(rows(&back), rows(&sent));
        same_producer(&back.header, &sent.header);
    }
}

#[test]
fn a_batch_with_gaps_is_refused() {
    let batch = BatchBuilder::new(1).span(3);
    let rows = [(1, None, None, vec![])];
    assert_eq!(
        EntryFormat::Pulsar.encode(&build(batch, &rows), 0),
        Err(EncodeError::Gaps)
    );
}

/// An entry as a Pulsar producer writes it: metadata fields, then the payload.
fn foreign(metadata: impl FnOnce(&mut Vec<u8>), payload: &[u8]) -> [Bytes; 2] {
    let mut fields_out = Vec::new();
    proto::put_slice(&mut fields_out, fields::PRODUCER_NAME, b"app-1");
    proto::put_number(&mut fields_out, fields::SEQUENCE_ID, 4);
    proto::put_number(&mut fields_out, fields::PUBLISH_TIME, 1000);
    metadata(&mut fields_out);
    let mut head = Vec::new();
    head.put_u32(fields_out.len() as u32);
    head.extend(fields_out);
    [head.into(), Bytes::copy_from_slice(payload)]
}

fn put_property(out: &mut Vec<u8>, field: u64, name: &[u8], value: &[u8]) {
    let mut pair = Vec::new();
    proto::put_slice(&mut pair, 1, name);
    proto::put_slice(&mut pair, 2, value);
    proto::put_slice(out, field, &pair);
}

#[test]
fn a_message_of_a_pulsar_producer_is_a_record_with_properties_as_headers() {
    let entry = foreign(
        |out| {
            put_property(out, fields::PROPERTY, b"a", b"1");
            put_property(out, fields::PROPERTY, b"kop.batch", b"of the application");
            proto::put_slice(out, fields::PARTITION_KEY, b"plain");
            proto::put_number(out, fields::EVENT_TIME, 900);
        },
        b"value",
    );
    let batch = read(entry).expect("a message");
    let headers: Headers = vec![
        (b"a".to_vec(), Some(b"1".to_vec())),
        (b"kop.batch".to_vec(), Some(b"of the application".to_vec())),
    ];
    let row = (
        900,
        Some(b"plain".to_vec()),
        Some(b"value".to_vec()),
        headers,
    );
    assert_eq!(rows(&batch), [(0, row)]);
    assert_eq!(batch.header.producer_id, -1);
}

#[test]
fn keys_are_read_in_all_their_forms() {
    type Put = fn(&mut Vec<u8>);
    let forms: [(Put, Option<&[u8]>); 5] = [
        (|_| (), None),
        (
            |out| {
                proto::put_slice(out, fields::PARTITION_KEY, b"/wE=");
                proto::put_number(out, fields::KEY_IS_BASE64, 1);
            },
            Some(&[0xff, 0x01]),
        ),
        (
            |out| {
                proto::put_slice(out, fields::PARTITION_KEY, b"not base64!");
                proto::put_number(out, fields::KEY_IS_BASE64, 1);
            },
            Some(b"not base64!"),
        ),
        (
            |out| {
                proto::put_slice(out, fields::PARTITION_KEY, b"pk");
                proto::put_slice(out, fields::ORDERING_KEY, b"ok");
            },
            Some(b"ok"),
        ),
        (
            |out| {
                proto::put_slice(out, fields::PARTITION_KEY, b"");
                proto::put_number(out, fields::NULL_KEY, 1);
            },
            None,
        ),
    ];
    for (put, key) in forms {
        let batch = read(foreign(put, b"v")).expect("a message");
        assert_eq!(rows(&batch)[0].1.1.as_deref(), key);
    }
    let batch = read(foreign(
        |out| proto::put_number(out, fields::NULL_VALUE, 1),
        b"",
    ));
    assert_eq!(rows(&batch.expect("a message"))[0].1.2, None);
}

fn put_single(out: &mut Vec<u8>, value: &[u8], metadata: impl FnOnce(&mut Vec<u8>)) {
    let mut fields = Vec::new();
    proto::put_number(&mut fields, single::PAYLOAD_SIZE, value.len() as u64);
    metadata(&mut fields);
    out.put_u32(fields.len() as u32);
    out.extend(fields);
    out.extend(value);
}

#[test]
fn messages_that_pulsar_compacted_away_leave_gaps() {
    let mut payload = Vec::new();
    let gone = |out: &mut Vec<u8>| proto::put_number(out, single::COMPACTED_OUT, 1);
    put_single(&mut payload, b"", gone);
    put_single(&mut payload, b"stays", |_| ());
    put_single(&mut payload, b"", gone);
    let batched = |out: &mut Vec<u8>| proto::put_number(out, fields::MESSAGES, 3);
    let batch = read(foreign(batched, &payload)).expect("a batch");
    assert_eq!(
        (batch.header.offset_span(), batch.header.record_count),
        (3, 1)
    );
    let seen = rows(&batch);
    assert_eq!(
        (seen[0].0, seen[0].1.2.as_deref()),
        (1, Some(&b"stays"[..]))
    );

    let mut payload = Vec::new();
    put_single(&mut payload, b"", gone);
    let batched = |out: &mut Vec<u8>| proto::put_number(out, fields::MESSAGES, 1);
    let nothing = read(foreign(batched, &payload)).expect("a gap");
    assert!(nothing.header.attributes.is_control());
}

#[test]
fn a_pulsar_transaction_is_a_producer_of_its_own_and_so_is_its_end() {
    let txn = |least: u64| {
        move |out: &mut Vec<u8>| {
            proto::put_number(out, fields::TXN_LEAST_BITS, least);
            proto::put_number(out, fields::TXN_MOST_BITS, 3);
        }
    };
    let message = read(foreign(txn(7), b"v")).expect("a message").header;
    assert!(message.attributes.is_transactional() && !message.attributes.is_control());
    assert_eq!(message.base_sequence, -1, "no idempotent producer");
    let other = read(foreign(txn(8), b"v")).expect("a message").header;
    assert_ne!(message.producer_id, other.producer_id);
    for (marker, kind) in [(21, ControlType::Commit), (22, ControlType::Abort)] {
        let entry = foreign(
            |out| {
                proto::put_number(out, fields::MARKER_TYPE, marker);
                txn(7)(out);
            },
            b"",
        );
        let batch = read(entry).expect("a marker");
        assert!(batch.header.attributes.is_control());
        assert_eq!(batch.header.producer_id, message.producer_id);
        let key = rows(&batch)[0].1.1.clone().expect("a key");
        assert_eq!(ControlType::from_key(&key), Some(kind));
    }
}

#[test]
fn other_markers_are_gaps() {
    for marker in [0, 10, 13, 99] {
        let entry = foreign(
            |out| proto::put_number(out, fields::MARKER_TYPE, marker),
            b"?",
        );
        let batch = read(entry).expect("a gap");
        assert_eq!(
            batch.header.attributes.0,
            view(&gap().contiguous()).header.attributes.0
        );
    }
}

#[test]
fn what_nobody_can_read_says_why() {
    let encrypted = foreign(
        |out| proto::put_slice(out, fields::ENCRYPTION_KEY, b"k"),
        b"?",
    );
    assert_eq!(read(encrypted), Err(DecodeError::Encrypted));
    let chunk = foreign(|out| proto::put_number(out, fields::CHUNKS, 2), b"?");
    assert_eq!(read(chunk), Err(DecodeError::Chunk));
    let whole = foreign(|out| proto::put_number(out, fields::CHUNKS, 1), b"whole");
    assert!(read(whole).is_ok(), "the only chunk is the message");
    let codec = foreign(|out| proto::put_number(out, fields::COMPRESSION, 9), b"?");
    assert_eq!(read(codec), Err(DecodeError::UnknownCodec(9)));
    let count = foreign(
        |out| proto::put_number(out, fields::MESSAGES, i32::MAX as u64),
        b"",
    );
    assert!(matches!(read(count), Err(DecodeError::Malformed(_))));
}
