//! A volume that is full or fails, by faults injected below the store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use handler_api::control::Event;
use handler_api::ledger::{
    HandleClosed, OpenLedgers, PropertiesChange, Rollover, StartMoved, Trim, TrimRequest,
    UpdateLedgerProperties,
};
use handler_api::topics::{DeleteTopic, TopicName, TopicNames};
use handler_api::{AppendRequest, ErrorCode, Handle, Host, Position};
use parking_lot::Mutex;

use super::super::files::Faults;
use super::super::maintain::checkpoint;
use super::super::{EmbeddedBroker, EmbeddedConfig};
use super::{Broker, TOPIC, config, start, wait};
use crate::events::EventSink;

const PARTITION: &str = "persistent://public/default/t-partition-0";
const ENOSPC: i32 = 28;
const EIO: i32 = 5;

fn with_entries(config: EmbeddedConfig) -> (Broker, Arc<Faults>, Handle) {
    let broker = start(config);
    let faults = Arc::clone(&broker.broker.core.files.faults);
    broker.create(TOPIC, 1);
    let handle = broker.handle(PARTITION);
    broker.append(handle, 2, b"before").unwrap();
    (broker, faults, handle)
}

fn while_failing<T>(fault: &AtomicI32, number: i32, act: impl FnOnce() -> T) -> T {
    fault.store(number, Ordering::SeqCst);
    let result = act();
    fault.store(0, Ordering::SeqCst);
    result
}

#[test]
fn a_full_volume_refuses_writes_serves_reads_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, faults, handle) = with_entries(config(dir.path()));
    while_failing(&faults.write, ENOSPC, || {
        for _ in 0..3 {
            let error = broker.append(handle, 5, &[1; 1000]).unwrap_err();
            assert_eq!(error.kind(), ErrorCode::NoSpace);
            assert!(
                error.message.contains(&*dir.path().to_string_lossy()),
                "{error}"
            );
        }
        assert_eq!(broker.read_all(handle, 0), [(1, b"before".to_vec())]);
    });
    assert_eq!(
        broker.append(handle, 1, b"after").unwrap().index,
        2,
        "nothing of the refused ones stayed"
    );
    let expected = [(1, b"before".to_vec()), (2, b"after".to_vec())];
    assert_eq!(broker.read_all(handle, 0), expected);
    drop(broker);
    let broker = start(config(dir.path()));
    assert_eq!(broker.read_all(broker.handle(PARTITION), 0), expected);
}

#[test]
fn another_fault_of_a_write_is_refused_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, faults, handle) = with_entries(config(dir.path()));
    let error = while_failing(&faults.write, EIO, || {
        broker.append(handle, 1, b"x").unwrap_err()
    });
    assert_eq!(error.kind(), ErrorCode::Refused);
    assert_eq!(broker.append(handle, 1, b"y").unwrap().index, 2);
}

#[test]
fn a_full_volume_at_a_rollover_leaves_the_partition_usable() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, faults, handle) = with_entries(EmbeddedConfig {
        max_ledger_bytes: 1,
        ..config(dir.path())
    });
    while_failing(&faults.write, ENOSPC, || {
        assert_eq!(
            broker.append(handle, 1, b"x").unwrap_err().kind(),
            ErrorCode::NoSpace
        );
        let rolled = wait(broker.host.control::<Rollover>(&handle.into()));
        assert_eq!(rolled.unwrap_err().kind(), ErrorCode::NoSpace);
    });
    broker.append(handle, 1, b"after").unwrap();
    let expected = [(1, b"before".to_vec()), (2, b"after".to_vec())];
    assert_eq!(broker.read_all(handle, 0), expected);
}

/// Keeps the reasons of closed handles.
#[derive(Default)]
struct Closed(Mutex<Vec<HandleClosed>>);

impl EventSink for Closed {
    fn event(&self, op: u32, payload: Bytes) {
        if op == HandleClosed::OP {
            self.0
                .lock()
                .push(handler_api::control::decode(payload).unwrap());
        }
    }
    fn end_moved(&self, _: Handle, _: Position, _: i64) {}
}

/// Calls back from within each event, for what takes the lock of the partition's structure, and waits for the answer.
struct CallsBack {
    host: Host,
    handle: Handle,
    answered: Mutex<Vec<(u32, bool)>>,
}

impl CallsBack {
    /// Whether a call is answered, with whatever: one that waits for a lock of the one that tells never is.
    fn answers(future: impl Future<Output: Send> + Send + 'static) -> bool {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            drop(wait(future));
            sender.send(())
        });
        receiver.recv_timeout(Duration::from_secs(10)).is_ok()
    }
}

