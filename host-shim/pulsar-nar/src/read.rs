//! Reads: several partitions in one call, in waves that together ask for no more than the call may return.
//!
//! A plugin's position is a hint only; what counts is the index, whose place is remembered or searched for. It must not
//! know what an entry holds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use handler_api::ledger::StartMoved;
use handler_api::{
    ApiError, Entry, ErrorCode, Handle, Position, ReadAnswer, ReadRequest, Reply, Segment,
};

use crate::bridge::{Bridge, Call};
use crate::entry::Stored;
use crate::jvm::Layout;
use crate::partition::{Bounds, Partition, Watched};

/// Most entries that are asked of a cursor at once: what is read too much is bounded by it.
const MAX_ENTRIES_PER_READ: u64 = 100;
/// Most partitions that are read at once for one call.
const MAX_READS_AT_ONCE: usize = 64;
/// Pauses before a partition is looked at again that could not be read.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// How often the bounds are learned anew while others write all the time; then those that are known will do.
const MAX_REFRESHES: usize = 3;

/// Reads entries; what lies at its end already is answered within the call.
pub(crate) fn read(
    bridge: &Arc<Bridge>,
    requests: Vec<ReadRequest>,
    max_bytes: u64,
) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
    let at_once: Option<Vec<_>> = requests.iter().map(|one| empty_now(bridge, one)).collect();
    match at_once {
        Some(answers) => Reply::ok(answers),
        None => Reply::pending(read_all(Arc::clone(bridge), requests, max_bytes)),
    }
}

/// The answer of a request that finds nothing, if that is sure.
fn empty_now(bridge: &Bridge, request: &ReadRequest) -> Option<Result<ReadAnswer, ApiError>> {
    let partition = match bridge.table.get(request.handle) {
        Ok(partition) => partition,
        Err(error) => return Some(Err(error)),
    };
    match partition.fresh() {
        Ok(Some(bounds)) if request.index > bounds.end || request.max_entries == 0 => {
            Some(Ok(nothing(&partition, bounds, request)))
        }
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}

/// No entries. At the very end it is known where the next one will be.
fn nothing(partition: &Partition, bounds: Bounds, request: &ReadRequest) -> ReadAnswer {
    let mut next = Position::UNKNOWN;
    if request.index == bounds.end.saturating_add(1) {
        next = after(bounds.confirmed);
        partition.put_place(request.index, next);
    }
    ReadAnswer {
        entries: Vec::new().into(),
        next,
        start_index: bounds.start,
        end_index: bounds.end,
    }
}

fn after(position: Position) -> Position {
    Position::new(position.ledger, position.entry.saturating_add(1))
}

/// What a partition gave, and its first entry if that alone is larger than allowed.
struct Gathered {
    answer: ReadAnswer,
    oversized: Option<Entry>,
}

async fn read_all(
    bridge: Arc<Bridge>,
    requests: Vec<ReadRequest>,
    max_bytes: u64,
) -> Result<Vec<Result<ReadAnswer, ApiError>>, ApiError> {
    let mut answers = Vec::with_capacity(requests.len());
    let mut left = max_bytes;
    let mut owes_one = true;
    let mut rest = requests.as_slice();
    while !rest.is_empty() {
        let (wave, behind) = rest.split_at(wave(rest, left).min(rest.len()));
        rest = behind;
        let reads = wave
            .iter()
            .map(|one| read_one(&bridge, one, left, owes_one));
        for gathered in join_all(reads).await {
            let answer = gathered.map(
                |Gathered {
                     mut answer,
                     oversized,
                 }| {
                    if let Some(entry) = oversized.filter(|_| owes_one) {
                        answer.next = after(entry.position);
                        answer.entries = vec![entry].into();
                    }
                    answer
                },
            );
            if let Ok(answer) = &answer {
                let bytes: usize = answer.entries.iter().map(Entry::len).sum();
                left = left.saturating_sub(bytes as u64);
                owes_one &= answer.entries.is_empty();
            }
            answers.push(answer);
        }
    }
    Ok(answers)
}

/// How many requests may be served at once: together they ask for no more than may be returned, but there is one.
fn wave(requests: &[ReadRequest], left: u64) -> usize {
    let mut planned = 0u64;
    let fits = requests.iter().take(MAX_READS_AT_ONCE).take_while(|one| {
        planned = planned.saturating_add(one.max_bytes);
        planned <= left
    });
    fits.count().max(1)
}

async fn read_one(
    bridge: &Bridge,
    request: &ReadRequest,
    left: u64,
    owes_one: bool,
) -> Result<Gathered, ApiError> {
    let partition = bridge.table.get(request.handle)?;
    let bounds = bridge.bounds(&partition).await?;
    let limit = request.max_bytes.min(left);
    let is_eager = owes_one && request.flags & ReadRequest::AT_LEAST_ONE != 0;
    if request.index > bounds.end || request.max_entries == 0 || (limit == 0 && !is_eager) {
        return Ok(Gathered {
            answer: nothing(&partition, bounds, request),
            oversized: None,
        });
    }
    let wanted = Wanted {
        from: request.index.max(bounds.start),
        limit,
        entries: u64::from(request.max_entries),
        is_eager,
    };
    gather(bridge, &partition, bounds, wanted).await
}

/// What is wanted of a partition.
#[derive(Clone, Copy)]
struct Wanted {
    from: i64,
    limit: u64,
    entries: u64,
    is_eager: bool,
}

async fn gather(
    bridge: &Bridge,
    partition: &Partition,
    bounds: Bounds,
    wanted: Wanted,
) -> Result<Gathered, ApiError> {
    let mut left = wanted.limit;
    let mut entries: Vec<Entry> = Vec::new();
    let mut oversized = None;
    let mut reached = wanted.from;
    let mut at = bridge.place_of(partition, wanted.from).await?;
    'reading: loop {
        let room = wanted.entries - entries.len() as u64;
        let count = partition
            .entries_for(left)
            .min(room)
            .min(MAX_ENTRIES_PER_READ);
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let stored = bridge.read_at(partition, at, count).await?;
        if stored.is_empty() {
            break;
        }
        for one in stored {
            let (position, index, bytes) = (one.position, one.index, one.len());
            partition.sized(bytes);
            // Entries from before the broker gave indexes have none, and no Kafka offset.
            if index < wanted.from {
                at = after(position);
                continue;
            }
            if index > bounds.end {
                break 'reading;
            }
            if bytes > left {
                if wanted.is_eager && entries.is_empty() {
                    oversized = Some(entry(one));
                }
                break 'reading;
            }
            at = after(position);
            left -= bytes;
            reached = index + 1;
            entries.push(entry(one));
            if entries.len() as u64 == wanted.entries || index == bounds.end {
                break 'reading;
            }
        }
    }
    bridge.metrics.read(entries.len(), wanted.limit - left);
    partition.put_place(reached, at);
    let answer = ReadAnswer {
        entries: entries.into(),
        next: at,
        start_index: bounds.start,
        end_index: bounds.end,
    };
    Ok(Gathered { answer, oversized })
}

