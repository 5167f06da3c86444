//! Each way in which a batch can be wrong, and what Kafka answers.

use super::*;
use crate::wire::batch::header::{set_crc, set_timestamps};
use crate::wire::batch::{Attributes, BatchBuilder, BatchView, NewRecord, compress};
use crate::wire::golden_tests::unhex;
use kafka_protocol::error::ResponseError;

const NOW_MS: i64 = 1_700_000_000_000;

fn rules() -> ProduceRules {
    ProduceRules::new(9, NOW_MS)
}

fn batch_of(codec: Compression, timestamps: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(timestamps[0]).compression(codec);
    for timestamp in timestamps {
        builder
            .push(NewRecord::new(
                *timestamp,
                Some(b"key"),
                Some(b"a value of some length"),
            ))
            .unwrap();
    }
    builder.build().unwrap().to_vec()
}

fn batch(codec: Compression) -> Vec<u8> {
    batch_of(codec, &[NOW_MS, NOW_MS + 2, NOW_MS + 1])
}

fn check(bytes: impl Into<Bytes>, rules: &ProduceRules) -> Result<ValidBatch, Rejection> {
    validate_produce(Some(&bytes.into()), rules)
}

fn code(bytes: impl Into<Bytes>, rules: &ProduceRules) -> ResponseError {
    check(bytes, rules).unwrap_err().fault.response_error()
}

/// Changes header fields and sets the checksum anew, so that only the change itself is wrong.
fn changed(codec: Compression, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = batch(codec);
    change(&mut bytes);
    set_crc(&mut bytes);
    bytes
}

/// A batch of the given codec with raw record bytes, right in all else.
fn with_records(codec: Compression, count: i32, records: &[u8]) -> Vec<u8> {
    let mut bytes = batch(Compression::None);
    bytes.truncate(HEADER_BYTES);
    bytes.extend(compress(codec, records).unwrap());
    let length = (bytes.len() - LENGTH_PREFIX_BYTES) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[22] |= codec.id();
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    set_crc(&mut bytes);
    bytes
}

#[test]
fn a_good_batch_of_each_codec_is_taken_as_it_is() {
    for codec in Compression::ALL {
        let bytes = Bytes::from(batch(codec));
        let valid = check(bytes.clone(), &rules()).unwrap();
        assert_eq!(valid.bytes.as_ptr(), bytes.as_ptr(), "shared, not copied");
        assert_eq!(valid.bytes.len(), bytes.len());
        assert_eq!(valid.header.max_timestamp, NOW_MS + 2);
        assert_eq!(valid.max_timestamp_delta, 1);
    }
}

#[test]
fn a_wrong_checksum_is_corrupt() {
    for codec in Compression::ALL {
        let good = batch(codec);
        for at in 17..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            // The checksum is looked at before everything that it covers.
            assert_eq!(
                code(bytes, &rules()),
                ResponseError::CorruptMessage,
                "{codec:?}, byte {at}"
            );
        }
    }
}

#[test]
fn no_batch_and_half_a_batch_are_invalid_records() {
    assert_eq!(
        validate_produce(None, &rules())
            .unwrap_err()
            .fault
            .response_error(),
        ResponseError::InvalidRecord
    );
    let good = batch(Compression::None);
    for length in 0..good.len() {
        assert_eq!(
            code(good[..length].to_vec(), &rules()),
            ResponseError::InvalidRecord,
            "{length} bytes"
        );
    }
}

#[test]
fn two_batches_are_invalid_but_a_torn_tail_is_cut_off() {
    let good = batch(Compression::None);
    assert_eq!(
        code([good.clone(), good.clone()].concat(), &rules()),
        ResponseError::InvalidRecord
    );
    for torn in [1, 11, 16, 17, 60, good.len() - 1] {
        let valid = check([good.clone(), good[..torn].to_vec()].concat(), &rules()).unwrap();
        assert_eq!(valid.bytes, good);
    }
    let garbage = [0u8; 12];
    assert_eq!(
        code([good, garbage.to_vec()].concat(), &rules()),
        ResponseError::CorruptMessage
    );
}

#[test]
fn old_magics_are_invalid_and_unknown_ones_corrupt() {
    for (magic, error) in [
        (0, ResponseError::InvalidRecord),
        (1, ResponseError::InvalidRecord),
        (3, ResponseError::CorruptMessage),
        (0xff, ResponseError::CorruptMessage),
    ] {
        assert_eq!(
            code(changed(Compression::None, |b| b[16] = magic), &rules()),
            error,
            "magic {magic}"
        );
    }
}

