//! Facts about the boundary within one library; those about a real `.so` are in the tests of the ABI.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::*;
use crate::handler::{Level, ListenerInfo, ProtocolHandler};
use crate::host::{HostServices, Reply};
use crate::types::{
    ApiError, AppendRequest, Appended, ErrorCode, Handle, Owner, Position, ReadAnswer, ReadRequest,
};

/// Counts how often its buffer is freed.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn shared_bytes_keep_their_address_through_every_conversion() {
    for bytes in [
        Bytes::new(),
        Bytes::from_static(b"static"),
        Bytes::from(b"exact".to_vec()),
        Bytes::from(Vec::from(b"more capacity than length".as_slice()).split_off(5)),
        Bytes::from(b"sliced".to_vec()).slice(2..),
        Bytes::from_owner(Counted(vec![1, 2, 3], Arc::default())),
    ] {
        let (address, content) = (bytes.as_ptr(), bytes.to_vec());
        let shared = SharedBytes::from(bytes);
        assert_eq!(shared.as_ptr(), address);
        let clone = shared.clone();
        assert_eq!(clone.as_ptr(), address);
        drop(shared);
        assert_eq!(&clone[..], content);
        let back = Bytes::from(clone);
        assert_eq!(back.as_ptr(), address);
        assert_eq!(back, content);
    }
}

#[test]
fn the_buffer_is_freed_once_when_the_last_holder_is_gone() {
    let freed = Arc::new(AtomicUsize::new(0));
    let bytes = Bytes::from_owner(Counted(vec![0; 100], Arc::clone(&freed)));
    let shared = SharedBytes::from(bytes);
    let clones = vec![shared.clone(); 10];
    let slice = Bytes::from(shared).slice(10..20);
    drop(clones);
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    drop(slice);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

#[test]
fn shared_bytes_may_be_cloned_by_many_threads_at_once() {
    // A `Vec` whose first clones race to promote it to a counted buffer.
    for _ in 0..200 {
        let shared = SharedBytes::from(Bytes::from(vec![7; 64]));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let clone = shared.clone();
                    assert_eq!(clone.len(), 64);
                    assert!(Bytes::from(clone).iter().all(|byte| *byte == 7));
                });
            }
        });
    }
}

#[test]
fn a_fence_turns_a_panic_into_an_error_with_its_text() {
    assert_eq!(fence("x", || 5).unwrap(), 5);
    let error = fence("x", || panic!("static text"))
        .map(|()| 0)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorCode::Internal);
    assert_eq!(error.to_string(), "x panicked: static text");
    let number = 7;
    let error = fence("x", || panic!("text with {number}"))
        .map(|()| 0)
        .unwrap_err();
    assert_eq!(error.to_string(), "x panicked: text with 7");
    let error = fence("x", || std::panic::panic_any(7))
        .map(|()| 0)
        .unwrap_err();
    assert_eq!(error.to_string(), "x panicked: no message");
}

/// Services and handler in one; each call does what `mode` says.
#[derive(Clone, Copy)]
enum Mode {
    Ready,
    Later,
    PanicNow,
    PanicLater,
    PanicInDestructor,
}

struct Side(Mode);

impl Side {
    fn reply<T: Send + 'static>(&self, value: T) -> Reply<T> {
        match self.0 {
            Mode::Ready => Reply::ok(value),
            Mode::Later => Reply::pending(async move {
                yield_once().await;
                Ok(value)
            }),
            Mode::PanicNow => panic!("now"),
            Mode::PanicLater => Reply::pending(async {
                yield_once().await;
                panic!("later")
            }),
            Mode::PanicInDestructor => Reply::pending(async move {
                let _bomb = Bomb;
                std::future::pending::<()>().await;
                Ok(value)
            }),
        }
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("destructor");
    }
}

