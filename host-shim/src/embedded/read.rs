//! Reading: contiguous runs of a ledger in one system call, checked, and cut into entries without a copy.
//!
//! Every record that is returned is checked against its checksum, also when it comes from the page cache: at some
//! 50 GB/s that is cheaper than knowing when it may be left out. A read first tries what surely does not wait
//! (`RWF_NOWAIT`) on the caller's thread; if the page cache lacks it, the whole call moves to the disk's threads.

use std::sync::Arc;

use bytes::Bytes;
use handler_api::{
    ApiError, Entry, ErrorCode, List, Position, ReadAnswer, ReadRequest, Reply, Segment,
};
use parking_lot::Mutex;

use super::files::LedgerFile;
use super::limits::{KEPT_BUFFERS, MAX_READ_BYTES, READ_RUN_BYTES};
use super::partition::{Partition, Place};
use super::record::{FILE_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader};
use super::search::Found;
use super::services::Core;

/// Why a step could not be done on the caller's thread.
pub(super) enum Stop {
    /// The page cache lacks the bytes: go to the disk's threads.
    Cold,
    Failed(ApiError),
}

impl From<ApiError> for Stop {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

/// Buffers for runs, kept for reuse: fresh ones cost a page fault per 4 KB.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    kept: Mutex<Vec<Vec<u8>>>,
}

/// A run in memory. When the last slice of it goes, the buffer is kept for the next run.
struct Run {
    buffer: Vec<u8>,
    length: usize,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Run {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let (count, size) = KEPT_BUFFERS;
        if self.buffer.len() < SMALL_RUN || self.buffer.len() > size {
            return;
        }
        let mut kept = self.home.kept.lock();
        if kept.len() < count {
            kept.push(std::mem::take(&mut self.buffer));
        }
    }
}

/// Below this size a fresh buffer costs less than the search for a kept one.
const SMALL_RUN: usize = 32 * 1024;

impl Buffers {
    fn take(&self, length: usize) -> Vec<u8> {
        if length >= SMALL_RUN {
            let kept = self.kept.lock().pop();
            if let Some(mut buffer) = kept {
                if buffer.len() < length {
                    buffer = vec![0; length];
                }
                return buffer;
            }
        }
        vec![0; length]
    }
}

/// Whether a call may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    Inline,
    Wait,
}

/// See [`handler_api::HostServices::read`].
pub(crate) fn read(
    core: &Arc<Core>,
    requests: Vec<ReadRequest>,
    max_bytes: u64,
) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
    if let Some(answers) = read_all(core, &requests, max_bytes, Patience::Inline) {
        return Reply::ok(answers);
    }
    core.metrics.cold_reads.add(1);
    let worker = Arc::clone(core);
    core.disk.reply("a cold read", move || {
        read_all(&worker, &requests, max_bytes, Patience::Wait)
            .ok_or_else(|| ApiError::new(ErrorCode::Internal, "a waiting read wanted to wait"))
    })
}

/// All requests, or `None` if one would have to wait and must not.
fn read_all(
    core: &Arc<Core>,
    requests: &[ReadRequest],
    max_bytes: u64,
    patience: Patience,
) -> Option<Vec<Result<ReadAnswer, ApiError>>> {
    let mut budget = max_bytes.min(MAX_READ_BYTES);
    let mut anything = false;
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        let result = core
            .handles
            .get(request.handle)
            .map_err(Stop::Failed)
            .and_then(|partition| {
                Reader {
                    core,
                    partition: &partition,
                    patience,
                }
                .read(request, &mut budget, &mut anything)
            });
        match result {
            Ok(answer) => answers.push(Ok(answer)),
            Err(Stop::Failed(error)) => answers.push(Err(error)),
            Err(Stop::Cold) => return None,
        }
    }
    count(core, &answers);
    Some(answers)
}

fn count(core: &Core, answers: &[Result<ReadAnswer, ApiError>]) {
    let (mut entries, mut bytes, mut corrupt) = (0, 0, 0);
    for answer in answers {
        match answer {
            Ok(answer) => {
                entries += answer.entries.len();
                bytes += answer.entries.iter().map(Entry::len).sum::<usize>();
            }
            Err(error) if error.kind() == ErrorCode::Corrupt => corrupt += 1,
            Err(_) => {}
        }
    }
    core.metrics.read_entries.add(entries as u64);
    core.metrics.read_bytes.add(bytes as u64);
    core.metrics.corrupt_reads.add(corrupt);
}

impl Stop {
    pub(super) fn into_error(self) -> ApiError {
        match self {
            Self::Failed(error) => error,
            Self::Cold => ApiError::new(ErrorCode::Internal, "a waiting read wanted to wait"),
        }
    }
}

pub(super) struct Reader<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(super) partition: &'a Arc<Partition>,
    pub(super) patience: Patience,
}

