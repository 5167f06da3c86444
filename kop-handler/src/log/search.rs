//! Offsets by time: the index says where to read, the records themselves give the answer.
//!
//! Reads go in chunks of bounded size. It must not write.

use handler_api::{Entry, Position, ReadRequest};

use super::limits::{CHUNK_BYTES, CHUNK_ENTRIES};
use super::partition::Partition;
use super::read::{decode, fault};
use super::time_index::Range;
use super::types::TimestampOffset;
use crate::error::Fault;
use crate::wire::batch::{BatchView, MAX_UNPACKED_BYTES};

/// See [`Partition::offset_for_time`].
pub(super) async fn offset_for_time(
    partition: &Partition,
    timestamp_ms: i64,
) -> Result<Option<TimestampOffset>, Fault> {
    let (start, end) = (partition.log_start_offset(), partition.high_watermark());
    let ranges = partition.lock().times.search(timestamp_ms, start, end);
    for range in ranges {
        let mut scan = Scan::new(partition, range);
        while let Some(entries) = scan.next().await? {
            for entry in entries {
                let Some(batch) = batch(entry) else {
                    continue;
                };
                if batch.header.max_timestamp < timestamp_ms {
                    continue;
                }
                let found = first_record(&batch, start, |timestamp| timestamp >= timestamp_ms)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
    }
    Ok(None)
}

/// See [`Partition::max_timestamp`].
pub(super) async fn max_timestamp(partition: &Partition) -> Result<Option<TimestampOffset>, Fault> {
    let (start, end) = (partition.log_start_offset(), partition.high_watermark());
    let ranges = partition.lock().times.latest(start, end);
    let mut best: Option<TimestampOffset> = None;
    for range in ranges {
        let mut scan = Scan::new(partition, range);
        while let Some(entries) = scan.next().await? {
            for entry in entries {
                let Some(batch) = batch(entry) else {
                    continue;
                };
                let latest = batch.header.max_timestamp;
                if latest < 0 || best.is_some_and(|best| best.timestamp_ms >= latest) {
                    continue;
                }
                let found = first_record(&batch, start, |timestamp| timestamp == latest)?;
                best = found.or(best);
            }
        }
    }
    Ok(best)
}

/// A batch of data; `None` for control batches and for what cannot be read, which a search passes over.
fn batch(entry: Entry) -> Option<BatchView> {
    let (batch, header) = decode(entry).ok()?;
    let view = BatchView {
        header,
        bytes: batch.contiguous(),
    };
    (!view.header.attributes.is_control()).then_some(view)
}

fn first_record(
    batch: &BatchView,
    start: i64,
    matches: impl Fn(i64) -> bool,
) -> Result<Option<TimestampOffset>, Fault> {
    let damaged =
        |error| Fault::StoredCorrupt(format!("offset {}: {error}", batch.header.base_offset));
    let records = batch.records(MAX_UNPACKED_BYTES).map_err(damaged)?;
    for record in &records {
        let record = record.map_err(damaged)?;
        if record.offset >= start && matches(record.timestamp) {
            return Ok(Some(TimestampOffset {
                timestamp_ms: record.timestamp,
                offset: record.offset,
            }));
        }
    }
    Ok(None)
}

/// Reads the entries of a range, chunk by chunk.
pub(super) struct Scan<'p> {
    partition: &'p Partition,
    next: i64,
    to: i64,
    position: Position,
}

impl<'p> Scan<'p> {
    pub(super) fn new(partition: &'p Partition, range: Range) -> Self {
        Self {
            partition,
            next: range.from,
            to: range.to,
            position: Position::UNKNOWN,
        }
    }

    /// The next entries, all of which touch the range; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Entry>>, Fault> {
        if self.next > self.to {
            return Ok(None);
        }
        // A host may answer every read at once: others must get their turn all the same.
        tokio::task::yield_now().await;
        let partition = self.partition;
        let request = ReadRequest {
            handle: partition.handle(),
            index: self.next,
            position: self.position,
            max_entries: CHUNK_ENTRIES,
            flags: ReadRequest::AT_LEAST_ONE,
            max_bytes: CHUNK_BYTES,
        };
        let answer = partition
            .shared
            .host
            .read(vec![request], CHUNK_BYTES)
            .await
            .map_err(|error| fault(partition, error))?
            .into_iter()
            .next()
            .ok_or_else(|| Fault::Internal("the host answered nothing".to_owned()))?
            .map_err(|error| fault(partition, error))?;
        let from = self.next;
        let entries: Vec<Entry> = answer.entries.into_iter().collect();
        let Some(last) = entries.last().map(|entry| entry.index) else {
            return Ok(None);
        };
        self.next = last + 1;
        self.position = answer.next;
        // An entry whose last record lies behind the range may still begin in it.
        let reaches = |entry: &Entry| entry.index >= from;
        let mut within: Vec<Entry> = entries.into_iter().filter(reaches).collect();
        if let Some(past) = within.iter().position(|entry| entry.index >= self.to) {
            within.truncate(past + 1);
            self.next = self.to + 1;
        }
        Ok(Some(within))
    }
}