fn entry(stored: Stored) -> Entry {
    let segments: Vec<Segment> = stored.segments.into_iter().map(Segment::from).collect();
    Entry {
        position: stored.position,
        index: stored.index,
        segments: segments.into(),
    }
}

/// Finds the position of an index; see [`handler_api::HostServices::find`].
pub(crate) fn find(bridge: &Arc<Bridge>, handle: Handle, index: i64) -> Reply<Position> {
    let bridge = Arc::clone(bridge);
    Reply::pending(async move {
        let partition = bridge.table.get(handle)?;
        let bounds = bridge.bounds(&partition).await?;
        if index > bounds.end {
            return Ok(after(bounds.confirmed));
        }
        let from = index.max(bounds.start);
        let position = bridge.place_of(&partition, from).await?;
        // A remembered place may be the end of a ledger, behind which the entry stands in the next.
        let found = bridge.read_at(&partition, position, 1).await?;
        Ok(found.first().map_or(position, |entry| entry.position))
    })
}

impl Bridge {
    /// Where the first entry is whose index is not below one that exists.
    async fn place_of(&self, partition: &Partition, index: i64) -> Result<Position, ApiError> {
        if let Some(position) = partition.place(index) {
            return Ok(position);
        }
        self.metrics.searched();
        let position = self.find_index(partition, index).await?;
        partition.put_place(index, position);
        Ok(position)
    }

    /// First and last index as they are now.
    pub(crate) async fn bounds(&self, partition: &Partition) -> Result<Bounds, ApiError> {
        for _ in 0..MAX_REFRESHES {
            if let Some(bounds) = partition.fresh()? {
                return Ok(bounds);
            }
            self.refresh(partition).await?;
        }
        Ok(partition.known())
    }

    /// Learns what has changed of a partition.
    async fn refresh(&self, partition: &Partition) -> Result<(), ApiError> {
        let layout = partition.java.layout()?;
        let known = partition.known();
        if layout.confirmed != known.confirmed {
            let end = self.end_of(partition, &layout, known).await?;
            let moved = partition.learned_end(&layout, end);
            self.wake(partition, moved);
        }
        if layout.first_ledger != known.first_ledger {
            let start = self.start_of(partition, &layout).await?;
            if let Some(start_index) = partition.learned_start(layout.first_ledger, start) {
                self.tell(&StartMoved {
                    handle: Some(partition.handle.into()),
                    start_index,
                });
            }
        }
        Ok(())
    }