impl Reader<'_> {
    fn read(
        &self,
        request: &ReadRequest,
        budget: &mut u64,
        anything: &mut bool,
    ) -> Result<ReadAnswer, Stop> {
        let view = self.partition.view.lock();
        if let Some(dead) = &view.dead {
            return Err(dead.clone().into());
        }
        let (start_index, end_index) = (view.start_index, view.end_index);
        drop(view);
        let mut answer = ReadAnswer {
            entries: List::new(),
            next: Position::UNKNOWN,
            start_index,
            end_index,
        };
        let index = request.index.max(start_index);
        let must = request.flags & ReadRequest::AT_LEAST_ONE != 0 && !*anything;
        let allowed = request.max_bytes.min(*budget);
        if index > end_index || request.max_entries == 0 || (allowed == 0 && !must) {
            return Ok(answer);
        }
        let mut collected = Collected {
            entries: Vec::new(),
            left: allowed,
            must,
            room: request.max_entries,
            taken: 0,
        };
        let mut from = Some(self.locate(request.position, index)?);
        let started = request.position.is_known().then_some(request.position);
        let mut next = None;
        while let Some(found) = from.take() {
            let place = self.read_ledger(&found, index, &mut collected)?;
            next = Some(place);
            if collected.is_full() {
                break;
            }
            from = self.following_ledger(place)?;
        }
        if let Some(place) = next.filter(|_| !collected.entries.is_empty()) {
            answer.next = Position::new(place.ledger, i64::from(place.entry));
            let old = started
                .and_then(|position| Some((position.ledger, u32::try_from(position.entry).ok()?)));
            self.partition.view.lock().remember(old, place);
        }
        *budget = budget.saturating_sub(collected.taken);
        *anything |= !collected.entries.is_empty();
        answer.entries = collected.entries.into();
        Ok(answer)
    }

    /// The start of the next ledger, once a read has come to the end of one.
    fn following_ledger(&self, place: Place) -> Result<Option<Found>, Stop> {
        let view = self.partition.view.lock();
        let next = view
            .ledger_by_id(place.ledger)
            .and_then(|at| Some((view.ledgers.get(at)?, view.ledgers.get(at + 1)?)));
        let Some((this, next)) = next else {
            return Ok(None);
        };
        if place.offset < this.row.data_end || next.row.last_index < next.row.first_index {
            return Ok(None);
        }
        Ok(Some(Found {
            ledger: next.row.id,
            replaced: next.row.replaced,
            entry: 0,
            offset: FILE_HEADER_BYTES as u64,
            base: next.row.first_index,
        }))
    }

    pub(super) fn open(&self, key: (i64, u32)) -> Result<Arc<LedgerFile>, Stop> {
        self.core.files.open(key).map_err(|error| {
            let path = self.core.layout.ledger(key.0, key.1);
            let code = if error.kind() == std::io::ErrorKind::NotFound {
                ErrorCode::Corrupt
            } else {
                ErrorCode::NotReady
            };
            Stop::Failed(ApiError::new(
                code,
                format!("{} cannot be opened: {error}", path.display()),
            ))
        })
    }

    /// Reads entries of one ledger until something is full or the ledger ends; answers where it stopped.
    fn read_ledger(
        &self,
        found: &Found,
        index: i64,
        collected: &mut Collected,
    ) -> Result<Place, Stop> {
        let mut place = Place {
            ledger: found.ledger,
            replaced: found.replaced,
            entry: found.entry,
            offset: found.offset,
            base: found.base,
        };
        let end = {
            let view = self.partition.view.lock();
            let ledger = view
                .ledger_by_id(found.ledger)
                .and_then(|at| view.ledgers.get(at));
            match ledger {
                Some(ledger) if ledger.row.replaced == found.replaced => ledger.row.data_end,
                // It was trimmed or replaced meanwhile: what was found so far stands, the caller comes again.
                _ => return Ok(place),
            }
        };
        if place.offset >= end {
            return Ok(place);
        }
        let file = self.open((found.ledger, found.replaced))?;
        while place.offset < end && !collected.is_full() {
            let wanted = collected.run_length().min(end - place.offset);
            let run = self.load(&file, place.offset, wanted, end)?;
            let before = place.offset;
            self.cut(&file, &run, end, index, collected, &mut place)?;
            if place.offset == before {
                break;
            }
        }
        Ok(place)
    }

    /// One run of a ledger, at least one whole record of it.
    fn load(&self, file: &LedgerFile, offset: u64, wanted: u64, end: u64) -> Result<Bytes, Stop> {
        let length = usize::try_from(wanted).unwrap_or(usize::MAX);
        let run = self.fill(file, offset, length)?;
        let size = RecordHeader::decode(&run).map_or(0, |header| header.size());
        // One entry that is larger than the run; a damaged length is not believed beyond the ledger's end.
        if size > run.len() as u64 && size <= end - offset && size <= self.core.largest_record() {
            return self.fill(file, offset, usize::try_from(size).unwrap_or(usize::MAX));
        }
        Ok(run)
    }

    fn fill(&self, file: &LedgerFile, offset: u64, length: usize) -> Result<Bytes, Stop> {
        let core = self.core;
        let mut buffer = core.buffers.take(length);
        let room = buffer.get_mut(..length).unwrap_or_default();
        let mut read = file.read_cached(room, offset, &core.files.nowait);
        if read < length && self.patience == Patience::Wait {
            let rest = room.get_mut(read..).unwrap_or_default();
            read += file
                .read_waiting(rest, offset + read as u64)
                .map_err(|error| Stop::Failed(unreadable(file, offset, &error)))?;
        }
        let run = Bytes::from_owner(Run {
            buffer,
            length: read,
            home: Arc::clone(&core.buffers),
        });
        if read < length && self.patience == Patience::Inline {
            return Err(Stop::Cold);
        }
        Ok(run)
    }

    /// Cuts a run into entries.
    fn cut(
        &self,
        file: &LedgerFile,
        run: &Bytes,
        end: u64,
        index: i64,
        collected: &mut Collected,
        place: &mut Place,
    ) -> Result<(), Stop> {
        let mut at = 0usize;
        while let Some(rest) = run.get(at..).filter(|rest| !rest.is_empty()) {
            let header = RecordHeader::decode(rest);
            let whole = header.is_some_and(|header| header.size() <= rest.len() as u64);
            let header = match header {
                Some(header) if whole && header.matches(rest) => header,
                // Cut off by the end of the run, not of the ledger: the next run has it.
                _ if !whole && place.offset + (rest.len() as u64) < end && at > 0 => return Ok(()),
                _ => {
                    if !collected.entries.is_empty() {
                        // What lies before the damage is delivered; the next read will name it.
                        collected.room = 0;
                        return Ok(());
                    }
                    return Err(damaged(file, place.offset, header).into());
                }
            };
            let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
            if header.is_footer() {
                place.offset = end;
                return Ok(());
            }
            if header.index >= index {
                if !collected.takes(u64::from(header.length)) {
                    return Ok(());
                }
                let payload = run.slice(at + RECORD_HEADER_BYTES..at + size);
                collected.push(Entry {
                    position: Position::new(place.ledger, i64::from(header.entry)),
                    index: header.index,
                    segments: List::from(vec![Segment::from(payload)]),
                });
            }
            at += size;
            place.offset += header.size();
            place.entry = header.entry + 1;
            place.base = header.index + 1;
        }
        Ok(())
    }
}

