//! What a log needs beside requests: snapshots, rolling, retention, deletion by hand. One task for all partitions.
//!
//! ```text
//! every second, or at once when something is urgent: partitions with something to save ─> snapshot, roll
//! every check interval: all partitions of the directory, a slice at a time ─> roll, trim, clean
//! ```
//!
//! Idle partitions cost nothing between two checks. It must not touch batches.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use handler_api::ledger::{
    DescribeLedgers, HandleRef, Opened, PropertiesChange, Rollover, Trim, TrimRequest,
    UpdateLedgerProperties,
};
use handler_api::{ApiError, ErrorCode, Handle};

use super::limits::{
    MAX_COMPACTED_LEDGER, MAX_PRODUCERS, SHARED_SNAPSHOT_AGE_MS, SHARED_SNAPSHOT_BYTES, SLICE,
    SNAPSHOT_AGE_MS, SNAPSHOT_BYTES, URGENT_BYTES,
};
use super::partition::{Partition, State};
use super::shared::Shared;
use super::time_index::TimeIndex;
use super::types::TopicSettings;
use super::{Logs, clean, load, retention, snapshot};
use crate::error::Fault;

/// How often partitions with something to save are looked at.
const ROUND: Duration = Duration::from_secs(1);

/// Called under the partition's lock after each append: wakes the upkeep if it should not wait for its round.
pub(super) fn note_growth(shared: &Shared, partition: &Partition, state: &State) {
    let is_full = || state.ledger.bytes >= ledger_bytes(&partition.settings());
    if state.unsaved.bytes >= URGENT_BYTES || (shared.retains && is_full()) {
        shared.urgent.notify_one();
    }
}

impl Logs {
    /// Snapshots, retention, rolling and compaction of all partitions, for ever: one task, bounded work at a time.
    pub async fn housekeep(self: Arc<Self>) {
        let clock = Arc::clone(&self.shared.clock);
        let interval_ms = self.shared.options.check_interval_ms;
        let mut next_check_ms = clock.monotonic_ms().saturating_add(interval_ms);
        loop {
            tokio::select! {
                () = tokio::time::sleep(ROUND) => {}
                () = self.shared.urgent.notified() => {}
            }
            self.save_due(false).await;
            if clock.monotonic_ms() >= next_check_ms {
                self.check().await;
                next_check_ms = clock.monotonic_ms().saturating_add(interval_ms);
            }
        }
    }

    /// Writes the last snapshots. Afterwards nothing may be appended.
    pub async fn close(&self) {
        self.save_due(true).await;
    }

    /// Saves and rolls what is due; with `all`, everything that is not saved.
    pub(super) async fn save_due(&self, all: bool) {
        let listed = std::mem::take(&mut *self.shared.unsaved.lock());
        let mut due = Vec::new();
        for partition in listed {
            if !partition.is_alive() {
                continue;
            }
            if !all
                && is_full(&partition)
                && let Err(error) = roll(&partition).await
            {
                tracing::debug!(partition = partition.name(), %error, "a ledger was not rolled; it is tried again");
            }
            // Whoever appends from here on lists it again, so nothing is missed between the look and the list.
            partition.is_listed.store(false, Ordering::Release);
            match is_due(&partition, all) {
                Due::Nothing => {}
                Due::Not => partition.list_unsaved(),
                Due::Now => due.push(partition),
            }
        }
        // Several at once, so that a host can make them durable together.
        for slice in due.chunks(SLICE) {
            let saved = join_all(slice.iter().map(|partition| save(partition))).await;
            for (partition, saved) in slice.iter().zip(saved) {
                if let Err(error) = saved {
                    tracing::warn!(partition = partition.name(), %error, "a snapshot was not written; it is tried again");
                    partition.list_unsaved();
                } else if !all {
                    self.clean(partition).await;
                }
            }
        }
    }

