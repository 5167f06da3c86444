//! The way of batches out of the log: one crossing for all partitions, then offsets set in copied header fields.
//!
//! Records are shared with the host's memory. Small batches are copied together instead, since a short copy costs less
//! than two more slices to write. It must not wait for data.

use bytes::{Bytes, BytesMut};
use handler_api::{ApiError, Entry, ErrorCode, ReadAnswer, ReadRequest};

use super::limits::MAX_ENTRIES;
use super::partition::Partition;
use super::shared::Shared;
use super::types::{Fetched, Isolation, Read};
use crate::error::Fault;
use crate::format;
use crate::wire::batch::BatchHeader;

/// A batch up to this size is copied whole, a larger one shared behind its copied head.
const COPY_BELOW: usize = 1024;
/// Fields of a batch's header that are written anew: base offset, length, leader epoch.
const HEAD: usize = 16;

pub(super) async fn read(
    shared: &Shared,
    reads: Vec<Read>,
    max_bytes: usize,
    at_least_one: bool,
) -> Vec<Result<Fetched, Fault>> {
    let mut results: Vec<Option<Result<Fetched, Fault>>> = Vec::with_capacity(reads.len());
    let mut requests = Vec::with_capacity(reads.len());
    for read in &reads {
        match request(read, max_bytes, at_least_one) {
            Ok(request) => {
                requests.push(request);
                results.push(None);
            }
            Err(fault) => results.push(Some(Err(fault))),
        }
    }
    let answers = if requests.is_empty() {
        Ok(Vec::new())
    } else {
        shared.host.read(requests, with_slack(max_bytes)).await
    };
    let mut answers = answers.map(Vec::into_iter);
    let mut budget = Budget {
        left: max_bytes,
        owes_one: at_least_one,
    };
    results
        .into_iter()
        .zip(&reads)
        .map(|(result, read)| match (result, &mut answers) {
            (Some(result), _) => result,
            (None, Err(error)) => Err(fault(&read.partition, error.clone())),
            (None, Ok(answers)) => match answers.next() {
                Some(Ok(answer)) => fetched(read, answer, &mut budget),
                Some(Err(error)) => Err(fault(&read.partition, error)),
                None => Err(Fault::Internal(
                    "the host answered for fewer reads than it was given".to_owned(),
                )),
            },
        })
        .collect()
}

/// What may still be returned in the whole call.
struct Budget {
    left: usize,
    owes_one: bool,
}

fn request(read: &Read, max_bytes: usize, at_least_one: bool) -> Result<ReadRequest, Fault> {
    let partition = &read.partition;
    if !partition.is_alive() {
        return Err(partition.gone());
    }
    if read.offset < partition.log_start_offset() {
        return Err(out_of_range(partition, read.offset));
    }
    Ok(ReadRequest {
        handle: partition.handle(),
        index: read.offset,
        position: partition.positions.lock().get(read.offset),
        max_entries: MAX_ENTRIES,
        flags: if at_least_one {
            ReadRequest::AT_LEAST_ONE
        } else {
            0
        },
        max_bytes: with_slack(read.max_bytes.min(max_bytes)),
    })
}

/// The host counts whole entries, Kafka only their batches: room for the envelopes.
fn with_slack(max_bytes: usize) -> u64 {
    let max_bytes = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    max_bytes
        .saturating_add(max_bytes / 128)
        .saturating_add(256)
}

/// What a failed read means for its partition.
pub(super) fn fault(partition: &Partition, error: ApiError) -> Fault {
    match error.kind() {
        ErrorCode::HandleClosed | ErrorCode::NotOwner | ErrorCode::NotFound => {
            partition.die();
            partition.gone()
        }
        _ => error.into(),
    }
}

fn out_of_range(partition: &Partition, offset: i64) -> Fault {
    Fault::OffsetOutOfRange(format!(
        "offset {offset} is outside of {}..={} of {}",
        partition.log_start_offset(),
        partition.high_watermark(),
        partition.name()
    ))
}

