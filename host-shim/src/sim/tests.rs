//! What the simulated host promises beyond the contract of every host: faults from a seed, crashes, audits.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use handler_api::ledger::{OpenLedgers, ReplaceLedger, Replacement, ReplacementEntry};
use handler_api::topics::TopicNames;
use handler_api::{
    AppendRequest, Appended, ErrorCode, Handle, Host, Owner, Position, ReadRequest, SharedBytes,
};
use parking_lot::Mutex;

use super::{Faults, SimHost};
use crate::events::EventSink;

const TOPIC: &str = "persistent://public/default/t";
const PARTITION: &str = "persistent://public/default/t-partition-0";

/// Keeps what it hears.
#[derive(Default)]
struct Ear {
    ends: Mutex<Vec<(Handle, i64)>>,
    events: Mutex<Vec<u32>>,
}

impl EventSink for Ear {
    fn event(&self, op: u32, _payload: Bytes) {
        self.events.lock().push(op);
    }
    fn end_moved(&self, handle: Handle, _position: Position, index: i64) {
        self.ends.lock().push((handle, index));
    }
}

fn sim(faults: Faults) -> SimHost {
    let sim = SimHost::with_faults(1, faults);
    assert!(sim.create_topic(TOPIC, 2));
    sim
}

/// Waits for an answer by stepping.
fn run<T>(sim: &SimHost, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Some(value) = future.as_mut().now_or_never() {
            return value;
        }
        assert!(sim.step(), "nothing is under way, and still no answer");
    }
}

fn open(sim: &SimHost, host: &Host, partition: &str) -> Result<Handle, ErrorCode> {
    let names = TopicNames {
        names: vec![partition.to_owned()],
    };
    let mut answer = loop {
        match run(sim, host.control::<OpenLedgers>(&names)) {
            Err(error) if error.kind() == ErrorCode::NotReady => {}
            answer => break answer.map_err(|error| error.kind())?,
        }
    };
    let opened = answer.ledgers.remove(0);
    match opened.fault {
        Some(fault) => match handler_api::ApiError::from(fault).kind() {
            ErrorCode::NotReady => open(sim, host, partition),
            kind => Err(kind),
        },
        None => Ok(opened.handle.unwrap().into()),
    }
}

fn request(handle: Handle, messages: u32, bytes: &'static [u8]) -> AppendRequest {
    AppendRequest {
        handle,
        messages,
        flags: 0,
        segments: vec![SharedBytes::from(Bytes::from_static(bytes))].into(),
    }
}

fn append(
    host: &Host,
    handle: Handle,
    messages: u32,
    bytes: &'static [u8],
) -> impl Future<Output = Result<Appended, ErrorCode>> + use<> {
    let future = host.append(vec![request(handle, messages, bytes)]);
    async move {
        let mut results = future.await.map_err(|error| error.kind())?;
        results.remove(0).map_err(|error| error.kind())
    }
}

fn read_from(handle: Handle, index: i64) -> ReadRequest {
    ReadRequest {
        handle,
        index,
        position: Position::UNKNOWN,
        max_entries: 100,
        flags: ReadRequest::AT_LEAST_ONE,
        max_bytes: 1 << 20,
    }
}

