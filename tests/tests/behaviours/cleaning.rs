//! What becomes of old records: retention, compaction, and readers that meet the gaps.

use std::time::{Duration, Instant};

use kafka_protocol::messages::FetchRequest;
use kop_handler::wire::batch::{Compression, NewRecord};
use kop_tests::broker::Broker;
use kop_tests::process::eventually;
use kop_tests::raw::Raw;
use uuid::Uuid;

use crate::admin::{SET, alter};
use crate::kit::{
    FETCH, LIST_OFFSETS, append, batch_of, batches, busy_upkeep, create, end_offset, fetch,
    fetch_request, keyed, list_offset, now_ms, read_to_end, skips_compaction, values,
    wait_for_leaders,
};

/// How long a round of upkeep may take on a machine busy with other tests.
const UPKEEP: Duration = Duration::from_secs(60);
/// `delete.retention.ms` of the compacted topics.
const TOMBSTONES_STAY: Duration = Duration::from_millis(4_000);

const COMPACTED: &[(&str, &str)] = &[
    ("cleanup.policy", "compact"),
    ("segment.ms", "300"),
    ("min.cleanable.dirty.ratio", "0.01"),
    ("delete.retention.ms", "4000"),
];

/// Offsets below `end` with key and value, after one more record of another key: only closed segments are cleaned, and
/// a broker may close one only when something is appended.
fn look(raw: &mut Raw, topic: &str, end: i64) -> Vec<(i64, String, Option<String>)> {
    append(raw, topic, 0, keyed("later", Some("v")));
    let found = read_to_end(raw, topic, 0, 0);
    let found = found.iter().filter(|record| record.offset < end);
    found.map(crate::kit::Got::text).collect()
}

fn kept(offset: i64, key: &str, value: Option<&str>) -> (i64, String, Option<String>) {
    (offset, key.to_owned(), value.map(str::to_owned))
}

/// Row 63.
#[test]
fn compaction_keeps_the_newest_of_each_key_and_tombstones_for_their_time_only() {
    if skips_compaction() {
        return;
    }
    let broker = Broker::with(busy_upkeep());
    let mut raw = Raw::connect(broker.address());
    create(&mut raw, "compacted", 1, COMPACTED);
    let written = [
        ("kept", Some("old")),
        ("kept", Some("new")),
        ("gone", Some("value")),
        ("gone", None),
        ("never-there", None),
    ];
    let marked = Instant::now();
    for (offset, (key, value)) in (0..).zip(written) {
        assert_eq!(append(&mut raw, "compacted", 0, keyed(key, value)), offset);
    }
    let with_tombstones = [
        kept(1, "kept", Some("new")),
        kept(3, "gone", None),
        kept(4, "never-there", None),
    ];
    eventually("what is out of date goes", UPKEEP, || {
        (look(&mut raw, "compacted", 5) == with_tombstones).then_some(())
    });
    let without = [kept(1, "kept", Some("new"))];
    eventually("the tombstones go", UPKEEP, || {
        let found = look(&mut raw, "compacted", 5);
        if found == without {
            return Some(());
        }
        assert!(
            found.iter().all(|record| with_tombstones.contains(record)),
            "nothing comes back: {found:?}"
        );
        None
    });
    assert!(
        marked.elapsed() >= TOMBSTONES_STAY,
        "gone after {:?}",
        marked.elapsed()
    );
}

/// Row 42: offsets of a compacted topic have gaps, which no reader may stumble over.
#[test]
fn readers_get_past_the_gaps_that_compaction_leaves() {
    if skips_compaction() {
        return;
    }
    let broker = Broker::with(busy_upkeep());
    let mut raw = Raw::connect(broker.address());
    create(&mut raw, "gaps", 1, COMPACTED);
    let base = now_ms() - 10_000;
    // Offsets 0 to 19 in batches of two, one key but for offsets 7 and 12, which stay.
    for first in (0..20).step_by(2) {
        let record = |offset: i64| {
            let key: &[u8] = match offset {
                7 => b"seven",
                12 => b"twelve",
                _ => b"often",
            };
            NewRecord::new(base + offset, Some(key), Some(b"v"))
        };
        let records = [record(first), record(first + 1)];
        append(&mut raw, "gaps", 0, batch_of(Compression::None, &records));
    }
    eventually("the gaps", UPKEEP, || {
        append(&mut raw, "gaps", 0, keyed("often", Some("v")));
        let found = read_to_end(&mut raw, "gaps", 0, 0);
        let below = found.iter().map(|r| r.offset).filter(|o| *o < 20);
        (below.collect::<Vec<_>>() == [7, 12]).then_some(())
    });
    let end = end_offset(&mut raw, "gaps");
    for from in 0..end {
        let found = read_to_end(&mut raw, "gaps", 0, from);
        let expected = [7, 12].into_iter().find(|kept| *kept >= from);
        let first = found.first().map(|record| record.offset);
        assert_eq!(
            first.filter(|offset| *offset < 20),
            expected,
            "read from {from}"
        );
        assert_eq!(
            found.last().map(|record| record.offset),
            Some(end - 1),
            "the newest record stays"
        );
    }
    let by_client: Vec<i64> = kop_tests::rd::read_all(&broker.bootstrap(), "gaps", 1)
        .into_iter()
        .map(|(_, offset, ..)| offset)
        .collect();
    // What lies between is still being cleaned.
    assert!(by_client.starts_with(&[7, 12]), "librdkafka: {by_client:?}");
    assert_eq!(by_client.last(), Some(&(end - 1)));
    for (asked, offset) in [(0, 7), (6, 7), (7, 7), (8, 12), (12, 12)] {
        let answer = list_offset(&mut raw, LIST_OFFSETS, "gaps", base + asked);
        assert_eq!(
            (answer.error_code, answer.offset, answer.timestamp),
            (0, offset, base + offset),
            "time {asked}"
        );
    }
    assert_eq!(list_offset(&mut raw, LIST_OFFSETS, "gaps", -2).offset, 0);
    wakes_at_the_end(&broker, &mut raw, end);
}