impl EventSink for CallsBack {
    fn event(&self, op: u32, _payload: Bytes) {
        let host = self.host.clone();
        let handle = self.handle;
        let answered = if op == HandleClosed::OP {
            Self::answers(async move {
                let names = TopicNames {
                    names: vec![PARTITION.into()],
                };
                host.control::<OpenLedgers>(&names).await
            })
        } else {
            Self::answers(async move {
                let change = PropertiesChange {
                    handle: Some(handle.into()),
                    set: HashMap::from([("told".to_owned(), op.to_string())]),
                    ..PropertiesChange::default()
                };
                host.control::<UpdateLedgerProperties>(&change).await
            })
        };
        self.answered.lock().push((op, answered));
    }
    fn end_moved(&self, _: Handle, _: Position, _: i64) {}
}

#[test]
fn plugins_are_told_while_no_lock_of_the_store_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, faults, handle) = with_entries(config(dir.path()));
    broker.append(handle, 1, b"second").unwrap();
    let sink = Arc::new(CallsBack {
        host: broker.host.clone(),
        handle,
        answered: Mutex::default(),
    });
    let _plugin = broker
        .broker
        .attach(String::new(), Arc::clone(&sink) as Arc<dyn EventSink>);
    let told = || std::mem::take(&mut *sink.answered.lock());

    let trim = |before_index| {
        let request = TrimRequest {
            handle: Some(handle.into()),
            before_index,
        };
        wait(broker.host.control::<Trim>(&request))
    };
    assert_eq!(trim(2).unwrap().start_index, 2);
    assert_eq!(told(), [(StartMoved::OP, true)]);

    // All partitions of a checkpoint are locked together: a sync that fails must not tell before all are free.
    broker.append(handle, 1, b"third").unwrap();
    while_failing(&faults.sync, EIO, || {
        checkpoint(&broker.broker.core).unwrap_err()
    });
    assert_eq!(told(), [(HandleClosed::OP, true)]);

    let handle = broker.handle(PARTITION);
    broker.append(handle, 1, b"fourth").unwrap();
    let request = TrimRequest {
        handle: Some(handle.into()),
        before_index: 3,
    };
    while_failing(&faults.sync, EIO, || {
        wait(broker.host.control::<Trim>(&request)).unwrap_err()
    });
    assert_eq!(told(), [(HandleClosed::OP, true)]);
}

fn listen(broker: &EmbeddedBroker) -> (Arc<Closed>, Host) {
    let closed = Arc::new(Closed::default());
    let host = Host::of(broker.attach(String::new(), Arc::clone(&closed) as Arc<dyn EventSink>));
    (closed, host)
}

#[test]
fn a_write_that_cannot_be_undone_ends_the_handle_and_the_next_one_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, faults, handle) = with_entries(config(dir.path()));
    let (closed, _host) = listen(&broker.broker);
    let error = while_failing(&faults.truncate, EIO, || {
        while_failing(&faults.write, EIO, || {
            broker.append(handle, 1, b"lost").unwrap_err()
        })
    });
    assert_eq!(error.kind(), ErrorCode::UnknownOutcome);
    assert_eq!(
        broker.append(handle, 1, b"x").unwrap_err().kind(),
        ErrorCode::HandleClosed
    );
    assert_eq!(closed.0.lock().first().unwrap().handle, Some(handle.into()));
    let next = broker.handle(PARTITION);
    assert_ne!(next, handle);
    assert_eq!(
        broker.read_all(next, 0),
        [(1, b"before".to_vec())],
        "half an entry was cut off"
    );
    assert_eq!(broker.append(next, 1, b"y").unwrap().index, 2);
}

#[test]
fn a_failed_sync_is_an_unknown_outcome_and_ends_the_handle() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, faults, handle) = with_entries(EmbeddedConfig {
        sync_data: true,
        max_ledger_bytes: 200,
        ..EmbeddedConfig::new(dir.path())
    });
    for _ in 0..5 {
        broker.append(handle, 1, &[7; 100]).unwrap();
    }
    let (closed, _host) = listen(&broker.broker);
    let error = while_failing(&faults.sync, EIO, || {
        broker.append(handle, 1, b"unknown").unwrap_err()
    });
    assert_eq!(error.kind(), ErrorCode::UnknownOutcome);
    assert_eq!(closed.0.lock().len(), 1);
    assert_eq!(
        broker.append(handle, 1, b"x").unwrap_err().kind(),
        ErrorCode::HandleClosed
    );
    // The next opening finds every ledger, none of which the catalog had heard of.
    let next = broker.handle(PARTITION);
    let all = broker.read_all(next, 0);
    assert_eq!(
        all.iter()
            .filter(|(_, payload)| payload == &[7; 100])
            .count(),
        5
    );
    let appended = broker.append(next, 1, b"y").unwrap();
    assert_eq!(appended.index, all.last().unwrap().0 + 1);
    drop(broker);
    let broker = start(config(dir.path()));
    assert_eq!(broker.open(PARTITION).end_index, appended.index);
}

