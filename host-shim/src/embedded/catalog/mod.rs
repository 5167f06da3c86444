//! The catalog: everything that is not an entry, in one redb database, written by one thread in batches.
//!
//! A write is a closure over a transaction. Closures that wait are applied in order within one transaction, so a
//! hundred cursor moves cost one sync. It must not know topics or ledgers beyond the rows that others define.

mod rows;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use handler_api::{ApiError, ErrorCode, Reply};
use parking_lot::{Condvar, Mutex, RwLock};
use redb::{Builder, Database, ReadTransaction, WriteTransaction};

pub(crate) use rows::{
    CURSORS, LIVES, LedgerRow, MANAGED, MARKS, META, ManagedRow, NAMESPACES, TOPICS, TopicRow,
    VALUES, decode_row, meta,
};

use super::config::OpenError;
use super::limits::{CATALOG_CACHE_BYTES, MAX_CATALOG_JOBS};

/// What a closure over a transaction says: a fault of the database, which undoes the whole batch, or its own answer.
pub(crate) type Outcome<T> = Result<Result<T, ApiError>, redb::Error>;

trait Job: Send {
    fn apply(&mut self, transaction: &WriteTransaction) -> Result<(), redb::Error>;
    fn finish(self: Box<Self>, committed: Result<(), ApiError>);
}

struct Work<T, F, D> {
    apply: Option<F>,
    outcome: Option<Result<T, ApiError>>,
    done: D,
}

impl<T, F, D> Job for Work<T, F, D>
where
    T: Send,
    F: FnOnce(&WriteTransaction) -> Outcome<T> + Send,
    D: FnOnce(Result<T, ApiError>) + Send,
{
    fn apply(&mut self, transaction: &WriteTransaction) -> Result<(), redb::Error> {
        if let Some(apply) = self.apply.take() {
            self.outcome = Some(apply(transaction)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, committed: Result<(), ApiError>) {
        let Self { outcome, done, .. } = *self;
        done(match (committed, outcome) {
            (Ok(()), Some(outcome)) => outcome,
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(ApiError::new(
                ErrorCode::Internal,
                "a catalog write was never applied",
            )),
        });
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Box<dyn Job>>,
    closed: bool,
}

struct Shared {
    path: PathBuf,
    /// Absent after a fault, until it could be opened again.
    database: RwLock<Option<Arc<Database>>>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// The open catalog.
pub(crate) struct Catalog {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// A completion and the reply that it completes.
pub(crate) fn reply<T: Send + 'static>() -> (impl FnOnce(Result<T, ApiError>) + Send, Reply<T>) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let done = move |result| {
        // Nobody listens any more: the effect stands all the same.
        let _ = sender.send(result);
    };
    let reply = Reply::pending(async move { receiver.await.unwrap_or_else(|_| Err(closing())) });
    (done, reply)
}

/// The answer of a host that stops.
pub(crate) fn closing() -> ApiError {
    ApiError::new(ErrorCode::Closing, "the broker is shutting down")
}

impl Catalog {
    /// Opens or creates the database, with all tables, and starts its writer.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let fail = |error: redb::Error| OpenError::Catalog {
            path: path.to_path_buf(),
            reason: error.to_string(),
        };
        let database = open_database(path).map_err(fail)?;
        create_tables(&database).map_err(fail)?;
        let shared = Arc::new(Shared {
            path: path.to_path_buf(),
            database: RwLock::new(Some(Arc::new(database))),
            queue: Mutex::default(),
            wake: Condvar::new(),
        });
        let writer = std::thread::Builder::new()
            .name("kop-catalog".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.write_until_closed()
            })
            .map_err(OpenError::io("cannot start the writer of", path))?;
        Ok(Self {
            shared,
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Reads in a snapshot of what is committed.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, ApiError> {
        use redb::ReadableDatabase;
        let database = self.shared.database.read().clone();
        let Some(database) = database else {
            return Err(self
                .shared
                .broken("a write failed before; it is being reopened"));
        };
        let result = database
            .begin_read()
            .map_err(redb::Error::from)
            .and_then(|transaction| read(&transaction));
        result.map_err(|error| self.shared.fault(&error))
    }

    /// Queues a write. `done` runs on the writer's thread once it is durable, or has failed; at once if the queue is
    /// full or closed.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        apply: impl FnOnce(&WriteTransaction) -> Outcome<T> + Send + 'static,
        done: impl FnOnce(Result<T, ApiError>) + Send + 'static,
    ) {
        let mut queue = self.shared.queue.lock();
        let refused = if queue.closed {
            Some(closing())
        } else if queue.jobs.len() >= MAX_CATALOG_JOBS {
            Some(ApiError::new(
                ErrorCode::NotReady,
                "too many catalog writes are waiting for the disk: try again",
            ))
        } else {
            None
        };
        if let Some(error) = refused {
            drop(queue);
            done(Err(error));
            return;
        }
        queue.jobs.push_back(Box::new(Work {
            apply: Some(apply),
            outcome: None,
            done,
        }));
        drop(queue);
        self.shared.wake.notify_one();
    }

    /// Writes and waits; not for threads that must not block.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        apply: impl FnOnce(&WriteTransaction) -> Outcome<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.submit(apply, move |result| {
            let _ = sender.send(result);
        });
        receiver.recv().unwrap_or_else(|_| Err(closing()))
    }

    /// Writes what waits and closes the database.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_one();
        if let Some(writer) = self.writer.lock().take() {
            let _ = writer.join();
        }
        self.shared.database.write().take();
    }
}

