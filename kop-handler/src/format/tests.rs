//! The formats against entries that KoP wrote (`testdata/`: entries of a running KoP, see `FORMATS.md`).

use super::*;

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

/// Without the broker entry metadata, which the host strips; with the index that it held.
fn strip(stored: &Bytes) -> (Bytes, i64) {
    assert_eq!(&stored[..2], [0x0e, 0x02]);
    let size = u32::from_be_bytes(stored[2..6].try_into().expect("four bytes")) as usize;
    assert_eq!(stored[6], 0x10, "the field `index`");
    let index = stored[7..6 + size]
        .iter()
        .rev()
        .fold(0u64, |index, byte| (index << 7) | u64::from(byte & 0x7f));
    (
        stored.slice(6 + size..),
        i64::try_from(index).expect("an index"),
    )
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
        let messages = u32::try_from(stored.last_offset - stored.base_offset + 1).expect("a count");
        let envelope = EntryFormat::Kafka.envelope(messages, stored.publish_time);
        assert_eq!(envelope, stored.entry[..envelope.len()]);
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
    let stored = fixtures().remove(0);
    let whole = decode(vec![stored.entry.clone()])
        .expect("whole")
        .contiguous();
    for first in 0..=stored.entry.len() {
        for second in [
            first,
            (first + 1).min(stored.entry.len()),
            stored.entry.len(),
        ] {
            let pieces = vec![
                stored.entry.slice(..first),
                stored.entry.slice(first..second),
                stored.entry.slice(second..),
            ];
            let batch = decode(pieces).expect("in pieces");
            assert!(batch.head.len() >= kafka::BATCH_HEADER);
            assert_eq!(batch.contiguous(), whole);
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
fn the_other_formats_of_kop_are_told_apart_per_entry() {
    let (mixed, _) = strip(&unhex(include_str!("testdata/kop_mixed_kafka.hex")));
    assert!(decode(vec![mixed]).is_ok(), "mixed_kafka reads as kafka");
    let (pulsar, _) = strip(&unhex(include_str!("testdata/kop_pulsar.hex")));
    assert_eq!(
        decode(vec![pulsar]).map(|batch| batch.len()),
        Err(DecodeError::NotBuilt("pulsar"))
    );
}

#[test]
fn arbitrary_bytes_are_an_error_and_nothing_worse() {
    proptest::proptest!(|(bytes: Vec<u8>)| {
        let _ = decode(vec![bytes.into()]);
    });
}

#[test]
fn a_format_is_chosen_by_name_and_an_unbuilt_one_is_refused_with_the_remedy() {
    assert_eq!(EntryFormat::parse("Kafka"), Ok(EntryFormat::Kafka));
    for name in ["mixed_kafka", "pulsar", "PULSAR"] {
        let error = EntryFormat::parse(name).expect_err(name).to_string();
        assert!(
            error.contains("not built yet") && error.contains("use kafka"),
            "{error}"
        );
    }
    assert!(matches!(
        EntryFormat::parse("avro"),
        Err(EntryFormatError::Unknown(_))
    ));
    assert_eq!(
        EntryFormat::parse(&EntryFormat::Kafka.to_string()),
        Ok(EntryFormat::Kafka)
    );
}