    /// Retention, rolling and compaction of all partitions that this broker is known to serve.
    pub async fn check(&self) {
        if !self.shared.retains {
            return;
        }
        let names = match self.shared.directory.partitions().await {
            Ok(names) => self.with_open(names),
            Err(error) => {
                tracing::warn!(%error, "partitions could not be listed; retention waits for the next round");
                return;
            }
        };
        for slice in names.chunks(SLICE) {
            let names: Vec<Arc<str>> = slice.iter().map(|name| Arc::from(name.as_str())).collect();
            let opened = load::open_ledgers(&self.shared, &names).await;
            for (name, opened) in names.iter().zip(opened) {
                let checked = match opened {
                    Ok(opened) => self.check_one(name, &opened).await,
                    Err(fault) => Err(fault),
                };
                if let Err(error) = checked {
                    tracing::debug!(partition = %name, %error, "a partition was not checked; it is tried again");
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Partitions, and those that are open beside them.
    fn with_open(&self, names: Vec<String>) -> Vec<String> {
        let mut names: BTreeSet<String> = names.into_iter().collect();
        let open = self.open.read();
        names.extend(open.by_name.keys().map(|name| name.to_string()));
        names.into_iter().collect()
    }

    /// Cleans a partition that grew, or that its turn came for.
    async fn clean(&self, partition: &Arc<Partition>) {
        if let Err(error) = clean::clean(partition).await {
            tracing::warn!(partition = partition.name(), %error, "a partition was not cleaned; it is tried again");
        }
    }

    async fn check_one(&self, name: &Arc<str>, opened: &Opened) -> Result<(), Fault> {
        let handle = opened
            .handle
            .ok_or_else(|| Fault::Internal("the host gave no handle".to_owned()))?;
        let settings = self.shared.directory.settings(name).await?;
        let known = self
            .by_handle(Handle::from(handle))
            .filter(|partition| partition.is_alive());
        match known {
            Some(partition) => {
                partition.set_settings(settings.clone());
                let upkeep = partition.upkeep.lock().await;
                let known = {
                    let state = partition.lock();
                    Known {
                        times: state.times.clone(),
                        log_start: state.log_start,
                        was_cleaned: state.clean_end > 0,
                    }
                };
                let start = retain(&self.shared, handle, &settings, &known).await?;
                if let Some(start) = start {
                    moved(&partition, start);
                }
                drop(upkeep);
                self.clean(&partition).await;
            }
            None if settings.compact => {
                if let Some(Ok(partition)) = self.open(&[name]).await.pop() {
                    self.clean(&partition).await;
                }
            }
            None => {
                let restored = snapshot::restore(&opened.properties, opened.end_index + 1);
                let known = Known {
                    times: restored.times,
                    log_start: restored.log_start,
                    was_cleaned: restored.clean_end > 0,
                };
                retain(&self.shared, handle, &settings, &known).await?;
            }
        }
        Ok(())
    }
}

/// What is known of a partition beside its ledgers.
struct Known {
    times: TimeIndex,
    log_start: i64,
    was_cleaned: bool,
}

/// Rolls and trims one managed ledger; answers the first offset if anything was trimmed.
async fn retain(
    shared: &Shared,
    handle: HandleRef,
    settings: &TopicSettings,
    known: &Known,
) -> Result<Option<i64>, Fault> {
    let ledgers = shared
        .host
        .control::<DescribeLedgers>(&handle)
        .await?
        .ledgers;
    let plan = retention::plan(
        settings,
        &ledgers,
        &known.times,
        known.log_start,
        shared.clock.now_ms(),
    );
    let mut before_index = plan.trim_before;
    if plan.roll
        && let Err(error) = shared.host.control::<Rollover>(&handle).await
    {
        tracing::debug!(%error, "a ledger was not rolled; it is tried again");
        before_index = plan.trim_sealed_before;
    }
    let Some(before_index) = before_index else {
        return Ok(None);
    };
    if known.was_cleaned && before_index > known.log_start {
        // The host will name the first message that is left, which cleaning may have moved away from the first offset.
        store_start(shared, handle, before_index).await?;
    }
    let request = TrimRequest {
        handle: Some(handle),
        before_index,
    };
    let opened = shared.host.control::<Trim>(&request).await?;
    Ok(Some(if known.was_cleaned {
        before_index
    } else {
        opened.start_index
    }))
}

/// Makes the first offset durable.
async fn store_start(shared: &Shared, handle: HandleRef, start: i64) -> Result<(), ApiError> {
    let change = PropertiesChange {
        handle: Some(handle),
        set: HashMap::from([(snapshot::LOG_START.to_owned(), start.to_string())]),
        remove: Vec::new(),
    };
    shared
        .host
        .control::<UpdateLedgerProperties>(&change)
        .await
        .map(|_| ())
}

/// The start moved: what is known of the head goes.
fn moved(partition: &Arc<Partition>, start: i64) {
    partition.raise_start(start);
    let mut state = partition.lock();
    if state.clean_end > 0 {
        state.log_start = state.log_start.max(start);
    }
    let gone = state.times.trim(start);
    if gone.is_empty() {
        return;
    }
    state.unsaved.ledgers.extend(gone);
    let now_ms = partition.shared.clock.monotonic_ms();
    state.unsaved.since_ms.get_or_insert(now_ms);
    drop(state);
    partition.list_unsaved();
}

fn is_full(partition: &Partition) -> bool {
    partition.shared.retains && partition.lock().ledger.bytes >= ledger_bytes(&partition.settings())
}

/// Size at which a ledger is sealed.
fn ledger_bytes(settings: &TopicSettings) -> u64 {
    if settings.compact {
        settings.segment_bytes.min(MAX_COMPACTED_LEDGER)
    } else {
        settings.segment_bytes
    }
}

enum Due {
    Nothing,
    Not,
    Now,
}

fn is_due(partition: &Partition, all: bool) -> Due {
    let state = partition.lock();
    let unsaved = &state.unsaved;
    let Some(since_ms) = unsaved.since_ms else {
        return Due::Nothing;
    };
    let age_ms = partition
        .shared
        .clock
        .monotonic_ms()
        .saturating_sub(since_ms);
    let has_rolled = unsaved.ledgers.len() > 1;
    let (most_bytes, most_ms) = if partition.shared.retains {
        (SNAPSHOT_BYTES, SNAPSHOT_AGE_MS)
    } else {
        (SHARED_SNAPSHOT_BYTES, SHARED_SNAPSHOT_AGE_MS)
    };
    if all || has_rolled || unsaved.bytes >= most_bytes || age_ms >= most_ms {
        Due::Now
    } else {
        Due::Not
    }
}

async fn roll(partition: &Partition) -> Result<(), Fault> {
    let handle = HandleRef::from(partition.handle());
    match partition.shared.host.control::<Rollover>(&handle).await {
        Ok(_) => {
            partition.lock().ledger.bytes = 0;
            Ok(())
        }
        Err(error) => Err(ended(partition, error)),
    }
}

/// Writes a partition's snapshot.
pub(super) async fn save(partition: &Partition) -> Result<(), Fault> {
    let shared = &partition.shared;
    let mut change = PropertiesChange {
        handle: Some(partition.handle().into()),
        ..PropertiesChange::default()
    };
    let saved = {
        let mut state = partition.lock();
        let unseen_since = shared
            .clock
            .now_ms()
            .saturating_sub(shared.options.producer_id_expiration_ms);
        state.producers.expire(unseen_since, MAX_PRODUCERS);
        let text = snapshot::write_producers(&state.producers, state.taken_in);
        change.set.insert(snapshot::PRODUCERS.to_owned(), text);
        for ledger in &state.unsaved.ledgers {
            let key = snapshot::times_key(*ledger);
            match state.times.ledger(*ledger) {
                Some(times) => {
                    change.set.insert(key, snapshot::write_times(times));
                }
                None => change.remove.push(key),
            }
        }
        std::mem::take(&mut state.unsaved)
    };
    let result = shared.host.control::<UpdateLedgerProperties>(&change).await;
    result.map(|_| ()).map_err(|error| {
        let mut state = partition.lock();
        state.unsaved.bytes += saved.bytes;
        state.unsaved.since_ms = saved.since_ms.or(state.unsaved.since_ms);
        state.unsaved.ledgers.extend(saved.ledgers);
        drop(state);
        ended(partition, error)
    })
}

/// What a failed control operation means for its partition.
fn ended(partition: &Partition, error: ApiError) -> Fault {
    if matches!(error.kind(), ErrorCode::HandleClosed | ErrorCode::NotOwner) {
        partition.die();
        return partition.gone();
    }
    error.into()
}

/// See [`Partition::delete_records`].
pub(super) async fn delete_records(
    partition: &Partition,
    before_offset: i64,
) -> Result<i64, Fault> {
    if !partition.is_alive() {
        return Err(partition.gone());
    }
    let _upkeep = partition.upkeep.lock().await;
    let end = partition.high_watermark();
    let before = if before_offset == -1 {
        end
    } else {
        before_offset
    };
    if before < 0 || before > end {
        return Err(Fault::OffsetOutOfRange(format!(
            "offset {before_offset} is outside of 0..={end} of {}",
            partition.name()
        )));
    }
    if before <= partition.log_start_offset() {
        return Ok(partition.log_start_offset());
    }
    let host = &partition.shared.host;
    let handle = Some(partition.handle().into());
    // First the promise, then the space: a host that trims whole ledgers only may give up less.
    store_start(&partition.shared, partition.handle().into(), before)
        .await
        .map_err(|error| ended(partition, error))?;
    partition.lock().log_start = before;
    partition.raise_start(before);
    let request = TrimRequest {
        handle,
        before_index: before,
    };
    if let Err(error) = host.control::<Trim>(&request).await {
        tracing::debug!(partition = partition.name(), %error, "deleted records keep their space until the next check");
    }
    Ok(partition.log_start_offset())
}