fn fetched(read: &Read, answer: ReadAnswer, budget: &mut Budget) -> Result<Fetched, Fault> {
    let partition = &read.partition;
    let end = answer.end_index + 1;
    partition.raise_end(end);
    partition.host_starts_at(answer.start_index);
    let log_start_offset = partition.log_start_offset();
    if read.offset > end || read.offset < log_start_offset {
        return Err(out_of_range(partition, read.offset));
    }
    let last_stable_offset = end;
    let stop = match read.isolation {
        Isolation::ReadUncommitted => end,
        Isolation::ReadCommitted => last_stable_offset,
    };
    let mut gathered = Gathered::new(&answer.entries, partition.leader_epoch());
    let mut left = read.max_bytes.min(budget.left);
    let mut next = (read.offset, answer.next);
    for entry in answer.entries {
        let (position, index) = (entry.position, entry.index);
        if index < read.offset || index >= stop {
            continue;
        }
        let (batch, header) = read_or_gap(partition, entry);
        let size = batch.len();
        if size > left && !budget.owes_one {
            next.1 = position;
            break;
        }
        budget.owes_one = false;
        left = left.saturating_sub(size);
        budget.left = budget.left.saturating_sub(size);
        gathered.push(batch, &header);
        next.0 = index + 1;
    }
    partition.positions.lock().put(read.offset, next.0, next.1);
    Ok(Fetched {
        size: gathered.size,
        batches: gathered.batches,
        record_count: gathered.records,
        records: gathered.finish(),
        high_watermark: end,
        last_stable_offset,
        log_start_offset,
        aborted: Vec::new(),
    })
}

/// The batch of an entry, and its header with the offset that its first record has.
pub(super) fn decode(entry: Entry) -> Result<(format::Batch, BatchHeader), format::DecodeError> {
    let segments = entry.segments.into_iter();
    let batch = format::decode(segments.map(|segment| Bytes::from(segment.bytes)))?;
    let mut header = BatchHeader::parse(&batch.head)
        .map_err(|_| format::DecodeError::Batch("it has no header"))?;
    if header.offset_span() < 1 {
        return Err(format::DecodeError::Batch("it takes up no offsets"));
    }
    header.base_offset = entry.index - header.offset_span() + 1;
    Ok((batch, header))
}

/// The batch of an entry, or the gap that stands for one that cannot be read: readers go on behind it, since nobody
/// could ever make it readable. One line of the log names each such entry.
pub(super) fn read_or_gap(partition: &Partition, entry: Entry) -> (format::Batch, BatchHeader) {
    let (position, index) = (entry.position, entry.index);
    decode(entry).unwrap_or_else(|error| {
        if partition.is_first_report(index) {
            tracing::warn!(
                partition = partition.name(),
                ledger = position.ledger,
                entry = position.entry,
                offset = index,
                %error,
                "an entry cannot be read by Kafka clients and is passed over"
            );
        }
        let batch = format::gap();
        let header = BatchHeader {
            base_offset: index,
            ..BatchHeader::parse(&batch.head).unwrap_or(BatchHeader::NOTHING)
        };
        (batch, header)
    })
}

/// Batches on their way out: copied heads (and small batches) in one arena, the rest shared.
struct Gathered {
    arena: BytesMut,
    pieces: Vec<Bytes>,
    size: usize,
    batches: u64,
    records: u64,
    leader_epoch: i32,
}

impl Gathered {
    fn new(entries: &[Entry], leader_epoch: i32) -> Self {
        let copied = entries.iter().map(|entry| match entry.len() {
            small if small <= COPY_BELOW => small,
            _ => HEAD,
        });
        Self {
            arena: BytesMut::with_capacity(copied.sum()),
            pieces: Vec::with_capacity(2 * entries.len()),
            size: 0,
            batches: 0,
            records: 0,
            leader_epoch,
        }
    }

    fn push(&mut self, batch: format::Batch, header: &BatchHeader) {
        let size = batch.len();
        let mut first = batch.head;
        self.size += size;
        self.batches += 1;
        self.records += u64::try_from(header.record_count).unwrap_or(0);
        let head = first.split_to(HEAD.min(first.len()));
        self.arena
            .extend_from_slice(&header.base_offset.to_be_bytes());
        self.arena
            .extend_from_slice(head.get(8..12).unwrap_or_default());
        self.arena
            .extend_from_slice(&self.leader_epoch.to_be_bytes());
        let rest = std::iter::once(first).chain(batch.rest);
        if size <= COPY_BELOW {
            for piece in rest {
                self.arena.extend_from_slice(&piece);
            }
            return;
        }
        self.pieces.push(self.arena.split().freeze());
        self.pieces.extend(rest);
    }

    fn finish(mut self) -> Vec<Bytes> {
        if !self.arena.is_empty() {
            self.pieces.push(self.arena.freeze());
        }
        self.pieces
    }
}
