//! Group commit: one thread makes written entries durable, many at a time, in the order in which they were written.
//!
//! Only at work with `journalSyncData=true`. Appends queue what they wrote while they hold the partition's lock, so
//! the queue has the entries of each partition in order; the thread takes all that waits, syncs each file once, moves
//! the durable ends and answers.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Instant;

use handler_api::{ApiError, Appended, ErrorCode, Reply};
use parking_lot::{Condvar, Mutex};

use super::config::OpenError;
use super::files::LedgerFile;
use super::limits::MAX_UNSYNCED_APPENDS;
use super::partition::{Partition, Published};
use super::services::Core;

type Results = Vec<Result<Appended, ApiError>>;

/// Entries of one partition, written and not yet durable.
pub(crate) struct Item {
    pub(crate) partition: Arc<Partition>,
    pub(crate) file: Arc<LedgerFile>,
    pub(crate) published: Published,
    pub(crate) ticket: Arc<Ticket>,
    /// Which results of the call they are.
    pub(crate) slots: Range<usize>,
}

#[derive(Default)]
struct TicketState {
    /// Items not yet synced, and one for the call itself.
    open: usize,
    results: Results,
    failed: Vec<(Range<usize>, ApiError)>,
    waker: Option<Waker>,
}

/// The answer of one call of `append` in the making.
#[derive(Default)]
pub(crate) struct Ticket {
    state: Mutex<TicketState>,
}

impl Ticket {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(TicketState {
                open: 1,
                ..TicketState::default()
            }),
        })
    }

    /// One more item belongs to the call.
    pub(crate) fn hold(self: &Arc<Self>) -> Arc<Self> {
        self.state.lock().open += 1;
        Arc::clone(self)
    }

    /// The results as far as the call itself knows them, and the reply that waits for the rest.
    pub(crate) fn reply(self: Arc<Self>, results: Results) -> Reply<Results> {
        let mut state = self.state.lock();
        state.results = results;
        state.open -= 1;
        if state.open == 0 {
            let results = state.take();
            return Reply::ok(results);
        }
        drop(state);
        Reply::Pending(Box::pin(Wait(self)))
    }

    fn settle(&self, slots: Range<usize>, result: Result<(), ApiError>) {
        let mut state = self.state.lock();
        if let Err(error) = result {
            state.failed.push((slots, error));
        }
        state.open -= 1;
        let waker = if state.open == 0 {
            state.waker.take()
        } else {
            None
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl TicketState {
    fn take(&mut self) -> Results {
        for (slots, error) in std::mem::take(&mut self.failed) {
            for result in self.results.get_mut(slots).unwrap_or_default() {
                *result = Err(error.clone());
            }
        }
        std::mem::take(&mut self.results)
    }
}

struct Wait(Arc<Ticket>);

impl Future for Wait {
    type Output = Result<Results, ApiError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state.lock();
        if state.open == 0 {
            return Poll::Ready(Ok(state.take()));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[derive(Default)]
struct Queue {
    items: Vec<Item>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// The queue of the syncing thread.
#[derive(Default)]
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Syncer {
    /// Starts the thread.
    pub(crate) fn start(&self, core: Weak<Core>) -> Result<(), OpenError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name("kop-sync".into())
            .spawn(move || shared.run(&core))
            .map_err(OpenError::io("cannot start a thread for", "syncing"))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Refuses appends while too many wait. Appends that are under way may exceed the bound by their number.
    pub(crate) fn check_room(&self) -> Result<(), ApiError> {
        if self.shared.queue.lock().items.len() < MAX_UNSYNCED_APPENDS {
            return Ok(());
        }
        Err(ApiError::new(
            ErrorCode::NotReady,
            "too many appends wait for the disk: try again",
        ))
    }

    /// How many appends wait.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue.lock().items.len()
    }

    /// Queues entries. The caller holds the lock of the partition's writer.
    pub(crate) fn push(&self, item: Item) {
        self.shared.queue.lock().items.push(item);
        self.shared.wake.notify_one();
    }

    /// Syncs what waits and ends the thread.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, core: &Weak<Core>) {
        loop {
            let mut queue = self.queue.lock();
            while queue.items.is_empty() {
                if queue.closed {
                    return;
                }
                self.wake.wait(&mut queue);
            }
            let items = std::mem::take(&mut queue.items);
            drop(queue);
            let Some(core) = core.upgrade() else { return };
            settle(&core, items);
        }
    }
}

fn sync(core: &Core, file: &LedgerFile) -> io::Result<()> {
    let started = Instant::now();
    let synced = file.sync();
    let micros = started.elapsed().as_micros();
    core.metrics.syncs.add(1);
    core.metrics
        .sync_us
        .add(u64::try_from(micros).unwrap_or(u64::MAX));
    synced
}

/// Makes a batch durable and answers it.
fn settle(core: &Arc<Core>, items: Vec<Item>) {
    let named = core.files.sync_names();
    let mut synced: Vec<(*const LedgerFile, Result<(), ApiError>)> = Vec::new();
    let mut fired = Vec::new();
    for item in items {
        let address = Arc::as_ptr(&item.file);
        let known = synced.iter().find(|(file, _)| std::ptr::eq(*file, address));
        let result = if let Some((_, result)) = known {
            result.clone()
        } else {
            let result = match &named {
                Ok(()) => sync(core, &item.file),
                Err(error) => Err(error.kind().into()),
            };
            let result = result.map_err(|error| {
                ApiError::new(
                    ErrorCode::UnknownOutcome,
                    format!("{}: syncing failed: {error}", item.file.path.display()),
                )
            });
            synced.push((address, result.clone()));
            result
        };
        let partition = &item.partition;
        let result = result.and_then(|()| {
            let mut view = partition.view.lock();
            if view.dead.is_some() {
                // An earlier entry of this opening is not known to be durable, so neither is this one.
                return Err(ApiError::new(
                    ErrorCode::UnknownOutcome,
                    format!("{} was closed before the entry was synced", partition.name),
                ));
            }
            view.publish(partition.handle, &item.published, &mut fired);
            Ok(())
        });
        if let Err(error) = &result {
            let lost = item.slots.len() as u64;
            core.metrics.append_failures.add(lost);
            tracing::error!(topic = &*partition.name, %error, "an entry may be lost");
            core.kill(partition, "a sync failed; open the topic again");
        }
        item.ticket.settle(item.slots, result);
    }
    core.deliver(&fired);
}
