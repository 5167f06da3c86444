//! What may wait for the disk does so here: a few threads with a bounded queue, and the watch over free space.
//!
//! It must not know what the tasks do.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;

use handler_api::ffi::fence;
use handler_api::{ApiError, ErrorCode, Reply};
use parking_lot::{Condvar, Mutex};

use super::catalog::{closing, reply};
use super::config::OpenError;
use super::limits::{DISK_THREADS, MAX_DISK_TASKS, SPACE_CHECK_BYTES};

type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// The threads that wait for the disk.
pub(crate) struct DiskThreads {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl DiskThreads {
    pub(crate) fn start() -> Result<Self, OpenError> {
        let shared: Arc<Shared> = Arc::default();
        let mut threads = Vec::new();
        for number in 0..DISK_THREADS {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("kop-disk-{number}"))
                .spawn(move || shared.run_until_closed())
                .map_err(OpenError::io("cannot start a thread for", "the disk"))?;
            threads.push(thread);
        }
        Ok(Self {
            shared,
            threads: Mutex::new(threads),
        })
    }

    /// Runs a task later; `false` if too many wait or the threads are closed, and then never.
    pub(crate) fn spawn(&self, task: impl FnOnce() + Send + 'static) -> Result<(), ApiError> {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            return Err(closing());
        }
        if queue.tasks.len() >= MAX_DISK_TASKS {
            return Err(ApiError::new(
                ErrorCode::NotReady,
                "too many requests wait for the disk: try again",
            ));
        }
        queue.tasks.push_back(Box::new(task));
        drop(queue);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// How many tasks wait.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue.lock().tasks.len()
    }

    /// Runs a task later and answers with its result; a panic is an error.
    pub(crate) fn reply<T: Send + 'static>(
        &self,
        what: &'static str,
        task: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Reply<T> {
        let (done, reply) = reply();
        match self.spawn(move || done(fence(what, task).and_then(|result| result))) {
            Ok(()) => reply,
            Err(error) => Reply::err(error),
        }
    }

    /// Finishes what waits and ends the threads.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run_until_closed(&self) {
        loop {
            let mut queue = self.queue.lock();
            let task = loop {
                if let Some(task) = queue.tasks.pop_front() {
                    break task;
                }
                if queue.closed {
                    return;
                }
                self.wake.wait(&mut queue);
            };
            drop(queue);
            if let Err(error) = fence("a disk task", task) {
                tracing::error!(%error, "a task failed");
            }
        }
    }
}

/// Looks after the free space of the volume: a reserve stays free, so that what frees space can still be recorded.
pub(crate) struct Space {
    directory: File,
    path: PathBuf,
    reserve: u64,
    /// Bytes that may be written before the next look.
    credit: AtomicI64,
    /// Free bytes beyond the reserve at the last look.
    free: AtomicU64,
    /// Whether the last look found no room: the log tells each change once.
    is_full: AtomicBool,
}

impl Space {
    pub(crate) fn watch(path: &Path, reserve: u64) -> Result<Self, OpenError> {
        Ok(Self {
            directory: File::open(path).map_err(OpenError::io("cannot open", path))?,
            path: path.to_path_buf(),
            reserve,
            credit: AtomicI64::new(0),
            free: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        })
    }

    /// Size of the volume and what is left of it.
    pub(crate) fn volume(&self) -> (u64, u64) {
        rustix::fs::fstatvfs(&self.directory).map_or((0, 0), |volume| {
            (
                volume.f_blocks.saturating_mul(volume.f_frsize),
                volume.f_bavail.saturating_mul(volume.f_frsize),
            )
        })
    }

    /// Asks for room to append; `NoSpace` if only the reserve is left.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), ApiError> {
        let wanted = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.credit.fetch_sub(wanted, Ordering::Relaxed) >= wanted {
            return Ok(());
        }
        let (_, usable) = self.volume();
        let free = usable.saturating_sub(self.reserve);
        self.free.store(free, Ordering::Relaxed);
        if free < bytes {
            self.credit.store(0, Ordering::Relaxed);
            let error = self.full(&self.path);
            if !self.is_full.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "appends are refused");
            }
            return Err(error);
        }
        if self.is_full.swap(false, Ordering::Relaxed) {
            tracing::info!(free, "there is room again: appends are accepted");
        }
        let credit = ((free - bytes) / 2).min(SPACE_CHECK_BYTES);
        self.credit
            .store(i64::try_from(credit).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }

    /// Whether there is so much room that some may be set aside for one ledger.
    pub(crate) fn allows_preallocation(&self, bytes: u64) -> bool {
        self.free.load(Ordering::Relaxed) / 64 >= bytes
    }

    /// The error of a full volume.
    pub(crate) fn full(&self, path: &Path) -> ApiError {
        ApiError::new(
            ErrorCode::NoSpace,
            format!(
                "no space left for {} ({} bytes are kept in reserve on its volume): free space or shorten the retention of topics; writes resume by themselves",
                path.display(),
                self.reserve
            ),
        )
    }
}
