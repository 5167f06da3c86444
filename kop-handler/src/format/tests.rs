//! The formats against entries that KoP wrote (`testdata/`, `tests/data/kop`; see `FORMATS.md`).

use super::fixtures::{self, strip};
use super::*;
use crate::wire::batch::Compression;

struct Stored {
    base_offset: i64,
    last_offset: i64,
    publish_time: i64,
    entry: Bytes,
}

fn unhex(text: &str) -> Bytes {
    let text = text.trim();
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
        .collect::<Vec<u8>>()
        .into()
}

fn fixtures() -> Vec<Stored> {
    include_str!("testdata/kop_kafka.jsonl")
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            let number = |name: &str| line[name].as_i64().expect("a number");
            let (entry, index) = strip(&unhex(line["hex"].as_str().expect("hex")));
            assert_eq!(index, number("last_offset"));
            Stored {
                base_offset: number("base_offset"),
                last_offset: number("last_offset"),
                publish_time: number("publish_time"),
                entry,
            }
        })
        .collect()
}

#[test]
fn an_envelope_is_byte_for_byte_kops() {
    let fixtures = fixtures();
    assert!(fixtures.len() > 15);
    for stored in fixtures {
        let batch = decode([stored.entry.clone()]).expect("an entry of KoP");
        let view = BatchView::parse(&batch.contiguous()).expect("a batch");
        for format in [EntryFormat::Kafka, EntryFormat::MixedKafka] {
            let entry = format.encode(&view, stored.publish_time).expect("encoded");
            assert_eq!(entry.concat(), stored.entry);
            assert_eq!(entry[1].as_ptr(), view.bytes.as_ptr(), "not copied");
        }
    }
}

#[test]
fn a_kop_entry_decodes_to_the_batch_that_the_client_sent() {
    for stored in fixtures() {
        let batch = decode([stored.entry.clone()]).expect("an entry of KoP");
        let size = u32::from_be_bytes(stored.entry[..4].try_into().expect("four bytes")) as usize;
        assert_eq!(batch.clone().contiguous(), stored.entry[4 + size..]);
        assert!(batch.rest.is_empty());
        assert_eq!(
            batch.head.as_ptr(),
            stored.entry[4 + size..].as_ptr(),
            "not copied"
        );
        assert_eq!(batch.publish_time_ms, stored.publish_time);
        let count = i32::from_be_bytes(batch.head[57..61].try_into().expect("four bytes"));
        assert_eq!(
            i64::from(count),
            stored.last_offset - stored.base_offset + 1
        );
    }
}

#[test]
fn an_entry_in_any_two_or_three_pieces_decodes_alike_with_a_whole_header_first() {
    let [(_, pulsar), ..] = fixtures::all();
    let entries = [
        fixtures().remove(0).entry,
        pulsar.partitions[0][1].entry.clone(),
    ];
    for entry in entries {
        let whole = decode(vec![entry.clone()]).expect("whole").contiguous();
        for first in 0..=entry.len() {
            for second in [first, (first + 1).min(entry.len()), entry.len()] {
                let pieces = vec![
                    entry.slice(..first),
                    entry.slice(first..second),
                    entry.slice(second..),
                ];
                let batch = decode(pieces).expect("in pieces");
                assert!(batch.head.len() >= kafka::BATCH_HEADER);
                assert_eq!(batch.contiguous(), whole);
            }
        }
    }
}

#[test]
fn a_cut_entry_is_an_error_at_every_length() {
    let stored = fixtures().remove(0);
    for length in 0..stored.entry.len() {
        assert!(
            decode(vec![stored.entry.slice(..length)]).is_err(),
            "{length}"
        );
    }
}

#[test]
fn a_checksum_in_front_of_the_metadata_is_passed_over() {
    let stored = fixtures().remove(0);
    let checksum = Bytes::from_static(&[0x0e, 0x01, 1, 2, 3, 4]);
    let batch = decode(vec![checksum, stored.entry.clone()]).expect("with a checksum");
    assert_eq!(batch.publish_time_ms, stored.publish_time);
}

