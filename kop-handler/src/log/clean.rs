//! Cleans compacted partitions: reads what is dirty, then gives sealed ledgers their new content.
//!
//! The ledger that is written to is never cleaned; it is sealed once it holds a good part of the log. A ledger's new
//! content is built in memory and handed over in one step, so the ledgers of compacted topics are kept small. It must
//! not decide which records stay.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use handler_api::capability;
use handler_api::ledger::{
    DescribeLedgers, HandleRef, Ledger, PropertiesChange, ReplaceLedger, Replacement,
    ReplacementEntry, Rollover, UpdateLedgerProperties,
};

use super::compact::{Fate, Newest, Times, retain};
use super::limits::{MAX_COMPACTED_LEDGER, MAX_CONTENT, MAX_KEYS};
use super::partition::Partition;
use super::read::read_or_gap;
use super::search::Scan;
use super::snapshot;
use super::time_index::{BatchTimes, Range};
use super::types::TopicSettings;
use crate::error::Fault;
use crate::format::EntryFormat;
use crate::wire::batch::BatchView;

/// The ledger that is written to is not sealed for cleaning below this size.
const MIN_LEDGER: u64 = 1024 * 1024;

/// What a look at the ledgers says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Survey {
    /// Seal the ledger that is written to.
    pub(super) roll: bool,
    /// Clean up to this offset.
    pub(super) clean_to: Option<i64>,
}

/// Whether a partition needs cleaning. `clean_end`: up to where the last cleaning came.
pub(super) fn survey(
    settings: &TopicSettings,
    ledgers: &[Ledger],
    clean_end: i64,
    now_ms: i64,
) -> Survey {
    let age = |ledger: &Ledger| now_ms.saturating_sub(ledger.last_append_ms);
    let is_old_enough = |ledger: &&Ledger| age(ledger) >= settings.min_compaction_lag_ms;
    let sealed: Vec<&Ledger> = ledgers
        .iter()
        .take_while(|ledger| ledger.sealed)
        .take_while(is_old_enough)
        .collect();
    let bytes = |ledgers: &[&Ledger]| ledgers.iter().map(|ledger| ledger.bytes).sum::<u64>();
    let first_dirty = sealed.partition_point(|ledger| ledger.last_index < clean_end);
    let (clean, dirty) = sealed.split_at(first_dirty);
    let (clean_bytes, dirty_bytes) = (bytes(clean), bytes(dirty));
    let is_overdue = dirty
        .first()
        .is_some_and(|ledger| age(ledger) >= settings.max_compaction_lag_ms);
    let clean_to = dirty
        .last()
        .filter(|_| is_overdue || is_dirty(settings, dirty_bytes, clean_bytes))
        .map(|ledger| ledger.last_index + 1);
    let open = ledgers
        .last()
        .filter(|ledger| !ledger.sealed && ledger.entries > 0);
    let roll = open.is_some_and(|open| {
        let is_overdue = now_ms.saturating_sub(open.created_ms) >= settings.max_compaction_lag_ms;
        let is_worth_it = open.bytes >= MIN_LEDGER
            && settings.min_compaction_lag_ms == 0
            && is_dirty(settings, dirty_bytes + open.bytes, clean_bytes);
        open.bytes >= MAX_COMPACTED_LEDGER || is_overdue || is_worth_it
    });
    Survey { roll, clean_to }
}

fn is_dirty(settings: &TopicSettings, dirty: u64, clean: u64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more")]
    let ratio = dirty as f64 / (dirty + clean).max(1) as f64;
    dirty > 0 && ratio >= settings.min_cleanable_dirty_ratio
}

/// Cleans a partition if it needs it.
pub(super) async fn clean(partition: &Arc<Partition>) -> Result<(), Fault> {
    let shared = &partition.shared;
    let settings = partition.settings();
    if !settings.compact || !shared.host.has(capability::REPLACE_LEDGER) {
        return Ok(());
    }
    let _upkeep = partition.upkeep.lock().await;
    let handle = HandleRef::from(partition.handle());
    let mut ledgers = shared
        .host
        .control::<DescribeLedgers>(&handle)
        .await?
        .ledgers;
    let now_ms = shared.clock.now_ms();
    let clean_end = partition.lock().clean_end;
    let mut look = survey(&settings, &ledgers, clean_end, now_ms);
    if look.roll && shared.host.control::<Rollover>(&handle).await.is_ok() {
        partition.lock().ledger.bytes = 0;
        ledgers = shared
            .host
            .control::<DescribeLedgers>(&handle)
            .await?
            .ledgers;
        look = survey(&settings, &ledgers, clean_end, now_ms);
    }
    let Some(clean_to) = look.clean_to else {
        return Ok(());
    };
    let newest = read_newest(partition, clean_end, clean_to).await?;
    let times = Times {
        now_ms,
        delete_retention_ms: settings.delete_retention_ms,
    };
    let last_sealed = ledgers.iter().rfind(|ledger| ledger.sealed).map(|l| l.id);
    for ledger in &ledgers {
        if ledger.sealed && ledger.entries > 0 && ledger.first_index < newest.end() {
            let is_last = Some(ledger.id) == last_sealed;
            clean_ledger(partition, ledger, &newest, times, is_last).await?;
        }
    }
    note_end(partition, newest.end()).await
}