#[test]
fn an_impossible_length_is_corrupt() {
    for length in [i32::MIN, -1, 0, 13, 14, 48] {
        let bytes = changed(Compression::None, |b| {
            b[8..12].copy_from_slice(&length.to_be_bytes())
        });
        let bytes = if length == 14 || length == 48 {
            bytes[..LENGTH_PREFIX_BYTES + length as usize].to_vec()
        } else {
            bytes
        };
        assert_eq!(
            code(bytes, &rules()),
            ResponseError::CorruptMessage,
            "length {length}"
        );
    }
}

#[test]
fn header_fields_that_contradict_are_invalid_records() {
    type Change = fn(&mut [u8]);
    let changes: [(&str, Change); 9] = [
        ("base offset 1", |b| b[7] = 1),
        ("count above span", |b| b[60] = 4),
        ("count below span", |b| b[60] = 2),
        ("count 0", |b| b[60] = 0),
        ("count and span 0", |b| {
            b[57..61].fill(0);
            b[23..27].fill(0xff);
        }),
        ("count negative", |b| b[57] = 0xff),
        ("control bit", |b| b[22] |= Attributes::CONTROL as u8),
        ("sequence missing", |b| b[43..51].fill(0)),
        ("codec 5", |b| b[22] |= 5),
    ];
    for (what, change) in changes {
        assert_eq!(
            code(changed(Compression::None, change), &rules()),
            ResponseError::InvalidRecord,
            "{what}"
        );
    }
}

#[test]
fn records_that_contradict_their_header_are_invalid_in_every_codec() {
    // length, attributes, timestamp delta, offset delta, key null, value null, no headers
    let one = |offset: u8| vec![12, 0, 0, offset * 2, 1, 1, 0];
    let cases: [(&str, Vec<u8>); 12] = [
        ("one record too few", [one(0), one(1)].concat()),
        (
            "one record too many",
            [one(0), one(1), one(2), one(3)].concat(),
        ),
        ("offsets from 1", [one(1), one(2), one(3)].concat()),
        ("an offset twice", [one(0), one(1), one(1)].concat()),
        ("an offset left out", [one(0), one(1), one(3)].concat()),
        (
            "a byte too many",
            [one(0), one(1), one(2), vec![0]].concat(),
        ),
        (
            "record cut short",
            [one(0), one(1), vec![12, 0, 0, 4]].concat(),
        ),
        ("length 0", [vec![0], one(1), one(2)].concat()),
        ("length negative", [vec![1], one(1), one(2)].concat()),
        (
            "length too large",
            [vec![14, 0, 0, 0, 1, 1, 0], one(1), one(2)].concat(),
        ),
        (
            "key length −2",
            [vec![12, 0, 0, 0, 3, 1, 0], one(1), one(2)].concat(),
        ),
        (
            "null header key",
            [vec![14, 0, 0, 0, 1, 1, 2, 1, 1], one(1), one(2)].concat(),
        ),
    ];
    for codec in Compression::ALL {
        let good = with_records(codec, 3, &[one(0), one(1), one(2)].concat());
        assert!(check(good, &rules()).is_ok(), "{codec:?}");
        for (what, records) in &cases {
            let bytes = with_records(codec, 3, records);
            assert_eq!(
                code(bytes, &rules()),
                ResponseError::InvalidRecord,
                "{codec:?}, {what}"
            );
        }
    }
}

#[test]
fn claims_of_huge_sizes_end_with_the_bytes_that_are_there() {
    let huge = [0xfe, 0xff, 0xff, 0xff, 0x0f]; // 2³¹ − 1
    let key = [&[0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0][..], &huge].concat();
    let headers = [&[0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 1][..], &huge].concat();
    for codec in Compression::ALL {
        for records in [&key, &headers] {
            for count in [1, i32::MAX] {
                assert_eq!(
                    code(with_records(codec, count, records), &rules()),
                    ResponseError::InvalidRecord
                );
            }
        }
    }
}

#[test]
fn packed_data_that_cannot_be_unpacked_is_invalid() {
    for codec in &Compression::ALL[1..] {
        let mut bytes = batch(*codec);
        bytes.truncate(bytes.len() - 12);
        let length = (bytes.len() - LENGTH_PREFIX_BYTES) as i32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        set_crc(&mut bytes);
        assert_eq!(
            code(bytes, &rules()),
            ResponseError::InvalidRecord,
            "{codec:?}"
        );
    }
}

#[test]
fn records_that_unpack_above_the_cap_are_too_large() {
    let mut builder = BatchBuilder::new(NOW_MS).compression(Compression::Zstd);
    builder
        .push(NewRecord::new(NOW_MS, None, Some(&vec![0; 1 << 20])))
        .unwrap();
    let bytes = builder.build().unwrap();
    assert!(bytes.len() < 1000);
    let tight = ProduceRules {
        max_unpacked_bytes: 1 << 19,
        ..rules()
    };
    assert!(check(bytes.clone(), &rules()).is_ok());
    assert_eq!(code(bytes, &tight), ResponseError::MessageTooLarge);
}