#[test]
fn the_formats_of_kop_are_told_apart_per_entry() {
    let (mixed, _) = strip(&unhex(include_str!("testdata/kop_mixed_kafka.hex")));
    assert!(decode(vec![mixed]).is_ok(), "mixed_kafka reads as kafka");
    let (pulsar, _) = strip(&unhex(include_str!("testdata/kop_pulsar.hex")));
    assert!(decode(vec![pulsar]).is_ok());
}

/// A record as `expected.json` has it, from the entry with an index.
fn rows(index: i64, entry: &Bytes, partition: usize) -> Vec<serde_json::Value> {
    let batch = decode([entry.clone()]).expect("an entry of KoP");
    let view = BatchView::parse(&batch.contiguous()).expect("a batch");
    assert!(view.has_right_crc());
    if view.header.attributes.is_control() {
        return Vec::new();
    }
    let base = index - view.header.offset_span() + 1;
    let records = view.records(MAX_PAYLOAD).expect("records");
    let text = |bytes: Option<&[u8]>| {
        bytes.map(|bytes| {
            let mut text = Vec::new();
            base64::encode(&mut text, bytes);
            String::from_utf8(text).expect("ASCII")
        })
    };
    records
        .iter()
        .map(|record| {
            let record = record.expect("a record");
            let headers: Vec<_> = record
                .headers
                .map(|header| {
                    let key = String::from_utf8(header.key.to_vec()).expect("UTF-8");
                    serde_json::json!([key, text(header.value)])
                })
                .collect();
            serde_json::json!({
                "partition": partition,
                "offset": base + record.offset - view.header.base_offset,
                "timestamp": record.timestamp,
                "timestamp_type": "CREATE_TIME",
                "key": text(record.key),
                "value": text(record.value),
                "headers": headers,
            })
        })
        .collect()
}

#[test]
fn every_entry_of_kop_reads_as_kop_reads_it() {
    for (name, kop) in fixtures::all() {
        let mut read = Vec::new();
        for (partition, entries) in kop.partitions.iter().enumerate() {
            assert!(entries.len() > 10);
            for stored in entries {
                read.extend(rows(stored.index, &stored.entry, partition));
            }
        }
        let expected = kop.expected["read_uncommitted"].as_array().expect("rows");
        assert!(expected.len() > 80, "{name}");
        assert_eq!(&read, expected, "{name}");
    }
}

#[test]
fn markers_of_kop_lie_where_kop_says() {
    for (name, kop) in fixtures::all() {
        for (entries, expected) in kop
            .partitions
            .iter()
            .zip(kop.expected["partitions"].as_array().expect("two"))
        {
            let mut controls = Vec::new();
            let mut next = 0;
            for stored in entries {
                let batch = decode([stored.entry.clone()]).expect("an entry of KoP");
                let view = BatchView::parse(&batch.contiguous()).expect("a batch");
                assert_eq!(stored.index - view.header.offset_span() + 1, next, "{name}");
                next = stored.index + 1;
                if view.header.attributes.is_control() {
                    assert_eq!(
                        (view.header.producer_id, view.header.producer_epoch),
                        (1, 0)
                    );
                    controls.push(serde_json::json!(stored.index));
                }
            }
            assert_eq!(
                expected["control_batch_offsets"],
                serde_json::json!(controls)
            );
            assert_eq!(
                expected["high_watermark"],
                serde_json::json!(next),
                "{name}"
            );
        }
    }
}

#[test]
fn the_producer_of_kops_transactions_is_known_in_every_format() {
    for (name, kop) in fixtures::all() {
        let mut seen = 0;
        for stored in kop.partitions.iter().flatten() {
            let batch = decode([stored.entry.clone()]).expect("an entry of KoP");
            let header = BatchView::parse(&batch.contiguous())
                .expect("a batch")
                .header;
            if header.attributes.is_transactional() && !header.attributes.is_control() {
                seen += 1;
                assert!(
                    header.producer_id >= 1 && header.producer_epoch == 0,
                    "{name}"
                );
                assert!(header.base_sequence >= 0, "{name}");
            }
        }
        assert!(seen >= 4, "{name}");
    }
}

