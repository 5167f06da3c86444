//! The bridge's life: loads the plugin, gives it the broker's configuration, starts it on the broker's services, and
//! ends it; and the calls that wait for Java's answers.
//!
//! There is one per process, since a library can be loaded by one class loader only. It must not know what a call
//! means.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use handler_api::control::Event;
use handler_api::ledger::HandleClosed;
use handler_api::{ApiError, Appended, ErrorCode, Handler, Position, SharedBytes};
use host_shim::loader::{self, Plugin};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::control::{self, Answer, Upcalls};
use crate::entry::Stored;
use crate::jvm::{ControlRef, PartitionRef};
use crate::metrics::Metrics;
use crate::partition::{Moved, Partition};
use crate::pending::Pending;
use crate::services::Services;
use crate::table::Table;

/// How long Java may take for anything but an append.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the plugin may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Threads for what no call of the plugin's waits for.
const BACKGROUND_THREADS: usize = 1;

/// The receiver's half of a call.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, ApiError>>;

/// A call that Java has not answered.
pub(crate) enum Call {
    /// An append; its pieces are taken when Java has a buffer for them.
    Append(Append),
    /// Entries.
    Read(Reply<Vec<Stored>>),
    /// A search for an index.
    Find(Reply<Position>),
    /// Anything else.
    Control(Reply<Vec<u8>>),
}

/// An append under way.
pub(crate) struct Append {
    pub(crate) partition: Arc<Partition>,
    pub(crate) messages: u32,
    pub(crate) bytes: u64,
    pub(crate) pieces: Vec<SharedBytes>,
    pub(crate) reply: Reply<Appended>,
}

/// What Java tells at the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// After this an append's outcome counts as unknown.
    pub(crate) append_timeout: Duration,
    /// The largest entry that the broker's storage takes.
    pub(crate) max_entry_bytes: u64,
    /// Bytes of entries that may be under way to the storage.
    pub(crate) max_append_bytes: u64,
    /// Bytes of the broker's memory that read entries may hold; beyond it they are copied.
    pub(crate) max_held_bytes: u64,
    /// Whether the broker authenticates and authorizes.
    pub(crate) authentication: bool,
}

/// A broker that plugins can be run in.
pub(crate) struct Bridge {
    pub(crate) table: Table,
    pub(crate) calls: Pending<Call>,
    pub(crate) metrics: Metrics,
    /// Bytes of appends under way.
    pub(crate) append_bytes: AtomicU64,
    /// Bytes of the broker's memory held by entries that were read.
    pub(crate) held_bytes: Arc<AtomicU64>,
    handler: RwLock<Option<Arc<Handler>>>,
    started: RwLock<Option<(ControlRef, Settings)>>,
    runtime: Mutex<Option<Runtime>>,
    is_closing: AtomicBool,
}

static BRIDGE: RwLock<Option<Arc<Bridge>>> = RwLock::new(None);

/// The bridge, from `initialize` to `close`.
pub(crate) fn current() -> Option<Arc<Bridge>> {
    BRIDGE.read().clone()
}

fn required() -> Result<Arc<Bridge>, ApiError> {
    current().ok_or_else(closing)
}

fn closing() -> ApiError {
    ApiError::new(ErrorCode::Closing, "the broker is shutting down")
}

/// Loads the plugin of a file and initialises it.
pub(crate) fn initialize(
    file: &str,
    protocol: &str,
    configuration: &HashMap<String, String>,
) -> Result<(), ApiError> {
    let refused = |text: String| ApiError::new(ErrorCode::InvalidConfiguration, text);
    if current().is_some() {
        return Err(refused(
            "one broker of a process can load this handler, and one has".into(),
        ));
    }
    let plugin = loader::load_plugin(Path::new(file), protocol);
    let Plugin {
        handler,
        abi_version,
        ..
    } = plugin.map_err(|error| refused(error.to_string()))?;
    handler.initialize(configuration)?;
    tracing::info!("plugin {protocol} from {file} (ABI {abi_version})");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(BACKGROUND_THREADS)
        .thread_name("kop-bridge")
        .enable_time()
        .build()
        .map_err(|error| refused(format!("no thread can be started: {error}")))?;
    let bridge = Bridge {
        table: Table::new(),
        calls: Pending::new(),
        metrics: Metrics::default(),
        append_bytes: AtomicU64::new(0),
        held_bytes: Arc::default(),
        handler: RwLock::new(Some(Arc::new(handler))),
        started: RwLock::new(None),
        runtime: Mutex::new(Some(runtime)),
        is_closing: AtomicBool::new(false),
    };
    *BRIDGE.write() = Some(Arc::new(bridge));
    Ok(())
}