/// Entries of one request in the making.
struct Collected {
    entries: Vec<Entry>,
    /// Bytes that may still be taken.
    left: u64,
    /// Whether the first entry is taken whatever its size.
    must: bool,
    /// Entries that may still be taken.
    room: u32,
    taken: u64,
}

impl Collected {
    fn is_full(&self) -> bool {
        self.room == 0 || (self.left == 0 && !(self.must && self.entries.is_empty()))
    }

    fn takes(&mut self, length: u64) -> bool {
        let fits = length <= self.left || (self.must && self.entries.is_empty());
        if self.room == 0 || !fits {
            self.room = 0;
            return false;
        }
        true
    }

    fn push(&mut self, entry: Entry) {
        let length = entry.len() as u64;
        self.left = self.left.saturating_sub(length);
        self.taken += length;
        self.room -= 1;
        self.entries.push(entry);
    }

    /// How much to read at once: what is wanted, and some headers.
    fn run_length(&self) -> u64 {
        let headers = u64::from(self.room).min(self.left / 256 + 16) * RECORD_HEADER_BYTES as u64;
        (self.left + headers).min(READ_RUN_BYTES)
    }
}

/// What a read of a damaged record is answered; the log says it once.
pub(super) fn damaged(file: &LedgerFile, offset: u64, header: Option<RecordHeader>) -> ApiError {
    let entry = header.map_or_else(String::new, |header| format!(" (entry {})", header.entry));
    let text = format!(
        "{} is damaged at offset {offset}{entry}: the record does not match its checksum",
        file.path.display()
    );
    corrupt(file, offset, text)
}

/// What a read is answered that the file system fails; the log says it once.
pub(super) fn unreadable(file: &LedgerFile, offset: u64, error: &std::io::Error) -> ApiError {
    let text = format!(
        "{} cannot be read at offset {offset}: {error}",
        file.path.display()
    );
    corrupt(file, offset, text)
}

fn corrupt(file: &LedgerFile, offset: u64, text: String) -> ApiError {
    if file.is_news(offset) {
        tracing::error!("{text}");
    }
    ApiError::new(ErrorCode::Corrupt, text)
}
