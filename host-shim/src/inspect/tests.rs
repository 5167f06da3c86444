//! Data directories made by a broker, and what is printed about them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum};
use handler_api::cursor::{CursorRequest, OpenCursor};
use handler_api::ledger::{OpenLedgers, PropertiesChange, Rollover, UpdateLedgerProperties};
use handler_api::metadata::{PutRequest, PutValue};
use handler_api::topics::{CreateTopic, EnsureNamespace, Namespace, Topic, TopicNames};
use handler_api::{AppendRequest, Handle, Host};

use super::{InspectError, Inspection, What, inspect, printable, timestamp};
use crate::embedded::tests::wait;
use crate::embedded::{EmbeddedBroker, EmbeddedConfig, OpenError};
use crate::events::NoEvents;

fn start(dir: &Path) -> (EmbeddedBroker, Host) {
    let broker = EmbeddedBroker::open(EmbeddedConfig::new(dir)).unwrap();
    let host = Host::of(broker.attach(String::new(), Arc::new(NoEvents)));
    (broker, host)
}

fn create(host: &Host, topic: &str) -> Handle {
    let namespace = topic
        .trim_start_matches("persistent://")
        .rsplit_once('/')
        .unwrap()
        .0;
    let namespace = Namespace {
        namespace: namespace.into(),
    };
    wait(host.control::<EnsureNamespace>(&namespace)).unwrap();
    let request = Topic {
        name: topic.into(),
        partitions: 1,
        properties: [("kafkaTopicUUID".to_owned(), "some id".to_owned())].into(),
        ..Topic::default()
    };
    wait(host.control::<CreateTopic>(&request)).unwrap();
    let names = TopicNames {
        names: vec![format!("{topic}-partition-0")],
    };
    let opened = wait(host.control::<OpenLedgers>(&names))
        .unwrap()
        .ledgers
        .remove(0);
    opened.handle.unwrap().into()
}

fn append(host: &Host, handle: Handle, messages: u32, payload: Vec<u8>) {
    let request = AppendRequest {
        handle,
        messages,
        flags: 0,
        segments: vec![payload.into()].into(),
    };
    wait(host.append(vec![request])).unwrap().remove(0).unwrap();
}

fn print(dir: &Path, what: What) -> (String, u64) {
    let inspection = Inspection {
        data_dir: dir.to_path_buf(),
        what,
    };
    let mut out = Vec::new();
    let damaged = inspect(&inspection, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), damaged)
}

fn entries(topic: &str, from: i64, limit: u64) -> What {
    What::Entries {
        topic: topic.into(),
        from,
        limit,
        records: true,
    }
}

