//! Entry formats in the log: each for itself, all in one partition, and entries of others that nobody can read.

use handler_api::AppendRequest;
use handler_api::ledger::{HandleRef, Rollover};

use super::reload::state;
use super::*;
use crate::log::clean::clean;
use crate::wire::batch::Compression;

const FORMATS: [EntryFormat; 3] = [
    EntryFormat::Kafka,
    EntryFormat::MixedKafka,
    EntryFormat::Pulsar,
];

fn write_as(bed: &Bed, format: EntryFormat) {
    bed.change_settings(|settings| settings.entry_format = format);
}

/// Appends an entry as another program does.
fn append_raw(bed: &Bed, partition: &Arc<Partition>, messages: u32, entry: Bytes) -> i64 {
    let request = AppendRequest {
        handle: partition.handle(),
        messages,
        flags: 0,
        segments: [entry.into()].into_iter().collect(),
    };
    let appended = bed.run(bed.logs.shared.host.append(vec![request]));
    appended
        .expect("an answer")
        .remove(0)
        .expect("an append")
        .index
}

fn values(bed: &Bed, partition: &Arc<Partition>) -> Vec<(i64, String)> {
    let records = bed.records(partition, 0).into_iter();
    records
        .map(|(offset, value)| (offset, String::from_utf8(value.to_vec()).expect("text")))
        .collect()
}

#[test]
fn one_partition_holds_all_formats_and_reads_each_as_it_is() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    let mut expected = Vec::new();
    for round in 0..3 {
        for (n, format) in FORMATS.into_iter().enumerate() {
            write_as(&bed, format);
            let n = i32::try_from(n).expect("small") + round * 3;
            let value = format!("{format} {round}");
            let base = bed
                .append(&partition, sequenced(9, 1, n * 2, 2, &value))
                .expect("an append")
                .base_offset;
            expected.extend([(base, value.clone()), (base + 1, value)]);
        }
    }
    assert_eq!(values(&bed, &partition), expected);
    let fetched = bed.read(&partition, 0, 1 << 20).expect("a read");
    for (place, (header, _)) in (0i32..).zip(batches(&fetched)) {
        let of = (
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        );
        assert_eq!(
            of,
            (9, 1, place * 2),
            "the producer is known in every format"
        );
    }
}

#[test]
fn producers_and_times_are_rebuilt_from_entries_of_every_format() {
    let mut bed = Bed::quiet();
    let partition = bed.open(0);
    for (n, format) in (0i32..).zip(FORMATS.into_iter().cycle().take(12)) {
        write_as(&bed, format);
        let time = NOW_MS + i64::from((n * 7919) % 100);
        let builder = BatchBuilder::new(time).producer(i64::from(n % 4), 2, n / 4 * 2);
        bed.append(&partition, build(builder, &[time, time - 5]))
            .expect("an append");
    }
    let before = state(&partition);
    bed.sim.crash();
    bed.restart();
    let after = bed.open(0);
    let (producers, times, taken_in, bounds) = state(&after);
    assert_eq!(
        (producers, taken_in, bounds),
        (before.0, before.2, before.3)
    );
    for target in [NOW_MS, NOW_MS + 40, NOW_MS + 90] {
        let by_live = bed.run(partition_time(&after, target));
        let ranges = times.search(target, 0, bounds.1);
        assert!(!ranges.is_empty(), "{by_live:?}");
    }
    for (n, format) in (12i32..).zip(FORMATS) {
        write_as(&bed, format);
        let again = |n: i32| {
            let time = NOW_MS + i64::from((n * 7919) % 100);
            let builder = BatchBuilder::new(time).producer(i64::from(n % 4), 2, n / 4 * 2);
            build(builder, &[time, time - 5])
        };
        let old = bed.append(&after, again(n - 4)).expect("a duplicate");
        assert_eq!(
            old.base_offset,
            i64::from(n - 4) * 2,
            "answered with its place"
        );
    }
    assert_eq!(after.high_watermark(), 24, "nothing was appended twice");
}

async fn partition_time(partition: &Partition, target: i64) -> Option<i64> {
    let found = partition.offset_for_time(target).await.expect("a search");
    found.map(|found| found.offset)
}

