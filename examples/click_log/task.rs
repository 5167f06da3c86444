//! One task of the load: a batch from explicitly assigned partitions, and the pool of handles it borrows from.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kop_examples::clicks::Click;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// How many handles a task consumes with at most.
const CONSUMERS_PER_TASK: usize = 3;
/// How many idle handles are kept.
const POOL: usize = 10;
/// How long one look for a record waits.
const CONSUME: Duration = Duration::from_secs(1);
/// The pause after a transport error, and how many are borne before the partition counts as ended.
const TRANSPORT_PAUSE: Duration = Duration::from_millis(200);
const TRANSPORT_ERRORS: u32 = 3;

pub(crate) type Handle = BaseConsumer;

/// Handles that are reused; each comes back unassigned.
pub(crate) struct Pool {
    config: ClientConfig,
    idle: Mutex<Vec<Handle>>,
}

impl Pool {
    pub(crate) fn new(config: ClientConfig) -> Self {
        Self {
            config,
            idle: Mutex::default(),
        }
    }

    pub(crate) fn take(&self) -> Result<Handle, String> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        match idle {
            Some(handle) => Ok(handle),
            None => self.config.create().map_err(|error| error.to_string()),
        }
    }

    pub(crate) fn give_back(&self, handle: Handle) {
        if handle.unassign().is_err() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < POOL {
            idle.push(handle);
        }
    }
}

/// The bounds of one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) interval: Duration,
    pub(crate) rows: i64,
    pub(crate) bytes: i64,
}

/// What one batch brought.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Partition → the offset after the last one consumed; partitions without a record are missing.
    pub(crate) next: BTreeMap<i32, i64>,
    pub(crate) rows: u64,
    pub(crate) errors: u64,
    pub(crate) bytes: u64,
}

/// What is left of a batch's bounds, shared by its consumers.
struct Room {
    rows: AtomicI64,
    bytes: AtomicI64,
    end: Instant,
}

impl Room {
    fn is_full(&self) -> bool {
        self.rows.load(Ordering::Relaxed) <= 0
            || self.bytes.load(Ordering::Relaxed) <= 0
            || Instant::now() >= self.end
    }

    /// Takes one row's place; the last one may exceed the bytes, never the rows.
    fn take(&self, bytes: usize) -> bool {
        if self.bytes.load(Ordering::Relaxed) <= 0 || self.rows.fetch_sub(1, Ordering::Relaxed) <= 0
        {
            return false;
        }
        self.bytes
            .fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
        true
    }
}

/// Consumes one batch from `start` (partition → offset) with up to three handles side by side.
pub(crate) fn consume(
    pool: &Pool,
    topic: &str,
    start: &BTreeMap<i32, i64>,
    bounds: Bounds,
) -> Result<Batch, String> {
    let handles = CONSUMERS_PER_TASK.min(start.len());
    let mut shares = vec![BTreeMap::new(); handles];
    for (number, (&partition, &offset)) in start.iter().enumerate() {
        if let Some(share) = shares.get_mut(number % handles) {
            share.insert(partition, offset);
        }
    }
    let room = Room {
        rows: AtomicI64::new(bounds.rows),
        bytes: AtomicI64::new(bounds.bytes),
        end: Instant::now() + bounds.interval,
    };
    let parts: Vec<Result<Batch, String>> = std::thread::scope(|scope| {
        let running: Vec<_> = shares
            .iter()
            .map(|share| scope.spawn(|| consume_share(pool, topic, share, &room)))
            .collect();
        running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a consumer panicked".to_owned()))
            })
            .collect()
    });
    let mut batch = Batch::default();
    for part in parts {
        let part = part?;
        batch.next.extend(part.next);
        batch.rows += part.rows;
        batch.errors += part.errors;
        batch.bytes += part.bytes;
    }
    Ok(batch)
}

fn consume_share(
    pool: &Pool,
    topic: &str,
    start: &BTreeMap<i32, i64>,
    room: &Room,
) -> Result<Batch, String> {
    let handle = pool.take()?;
    let mut assignment = TopicPartitionList::new();
    for (&partition, &offset) in start {
        let added = assignment.add_partition_offset(topic, partition, Offset::Offset(offset));
        added.map_err(|error| error.to_string())?;
    }
    handle
        .assign(&assignment)
        .map_err(|error| error.to_string())?;
    let batch = read(&handle, start.len(), room);
    pool.give_back(handle);
    batch
}

/// Reads until the batch is full or every partition has ended.
fn read(handle: &Handle, partitions: usize, room: &Room) -> Result<Batch, String> {
    let mut batch = Batch::default();
    let mut ended = 0;
    let mut transport_errors = 0;
    while ended < partitions && !room.is_full() {
        match handle.poll(CONSUME) {
            None => {}
            Some(Ok(message)) => {
                let value = message.payload().unwrap_or_default();
                if !room.take(value.len()) {
                    break;
                }
                batch.next.insert(message.partition(), message.offset() + 1);
                if value.is_empty() {
                    continue;
                }
                batch.bytes += value.len() as u64;
                match serde_json::from_slice::<Click<'_>>(value) {
                    Ok(_) => batch.rows += 1,
                    Err(error) => {
                        if batch.errors == 0 {
                            eprintln!(
                                "error row at {}-{}: {error}",
                                message.partition(),
                                message.offset()
                            );
                        }
                        batch.errors += 1;
                    }
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown,
            ))) if transport_errors < TRANSPORT_ERRORS => {
                transport_errors += 1;
                std::thread::sleep(TRANSPORT_PAUSE);
            }
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::BrokerTransportFailure))) => {
                break;
            }
            Some(Err(error)) => return Err(error.to_string()),
        }
    }
    Ok(batch)
}

/// Commits `next` of every partition from a handle that has nothing assigned; returns whether it was accepted.
///
/// Doris commits asynchronously and only logs a failure. Through `rdkafka` an asynchronous commit tells nothing, so the
/// synchronous form of the same request is used, in the task's own thread.
pub(crate) fn commit(pool: &Pool, topic: &str, next: &BTreeMap<i32, i64>) -> Result<bool, String> {
    let handle = pool.take()?;
    let mut offsets = TopicPartitionList::new();
    for (&partition, &offset) in next {
        let added = offsets.add_partition_offset(topic, partition, Offset::Offset(offset));
        added.map_err(|error| error.to_string())?;
    }
    let committed = handle.commit(&offsets, CommitMode::Sync);
    if let Err(error) = &committed {
        eprintln!("the offset commit failed: {error}");
    }
    pool.give_back(handle);
    Ok(committed.is_ok())
}