fn zigzag(value: i64) -> Vec<u8> {
    let mut raw = (value << 1 ^ value >> 63).cast_unsigned();
    let mut bytes = Vec::new();
    while raw > 0x7f {
        bytes.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    bytes.push(raw as u8);
    bytes
}

/// An entry as the plugin writes it: metadata, then a batch of format 2.
fn entry(records: &[(&[u8], Option<&[u8]>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (delta, (key, value)) in records.iter().enumerate() {
        let mut fields = vec![0];
        fields.extend(zigzag(5));
        fields.extend(zigzag(delta as i64));
        fields.extend(zigzag(key.len() as i64));
        fields.extend_from_slice(key);
        fields.extend(zigzag(value.map_or(-1, |value| value.len() as i64)));
        fields.extend_from_slice(value.unwrap_or_default());
        fields.extend(zigzag(0));
        body.extend(zigzag(fields.len() as i64));
        body.extend(fields);
    }
    let count = records.len() as i32;
    let mut covered = Vec::new();
    covered.extend(16i16.to_be_bytes());
    covered.extend((count - 1).to_be_bytes());
    covered.extend(1_700_000_000_000i64.to_be_bytes());
    covered.extend(1_700_000_000_005i64.to_be_bytes());
    covered.extend(4242i64.to_be_bytes());
    covered.extend(3i16.to_be_bytes());
    covered.extend(17i32.to_be_bytes());
    covered.extend(count.to_be_bytes());
    covered.extend(body);
    let mut batch = 0i64.to_be_bytes().to_vec();
    batch.extend((covered.len() as i32 + 9).to_be_bytes());
    batch.extend(0i32.to_be_bytes());
    batch.push(2);
    batch.extend((checksum(CrcAlgorithm::Crc32Iscsi, &covered) as u32).to_be_bytes());
    batch.extend(covered);
    let metadata = b"metadata is not looked at";
    let mut entry = (metadata.len() as u32).to_be_bytes().to_vec();
    entry.extend_from_slice(metadata);
    entry.extend(batch);
    entry
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as i16).to_be_bytes()[..], text.as_bytes()].concat()
}

#[test]
fn topics_ledgers_entries_and_values_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, host) = start(dir.path());
    let handle = create(&host, "persistent://public/default/clicks");
    append(
        &host,
        handle,
        2,
        entry(&[(b"k1", Some(b"v1")), (b"k2", None)]),
    );
    append(&host, handle, 1, b"something else".to_vec());
    wait(host.control::<Rollover>(&handle.into())).unwrap();
    append(&host, handle, 1, entry(&[(b"k3", Some(b"v3"))]));
    let cursor = CursorRequest {
        handle: Some(handle.into()),
        name: "reader".into(),
        index: 1,
    };
    wait(host.control::<OpenCursor>(&cursor)).unwrap();
    let properties = PropertiesChange {
        handle: Some(handle.into()),
        set: [("p".to_owned(), "q".to_owned())].into(),
        ..PropertiesChange::default()
    };
    wait(host.control::<UpdateLedgerProperties>(&properties)).unwrap();
    let value = PutRequest {
        path: "/a/b".into(),
        value: b"\x01text"[..].into(),
        expected_version: None,
    };
    wait(host.control::<PutValue>(&value)).unwrap();
    let (before, _) = {
        let running = Inspection {
            data_dir: dir.path().into(),
            what: What::Topics,
        };
        let refused = inspect(&running, &mut Vec::new()).unwrap_err();
        assert!(
            matches!(refused, InspectError::Open(OpenError::InUse { .. })),
            "{refused}"
        );
        drop(broker);
        print(dir.path(), What::Topics)
    };
    for line in [
        "format 1 starts 1 last stop clean",
        "namespace public/default",
        "topic persistent://public/default/clicks partitions 1 created 20",
        "  property kafkaTopicUUID=some id",
        "  partition persistent://public/default/clicks-partition-0 start 0 next 4 ledgers 2 bytes ",
        "    property p=q",
        "    cursor reader done-up-to 1",
    ] {
        assert!(
            before.lines().any(|printed| printed.starts_with(line)),
            "{line}\n{before}"
        );
    }
    let (ledgers, damaged) = print(dir.path(), What::Ledgers);
    assert_eq!((ledgers.lines().count(), damaged), (2, 0), "{ledgers}");
    assert!(
        ledgers.contains("sealed indexes 0..=2 entries 2 ")
            && ledgers.contains("open indexes 3..=3 entries 1 ")
    );
    let (all, damaged) = print(dir.path(), entries("clicks", 0, 100));
    assert_eq!(damaged, 0);
    for part in [
        ":0 indexes 0..=1 bytes ",
        "  batch offsets 0..=1 records 2 compression none timestamps 2023-11-14T22:13:20.000Z..=2023-11-14T22:13:20.005Z crc ok producer 4242 epoch 3 sequence 17 transactional",
        "  record offset 0 timestamp 2023-11-14T22:13:20.005Z key k1 value v1",
        "  record offset 1 timestamp 2023-11-14T22:13:20.005Z key k2 value null",
        "  no record batch of format 2",
        "footer of ledger ",
        "  batch offsets 3..=3 records 1 ",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
    let (some, _) = print(
        dir.path(),
        entries("persistent://public/default/clicks-partition-0", 2, 1),
    );
    assert_eq!(
        some.lines()
            .filter(|line| line.starts_with("entry"))
            .count(),
        1,
        "{some}"
    );
    let (values, _) = print(dir.path(), What::Metadata);
    assert_eq!(values, "value /a/b version 0 \\u{1}text\n");
    let unknown = Inspection {
        data_dir: dir.path().into(),
        what: entries("nothing", 0, 1),
    };
    assert!(matches!(
        inspect(&unknown, &mut Vec::new()),
        Err(InspectError::UnknownTopic(_))
    ));
}