#[test]
fn times_are_found_alike_in_every_format() {
    let mut answers = Vec::new();
    for format in FORMATS {
        let bed = Bed::quiet();
        write_as(&bed, format);
        let partition = bed.open(0);
        for n in 0..10 {
            bed.put(&partition, &[NOW_MS + n * 10, NOW_MS + n * 10 - 15]);
        }
        let targets = (-3..12).map(|n| NOW_MS + n * 9);
        let found: Vec<_> = targets
            .map(|target| bed.run(partition_time(&partition, target)))
            .collect();
        answers.push(found);
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    assert!(answers[0].iter().flatten().count() > 5);
}

#[test]
fn an_entry_that_nobody_can_read_is_stepped_over_and_takes_its_offsets() {
    let bed = Bed::quiet();
    let partition = bed.open(0);
    bed.put(&partition, &[NOW_MS]);
    // Metadata: producer `p`, sequence 0, published at 1, two messages, an encryption key.
    let encrypted = b"\0\0\0\x0c\x0a\x01p\x10\0\x18\x01\x58\x02\x6a\x01k?";
    let junk: [&[u8]; 3] = [encrypted, b"", b"\0\0\0\xffjunk"];
    let mut last = 0;
    for entry in junk {
        last = append_raw(&bed, &partition, 2, Bytes::copy_from_slice(entry));
    }
    assert_eq!(last, 6);
    bed.put(&partition, &[NOW_MS]);
    assert_eq!(partition.high_watermark(), 8);
    for from in 0..8 {
        let fetched = bed.read(&partition, from, 1 << 20).expect("a read");
        let (first, _) = batches(&fetched).remove(0);
        assert!(first.last_offset() >= from);
        assert_eq!(first.attributes.is_control(), (1..7).contains(&from));
        let (last, _) = batches(&fetched).pop().expect("a batch");
        assert_eq!(last.base_offset, 7, "nothing stands in the way");
        assert!(!last.attributes.is_control());
    }
}

#[test]
fn a_load_and_a_search_step_over_what_nobody_can_read() {
    let mut bed = Bed::quiet();
    let partition = bed.open(0);
    append_raw(&bed, &partition, 3, Bytes::from_static(b"junk"));
    bed.append(&partition, sequenced(4, 0, 0, 1, "v"))
        .expect("an append");
    bed.sim.crash();
    bed.restart();
    let partition = bed.open(0);
    assert_eq!(partition.high_watermark(), 4);
    assert_eq!(partition.active_producers().len(), 1);
    assert_eq!(bed.run(partition_time(&partition, 0)), Some(3));
}

#[test]
fn mixed_kafka_compresses_as_the_broker_says_unless_the_topic_does() {
    let mut bed = Bed::quiet();
    bed.options.mixed_compression = Some(Compression::Zstd);
    bed.restart();
    let partition = bed.open(0);
    let codecs = |of_topic: Option<Compression>, format| {
        bed.change_settings(|settings| {
            settings.entry_format = format;
            settings.compression = of_topic;
        });
        let info = bed
            .append(&partition, batch(&[NOW_MS; 3]))
            .expect("an append");
        let fetched = bed
            .read(&partition, info.base_offset, 1 << 20)
            .expect("a read");
        let (header, _) = batches(&fetched).remove(0);
        header.attributes.compression().expect("a codec")
    };
    assert_eq!(codecs(None, EntryFormat::MixedKafka), Compression::Zstd);
    assert_eq!(codecs(None, EntryFormat::Kafka), Compression::None);
    let lz4 = Some(Compression::Lz4);
    assert_eq!(codecs(lz4, EntryFormat::MixedKafka), Compression::Lz4);
}

#[test]
fn a_batch_that_outgrows_an_entry_in_pulsars_format_is_refused() {
    let bed = Bed::quiet();
    bed.change_settings(|settings| settings.max_message_bytes = usize::MAX);
    let partition = bed.open(0);
    let mut builder = BatchBuilder::new(NOW_MS);
    for _ in 0..200_000 {
        builder
            .push(NewRecord::new(NOW_MS, Some(b"k"), Some(b"v")))
            .expect("a record");
    }
    let records = builder.build().expect("a batch");
    write_as(&bed, EntryFormat::Pulsar);
    let refused = bed
        .append(&partition, records.clone())
        .expect_err("too large");
    assert!(
        matches!(refused.fault, Fault::MessageTooLarge(_)),
        "{refused:?}"
    );
    write_as(&bed, EntryFormat::Kafka);
    assert!(
        bed.append(&partition, records).is_ok(),
        "it fits as it came"
    );
}

#[test]
fn a_compacted_topic_in_pulsars_format_keeps_the_newest_of_each_key() {
    let bed = Bed::quiet();
    bed.change_settings(|settings| {
        settings.entry_format = EntryFormat::Pulsar;
        settings.compact = true;
        settings.min_cleanable_dirty_ratio = 0.0;
    });
    let partition = bed.open(0);
    for n in 0..3 {
        bed.put(&partition, &[NOW_MS + n, NOW_MS + n]);
    }
    append_raw(&bed, &partition, 1, Bytes::from_static(b"junk"));
    bed.put(&partition, &[NOW_MS + 9]);
    let handle = HandleRef::from(partition.handle());
    bed.run(bed.logs.shared.host.control::<Rollover>(&handle))
        .expect("sealed");
    bed.put(&partition, &[NOW_MS + 10]);
    bed.run(clean(&partition)).expect("cleaned");
    let left: Vec<i64> = values(&bed, &partition).iter().map(|row| row.0).collect();
    assert_eq!(
        left,
        [6, 7, 8],
        "the unreadable entry stays as a gap of its own"
    );
    let entries = bed.sim.entries(&partition_name(0));
    assert!(
        entries
            .iter()
            .any(|(_, _, entry)| entry.as_ref() == b"junk")
    );
}
