//! KoP's layout: what KoP wrote, what we write for it, and what nobody should have written.

use std::collections::BTreeMap;

use super::*;
use crate::coordinator::record::OffsetValue;
use crate::format::{self, EntryFormat, fixtures};
use crate::wire::batch::Compression;

fn names() -> Names {
    Names::new("public", "default", "public", "__kafka")
}

fn kop() -> Layout {
    Layout::Kop {
        names: names(),
        retention_ms: 1000,
    }
}

fn offset_record(group: &str, topic: &str, partition: i32, offset: Option<i64>) -> Record {
    Record::Offset {
        group: group.to_owned(),
        topic: topic.to_owned(),
        partition,
        value: offset.map(|offset| OffsetValue {
            offset,
            leader_epoch: -1,
            metadata: "m".to_owned(),
            commit_ms: 5,
            expire_ms: None,
            topic_id: uuid::Uuid::nil(),
        }),
    }
}

fn view(batch: &Bytes) -> BatchView {
    BatchView::parse(batch).unwrap()
}

/// Stored as the log stores it in Pulsar's format, and read again.
fn stored(batches: &[Bytes]) -> Vec<BatchView> {
    let entry = |batch| EntryFormat::Pulsar.encode(&view(batch), 9).unwrap();
    batches
        .iter()
        .map(|batch| view(&format::decode(entry(batch)).unwrap().contiguous()))
        .collect()
}

fn read(reading: &mut Unwrapping, batches: &[BatchView]) -> Vec<Record> {
    let mut out = Vec::new();
    for batch in batches {
        reading.take(batch, &mut out);
    }
    out.iter()
        .map(|stored| {
            record::decode(&stored.key, stored.value.as_deref())
                .unwrap()
                .unwrap()
        })
        .collect()
}

#[test]
fn what_is_written_is_read_with_kafkas_names() {
    let records = vec![
        offset_record("g", "t", 0, Some(4)),
        offset_record("g", "t", 1, None),
        offset_record("g", "persistent://other/ns/t", 0, Some(7)),
        Record::Group {
            group: "g".to_owned(),
            value: None,
        },
    ];
    let encoded: Vec<KeyValue> = records.iter().map(record::encode).collect();
    for layout in [kop(), Layout::Kafka] {
        let batches = layout.build(&encoded, 9).unwrap();
        assert_eq!(batches.len(), 1);
        let mut reading = Unwrapping::new(names());
        assert_eq!(read(&mut reading, &stored(&batches)), records);
        assert_eq!(reading.damaged, 0);
    }
}

#[test]
fn every_record_is_a_message_with_a_key_of_its_own_and_full_names_inside() {
    let records: Vec<KeyValue> = [
        offset_record("g", "t", 0, Some(4)),
        offset_record("g", "t", 1, Some(5)),
        offset_record("g", "t", 2, None),
    ]
    .iter()
    .map(record::encode)
    .collect();
    let batches = kop().build(&records, 9).unwrap();
    let outer = stored(&batches).remove(0);
    let messages = outer.records(1 << 20).unwrap();
    let messages: Vec<_> = messages.iter().map(Result::unwrap).collect();
    let sizes: Vec<usize> = messages.iter().map(|m| m.value.unwrap().len()).collect();
    assert_eq!(
        sizes[3], 0,
        "to Pulsar's compaction a deletion is an empty message"
    );
    assert_eq!(messages[2].key, messages[3].key);
    let mut keys = std::collections::BTreeSet::new();
    for message in &messages[..3] {
        assert!(keys.insert(message.key.unwrap()));
        let inner = BatchView::parse(&Bytes::copy_from_slice(message.value.unwrap())).unwrap();
        assert!(inner.has_right_crc());
        let inner = inner.records(1 << 20).unwrap();
        let inner: Vec<_> = inner.iter().map(Result::unwrap).collect();
        assert_eq!(inner.len(), 1);
        assert_eq!(inner[0].key, message.key, "as readers of KoP expect");
        let name = b"persistent://public/default/t";
        assert!(inner[0].key.unwrap().windows(name.len()).any(|w| w == name));
    }
}

#[test]
fn many_records_are_several_batches_that_each_fit_into_an_entry() {
    let records: Vec<KeyValue> = (0..20_000)
        .map(|n| record::encode(&offset_record("group", "a-topic", n, Some(1))))
        .collect();
    let batches = kop().build(&records, 9).unwrap();
    assert!(batches.len() > 5);
    for batch in &batches {
        let entry = EntryFormat::Pulsar.encode(&view(batch), 9).unwrap();
        assert!(entry.concat().len() < 3 << 20);
    }
    let mut reading = Unwrapping::new(names());
    assert_eq!(read(&mut reading, &stored(&batches)).len(), 20_000);
}

fn kops_partition(lines: &str) -> Vec<BatchView> {
    fixtures::entries(lines)
        .iter()
        .map(|stored| view(&format::decode([stored.entry.clone()]).unwrap().contiguous()))
        .collect()
}

/// Group, topic, partition → offset and metadata.
type Committed = BTreeMap<(String, String, i32), (i64, String)>;