#[test]
fn groups_and_offsets_are_replayed() {
    let key = |group: &str, topic: &str, partition: i32| {
        [
            &1i16.to_be_bytes()[..],
            &string(group),
            &string(topic),
            &partition.to_be_bytes(),
        ]
        .concat()
    };
    let committed = |offset: i64| {
        let fields = [
            &3i16.to_be_bytes()[..],
            &offset.to_be_bytes(),
            &7i32.to_be_bytes(),
        ]
        .concat();
        [
            &fields[..],
            &string("note"),
            &1_700_000_000_000i64.to_be_bytes(),
        ]
        .concat()
    };
    let group_key = [&2i16.to_be_bytes()[..], &string("doris")].concat();
    let group = [
        &3i16.to_be_bytes()[..],
        &string("consumer"),
        &9i32.to_be_bytes(),
        &string("range"),
        &string("m-1"),
        &1_700_000_000_000i64.to_be_bytes(),
        &1i32.to_be_bytes(),
        &string("m-1"),
        &(-1i16).to_be_bytes(),
        &string("doris.client"),
        &string("/127.0.0.1"),
        &60_000i32.to_be_bytes(),
        &10_000i32.to_be_bytes(),
        &2i32.to_be_bytes(),
        b"su",
        &0i32.to_be_bytes(),
    ]
    .concat();
    let dir = tempfile::tempdir().unwrap();
    let (broker, host) = start(dir.path());
    let handle = create(&host, "persistent://public/__kafka/__consumer_offsets");
    let (gone, first, second) = (
        key("old", "t", 0),
        key("doris", "t", 0),
        key("doris", "t", 1),
    );
    append(
        &host,
        handle,
        2,
        entry(&[(&gone, Some(&committed(1))), (&first, Some(&committed(5)))]),
    );
    append(
        &host,
        handle,
        3,
        entry(&[
            (&first, Some(&committed(6))),
            (&second, Some(&committed(8))),
            (&gone, None),
        ]),
    );
    append(&host, handle, 1, entry(&[(&group_key, Some(&group))]));
    append(&host, handle, 1, entry(&[(b"\x00\x63?", Some(b"newer"))]));
    drop(broker);
    let (groups, damaged) = print(dir.path(), What::Groups);
    assert_eq!(damaged, 0);
    assert_eq!(
        groups.lines().collect::<Vec<_>>(),
        [
            "group doris type consumer generation 9 protocol range leader m-1 members [m-1 (client doris.client at /127.0.0.1)]",
            "offset doris t 0 at 6 committed 2023-11-14T22:13:20.000Z leader-epoch 7 metadata note",
            "offset doris t 1 at 8 committed 2023-11-14T22:13:20.000Z leader-epoch 7 metadata note",
        ]
    );
}

#[test]
fn damage_is_named_and_a_killed_brokers_directory_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (_broker, host) = start(dir.path());
    let handle = create(&host, "persistent://public/default/t");
    for _ in 0..3 {
        append(&host, handle, 1, b"0123456789".to_vec());
    }
    let crashed = crate::embedded::tests::image(dir.path());
    fs::write(crashed.path().join("LOCK"), "").unwrap();
    let file = crate::embedded::tests::ledger_files(crashed.path()).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    bytes[64 + 42 + 35] ^= 1;
    bytes.extend(b"half a record");
    fs::write(&file, &bytes).unwrap();
    fs::write(
        crashed.path().join("ledgers/0000000000000077-0.ledger"),
        b"?",
    )
    .unwrap();
    let catalog = fs::read(crashed.path().join("catalog.redb")).unwrap();
    let (all, damaged) = print(crashed.path(), entries("t", 0, 100));
    assert_eq!(damaged, 1);
    assert!(all.contains("DAMAGED 42 bytes at offset 106"), "{all}");
    assert!(all.contains("torn end of 13 bytes at offset 190"), "{all}");
    assert_eq!(
        all.lines()
            .filter(|line| line.ends_with("checksum ok"))
            .count(),
        2
    );
    let (topics, _) = print(crashed.path(), What::Topics);
    assert!(
        topics.contains("last stop unclean") && topics.contains(" next 3 "),
        "{topics}"
    );
    let (ledgers, _) = print(crashed.path(), What::Ledgers);
    assert!(
        ledgers.contains("waste ") && ledgers.contains("DAMAGED"),
        "{ledgers}"
    );
    assert!(fs::read(&file).unwrap() == bytes);
    assert!(fs::read(crashed.path().join("catalog.redb")).unwrap() == catalog);
    assert_eq!(fs::read(crashed.path().join("LOCK")).unwrap(), b"");
}

#[test]
fn a_directory_that_is_none_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let inspection = Inspection {
        data_dir: dir.path().join("nothing"),
        what: What::Topics,
    };
    let error = inspect(&inspection, &mut Vec::new())
        .unwrap_err()
        .to_string();
    assert!(error.contains("nothing"), "{error}");
}

#[test]
fn times_are_printed_in_utc() {
    assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
    assert_eq!(timestamp(-1), "1969-12-31T23:59:59.999Z");
    assert_eq!(timestamp(951_782_399_999), "2000-02-28T23:59:59.999Z");
    assert_eq!(timestamp(951_868_800_000), "2000-03-01T00:00:00.000Z");
    assert_eq!(timestamp(1_709_164_800_123), "2024-02-29T00:00:00.123Z");
    timestamp(i64::MAX);
    timestamp(i64::MIN);
}

#[test]
fn what_is_printed_is_short_and_has_no_control_characters() {
    assert_eq!(printable(b"{\"a\":\n1}"), "{\"a\":\\n1}");
    assert_eq!(
        printable("ü".repeat(100).as_bytes()),
        format!("{}… (200 bytes)", "ü".repeat(60))
    );
    assert!(printable(format!("x{}", "ü".repeat(100)).as_bytes()).starts_with("xüü"));
    assert_eq!(printable(&[0xff, b'x']), "\\xffx");
    assert!(printable(&[b'x'; 1000]).ends_with("… (1000 bytes)"));
}