/// The newest offset of each key from the end of the last cleaning on, as far as they fit.
async fn read_newest(partition: &Partition, from: i64, to: i64) -> Result<Newest, Fault> {
    let from = from.max(partition.log_start_offset());
    let mut newest = Newest::new(from, MAX_KEYS);
    let mut scan = Scan::new(partition, Range { from, to: to - 1 });
    while let Some(entries) = scan.next().await? {
        for entry in entries {
            let (batch, header) = read_or_gap(partition, entry);
            let batch = BatchView {
                header,
                bytes: batch.contiguous(),
            };
            let fits = newest
                .add(&batch)
                .map_err(|error| Fault::StoredCorrupt(error.to_string()))?;
            if !fits {
                return Ok(newest);
            }
        }
    }
    newest.skip_to(to);
    Ok(newest)
}

/// What a ledger will hold.
#[derive(Default)]
struct Content {
    entries: Vec<ReplacementEntry>,
    times: Vec<BatchTimes>,
    bytes: usize,
    changed: bool,
}

async fn clean_ledger(
    partition: &Partition,
    ledger: &Ledger,
    newest: &Newest,
    times: Times,
    is_last: bool,
) -> Result<(), Fault> {
    let range = Range {
        from: ledger.first_index,
        to: ledger.last_index,
    };
    let mut content = Content::default();
    let mut scan = Scan::new(partition, range);
    while let Some(entries) = scan.next().await? {
        for entry in entries {
            let (position, index) = (entry.position, entry.index);
            if position.ledger != ledger.id {
                continue;
            }
            let raw: Vec<Bytes> = entry
                .segments
                .iter()
                .map(|segment| Bytes::from(segment.bytes.clone()))
                .collect();
            let (batch, header) = read_or_gap(partition, entry);
            let publish_time_ms = batch.publish_time_ms;
            let batch = BatchView {
                header,
                bytes: batch.contiguous(),
            };
            let must_stay = is_last && index == ledger.last_index;
            let fate = retain(newest, &batch, times, must_stay)
                .map_err(|error| Fault::StoredCorrupt(error.to_string()))?;
            let (payload, batch) = match fate {
                Fate::Stays => (join(raw), batch),
                Fate::Goes => {
                    content.changed = true;
                    continue;
                }
                Fate::Shrinks(bytes) => {
                    content.changed = true;
                    let shrunk = BatchView::parse(&bytes)
                        .map_err(|error| Fault::Internal(error.to_string()))?;
                    (shrunk_entry(&shrunk, publish_time_ms)?, shrunk)
                }
            };
            content.push(ledger.id, index, &batch, payload);
            if content.bytes > MAX_CONTENT {
                tracing::warn!(
                    partition = partition.name(),
                    ledger = ledger.id,
                    "a ledger is too large to be cleaned; it stays as it is"
                );
                return Ok(());
            }
        }
    }
    if !content.changed {
        return Ok(());
    }
    let request = Replacement {
        handle: Some(partition.handle().into()),
        ledger: ledger.id,
        replaced: ledger.replaced,
        entries: content.entries,
    };
    partition
        .shared
        .host
        .control::<ReplaceLedger>(&request)
        .await?;
    partition.positions.lock().clear();
    let mut state = partition.lock();
    state.times.replace(ledger.id, &content.times);
    state.unsaved.ledgers.insert(ledger.id);
    Ok(())
}

impl Content {
    fn push(&mut self, ledger: i64, index: i64, batch: &BatchView, payload: Bytes) {
        let span = batch.header.offset_span();
        let is_data = !batch.header.attributes.is_control() && batch.header.record_count > 0;
        self.times.push(BatchTimes {
            ledger,
            base_offset: index - span + 1,
            last_offset: index,
            max_timestamp_ms: if is_data {
                batch.header.max_timestamp
            } else {
                -1
            },
            bytes: u64::try_from(batch.bytes.len()).unwrap_or(u64::MAX),
        });
        self.bytes += payload.len();
        self.entries.push(ReplacementEntry {
            index,
            messages: u32::try_from(span).unwrap_or(1),
            payload,
        });
    }
}