/// A long poll at the end of a log with gaps is woken as any other.
fn wakes_at_the_end(broker: &Broker, raw: &mut Raw, end: i64) {
    let mut reader = Raw::connect(broker.address());
    let request =
        fetch_request(FETCH, "gaps", Uuid::nil(), &[(0, end, 1 << 20)]).with_max_wait_ms(30_000);
    let correlation_id = reader.send(FETCH, &request);
    assert!(reader.is_silent_for(Duration::from_millis(300)), "it waits");
    append(raw, "gaps", 0, keyed("often", Some("woken")));
    let reply = reader.receive::<FetchRequest>(FETCH, correlation_id);
    assert_eq!(
        values(&reply.responses[0].partitions[0], end),
        [(end, "woken".to_owned())]
    );
}

/// Bytes of the value of each record below.
const LARGE: usize = 100_000;
/// `segment.bytes` is 1 MiB, so that these make several.
const RECORDS: i64 = 60;

/// Every record from `start` on is found by its time, and times before by the first one.
#[track_caller]
fn times_are_found_from(raw: &mut Raw, base: i64, start: i64) {
    for offset in 0..RECORDS {
        let answer = list_offset(raw, LIST_OFFSETS, "rolled", base + offset * 1000);
        let expected = offset.max(start);
        assert_eq!(
            (answer.error_code, answer.offset, answer.timestamp),
            (0, expected, base + expected * 1000),
            "the time of record {offset}, from {start} on"
        );
    }
    let earliest = list_offset(raw, LIST_OFFSETS, "rolled", -2);
    assert_eq!((earliest.error_code, earliest.offset), (0, start));
}

/// Row 18: segments (ledgers) that fill up or go move neither the start nor what a time finds, until retention does.
#[test]
fn the_start_stays_while_segments_roll_and_moves_only_by_retention() {
    let mut broker = Broker::with(busy_upkeep());
    let mut raw = Raw::connect(broker.address());
    let configs = [
        ("segment.bytes", "1048576"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
    ];
    create(&mut raw, "rolled", 1, &configs);
    let base = now_ms() - 1_000_000;
    let value = vec![b'v'; LARGE];
    for offset in 0..RECORDS {
        let record = NewRecord::new(base + offset * 1000, None, Some(&value));
        append(
            &mut raw,
            "rolled",
            0,
            batch_of(Compression::None, &[record]),
        );
    }
    // Several rounds of upkeep.
    std::thread::sleep(Duration::from_secs(3));
    times_are_found_from(&mut raw, base, 0);

    let keep: i64 = 2_500_000;
    let altered = alter(
        &mut raw,
        "rolled",
        "retention.bytes",
        SET,
        Some(&keep.to_string()),
    );
    assert_eq!(altered, 0);
    let start = eventually("old segments go", UPKEEP, || {
        let start = list_offset(&mut raw, LIST_OFFSETS, "rolled", -2).offset;
        let left = (RECORDS - start) * LARGE as i64;
        assert!(left >= keep, "{left} bytes are less than retention.bytes");
        // No whole segment more could go.
        (left < keep + 2 * 1_048_576).then_some(start)
    });
    assert!(start > 0);
    times_are_found_from(&mut raw, base, start);
    let data = fetch(&mut raw, "rolled", 0, start);
    assert_eq!((data.error_code, data.log_start_offset), (0, start));
    assert_eq!(batches(&data)[0].header.base_offset, start);
    let gone = fetch(&mut raw, "rolled", 0, start - 1);
    assert_eq!(gone.error_code, 1, "OFFSET_OUT_OF_RANGE");
    assert_eq!(end_offset(&mut raw, "rolled"), RECORDS);

    drop(raw);
    broker.stop().expect("a clean stop");
    broker.restart();
    let mut raw = Raw::connect(broker.address());
    wait_for_leaders(&mut raw, "rolled", 1);
    times_are_found_from(&mut raw, base, start);
}