    /// Index of the last message.
    async fn end_of(
        &self,
        partition: &Partition,
        layout: &Layout,
        known: Bounds,
    ) -> Result<i64, ApiError> {
        if layout.last.is_known() {
            let last = self.read_at(partition, layout.last, 1).await?;
            if let Some(index) = last.first().map(|entry| entry.index).filter(|it| *it >= 0) {
                return Ok(index);
            }
        }
        // Nothing is left that tells: then the last index that was given out is that of something durable, unless
        // entries are under way.
        Ok(if layout.pending == 0 {
            layout.given_out.max(-1)
        } else {
            known.end
        })
    }

    /// Index of the first message.
    async fn start_of(&self, partition: &Partition, layout: &Layout) -> Result<i64, ApiError> {
        let end = partition.known().end;
        if !layout.first.is_known() || end < 0 {
            return Ok(end + 1);
        }
        let mut first = self
            .read_at(partition, layout.first, 1)
            .await?
            .into_iter()
            .next();
        if first.as_ref().is_some_and(|entry| entry.index < 0) {
            // From before the broker gave indexes.
            let position = self.find_index(partition, 0).await?;
            first = self
                .read_at(partition, position, 1)
                .await?
                .into_iter()
                .next();
        }
        let Some(first) = first.filter(|entry| entry.index >= 0) else {
            return Ok(end + 1);
        };
        let before = partition
            .border_before(first.position.ledger)
            .map(|last| last + 1);
        let start = match (first.messages(), before) {
            (Some(messages), _) => first.index - messages + 1,
            (None, Some(before)) => before.min(first.index),
            (None, None) => first.index,
        };
        let start = start.max(0);
        partition.put_place(start, first.position);
        Ok(start)
    }

    /// Learns what has changed of a partition, some time. Tried again if it fails: somebody may wait to be woken by it.
    pub(crate) fn refresh_later(self: &Arc<Self>, partition: Arc<Partition>) {
        let bridge = Arc::clone(self);
        self.spawn(async move {
            let mut pause = FIRST_PAUSE;
            while let Err(error) = bridge.bounds(&partition).await {
                if error.kind() == ErrorCode::HandleClosed {
                    return;
                }
                tracing::warn!("{}: {error}; looked at again in {pause:?}", partition.name);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
            }
        });
    }

    /// Arms a watch; see [`handler_api::HostServices::watch`].
    pub(crate) fn watch(self: &Arc<Self>, handle: Handle, after: i64) -> Result<i64, ApiError> {
        let partition = self.table.get(handle)?;
        match partition.watch(after)? {
            Watched::Beyond(end) => Ok(end),
            Watched::Armed { bounds, ask } => {
                if ask {
                    partition.java.await_entries()?;
                }
                // Only now: what is written from here on makes a call, what was written before shows.
                if partition.fresh()?.is_none() {
                    self.refresh_later(partition);
                }
                Ok(bounds.end)
            }
        }
    }

    /// An entry was confirmed, of whomever.
    pub(crate) fn entries_available(self: &Arc<Self>, partition: &Arc<Partition>) {
        if !partition.called() {
            return;
        }
        let asked = partition.java.await_entries();
        match asked.and_then(|()| partition.fresh()) {
            Ok(Some(_)) => {}
            Ok(None) => self.refresh_later(Arc::clone(partition)),
            Err(error) => tracing::debug!("{}: {error}", partition.name),
        }
    }

    /// Entries were read. Beyond the bound of what may be held they are copied, and the broker's memory given back.
    pub(crate) fn entries_read(&self, ctx: i64, mut entries: Vec<Stored>) {
        let Some(Call::Read(reply)) = self.calls.take(ctx) else {
            return;
        };
        if self.held_bytes.load(Ordering::Acquire) > self.max_held_bytes() {
            for segment in entries.iter_mut().flat_map(|entry| &mut entry.segments) {
                *segment = Bytes::copy_from_slice(segment);
            }
            self.metrics.copied();
        }
        // Who dropped the receiver does not want them any more.
        let _ = reply.send(Ok(entries));
    }

    /// A search has found a position.
    pub(crate) fn found(&self, ctx: i64, position: Position) {
        if let Some(Call::Find(reply)) = self.calls.take(ctx) {
            let _ = reply.send(Ok(position));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(max_bytes: u64) -> ReadRequest {
        ReadRequest {
            handle: Handle {
                id: 1,
                generation: 1,
            },
            index: 0,
            position: Position::UNKNOWN,
            max_entries: 1,
            flags: 0,
            max_bytes,
        }
    }

    #[test]
    fn a_wave_asks_for_no_more_than_may_be_returned() {
        let requests = [request(400), request(400), request(400)];
        assert_eq!(wave(&requests, 1_200), 3);
        assert_eq!(wave(&requests, 1_199), 2);
        assert_eq!(wave(&requests, 10), 1, "one is read, with what is left");
        assert_eq!(wave(&[request(u64::MAX), request(u64::MAX)], 10), 1);
        assert_eq!(wave(&vec![request(0); 1_000], 5), MAX_READS_AT_ONCE);
    }
}