#[test]
fn a_checkpoint_that_cannot_sync_ends_the_handle_instead_of_believing_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, faults, handle) = with_entries(config(dir.path()));
    let (closed, _host) = listen(&broker.broker);
    let core = &broker.broker.core;
    while_failing(&faults.sync, EIO, || checkpoint(core).unwrap_err());
    assert_eq!(closed.0.lock().len(), 1);
    assert_eq!(
        broker.append(handle, 1, b"x").unwrap_err().kind(),
        ErrorCode::HandleClosed
    );
    let next = broker.handle(PARTITION);
    assert_eq!(broker.read_all(next, 0), [(1, b"before".to_vec())]);
    assert_eq!(broker.append(next, 1, b"y").unwrap().index, 2);
    checkpoint(core).unwrap();
}

#[test]
fn a_handle_that_died_and_was_not_opened_again_is_found_by_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, faults, handle) = with_entries(config(dir.path()));
    while_failing(&faults.truncate, EIO, || {
        while_failing(&faults.write, EIO, || {
            broker.append(handle, 1, b"lost").unwrap_err()
        })
    });
    drop(broker);
    let broker = start(config(dir.path()));
    assert_eq!(
        broker.read_all(broker.handle(PARTITION), 0),
        [(1, b"before".to_vec())]
    );
}

#[test]
fn appends_that_wait_share_a_sync_and_only_then_move_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, faults, handle) = with_entries(EmbeddedConfig {
        sync_data: true,
        ..config(dir.path())
    });
    faults.sync_takes_ms.store(50, Ordering::SeqCst);
    let before = faults.syncs.load(Ordering::SeqCst);
    let append = |n: u8| {
        broker.host.append(vec![AppendRequest {
            handle,
            messages: 1,
            flags: 0,
            segments: vec![vec![n].into()].into(),
        }])
    };
    let first = append(0);
    assert_eq!(
        broker.host.watch(handle, 1).unwrap(),
        1,
        "it is written, but not durable"
    );
    assert_eq!(broker.read_all(handle, 2).len(), 0);
    let rest: Vec<_> = (1..200).map(append).collect();
    for (reply, index) in std::iter::once(first).chain(rest).zip(2..) {
        assert_eq!(wait(reply).unwrap().remove(0).unwrap().index, index);
        assert!(broker.host.watch(handle, 1000).unwrap() >= index);
    }
    let syncs = faults.syncs.load(Ordering::SeqCst) - before;
    assert!(syncs < 100, "{syncs} for 200 appends");
}

#[test]
fn the_reserve_is_left_to_what_frees_space() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(EmbeddedConfig {
        reserve_bytes: u64::MAX / 2,
        ..config(dir.path())
    });
    broker.create(TOPIC, 1);
    let handle = broker.handle(PARTITION);
    let error = broker.append(handle, 1, b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorCode::NoSpace);
    assert!(error.message.contains("reserve"), "{error}");
    let name = TopicName { name: TOPIC.into() };
    wait(broker.host.control::<DeleteTopic>(&name)).unwrap();
}

#[test]
fn cold_reads_answer_as_warm_ones_do() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(EmbeddedConfig {
        max_ledger_bytes: 100_000,
        ..config(dir.path())
    });
    broker.create(TOPIC, 1);
    let handle = broker.handle(PARTITION);
    for n in 0..60u8 {
        broker.append(handle, 2, &vec![n; 7000]).unwrap();
    }
    let warm = broker.read_all(handle, 0);
    assert_eq!(warm.len(), 60);
    let faults = &broker.broker.core.files.faults;
    faults.cold.store(true, Ordering::SeqCst);
    assert_eq!(broker.read_all(handle, 0), warm);
    for index in [0, 1, 55, 118, 119] {
        let position = wait(broker.host.find(handle, index)).unwrap();
        faults.cold.store(false, Ordering::SeqCst);
        assert_eq!(wait(broker.host.find(handle, index)).unwrap(), position);
        faults.cold.store(true, Ordering::SeqCst);
    }
}

#[test]
fn an_entry_larger_than_the_limit_is_refused_alone() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(EmbeddedConfig {
        max_message_size: 1000,
        ..config(dir.path())
    });
    broker.create(TOPIC, 1);
    let handle = broker.handle(PARTITION);
    let most = 1000 + super::super::limits::ENTRY_HEADROOM_BYTES as usize;
    broker.append(handle, 1, &vec![0; most]).unwrap();
    let error = broker.append(handle, 1, &vec![0; most + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorCode::TooLarge);
    assert!(error.message.contains("maxMessageSize"), "{error}");
    assert_eq!(broker.append(handle, 1, b"x").unwrap().index, 1);
}
