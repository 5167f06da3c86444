//! One open partition: its handle, its bounds, and what is kept about it in memory.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use handler_api::Handle;
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::limits::MAX_REPORTED;
use super::pending::{Arrived, Pendings};
use super::positions::Positions;
use super::producers::{Producers, StoredBatch};
use super::shared::Shared;
use super::snapshot::Restored;
use super::time_index::{BatchTimes, TimeIndex};
use super::types::{ActiveProducer, TimestampOffset, TopicSettings};
use super::wait::Waiting;
use crate::error::Fault;

/// An open partition of a Kafka topic, on a managed ledger that this broker owns.
///
/// It dies when ownership moves or the topic goes; then every call answers [`Fault::NotLeader`], and opening it again
/// finds out who serves it.
pub struct Partition {
    name: Arc<str>,
    handle: Handle,
    pub(super) shared: Arc<Shared>,
    alive: AtomicBool,
    /// Whether it stands on the list of what has something to save.
    pub(super) is_listed: AtomicBool,
    /// Offset after the last durable record.
    end: AtomicI64,
    /// First offset that exists.
    start: AtomicI64,
    /// Whether it was cleaned once: then the host's first message may be one behind the first offset, since cleaning
    /// leaves gaps, and the start is what is stored beside the entries.
    was_cleaned: AtomicBool,
    /// Indexes of entries that cannot be read and were reported.
    reported: Mutex<BTreeSet<i64>>,
    settings: RwLock<Arc<TopicSettings>>,
    state: Mutex<State>,
    pub(super) positions: Mutex<Positions>,
    pub(super) waiting: Mutex<Waiting>,
    /// Held while the log's start, its ledgers or their properties are changed.
    pub(super) upkeep: tokio::sync::Mutex<()>,
}

/// What appends change, behind one lock that fixes their order.
pub(super) struct State {
    pub(super) producers: Producers,
    pub(super) pendings: Pendings,
    pub(super) times: TimeIndex,
    /// Offset after the last batch that `producers` and `times` know.
    pub(super) taken_in: i64,
    /// First offset that was not deleted by hand.
    pub(super) log_start: i64,
    /// Offset up to which the cleaner has been.
    pub(super) clean_end: i64,
    pub(super) unsaved: Unsaved,
    /// What was taken in, counted.
    growth: Growth,
    /// The ledger that is appended to, as far as it is known.
    pub(super) ledger: OpenLedger,
}

/// What a snapshot would have to say.
#[derive(Debug, Default)]
pub(super) struct Unsaved {
    /// Bytes taken in since the last one.
    pub(super) bytes: u64,
    /// Since when, in monotonic ms.
    pub(super) since_ms: Option<u64>,
    /// Ledgers whose times changed.
    pub(super) ledgers: BTreeSet<i64>,
}

/// How much a partition has grown by what was appended through it here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Growth {
    /// Bytes of batches.
    bytes: u64,
    /// How often something else was found between two batches: others appended too.
    breaks: u64,
}

/// The ledger that is appended to.
#[derive(Debug, Default)]
pub(super) struct OpenLedger {
    pub(super) id: i64,
    /// Bytes that were appended to it from here.
    pub(super) bytes: u64,
}

impl Partition {
    pub(super) fn new(
        name: Arc<str>,
        handle: Handle,
        shared: Arc<Shared>,
        settings: TopicSettings,
        bounds: (i64, i64),
        restored: Restored,
    ) -> Self {
        let (host_start, end) = bounds;
        let was_cleaned = restored.clean_end > 0;
        let start = if was_cleaned { 0 } else { host_start };
        Self {
            name,
            handle,
            shared,
            alive: AtomicBool::new(true),
            is_listed: AtomicBool::new(false),
            end: AtomicI64::new(end),
            start: AtomicI64::new(start.max(restored.log_start.min(end))),
            was_cleaned: AtomicBool::new(was_cleaned),
            reported: Mutex::default(),
            settings: RwLock::new(Arc::new(settings)),
            state: Mutex::new(State {
                producers: restored.producers,
                pendings: Pendings::default(),
                times: restored.times,
                taken_in: restored.end_offset.unwrap_or(host_start),
                log_start: restored.log_start,
                clean_end: restored.clean_end,
                unsaved: Unsaved::default(),
                growth: Growth::default(),
                ledger: OpenLedger::default(),
            }),
            positions: Mutex::new(Positions::default()),
            waiting: Mutex::new(Waiting::default()),
            upkeep: tokio::sync::Mutex::new(()),
        }
    }

    /// Full name, `persistent://tenant/namespace/topic-partition-N`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name, shared.
    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// The host's handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The offset after the last durable record.
    #[must_use]
    pub fn high_watermark(&self) -> i64 {
        self.end.load(Ordering::Acquire)
    }

    /// The first offset whose fate is open, else the high watermark.
    #[must_use]
    pub fn last_stable_offset(&self) -> i64 {
        self.high_watermark()
    }

    /// The first offset that exists.
    #[must_use]
    pub fn log_start_offset(&self) -> i64 {
        self.start.load(Ordering::Acquire)
    }

