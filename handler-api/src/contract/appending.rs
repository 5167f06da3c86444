//! Facts about appends.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use super::{Bench, PARTITION, Subject, TOPIC, contents, entry, from, kind};
use crate::handler::Level;
use crate::{
    ApiError, AppendRequest, Appended, ErrorCode, Handle, Host, HostServices, Owner, Position,
    ReadAnswer, ReadRequest, Reply, SharedBytes,
};

/// Order and ownership are fixed when the call returns.
pub fn appends_keep_the_order_of_their_calls_whatever_becomes_of_the_replies(
    subject: &dyn Subject,
) {
    let (bench, handle) = Bench::with_topic(subject);
    let mut replies: Vec<_> = (0..20u8)
        .map(|n| Some(bench.host.append(vec![entry(handle, 1, &[n])])))
        .collect();
    for dropped in [3, 7, 11, 19] {
        replies[dropped] = None;
    }
    for (n, reply) in replies.into_iter().enumerate().rev() {
        if let Some(reply) = reply {
            let appended = bench.wait(reply).unwrap().remove(0).unwrap();
            assert_eq!(appended.index, n as i64);
        }
    }
    bench.until("the last entry", || {
        bench.host.watch(handle, -1).unwrap() == 19
    });
    let expected: Vec<_> = (0..20u8).map(|n| (i64::from(n), vec![n])).collect();
    assert_eq!(bench.read_all(handle, 0), expected);
}

/// An entry of `n` messages moves the index by `n`; the answer names the last of them.
pub fn indexes_are_dense_and_count_messages(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let mut index = -1;
    let mut last = Position::UNKNOWN;
    for messages in [1u32, 5, 1, 1000, 2] {
        let appended = bench.append(handle, messages, b"x").unwrap();
        index += i64::from(messages);
        assert_eq!(appended.index, index);
        assert!(appended.position > last, "positions rise");
        last = appended.position;
    }
    assert_eq!(bench.host.watch(handle, i64::MAX).unwrap(), index);
}

/// What is refused leaves no gap.
pub fn a_refused_entry_takes_up_no_index(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let requests = vec![
        entry(handle, 1, b"a"),
        entry(handle, 0, b"no messages"),
        entry(handle, 2, b"b"),
    ];
    let results = bench.wait(bench.host.append(requests)).unwrap();
    assert_eq!(results[0].clone().unwrap().index, 0);
    assert_eq!(kind(results[1].clone()), ErrorCode::InvalidArgument);
    assert_eq!(results[2].clone().unwrap().index, 2);
    assert_eq!(
        bench.read_all(handle, 0),
        [(0, b"a".to_vec()), (2, b"b".to_vec())]
    );
}

/// One call may touch many managed ledgers, dead ones among them.
pub fn results_are_in_the_order_of_requests_across_partitions(subject: &dyn Subject) {
    let (bench, first) = Bench::with_topic(subject);
    let second = bench.open(&PARTITION.replace("-0", "-1")).unwrap();
    let nobody = Handle {
        id: u64::MAX,
        generation: u64::MAX,
    };
    let requests = vec![
        entry(first, 1, b"first"),
        entry(second, 10, b"second"),
        entry(nobody, 1, b"nobody"),
        entry(first, 1, b"third"),
    ];
    let results = bench.wait(bench.host.append(requests)).unwrap();
    assert_eq!(results.len(), 4);
    assert_eq!(results[0].clone().unwrap().index, 0);
    assert_eq!(results[1].clone().unwrap().index, 9);
    assert_eq!(kind(results[2].clone()), ErrorCode::HandleClosed);
    assert_eq!(results[3].clone().unwrap().index, 1);
    let reads = vec![from(second, 0), from(nobody, 0), from(first, 1)];
    let answers = bench.wait(bench.host.read(reads, 1 << 20)).unwrap();
    assert_eq!(
        contents(answers[0].as_ref().unwrap()),
        [(9, b"second".to_vec())]
    );
    assert_eq!(
        answers[1].as_ref().unwrap_err().kind(),
        ErrorCode::HandleClosed
    );
    assert_eq!(
        contents(answers[2].as_ref().unwrap()),
        [(1, b"third".to_vec())]
    );
}

/// The pieces of an entry come back in order, in as many pieces as the host likes.
pub fn entries_in_many_pieces_are_one_entry(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let pieces = [&b"head"[..], b"", b"body", b"tail"];
    let request = AppendRequest {
        segments: pieces
            .iter()
            .map(|piece| SharedBytes::from(piece.to_vec()))
            .collect::<Vec<_>>()
            .into(),
        ..entry(handle, 1, b"")
    };
    bench
        .wait(bench.host.append(vec![request]))
        .unwrap()
        .remove(0)
        .unwrap();
    bench.append(handle, 1, b"").unwrap();
    assert_eq!(
        bench.read_all(handle, 0),
        [(0, b"headbodytail".to_vec()), (1, Vec::new())]
    );
}