#[test]
fn the_base_offset_that_mixed_kafka_stores_is_not_looked_at() {
    let [_, _, (_, kop)] = fixtures::all();
    let wrong = kop.partitions.iter().flatten().filter(|stored| {
        let batch = decode([stored.entry.clone()]).expect("an entry of KoP");
        let header = BatchView::parse(&batch.contiguous())
            .expect("a batch")
            .header;
        header.base_offset != stored.index - header.offset_span() + 1
    });
    assert!(wrong.count() > 10, "the fixtures hold the trap");
}

#[test]
fn arbitrary_bytes_are_an_error_and_nothing_worse() {
    proptest::proptest!(|(bytes: Vec<u8>)| {
        let _ = decode(vec![bytes.into()]);
    });
}

#[test]
fn flipped_bits_of_an_entry_are_an_error_or_other_records_and_nothing_worse() {
    for (_, kop) in fixtures::all() {
        for stored in kop.partitions.iter().flatten() {
            for bit in (0..stored.entry.len() * 8).step_by(5) {
                let mut bytes = stored.entry.to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(batch) = decode([bytes.into()]) {
                    assert!(batch.head.len() >= kafka::BATCH_HEADER);
                }
            }
        }
    }
}

#[test]
fn a_batch_that_spans_other_offsets_than_its_entry_is_an_error() {
    let stored = fixtures().remove(0);
    let batch = decode([stored.entry])
        .expect("an entry of KoP")
        .contiguous();
    let span = BatchView::parse(&batch)
        .expect("a batch")
        .header
        .offset_span();
    let messages = u32::try_from(span).expect("a count") + 1;
    assert!(matches!(
        decode([kafka::envelope(messages, 0), batch]),
        Err(DecodeError::Batch(_))
    ));
}

#[test]
fn a_gap_is_a_control_record_of_nobody() {
    let view = BatchView::parse(&gap().contiguous()).expect("a batch");
    assert!(view.has_right_crc());
    assert!(view.header.attributes.is_control());
    assert!(!view.header.attributes.is_transactional());
    assert_eq!(
        (view.header.offset_span(), view.header.record_count),
        (1, 1)
    );
    assert_eq!(
        (view.header.producer_id, view.header.base_sequence),
        (-1, -1)
    );
    let records = view.records(1000).expect("records");
    let key = records.iter().next().expect("one").expect("a record").key;
    use crate::wire::batch::ControlType;
    assert_eq!(
        key.and_then(ControlType::from_key),
        Some(ControlType::Commit)
    );
}

#[test]
fn a_format_is_chosen_by_name_in_any_case() {
    for format in [
        EntryFormat::Kafka,
        EntryFormat::MixedKafka,
        EntryFormat::Pulsar,
    ] {
        for name in [format.to_string(), format.to_string().to_uppercase()] {
            assert_eq!(EntryFormat::parse(&name), Ok(format));
        }
    }
    let error = EntryFormat::parse("avro").expect_err("unknown").to_string();
    assert!(
        error.contains("avro") && error.contains("mixed_kafka"),
        "{error}"
    );
}

#[test]
fn old_message_sets_in_an_entry_become_one_batch_at_the_offsets_of_the_entry() {
    let mut set = Vec::new();
    for value in [b"one", b"two"] {
        let mut body = vec![0; 4]; // a checksum that nobody looks at
        body.extend([1, 0]);
        body.extend(5i64.to_be_bytes());
        body.extend((-1i32).to_be_bytes());
        body.extend(3i32.to_be_bytes());
        body.extend(value);
        set.extend(0i64.to_be_bytes());
        set.extend((body.len() as i32).to_be_bytes());
        set.extend(body);
    }
    let entry = [kafka::envelope(2, 9), set.into()];
    let batch = decode(entry).expect("an entry");
    assert_eq!(batch.publish_time_ms, 9);
    let view = BatchView::parse(&batch.contiguous()).expect("a batch");
    assert_eq!(view.header.attributes.compression(), Ok(Compression::None));
    let records = view.records(1000).expect("records");
    let values: Vec<_> = records
        .iter()
        .map(|record| record.expect("a record").value.map(<[u8]>::to_vec))
        .collect();
    assert_eq!(values, [Some(b"one".to_vec()), Some(b"two".to_vec())]);
}