    /// The leader epoch of everything in the partition, and of its leader now; −1: none is known.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        self.shared.leader_epoch
    }

    /// Where records of a leader epoch end: for the current one (and only that exists) the high watermark. `None`
    /// for an epoch that never was. Where epochs are not counted, one that a client has from elsewhere ends at the high
    /// watermark too: nothing that clients have read is ever cut off.
    #[must_use]
    pub fn end_of_epoch(&self, leader_epoch: i32) -> Option<i64> {
        let ours = self.leader_epoch();
        let is_known = leader_epoch == ours || ours < 0;
        (leader_epoch >= 0 && is_known).then(|| self.high_watermark())
    }

    /// Whether the handle still lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// The settings of its topic.
    #[must_use]
    pub fn settings(&self) -> Arc<TopicSettings> {
        Arc::clone(&self.settings.read())
    }

    /// The idempotent producers that are remembered, by id.
    #[must_use]
    pub fn active_producers(&self) -> Vec<ActiveProducer> {
        let state = self.state.lock();
        let producers = state.producers.sorted().into_iter();
        producers
            .map(|(producer_id, producer)| {
                let last = producer.batches.back();
                ActiveProducer {
                    producer_id,
                    epoch: producer.epoch,
                    last_sequence: last.map_or(-1, |batch| batch.last_sequence),
                    last_timestamp_ms: last.map_or(-1, |batch| batch.timestamp_ms),
                }
            })
            .collect()
    }

    /// A mark to ask [`Self::bytes_since`] with.
    #[must_use]
    pub fn growth(&self) -> Growth {
        self.state.lock().growth
    }

    /// Bytes of batches between a mark and the high watermark; `None` where only reading can tell: others appended
    /// too, or it died.
    #[must_use]
    pub fn bytes_since(&self, mark: Growth) -> Option<u64> {
        let state = self.state.lock();
        let counted = self.is_alive()
            && state.taken_in >= self.high_watermark()
            && state.growth.breaks == mark.breaks;
        counted.then(|| state.growth.bytes.saturating_sub(mark.bytes))
    }

    /// The first record whose timestamp is `timestamp_ms` or later; control batches do not count. `None` if no record
    /// is that late.
    pub async fn offset_for_time(
        &self,
        timestamp_ms: i64,
    ) -> Result<Option<TimestampOffset>, Fault> {
        super::search::offset_for_time(self, timestamp_ms).await
    }

    /// The first of the records with the largest timestamp. `None` if there is no record with one.
    pub async fn max_timestamp(&self) -> Result<Option<TimestampOffset>, Fault> {
        super::search::max_timestamp(self).await
    }

    /// Gives up all records below `before_offset` (−1: the high watermark), durably; answers the new first offset.
    /// An offset beyond the high watermark is [`Fault::OffsetOutOfRange`], one that is gone already changes nothing.
    pub async fn delete_records(&self, before_offset: i64) -> Result<i64, Fault> {
        super::upkeep::delete_records(self, before_offset).await
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn set_settings(&self, settings: TopicSettings) {
        *self.settings.write() = Arc::new(settings);
    }

    /// The end is at least here.
    pub(super) fn raise_end(&self, end: i64) {
        self.end.fetch_max(end, Ordering::AcqRel);
    }

    /// The start is at least here.
    pub(super) fn raise_start(&self, start: i64) {
        self.start.fetch_max(start, Ordering::AcqRel);
    }

    /// The host's first message is here.
    pub(super) fn host_starts_at(&self, start: i64) {
        if !self.was_cleaned.load(Ordering::Acquire) {
            self.raise_start(start);
        }
    }

    /// From now on the start is what is stored, not what the host says.
    pub(super) fn set_cleaned(&self) {
        self.was_cleaned.store(true, Ordering::Release);
    }

    /// Whether the entry with this index, which cannot be read, is to be reported: each once, and only so many.
    pub(super) fn is_first_report(&self, index: i64) -> bool {
        let mut reported = self.reported.lock();
        reported.len() < MAX_REPORTED && reported.insert(index)
    }

    /// Marks it dead and wakes who waits. Returns whether it lived.
    pub(super) fn die(&self) -> bool {
        let lived = self.alive.swap(false, Ordering::AcqRel);
        super::wait::wake(self);
        lived
    }

    /// Puts it on the list of what has something to save, once.
    pub(super) fn list_unsaved(self: &Arc<Self>) {
        if !self.is_listed.load(Ordering::Acquire) && !self.is_listed.swap(true, Ordering::AcqRel) {
            self.shared.unsaved.lock().push(Arc::clone(self));
        }
    }

    /// What a dead partition answers.
    pub(super) fn gone(&self) -> Fault {
        Fault::NotLeader(format!("{} is not open here any more", self.name))
    }
}

impl State {
    /// Takes a durable batch in: for live appends and after a load alike.
    pub(super) fn take_in(&mut self, batch: &Arrived, ledger: i64, last_offset: i64, now_ms: u64) {
        let base_offset = last_offset - i64::from(batch.span) + 1;
        if let Some(sequence) = &batch.sequence {
            let stored = StoredBatch {
                first_sequence: sequence.first,
                last_sequence: sequence.last,
                base_offset,
                last_offset,
                timestamp_ms: batch.max_timestamp_ms,
            };
            self.producers.replay(
                sequence.producer_id,
                sequence.epoch,
                stored,
                batch.arrived_ms,
            );
        }
        let thinned = self.times.add(&BatchTimes {
            ledger,
            base_offset,
            last_offset,
            max_timestamp_ms: batch.max_timestamp_ms,
            bytes: batch.bytes,
        });
        self.unsaved.ledgers.extend(thinned);
        self.growth.bytes += batch.bytes;
        if base_offset != self.taken_in {
            self.growth.breaks += 1;
        }
        self.taken_in = last_offset + 1;
        self.unsaved.bytes += batch.bytes;
        self.unsaved.since_ms.get_or_insert(now_ms);
        self.unsaved.ledgers.insert(ledger);
        if self.ledger.id != ledger {
            self.ledger = OpenLedger {
                id: ledger,
                bytes: 0,
            };
        }
        self.ledger.bytes += batch.bytes;
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition")
            .field("name", &self.name)
            .field("handle", &self.handle)
            .field("start", &self.log_start_offset())
            .field("end", &self.high_watermark())
            .field("alive", &self.is_alive())
            .finish_non_exhaustive()
    }
}