/// Looks at the addresses that a host sees, on its side of the boundary.
struct Spy {
    inner: Arc<dyn HostServices>,
    appended: Mutex<Vec<usize>>,
    read: Mutex<Vec<usize>>,
}

impl HostServices for Spy {
    fn capabilities(&self) -> u64 {
        self.inner.capabilities()
    }
    fn log_enabled(&self, level: Level) -> bool {
        self.inner.log_enabled(level)
    }
    fn log(&self, level: Level, target: &str, message: &str) {
        self.inner.log(level, target, message);
    }
    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        self.inner.lookup(topics)
    }
    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        let addresses = requests.iter().flat_map(|request| &request.segments);
        self.appended
            .lock()
            .unwrap()
            .extend(addresses.map(|piece| piece.as_ptr().addr()));
        self.inner.append(requests)
    }
    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        let reply = self.inner.read(requests, max_bytes);
        if let Reply::Ready(Ok(answers)) = &reply {
            self.read.lock().unwrap().extend(addresses(answers));
        }
        reply
    }
    fn find(&self, handle: Handle, index: i64) -> Reply<Position> {
        self.inner.find(handle, index)
    }
    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        self.inner.watch(handle, after_index)
    }
    fn call(&self, op: u32, version: u32, request: bytes::Bytes) -> Reply<bytes::Bytes> {
        self.inner.call(op, version, request)
    }
}

fn addresses(answers: &[Result<ReadAnswer, ApiError>]) -> Vec<usize> {
    answers
        .iter()
        .flatten()
        .flat_map(|answer| &answer.entries)
        .flat_map(|entry| &entry.segments)
        .map(|segment| segment.bytes.as_ptr().addr())
        .collect()
}

/// Both sides of the boundary see the same bytes at the same address, in both directions.
pub fn bytes_cross_without_a_copy(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let spy = Arc::new(Spy {
        inner: bench.running.services(),
        appended: Mutex::default(),
        read: Mutex::default(),
    });
    let host = Host::of(Arc::clone(&spy) as Arc<dyn HostServices>);
    let payload = SharedBytes::from(vec![7u8; 100_000]);
    let address = payload.as_ptr().addr();
    let request = AppendRequest {
        segments: vec![payload].into(),
        ..entry(handle, 1, b"")
    };
    bench
        .wait(host.append(vec![request]))
        .unwrap()
        .remove(0)
        .unwrap();
    assert_eq!(*spy.appended.lock().unwrap(), [address]);
    // A host may answer a read later, then the spy saw nothing; it does not for what was just written.
    for _ in 0..100 {
        let answers = bench
            .wait(host.read(vec![from(handle, 0)], 1 << 20))
            .unwrap();
        let seen = std::mem::take(&mut *spy.read.lock().unwrap());
        if !seen.is_empty() {
            assert_eq!(addresses(&answers), seen);
            return;
        }
    }
    // A host that always answers later is looked at in its own tests.
}

/// Many threads append to the same managed ledger: each entry is there once, where its answer says.
pub fn concurrent_appends_lose_and_double_nothing(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let bench = &bench;
    let mut answered: HashMap<i64, Vec<u8>> = HashMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|thread| {
                scope.spawn(move || {
                    (0..50u8)
                        .map(|n| {
                            let payload = vec![thread, n];
                            (bench.append(handle, 1, &payload).unwrap().index, payload)
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        for thread in threads {
            answered.extend(thread.join().unwrap());
        }
    });
    assert_eq!(answered.len(), 200);
    let stored = bench.read_all(handle, 0);
    let indexes: Vec<i64> = stored.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, (0..200).collect::<Vec<_>>());
    let distinct: HashSet<_> = stored.iter().map(|(_, payload)| payload).collect();
    assert_eq!(distinct.len(), 200);
    for (index, payload) in &stored {
        assert_eq!(answered[index], *payload);
    }
    for thread in 0..4u8 {
        let mine = stored.iter().filter(|(_, payload)| payload[0] == thread);
        let order: Vec<u8> = mine.map(|(_, payload)| payload[1]).collect();
        assert_eq!(
            order,
            (0..50).collect::<Vec<_>>(),
            "each thread's own order holds"
        );
    }
    assert_eq!(bench.opened(PARTITION).unwrap().end_index, 199);
    assert!(bench.create(TOPIC, 1).is_err());
}