fn open_database(path: &Path) -> Result<Database, redb::Error> {
    Ok(Builder::new()
        .set_cache_size(CATALOG_CACHE_BYTES)
        .create(path)?)
}

fn create_tables(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(META)?;
    transaction.open_table(NAMESPACES)?;
    transaction.open_table(TOPICS)?;
    transaction.open_table(LIVES)?;
    transaction.open_table(MANAGED)?;
    transaction.open_table(MARKS)?;
    transaction.open_table(CURSORS)?;
    transaction.open_table(VALUES)?;
    transaction.commit()?;
    Ok(())
}

impl Shared {
    fn write_until_closed(&self) {
        loop {
            let mut queue = self.queue.lock();
            while queue.jobs.is_empty() {
                if queue.closed {
                    return;
                }
                self.wake.wait(&mut queue);
            }
            let jobs = std::mem::take(&mut queue.jobs);
            drop(queue);
            self.write_batch(jobs.into());
        }
    }

    fn write_batch(&self, mut jobs: Vec<Box<dyn Job>>) {
        let committed = self.database().and_then(|database| {
            let result = apply_all(&database, &mut jobs);
            result.map_err(|error| {
                // After a failed write the database refuses everything until it is opened again.
                self.database.write().take();
                self.fault(&error)
            })
        });
        for job in jobs {
            job.finish(committed.clone());
        }
    }

    /// The database, opened again if it had to be given up.
    fn database(&self) -> Result<Arc<Database>, ApiError> {
        let mut slot = self.database.write();
        if let Some(database) = slot.as_ref() {
            return Ok(Arc::clone(database));
        }
        let database = open_database(&self.path).map_err(|error| self.fault(&error))?;
        tracing::info!(path = %self.path.display(), "opened the catalog again");
        Ok(Arc::clone(slot.insert(Arc::new(database))))
    }

    fn broken(&self, why: &str) -> ApiError {
        ApiError::new(
            ErrorCode::NotReady,
            format!(
                "the catalog {} is not available: {why}",
                self.path.display()
            ),
        )
    }

    fn fault(&self, error: &redb::Error) -> ApiError {
        tracing::error!(path = %self.path.display(), %error, "the catalog failed");
        match error {
            redb::Error::Io(io) if is_full(io) => ApiError::new(
                ErrorCode::NoSpace,
                format!(
                    "no space left for the catalog {}: free space on its volume",
                    self.path.display()
                ),
            ),
            error => self.broken(&error.to_string()),
        }
    }
}

/// Whether an error means that the volume, or a quota on it, is full.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    )
}

fn apply_all(database: &Database, jobs: &mut [Box<dyn Job>]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    for job in jobs {
        job.apply(&transaction)?;
    }
    transaction.commit()?;
    Ok(())
}