#[test]
fn a_batch_above_the_topics_limit_is_too_large() {
    let bytes = batch(Compression::None);
    let mut rules = rules();
    rules.max_batch_bytes = bytes.len();
    assert!(check(bytes.clone(), &rules).is_ok());
    rules.max_batch_bytes -= 1;
    assert_eq!(code(bytes, &rules), ResponseError::MessageTooLarge);
}

#[test]
fn zstd_needs_produce_7() {
    let bytes = batch(Compression::Zstd);
    for version in 3..=13 {
        let rules = ProduceRules {
            api_version: version,
            ..rules()
        };
        let answer = check(bytes.clone(), &rules).map_err(|r| r.fault.response_error());
        match answer {
            Err(error) => assert!(
                version < 7 && error == ResponseError::UnsupportedCompressionType,
                "{version}"
            ),
            Ok(_) => assert!(version >= 7, "{version}"),
        }
    }
}

#[test]
fn a_null_key_on_a_compacted_topic_is_refused_per_record() {
    for codec in Compression::ALL {
        let mut builder = BatchBuilder::new(NOW_MS).compression(codec);
        for key in [None, Some(&b"k"[..]), None, Some(b"")] {
            builder
                .push(NewRecord::new(NOW_MS, key, Some(b"v")))
                .unwrap();
        }
        let bytes = builder.build().unwrap();
        assert!(check(bytes.clone(), &rules()).is_ok());
        let compacted = ProduceRules {
            compacted: true,
            ..rules()
        };
        let rejection = check(bytes, &compacted).unwrap_err();
        assert_eq!(
            rejection.fault.response_error(),
            ResponseError::InvalidRecord
        );
        let indexes: Vec<_> = rejection.records.iter().map(|r| r.index).collect();
        assert_eq!(indexes, [0, 2], "{codec:?}");
    }
}

#[test]
fn timestamps_outside_of_the_topics_window_are_refused_per_record() {
    let rules = ProduceRules {
        timestamp_before_max_ms: 1000,
        timestamp_after_max_ms: 500,
        ..rules()
    };
    let edges = batch_of(Compression::None, &[NOW_MS - 1000, NOW_MS + 500, -1]);
    assert!(
        check(edges, &rules).is_ok(),
        "the edges are inside, and no timestamp is no fault"
    );
    let out = batch_of(Compression::None, &[NOW_MS - 1001, NOW_MS, NOW_MS + 501]);
    let rejection = check(out, &rules).unwrap_err();
    assert_eq!(
        rejection.fault.response_error(),
        ResponseError::InvalidTimestamp
    );
    assert_eq!(
        rejection
            .records
            .iter()
            .map(|r| r.index)
            .collect::<Vec<_>>(),
        [0, 2]
    );
    for extreme in [i64::MIN, i64::MAX] {
        assert_eq!(
            code(batch_of(Compression::None, &[extreme]), &rules),
            ResponseError::InvalidTimestamp
        );
    }
}

#[test]
fn record_errors_are_bounded_however_many_records_fail() {
    let mut builder = BatchBuilder::new(NOW_MS);
    for _ in 0..5000 {
        builder.push(NewRecord::new(NOW_MS, None, None)).unwrap();
    }
    let compacted = ProduceRules {
        compacted: true,
        ..rules()
    };
    let rejection = check(builder.build().unwrap(), &compacted).unwrap_err();
    assert_eq!(rejection.records.len(), MAX_RECORD_ERRORS);
    assert!(rejection.fault.to_string().contains("5000"));
}

#[test]
fn append_time_replaces_timestamps_and_the_checksum_stays_right() {
    let rules = ProduceRules {
        timestamp_type: TimestampType::LogAppendTime,
        now_ms: NOW_MS + 99,
        ..rules()
    };
    for codec in Compression::ALL {
        let valid = check(batch(codec), &rules).unwrap();
        assert_eq!(valid.header.max_timestamp, NOW_MS + 99);
        assert_eq!(
            valid.header.attributes.timestamp_type(),
            TimestampType::LogAppendTime
        );
        assert_eq!(valid.header.attributes.compression(), Ok(codec));
        assert_eq!(valid.max_timestamp_delta, 2);
        let view = BatchView::parse(&valid.bytes).unwrap();
        assert!(view.has_right_crc());
        for record in &view.records(MAX_UNPACKED_BYTES).unwrap() {
            assert_eq!(record.unwrap().timestamp, NOW_MS + 99);
        }
    }
}