async fn yield_once() {
    let mut polled = false;
    std::future::poll_fn(|cx| {
        if polled {
            return Poll::Ready(());
        }
        polled = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
    panic!("the future does not end");
}

const HANDLE: Handle = Handle {
    id: 1,
    generation: 2,
};

impl HostServices for Side {
    fn capabilities(&self) -> u64 {
        5
    }
    fn log_enabled(&self, _level: Level) -> bool {
        !matches!(self.0, Mode::PanicNow) || panic!("now")
    }
    fn log(&self, _level: Level, _target: &str, _message: &str) {
        assert!(!matches!(self.0, Mode::PanicNow), "now");
    }
    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        let missing = |topic| Err(ApiError::new(ErrorCode::NotFound, topic));
        self.reply(topics.into_iter().map(missing).collect())
    }
    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        let appended = |request: AppendRequest| {
            Ok(Appended {
                position: Position::new(1, 2),
                index: i64::from(request.messages),
            })
        };
        self.reply(requests.into_iter().map(appended).collect())
    }
    fn read(
        &self,
        requests: Vec<ReadRequest>,
        _max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        let closed = |_| Err(ApiError::new(ErrorCode::HandleClosed, "dead"));
        self.reply(requests.into_iter().map(closed).collect())
    }
    fn find(&self, _handle: Handle, index: i64) -> Reply<Position> {
        self.reply(Position::new(index, 0))
    }
    fn watch(&self, _handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        assert!(!matches!(self.0, Mode::PanicNow), "now");
        Ok(after_index + 1)
    }
    fn call(&self, op: u32, version: u32, _request: Bytes) -> Reply<Bytes> {
        match self.0 {
            Mode::Ready => Reply::err(crate::control::unsupported(op, version)),
            _ => self.reply(Bytes::new()),
        }
    }
}

#[test]
fn every_host_call_crosses_with_its_values() {
    for mode in [Mode::Ready, Mode::Later] {
        let host = Host::of(Arc::new(Side(mode)));
        assert!(host.has(1) && host.has(5) && !host.has(2));
        assert!(host.log_enabled(Level::Info));
        host.log(Level::Info, "target", "message");
        let lookup = block_on(host.lookup(vec!["a".to_owned(), "b".to_owned()])).unwrap();
        let texts: Vec<String> = lookup
            .into_iter()
            .map(|r| r.unwrap_err().to_string())
            .collect();
        assert_eq!(texts, ["a", "b"]);
        let request = |messages| AppendRequest {
            handle: HANDLE,
            messages,
            flags: 0,
            segments: vec![SharedBytes::default()].into(),
        };
        let appended = block_on(host.append(vec![request(3), request(4)])).unwrap();
        let indexes: Vec<i64> = appended.into_iter().map(|r| r.unwrap().index).collect();
        assert_eq!(indexes, [3, 4]);
        assert_eq!(block_on(host.find(HANDLE, 9)), Ok(Position::new(9, 0)));
        assert_eq!(host.watch(HANDLE, 9), Ok(10));
    }
    let host = Host::of(Arc::new(Side(Mode::Ready)));
    let nothing = crate::topics::TopicNames::default();
    let error = block_on(host.control::<crate::topics::DescribeTopics>(&nothing)).unwrap_err();
    assert_eq!(error.kind(), ErrorCode::Unsupported);
}

#[test]
fn a_panicking_host_is_an_error_for_every_call() {
    let now = Host::of(Arc::new(Side(Mode::PanicNow)));
    assert!(!now.log_enabled(Level::Info));
    now.log(Level::Info, "target", "message");
    assert_eq!(
        now.watch(HANDLE, 0).unwrap_err().to_string(),
        "watch panicked: now"
    );
    for (mode, text) in [(Mode::PanicNow, "now"), (Mode::PanicLater, "later")] {
        let host = Host::of(Arc::new(Side(mode)));
        let errors = [
            block_on(host.lookup(vec![])).unwrap_err(),
            block_on(host.append(vec![])).unwrap_err(),
            block_on(host.read(vec![], 0)).unwrap_err(),
            block_on(host.find(HANDLE, 0)).unwrap_err(),
        ];
        for (error, what) in errors.iter().zip(["lookup", "append", "read", "find"]) {
            assert_eq!(error.kind(), ErrorCode::Internal);
            assert_eq!(error.to_string(), format!("{what} panicked: {text}"));
        }
    }
}

#[test]
fn a_future_that_panics_when_it_is_dropped_halfway_does_no_harm() {
    let host = Host::of(Arc::new(Side(Mode::PanicInDestructor)));
    let mut future = Box::pin(host.find(HANDLE, 0));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    drop(future);
}

