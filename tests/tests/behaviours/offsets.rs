//! What becomes of committed offsets with time: their expiry, and the compaction of the log that holds them.

use std::time::{Duration, Instant};

use kafka_protocol::protocol::StrBytes;
use kop_tests::broker::{Broker, Options};
use kop_tests::process::eventually;
use kop_tests::raw::Raw;

use crate::groups::{commit, commit_request, committed, find_coordinator, offset_key, state};
use crate::kit::{busy_upkeep, create, read_to_end, skips_compaction};

/// Looks for expired offsets all the time.
fn busy_expiry() -> Options {
    Options::default()
        .set("offsetsRetentionCheckIntervalMs", "200")
        .kafka("offsets.retention.check.interval.ms", "200")
}

/// Commits with a retention of the request's own (OffsetCommit 2 to 4).
#[track_caller]
fn commit_for(raw: &mut Raw, group: &str, topic: &str, offset: i64, retention_ms: i64) {
    find_coordinator(raw, group);
    let request = commit_request(group, topic, offset).with_retention_time_ms(retention_ms);
    for version in 2..=4 {
        let reply = raw.call(version, &request);
        assert_eq!(reply.topics[0].partitions[0].error_code, 0);
    }
}

/// Row 50: −1 is the broker's retention, not "at once"; a retention that is named holds.
#[test]
fn offsets_expire_by_the_retention_of_their_commit_and_minus_one_is_the_brokers() {
    let broker = Broker::with(busy_expiry());
    let mut raw = Raw::connect(broker.address());
    create(&mut raw, "brief", 1, &[]);
    create(&mut raw, "long", 1, &[]);
    let begun = Instant::now();
    commit_for(&mut raw, "mixed", "brief", 7, 3_000);
    commit_for(&mut raw, "mixed", "long", 8, -1);
    commit_for(&mut raw, "only-brief", "brief", 9, 3_000);
    eventually("the offset expires", Duration::from_secs(30), || {
        let (offset, _, error) = committed(&mut raw, 7, "mixed", "brief");
        assert_eq!(error, 0);
        if offset == 7 {
            return None;
        }
        assert_eq!(offset, -1);
        Some(())
    });
    assert!(
        begun.elapsed() >= Duration::from_millis(3_000),
        "gone after {:?}",
        begun.elapsed()
    );
    eventually("so does the other one", Duration::from_secs(30), || {
        (committed(&mut raw, 7, "only-brief", "brief").0 == -1).then_some(())
    });
    // Several more searches later the one with the broker's retention is still there, and so is its group.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(committed(&mut raw, 7, "mixed", "long").0, 8);
    assert_eq!(state(&mut raw, "mixed"), ("Empty".to_owned(), 0));
}

/// Row 50, its other half: the broker's retention ends too, and takes the group that is left with nothing with it.
#[test]
fn offsets_of_a_group_without_members_go_after_the_brokers_retention_and_not_before() {
    let options = busy_expiry()
        .set("offsetsRetentionMinutes", "1")
        .kafka("offsets.retention.minutes", "1");
    let broker = Broker::with(options);
    let mut raw = Raw::connect(broker.address());
    create(&mut raw, "topic", 1, &[]);
    commit(&mut raw, "left", "topic", 7);
    commit_for(&mut raw, "left-with-minus-one", "topic", 8, -1);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(50) {
        assert_eq!(committed(&mut raw, 7, "left", "topic").0, 7);
        assert_eq!(committed(&mut raw, 7, "left-with-minus-one", "topic").0, 8);
        std::thread::sleep(Duration::from_secs(2));
    }
    for group in ["left", "left-with-minus-one"] {
        eventually("the offset expires", Duration::from_secs(60), || {
            (committed(&mut raw, 7, group, "topic").0 == -1).then_some(())
        });
    }
    let listed = raw.call(4, &kafka_protocol::messages::ListGroupsRequest::default());
    assert!(listed.groups.is_empty(), "{:?}", listed.groups);
}

/// Commits that make some 3 MB of the log, three times what a segment holds.
const COMMITS: i64 = 700;

/// Row 56.
#[test]
fn the_log_of_groups_is_compacted_and_loads_what_is_left_of_it() {
    if skips_compaction() {
        return;
    }
    let options = busy_upkeep()
        .set("offsetsTopicNumPartitions", "1")
        .kafka("offsets.topic.num.partitions", "1")
        .kafka("offsets.topic.segment.bytes", "1048576");
    let mut broker = Broker::with(options);
    let mut raw = Raw::connect(broker.address());
    create(&mut raw, "read", 1, &[]);
    commit(&mut raw, "early", "read", 5);
    let note = "n".repeat(4_000);
    let mut request = commit_request("busy", "read", 0);
    for offset in 1..=COMMITS {
        let partition = &mut request.topics[0].partitions[0];
        partition.committed_offset = offset;
        partition.committed_metadata = Some(StrBytes::from_string(format!("{offset} {note}")));
        assert_eq!(raw.call(8, &request).topics[0].partitions[0].error_code, 0);
    }
    let held = |raw: &mut Raw, key: &[u8]| {
        let records = read_to_end(raw, "__consumer_offsets", 0, 0);
        let of_key = records.iter().filter(|r| r.key.as_deref() == Some(key));
        of_key.count()
    };
    let (busy, early) = (offset_key("busy", "read"), offset_key("early", "read"));
    let limit = Duration::from_secs(60);
    eventually("old commits go", limit, || {
        (held(&mut raw, &busy) < COMMITS as usize / 2).then_some(())
    });
    assert_eq!(held(&mut raw, &early), 1, "the newest of each key stays");

    drop(raw);
    broker.kill();
    broker.restart();
    let mut raw = Raw::connect(broker.address());
    find_coordinator(&mut raw, "busy");
    let expected = (COMMITS, Some(format!("{COMMITS} {note}")), 0);
    assert_eq!(committed(&mut raw, 7, "busy", "read"), expected);
    assert_eq!(committed(&mut raw, 7, "early", "read").0, 5);
    commit(&mut raw, "busy", "read", COMMITS + 1);
    assert_eq!(committed(&mut raw, 7, "busy", "read").0, COMMITS + 1);
}