/// One client against one partition: appends until 200 are acknowledged, opening again whenever the handle dies.
/// Returns what was acknowledged and everything that the host answered.
fn client(sim: &SimHost, host: &Host) -> (Vec<Appended>, Vec<String>) {
    let mut acknowledged = Vec::new();
    let mut story = Vec::new();
    let mut handle = open(sim, host, PARTITION).unwrap();
    while acknowledged.len() < 200 {
        let mut under_way = Vec::new();
        for messages in 1..=5 {
            under_way.push(append(host, handle, messages, b"some bytes"));
        }
        for future in under_way {
            let result = run(sim, future);
            story.push(format!("{result:?}"));
            match result {
                Ok(appended) => acknowledged.push(appended),
                Err(ErrorCode::Refused) => {}
                Err(ErrorCode::HandleClosed | ErrorCode::UnknownOutcome) => {
                    handle = open(sim, host, PARTITION).unwrap();
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    (acknowledged, story)
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let story = |seed| {
        let sim = SimHost::with_faults(seed, Faults::stormy());
        sim.create_topic(TOPIC, 1);
        let host = sim.host();
        (client(&sim, &host), sim.entries(PARTITION))
    };
    assert_eq!(story(3), story(3));
    assert_ne!(story(3), story(4));
}

#[test]
fn storms_lose_nothing_that_was_acknowledged_and_leave_indexes_dense() {
    for seed in 0..50 {
        let sim = SimHost::with_faults(seed, Faults::stormy());
        sim.create_topic(TOPIC, 1);
        let (acknowledged, story) = client(&sim, &sim.host());
        let faults = story.iter().filter(|line| line.contains("Err")).count();
        assert!(faults > 0, "seed {seed} met no fault");
        let entries = sim.entries(PARTITION);
        let mut next = 0;
        for (index, messages, _) in &entries {
            assert_eq!(index - i64::from(*messages) + 1, next, "seed {seed}");
            next = index + 1;
        }
        for appended in acknowledged {
            assert!(
                entries.iter().any(|(index, ..)| *index == appended.index),
                "seed {seed} lost {appended:?}"
            );
        }
    }
}

#[test]
fn a_pending_entry_is_not_readable_and_dropping_its_reply_cancels_nothing() {
    let sim = sim(Faults::slow());
    let host = sim.host();
    let handle = open(&sim, &host, PARTITION).unwrap();
    let reply = append(&host, handle, 3, b"abc");
    let read = host.read(vec![read_from(handle, 0)], 1 << 20);
    drop(reply);
    sim.settle();
    let answer = run(&sim, read).unwrap().remove(0).unwrap();
    assert!(answer.entries.is_empty());
    assert_eq!(answer.end_index, -1);
    let read = host.read(vec![read_from(handle, 0)], 1 << 20);
    let answer = run(&sim, read).unwrap().remove(0).unwrap();
    assert_eq!((answer.entries.len(), answer.end_index), (1, 2));
}

#[test]
fn a_crash_kills_old_hosts_and_keeps_a_prefix_of_what_was_under_way() {
    let mut kept = Vec::new();
    for seed in 0..30 {
        let sim = SimHost::with_faults(seed, Faults::slow());
        sim.create_topic(TOPIC, 1);
        let host = sim.host();
        let handle = open(&sim, &host, PARTITION).unwrap();
        run(&sim, append(&host, handle, 1, b"safe")).unwrap();
        let lost: Vec<_> = (0..4).map(|_| append(&host, handle, 1, b"?")).collect();
        sim.crash();
        for reply in lost {
            assert_eq!(run(&sim, reply), Err(ErrorCode::Closing));
        }
        let dead = run(&sim, append(&host, handle, 1, b"late"));
        assert_eq!(dead, Err(ErrorCode::Closing));
        let entries = sim.entries(PARTITION);
        assert_eq!(entries[0].2, "safe");
        let indexes: Vec<i64> = entries.iter().map(|(index, ..)| *index).collect();
        assert_eq!(indexes, (0..entries.len() as i64).collect::<Vec<_>>());
        kept.push(entries.len());
        let host = sim.host();
        let reopened = open(&sim, &host, PARTITION).unwrap();
        assert_ne!(reopened, handle);
        let appended = run(&sim, append(&host, reopened, 1, b"new")).unwrap();
        assert_eq!(appended.index, entries.len() as i64);
    }
    assert!(kept.contains(&1) && kept.iter().any(|n| *n > 2));
}

#[test]
fn each_plugin_hears_of_its_own_watches_once() {
    let sim = sim(Faults::none());
    let (first, second) = (Arc::new(Ear::default()), Arc::new(Ear::default()));
    let (one, two) = (sim.host_for(first.clone()), sim.host_for(second.clone()));
    let handle = open(&sim, &one, PARTITION).unwrap();
    assert_eq!(one.watch(handle, -1), Ok(-1));
    for _ in 0..2 {
        run(&sim, append(&two, handle, 2, b"x")).unwrap();
    }
    assert_eq!(*first.ends.lock(), [(handle, 1)]);
    assert!(second.ends.lock().is_empty());
    assert_eq!(one.watch(handle, 0), Ok(3), "already beyond: not armed");
    run(&sim, append(&two, handle, 1, b"x")).unwrap();
    assert_eq!(first.ends.lock().len(), 1);
}

#[test]
fn an_unload_kills_the_handle_and_is_told() {
    let sim = sim(Faults::none());
    let ear = Arc::new(Ear::default());
    let host = sim.host_for(ear.clone());
    let handle = open(&sim, &host, PARTITION).unwrap();
    assert!(sim.unload(PARTITION));
    assert!(!sim.unload(PARTITION), "it is closed by now");
    let dead = run(&sim, append(&host, handle, 1, b"x"));
    assert_eq!(dead, Err(ErrorCode::HandleClosed));
    assert_eq!(*ear.events.lock(), [0x0201, 0x0101, 0x0101]);
    assert!(open(&sim, &host, PARTITION).is_ok());
}

#[test]
fn a_partition_of_another_broker_cannot_be_opened() {
    let sim = sim(Faults::none());
    let host = sim.host();
    let other = Owner {
        local: false,
        broker: "elsewhere:6650".into(),
        protocol_data: "".into(),
    };
    sim.set_owner(PARTITION, Some(other.clone()));
    assert_eq!(open(&sim, &host, PARTITION), Err(ErrorCode::NotOwner));
    let found = run(&sim, host.lookup(vec![PARTITION.to_owned()])).unwrap();
    assert_eq!(found, [Ok(other)]);
    sim.set_owner(PARTITION, None);
    assert!(open(&sim, &host, PARTITION).is_ok());
}

#[test]
fn a_full_disk_refuses_and_takes_up_no_index() {
    let sim = sim(Faults::none());
    let host = sim.host();
    let handle = open(&sim, &host, PARTITION).unwrap();
    sim.set_disk_full(true);
    let refused = run(&sim, append(&host, handle, 1, b"x"));
    assert_eq!(refused, Err(ErrorCode::NoSpace));
    sim.set_disk_full(false);
    let appended = run(&sim, append(&host, handle, 1, b"x")).unwrap();
    assert_eq!(appended.index, 0);
}

#[test]
fn segments_may_come_back_cut_anew_but_whole() {
    let sim = sim(Faults {
        split_segments: true,
        ..Faults::none()
    });
    let host = sim.host();
    let handle = open(&sim, &host, PARTITION).unwrap();
    run(&sim, append(&host, handle, 1, b"0123456789")).unwrap();
    let read = host.read(vec![read_from(handle, 0)], 1 << 20);
    let answer = run(&sim, read).unwrap().remove(0).unwrap();
    let segments = &answer.entries[0].segments;
    assert_eq!(segments.len(), 2);
    let whole: Vec<u8> = segments.iter().flat_map(|s| s.bytes.to_vec()).collect();
    assert_eq!(whole, b"0123456789");
}

#[test]
fn a_replaced_ledger_keeps_the_indexes_of_its_neighbours() {
    let sim = sim(Faults {
        ledger_entries: 4,
        ..Faults::none()
    });
    let host = sim.host();
    let handle = open(&sim, &host, PARTITION).unwrap();
    for _ in 0..10 {
        run(&sim, append(&host, handle, 2, b"xx")).unwrap();
    }
    let describe = host.control::<handler_api::ledger::DescribeLedgers>(&handle.into());
    let ledgers = run(&sim, describe).unwrap().ledgers;
    let ranges: Vec<_> = ledgers
        .iter()
        .map(|l| (l.first_index, l.last_index, l.sealed))
        .collect();
    assert_eq!(ranges, [(0, 7, true), (8, 15, true), (16, 19, false)]);
    let mut replacement = Replacement {
        handle: Some(handle.into()),
        ledger: ledgers[1].id,
        replaced: 0,
        entries: vec![ReplacementEntry {
            index: 11,
            messages: 3,
            payload: Bytes::from_static(b"compacted"),
        }],
    };
    run(&sim, host.control::<ReplaceLedger>(&replacement)).unwrap();
    let again = run(&sim, host.control::<ReplaceLedger>(&replacement));
    assert_eq!(again.unwrap_err().kind(), ErrorCode::Conflict);
    replacement.replaced = 1;
    replacement.entries[0].index = 16;
    let outside = run(&sim, host.control::<ReplaceLedger>(&replacement));
    assert_eq!(outside.unwrap_err().kind(), ErrorCode::InvalidArgument);
    let read = host.read(vec![read_from(handle, 8)], 1 << 20);
    let answer = run(&sim, read).unwrap().remove(0).unwrap();
    let indexes: Vec<i64> = answer.entries.iter().map(|entry| entry.index).collect();
    assert_eq!(indexes, [11, 17, 19]);
}