#[test]
fn a_client_that_sets_append_time_itself_is_taken_back_to_create_time() {
    let mut bytes = batch(Compression::None);
    set_timestamps(&mut bytes, TimestampType::LogAppendTime, NOW_MS + 7);
    let valid = check(bytes.clone(), &rules()).unwrap();
    assert_eq!(
        valid.header.attributes.timestamp_type(),
        TimestampType::CreateTime
    );
    assert_eq!(valid.header.max_timestamp, NOW_MS + 7);
    assert!(BatchView::parse(&valid.bytes).unwrap().has_right_crc());
    // On a topic with append time Kafka refuses it.
    let rules = ProduceRules {
        timestamp_type: TimestampType::LogAppendTime,
        ..rules()
    };
    assert_eq!(code(bytes, &rules), ResponseError::InvalidTimestamp);
}

#[test]
fn a_largest_timestamp_that_lies_is_set_right() {
    for lie in [0, NOW_MS + 1, i64::MAX] {
        let bytes = changed(Compression::Lz4, |b| {
            b[35..43].copy_from_slice(&lie.to_be_bytes())
        });
        let valid = check(bytes, &rules()).unwrap();
        assert_eq!(valid.header.max_timestamp, NOW_MS + 2);
        assert!(BatchView::parse(&valid.bytes).unwrap().has_right_crc());
    }
}

#[test]
fn mutated_batches_with_right_checksums_never_panic() {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let goods: Vec<_> = Compression::ALL.iter().map(|c| batch(*c)).collect();
    for _ in 0..20_000 {
        let mut bytes = goods[(random() % 5) as usize].clone();
        for _ in 0..1 + random() % 4 {
            let at = (random() % bytes.len() as u64) as usize;
            bytes[at] = random() as u8;
        }
        set_crc(&mut bytes);
        if let Ok(valid) = check(bytes, &rules()) {
            let view = BatchView::parse(&valid.bytes).unwrap();
            let records = view.records(MAX_UNPACKED_BYTES).unwrap();
            let all: Vec<_> = records.iter().collect::<Result<_, _>>().unwrap();
            assert_eq!(
                all.len(),
                view.header.record_count as usize,
                "what is let in can be read"
            );
            for record in all {
                assert_eq!(
                    record.headers.declared() as usize,
                    Iterator::count(record.headers)
                );
            }
        }
    }
}

/// Verdicts of Kafka 4.3.1 itself (ProduceRequest.validateRecords, then the checks of UnifiedLog, then LogValidator) on
/// made and mutated batches: what, version, compacted, append time, limit, code, header as appended at 1000 in epoch 5,
/// batch.
const VERDICTS: &str = include_str!("../testdata/kafka-4.3.1-produce-verdicts.txt");

/// Where we refuse what Kafka stores, and why: a record that lies about its place, its size or a null.
fn is_stricter(message: &str) -> bool {
    [
        "in its batch",
        "do not fill its length",
        "a length is negative",
    ]
    .iter()
    .any(|reason| message.contains(reason))
}

#[test]
fn kafkas_verdicts_are_ours() {
    let mut stricter = 0;
    for line in VERDICTS.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let rules = ProduceRules {
            compacted: words[2] == "1",
            timestamp_type: match words[3] {
                "1" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            max_batch_bytes: words[4].parse().unwrap(),
            ..ProduceRules::new(words[1].parse().unwrap(), NOW_MS)
        };
        let theirs: i16 = words[5].parse().unwrap();
        match (theirs, check(unhex(words[7].trim_matches('-')), &rules)) {
            (0, Ok(valid)) => {
                let [header, _] = crate::wire::batch::patched(&valid.bytes, 1000, 5);
                assert_eq!(header, unhex(words[6]), "{}", words[0]);
            }
            (0, Err(rejection)) => {
                let message = rejection.fault.to_string();
                assert!(
                    is_stricter(&message),
                    "{}: Kafka takes it, we say {message}",
                    words[0]
                );
                assert_eq!(rejection.fault.response_error().code(), 87);
                stricter += 1;
            }
            // Kafka trips over its own feet: an unknown codec, packed data that cannot be unpacked.
            (-1, Err(rejection)) => {
                assert_eq!(rejection.fault.response_error().code(), 87, "{}", words[0])
            }
            (code, Err(rejection)) => assert_eq!(
                rejection.fault.response_error().code(),
                code,
                "{}",
                words[0]
            ),
            (code, Ok(_)) => panic!("{}: Kafka refuses it with {code}", words[0]),
        }
    }
    assert!(
        stricter < 30,
        "{stricter} batches are refused that Kafka takes"
    );
}