impl ProtocolHandler for Side {
    fn protocol_name(&self) -> String {
        assert!(!matches!(self.0, Mode::PanicNow), "now");
        "Side".to_owned()
    }
    fn initialize(&self, configuration: HashMap<String, String>) -> Result<(), ApiError> {
        assert!(!matches!(self.0, Mode::PanicNow), "now");
        match configuration.get("key") {
            Some(value) => Err(ApiError::new(ErrorCode::InvalidConfiguration, value)),
            None => Ok(()),
        }
    }
    fn protocol_data_to_advertise(&self) -> String {
        assert!(!matches!(self.0, Mode::PanicNow), "now");
        "data".to_owned()
    }
    fn start(&self, host: Host) -> Reply<()> {
        assert!(host.has(5));
        self.reply(())
    }
    fn listeners(&self) -> Vec<ListenerInfo> {
        assert!(!matches!(self.0, Mode::PanicNow), "now");
        vec![ListenerInfo {
            name: "name".into(),
            address: "address".into(),
        }]
    }
    fn end_moved(&self, _handle: Handle, _position: Position, _index: i64) {
        assert!(!matches!(self.0, Mode::PanicNow), "now");
    }
    fn event(&self, _op: u32, _payload: Bytes) {
        assert!(!matches!(self.0, Mode::PanicNow), "now");
    }
    fn metrics(&self) -> Bytes {
        assert!(!matches!(self.0, Mode::PanicNow), "now");
        Bytes::from_static(b"metrics")
    }
    fn close(&self) -> Reply<()> {
        self.reply(())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking() || !matches!(self.0, Mode::PanicInDestructor),
            "destructor"
        );
    }
}

#[test]
fn every_handler_call_crosses_with_its_values() {
    for mode in [Mode::Ready, Mode::Later] {
        let handler = Handler::of(Side(mode));
        assert_eq!(handler.protocol_name(), "Side");
        assert!(handler.accept("SIDE") && !handler.accept("other"));
        assert!(handler.initialize(&HashMap::new()).is_ok());
        let wrong = HashMap::from([("key".to_owned(), "value".to_owned())]);
        assert_eq!(handler.initialize(&wrong).unwrap_err().to_string(), "value");
        assert_eq!(handler.protocol_data_to_advertise(), "data");
        block_on(handler.start(Arc::new(Side(Mode::Ready)))).unwrap();
        assert_eq!(handler.listeners().len(), 1);
        assert_eq!(handler.metrics(), "metrics");
        block_on(handler.close()).unwrap();
    }
}

#[test]
fn a_panicking_handler_is_an_error_or_nothing_for_every_call() {
    let handler = Handler::of(Side(Mode::PanicNow));
    assert_eq!(handler.protocol_name(), "");
    assert!(!handler.accept("side"));
    let error = handler.initialize(&HashMap::new()).unwrap_err();
    assert_eq!(error.to_string(), "initialize panicked: now");
    assert_eq!(handler.protocol_data_to_advertise(), "");
    assert!(handler.listeners().is_empty());
    assert_eq!(handler.metrics(), "");
    handler.end_moved(HANDLE, Position::UNKNOWN, 0);
    handler.raw_event(1, Bytes::new());
    let error = block_on(handler.start(Arc::new(Side(Mode::Ready)))).unwrap_err();
    assert_eq!(error.to_string(), "start panicked: now");
    let later = Handler::of(Side(Mode::PanicLater));
    let error = block_on(later.close()).unwrap_err();
    assert_eq!(error.to_string(), "close panicked: later");
    drop(Handler::of(Side(Mode::PanicInDestructor)));
}

#[test]
fn making_a_handler_may_panic() {
    let made = make_handler::<Side>(|| panic!("no handler today"));
    let error = made.into_result().map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "making the handler panicked: no handler today"
    );
    assert!(make_handler(|| Side(Mode::Ready)).is_ok());
}

#[test]
fn unknown_codes_and_levels_of_a_newer_peer_have_a_meaning() {
    assert_eq!(ErrorCode::from_number(9999), ErrorCode::Internal);
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_number(*code as u32), *code);
        assert_eq!(ApiError::new(*code, "x").kind(), *code);
    }
    assert_eq!(Level::from_number(99), Level::Trace);
}