/// The entry of a batch that lost records. Whatever its format was: only Kafka's batches can have gaps.
fn shrunk_entry(batch: &BatchView, publish_time_ms: i64) -> Result<Bytes, Fault> {
    EntryFormat::Kafka
        .encode(batch, publish_time_ms)
        .map(|pieces| join(pieces.into()))
        .map_err(|error| Fault::Internal(error.to_string()))
}

fn join(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1
        && let Some(one) = pieces.pop()
    {
        return one;
    }
    let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        joined.extend_from_slice(&piece);
    }
    joined.freeze()
}

/// Remembers how far the cleaning came, with the new times of the ledgers.
async fn note_end(partition: &Arc<Partition>, end: i64) -> Result<(), Fault> {
    let start = partition.log_start_offset();
    let change = PropertiesChange {
        handle: Some(partition.handle().into()),
        set: [
            (snapshot::CLEAN_END.to_owned(), end.to_string()),
            (snapshot::LOG_START.to_owned(), start.to_string()),
        ]
        .into(),
        remove: Vec::new(),
    };
    partition
        .shared
        .host
        .control::<UpdateLedgerProperties>(&change)
        .await?;
    let now_ms = partition.shared.clock.monotonic_ms();
    let mut state = partition.lock();
    state.clean_end = end;
    state.log_start = state.log_start.max(start);
    partition.set_cleaned();
    if !state.unsaved.ledgers.is_empty() {
        state.unsaved.since_ms.get_or_insert(now_ms);
        drop(state);
        partition.list_unsaved();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn ledgers(bytes: &[u64]) -> Vec<Ledger> {
        let last = bytes.len() - 1;
        bytes
            .iter()
            .enumerate()
            .map(|(n, bytes)| {
                let id = i64::try_from(n).expect("small");
                Ledger {
                    id,
                    first_index: id * 10,
                    last_index: id * 10 + 9,
                    entries: 1,
                    bytes: *bytes,
                    sealed: n < last,
                    created_ms: id * 1000,
                    last_append_ms: id * 1000 + 999,
                    replaced: 0,
                }
            })
            .collect()
    }

    fn settings() -> TopicSettings {
        TopicSettings {
            compact: true,
            ..TopicSettings::default()
        }
    }

    fn look(settings: &TopicSettings, bytes: &[u64], clean_end: i64, now_ms: i64) -> Survey {
        survey(settings, &ledgers(bytes), clean_end, now_ms)
    }

    #[test]
    fn cleaning_waits_until_enough_is_dirty() {
        let clean_to =
            |bytes: &[u64], clean_end| look(&settings(), bytes, clean_end, 10_000).clean_to;
        assert_eq!(clean_to(&[10, 10, 1], 0), Some(20));
        assert_eq!(clean_to(&[10, 10, 1], 10), Some(20));
        assert_eq!(clean_to(&[11, 10, 1], 10), None);
        assert_eq!(clean_to(&[10, 10, 1], 20), None);
        assert_eq!(clean_to(&[1], 0), None, "the open ledger is never cleaned");
    }

    #[test]
    fn lags_hold_records_back_and_bring_cleaning_on() {
        let young = TopicSettings {
            min_compaction_lag_ms: 500,
            ..settings()
        };
        assert_eq!(look(&young, &[10, 10, 1], 0, 1600).clean_to, Some(10));
        let overdue = TopicSettings {
            max_compaction_lag_ms: 1000,
            ..settings()
        };
        assert_eq!(look(&overdue, &[1000, 10, 1], 10, 2998).clean_to, None);
        assert_eq!(look(&overdue, &[1000, 10, 1], 10, 2999).clean_to, Some(20));
    }

    #[test]
    fn the_open_ledger_is_sealed_when_it_is_a_good_part_of_the_log() {
        let roll = |bytes: &[u64], clean_end| look(&settings(), bytes, clean_end, 10_000).roll;
        assert!(!roll(&[MIB - 1], 0), "small logs are left alone");
        assert!(roll(&[MIB], 0));
        assert!(!roll(&[3 * MIB, MIB], 10));
        assert!(roll(&[3 * MIB, 3 * MIB], 10));
        assert!(roll(&[1000 * MIB, MAX_COMPACTED_LEDGER], 10));
        let lag = TopicSettings {
            max_compaction_lag_ms: 9_000,
            ..settings()
        };
        assert!(look(&lag, &[5], 0, 9_000).roll);
    }
}
