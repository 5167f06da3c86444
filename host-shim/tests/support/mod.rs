//! The embedded broker as a plugin sees it, without any runtime.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program has its own copy of this module and uses a part of it"
)]
#![allow(clippy::expect_used, reason = "a test that panics has failed")]

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use handler_api::ledger::OpenLedgers;
use handler_api::topics::TopicNames;
use handler_api::{
    ApiError, AppendRequest, Appended, Handle, Host, Position, ReadAnswer, ReadRequest,
};
use host_shim::embedded::{EmbeddedBroker, EmbeddedConfig};
use host_shim::events::NoEvents;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Opens a data directory.
pub fn start(config: EmbeddedConfig) -> (EmbeddedBroker, Host) {
    let broker = EmbeddedBroker::open(config).expect("the directory opens");
    let host = Host::of(broker.attach(String::new(), Arc::new(NoEvents)));
    (broker, host)
}

/// Opens a managed ledger that exists.
pub fn open(host: &Host, name: String) -> Handle {
    let names = TopicNames { names: vec![name] };
    let opened = wait(host.control::<OpenLedgers>(&names)).expect("opening works");
    let handle = opened.ledgers.first().and_then(|opened| opened.handle);
    handle.expect("it exists").into()
}

/// Appends an entry of one message.
pub fn append(host: &Host, handle: Handle, payload: Vec<u8>) -> Result<Appended, ApiError> {
    let request = AppendRequest {
        handle,
        messages: 1,
        flags: 0,
        segments: vec![payload.into()].into(),
    };
    wait(host.append(vec![request]))
        .expect("the call works")
        .remove(0)
}

/// Reads up to a MiB, one entry at least.
pub fn read(host: &Host, handle: Handle, index: i64, position: Position) -> ReadAnswer {
    let request = ReadRequest {
        handle,
        index,
        position,
        max_entries: u32::MAX,
        flags: ReadRequest::AT_LEAST_ONE,
        max_bytes: 1 << 20,
    };
    let answer = wait(host.read(vec![request], 1 << 20))
        .expect("the call works")
        .remove(0);
    answer.expect("nothing is damaged")
}