/// What the plugin advertises.
pub(crate) fn advertised() -> Result<String, ApiError> {
    let handler = required()?.handler()?;
    Ok(handler.protocol_data_to_advertise())
}

/// Starts the plugin; returns when it serves.
pub(crate) fn start(control: ControlRef, settings: Settings) -> Result<(), ApiError> {
    let bridge = required()?;
    *bridge.started.write() = Some((control, settings));
    let handler = bridge.handler()?;
    let services = Arc::new(Services::new(Arc::clone(&bridge), settings));
    let starting = handler.start(services);
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    bridge.spawn(async move {
        let started = tokio::time::timeout(START_TIMEOUT, starting).await;
        // Who asked may have given up.
        let _ = tell.send(started.unwrap_or_else(|_| {
            let text = format!("the plugin did not start within {START_TIMEOUT:?}");
            Err(ApiError::new(ErrorCode::Timeout, text))
        }));
    });
    told.recv().unwrap_or_else(|_| Err(closing()))
}

/// Ends the plugin and the bridge. What is not done in time is left alone.
pub(crate) fn close(timeout: Duration) -> Result<(), ApiError> {
    let Some(bridge) = current() else {
        return Ok(());
    };
    if bridge.is_closing.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let deadline = Instant::now() + timeout;
    // Java's answers still find the bridge meanwhile: the plugin lets what is in flight end.
    let outcome = bridge.close_plugin(timeout);
    BRIDGE.write().take();
    for partition in bridge.table.drain() {
        partition.die("the broker is shutting down");
        let _ = partition.java.forget();
    }
    for call in bridge.calls.drain() {
        bridge.fail(call, closing());
    }
    bridge.started.write().take();
    let runtime = bridge.runtime.lock().take();
    if let Some(runtime) = runtime {
        runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now()));
    }
    match outcome {
        // What has not ended still runs, and may still call.
        Err(_) => std::mem::forget(bridge.handler.write().take()),
        Ok(()) => drop(bridge.handler.write().take()),
    }
    outcome
}

/// Metrics of the plugin and of the bridge.
pub(crate) fn metrics() -> Vec<u8> {
    let Some(bridge) = current() else {
        return Vec::new();
    };
    let mut text = bridge.metrics.text(&bridge).into_bytes();
    if let Ok(handler) = bridge.handler() {
        text.extend_from_slice(&handler.metrics());
    }
    text
}

impl Bridge {
    pub(crate) fn handler(&self) -> Result<Arc<Handler>, ApiError> {
        self.handler.read().clone().ok_or_else(closing)
    }