fn committed(batches: &[BatchView]) -> Committed {
    let mut reading = Unwrapping::new(names());
    let mut found = Committed::new();
    for record in read(&mut reading, batches) {
        if let Record::Offset {
            group,
            topic,
            partition,
            value,
        } = record
        {
            let key = (group, topic, partition);
            match value {
                Some(value) => found.insert(key, (value.offset, value.metadata)),
                None => found.remove(&key),
            };
        }
    }
    assert_eq!(reading.damaged, 0);
    found
}

#[test]
fn what_kop_committed_is_what_kop_answered() {
    macro_rules! partition {
        ($format:literal, $number:literal) => {
            include_str!(concat!(
                "../../../tests/data/kop/",
                $format,
                "/__consumer_offsets-partition-",
                $number,
                ".jsonl"
            ))
        };
    }
    let partitions = [
        [partition!("pulsar", 2), partition!("pulsar", 5)],
        [partition!("kafka", 2), partition!("kafka", 5)],
        [partition!("mixed_kafka", 2), partition!("mixed_kafka", 5)],
    ];
    for ((name, kop), partitions) in fixtures::all().iter().zip(partitions) {
        let mut found = Committed::new();
        for lines in partitions {
            found.extend(committed(&kops_partition(lines)));
        }
        let mut expected = Committed::new();
        for (group, rows) in kop.expected["committed_offsets"].as_object().unwrap() {
            for row in rows.as_array().unwrap() {
                let text = |name: &str| row[name].as_str().unwrap().to_owned();
                let partition = i32::try_from(row["partition"].as_i64().unwrap()).unwrap();
                assert_eq!(row["kop_answer"]["offset"], row["offset"]);
                expected.insert(
                    (group.clone(), text("topic"), partition),
                    (row["offset"].as_i64().unwrap(), text("metadata")),
                );
            }
        }
        assert_eq!(expected.len(), 4);
        assert_eq!(found, expected, "{name}");
    }
}

fn transactional(producer: i64, records: &[Record]) -> Bytes {
    let mut inner = BatchBuilder::new(9)
        .producer(producer, 0, 0)
        .transactional();
    for record in records {
        let stored = record::kop::encode(record, "persistent://public/default/t", 1000);
        push(&mut inner, 9, &stored.key, stored.value.as_deref()).unwrap();
    }
    let mut outer = BatchBuilder::new(9);
    push(&mut outer, 9, b"dummy", Some(&inner.build().unwrap())).unwrap();
    outer.build().unwrap()
}

fn marker(producer: i64, end: ControlType) -> Bytes {
    BatchBuilder::end_transaction(end, producer, 0, 0, 9).unwrap()
}

#[test]
fn commits_of_a_transaction_count_from_its_marker_on_unless_something_newer_was_committed() {
    let batches = [
        transactional(
            1,
            &[
                offset_record("g", "t", 0, Some(10)),
                offset_record("g", "t", 1, Some(11)),
            ],
        ),
        transactional(2, &[offset_record("g", "t", 2, Some(12))]),
        kop()
            .build(&[record::encode(&offset_record("g", "t", 1, Some(99)))], 9)
            .unwrap()
            .remove(0),
        marker(2, ControlType::Abort),
        marker(1, ControlType::Commit),
        transactional(3, &[offset_record("g", "t", 3, Some(13))]),
    ];
    let batches: Vec<BatchView> = batches.iter().map(view).collect();
    let found: Vec<(i32, i64)> = committed(&batches)
        .into_iter()
        .map(|((_, _, partition), (offset, _))| (partition, offset))
        .collect();
    assert_eq!(found, [(0, 10), (1, 99)]);
}

#[test]
fn damaged_records_are_counted_and_those_behind_them_are_read() {
    let good = kop()
        .build(&[record::encode(&offset_record("g", "t", 0, Some(1)))], 9)
        .unwrap()
        .remove(0);
    let mut inner = BatchBuilder::new(9);
    push(&mut inner, 9, &[0, 1, 0, 5, b'x'], Some(b"cut")).unwrap();
    push(
        &mut inner,
        9,
        &record::encode(&offset_record("g", "t", 3, None)).key,
        Some(&[0, 9]),
    )
    .unwrap();
    let mut outer = BatchBuilder::new(9);
    push(&mut outer, 9, b"k", Some(&inner.build().unwrap())).unwrap();
    let bad = outer.build().unwrap();
    let mut bomb = view(&BatchBuilder::new(9).build().unwrap());
    bomb.header.record_count = 1;
    let mut packed = bomb.clone();
    packed.header.attributes.0 |= i16::from(Compression::Zstd.id());
    let mut reading = Unwrapping::new(names());
    let batches = [view(&bad), bomb, packed, view(&good)];
    assert_eq!(read(&mut reading, &batches).len(), 1);
    assert_eq!(reading.damaged, 4);
    proptest::proptest!(|(key: Vec<u8>, value: Vec<u8>)| {
        let mut reading = Unwrapping::new(names());
        let mut outer = BatchBuilder::new(9);
        push(&mut outer, 9, &key, Some(&value)).unwrap();
        reading.take(&view(&outer.build().unwrap()), &mut Vec::new());
    });
}