    /// Does something that nobody waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &*self.runtime.lock() {
            runtime.spawn(task);
        }
    }

    fn close_plugin(&self, timeout: Duration) -> Result<(), ApiError> {
        let closing = self.handler()?.close();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        self.spawn(async move {
            let _ = tell.send(closing.await);
        });
        told.recv_timeout(timeout).unwrap_or_else(|_| {
            let text = format!("the plugin did not close within {timeout:?}");
            Err(ApiError::new(ErrorCode::Timeout, text))
        })
    }

    /// Makes a call of Java: keeps it under a number and asks.
    pub(crate) fn ask(
        &self,
        call: Call,
        timeout: Duration,
        ask: impl FnOnce(i64) -> Result<(), ApiError>,
    ) {
        let ctx = match self.calls.put(call, Instant::now() + timeout) {
            Ok(ctx) => ctx,
            Err(call) => {
                let text = "too many calls wait for the broker";
                return self.fail(call, ApiError::new(ErrorCode::NotReady, text));
            }
        };
        if let Err(error) = ask(ctx)
            && let Some(call) = self.calls.take(ctx)
        {
            self.fail(call, error);
        }
    }

    /// Answers a call with an error.
    pub(crate) fn fail(&self, call: Call, error: ApiError) {
        // A receiver that is gone does not want the answer any more.
        match call {
            Call::Append(append) => self.append_failed(append, error),
            Call::Read(reply) => drop(reply.send(Err(error))),
            Call::Find(reply) => drop(reply.send(Err(error))),
            Call::Control(reply) => drop(reply.send(Err(error))),
        }
    }

    /// Reads entries from a position on.
    pub(crate) async fn read_at(
        &self,
        partition: &Partition,
        from: Position,
        entries: i32,
    ) -> Result<Vec<Stored>, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Call::Read(reply), CALL_TIMEOUT, |ctx| {
            partition.java.read(ctx, from, entries)
        });
        answered(answer).await
    }

    /// Finds the first entry whose index is not below one.
    pub(crate) async fn find_index(
        &self,
        partition: &Partition,
        index: i64,
    ) -> Result<Position, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Call::Find(reply), CALL_TIMEOUT, |ctx| {
            partition.java.find(ctx, index)
        });
        answered(answer).await
    }

    /// Calls end that Java has not answered in time. A read or a search may be tried again; of an append nobody knows.
    pub(crate) fn tick(&self) {
        for call in self.calls.expired(Instant::now()) {
            let code = match call {
                Call::Append(_) => ErrorCode::UnknownOutcome,
                _ => ErrorCode::Timeout,
            };
            self.fail(
                call,
                ApiError::new(code, "the broker did not answer in time"),
            );
        }
    }

    /// The answer of a control operation.
    pub(crate) fn control_answered(&self, ctx: i64, answer: Result<Vec<u8>, ApiError>) {
        if let Some(Call::Control(reply)) = self.calls.take(ctx) {
            // Who dropped the receiver does not want it any more.
            let _ = reply.send(answer);
        }
    }

    /// Java tells of an event.
    pub(crate) fn happened(&self, op: u32, payload: &[u8]) {
        match control::translate(op, payload) {
            Ok(Some(event)) => self.tell_raw(op, event),
            Ok(None) => tracing::debug!("an event {op:#x} that is not known"),
            Err(error) => tracing::error!("event {op:#x}: {error}"),
        }
    }

    /// Bytes of the broker's memory that read entries may hold.
    pub(crate) fn max_held_bytes(&self) -> u64 {
        let started = self.started.read();
        started
            .as_ref()
            .map_or(0, |(_, settings)| settings.max_held_bytes)
    }

    /// Takes in a partition that Java has opened.
    pub(crate) fn opened(&self, java: PartitionRef, name: String) -> u64 {
        self.table.open(java, name).handle.id
    }

    /// A handle dies, and the plugin learns of it.
    pub(crate) fn close_partition(&self, partition: &Partition, reason: &str) {
        if !partition.die(reason) {
            return;
        }
        self.table.remove(partition);
        if let Err(error) = partition.java.forget() {
            tracing::warn!("{}: {error}", partition.name);
        }
        self.tell(&HandleClosed {
            handle: Some(partition.handle.into()),
            topic: partition.name.clone(),
            reason: reason.to_owned(),
        });
    }

    /// Tells the plugin of an event.
    pub(crate) fn tell<E: Event>(&self, event: &E) {
        if let Ok(handler) = self.handler() {
            handler.event(event);
        }
    }

    /// Tells the plugin of an event that is encoded already.
    pub(crate) fn tell_raw(&self, op: u32, payload: Bytes) {
        if let Ok(handler) = self.handler() {
            handler.raw_event(op, payload);
        }
    }

    /// Wakes who watches a partition, if its end moved far enough.
    pub(crate) fn wake(&self, partition: &Partition, moved: Option<Moved>) {
        if let Some(Moved { position, index }) = moved
            && let Ok(handler) = self.handler()
        {
            handler.end_moved(partition.handle, position, index);
        }
    }

    /// Adds to a number that has a bound; false, and nothing added, if it would be exceeded by more than a first.
    pub(crate) fn reserve(counter: &AtomicU64, amount: u64, bound: u64) -> bool {
        let take = |now: u64| {
            let next = now.checked_add(amount)?;
            (now == 0 || next <= bound).then_some(next)
        };
        counter
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_ok()
    }
}

impl Upcalls for Bridge {
    fn call(&self, op: u32, request: Vec<u8>) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.ask(Call::Control(reply), CALL_TIMEOUT, |ctx| {
            match &*self.started.read() {
                Some((control, _)) => control.call(ctx, op, &request),
                None => Err(closing()),
            }
        });
        Box::pin(answered(answer))
    }
}

/// The answer of a call; none comes if the bridge ended with the call under way.
pub(crate) async fn answered<T>(
    answer: oneshot::Receiver<Result<T, ApiError>>,
) -> Result<T, ApiError> {
    answer.await.unwrap_or_else(|_| Err(closing()))
}
