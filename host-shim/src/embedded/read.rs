//! Reading: contiguous runs of a ledger in one system call, checked, and cut into entries without a copy.
//!
//! Every record that is returned is checked against its checksum, also when it comes from the page cache: at some
//! 50 GB/s that is cheaper than knowing when it may be left out. A read first tries what surely does not wait
//! (`RWF_NOWAIT`) on the caller's thread; if the page cache lacks it, the whole call moves to the disk's threads.

use std::sync::Arc;

use bytes::Bytes;
use handler_api::{
    ApiError, Entry, ErrorCode, Handle, List, Position, ReadAnswer, ReadRequest, Reply, Segment,
};
use parking_lot::Mutex;

use super::files::LedgerFile;
use super::limits::{KEPT_BUFFERS, MAX_READ_BYTES, READ_RUN_BYTES};
use super::partition::{Ledger, Partition, Place};
use super::record::{
    FILE_HEADER_BYTES, Footer, Mark, RECORD_HEADER_BYTES, RecordHeader, resync, unpack_marks,
};
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
    Some(answers)
}

/// See [`handler_api::HostServices::find`].
pub(crate) fn find(core: &Arc<Core>, handle: Handle, index: i64) -> Reply<Position> {
    let partition = match core.handles.get(handle) {
        Ok(partition) => partition,
        Err(error) => return Reply::err(error),
    };
    let reader = |patience| {
        Reader {
            core,
            partition: &partition,
            patience,
        }
        .find(index)
    };
    match reader(Patience::Inline) {
        Ok(found) => Reply::ok(found.position()),
        Err(Stop::Failed(error)) => Reply::err(error),
        Err(Stop::Cold) => {
            let worker = Arc::clone(core);
            let partition = Arc::clone(&partition);
            core.disk.reply("a search", move || {
                let reader = Reader {
                    core: &worker,
                    partition: &partition,
                    patience: Patience::Wait,
                };
                reader
                    .find(index)
                    .map(|found| found.position())
                    .map_err(Stop::into_error)
            })
        }
    }
}

impl Stop {
    pub(super) fn into_error(self) -> ApiError {
        match self {
            Self::Failed(error) => error,
            Self::Cold => ApiError::new(ErrorCode::Internal, "a waiting read wanted to wait"),
        }
    }
}

/// Where an entry lies, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) ledger: i64,
    pub(super) replaced: u32,
    pub(super) entry: u32,
    pub(super) offset: u64,
    /// Index of its first message; of the next message at the end.
    pub(super) base: i64,
}

impl Found {
    fn of(key: (i64, u32), header: &RecordHeader, offset: u64) -> Self {
        Self {
            ledger: key.0,
            replaced: key.1,
            entry: header.entry,
            offset,
            base: header.base(),
        }
    }

    pub(super) fn position(self) -> Position {
        if self.ledger < 0 {
            return Position::UNKNOWN;
        }
        Position::new(self.ledger, i64::from(self.entry))
    }
}

/// A ledger as a reader works on it: the durable part of a file.
struct Source {
    file: Arc<LedgerFile>,
    ledger: Ledger,
    /// The last mark not behind what is sought.
    mark: Option<Mark>,
}

impl Source {
    fn end(&self) -> u64 {
        self.ledger.row.data_end
    }
}

/// What is sought in a ledger.
#[derive(Clone, Copy)]
enum Sought {
    Entry(u32),
    Index(i64),
}

impl Sought {
    fn reached_by(self, header: &RecordHeader) -> bool {
        match self {
            Self::Entry(entry) => header.entry >= entry,
            Self::Index(index) => header.index >= index,
        }
    }

    fn lies_before(self, header: &RecordHeader) -> bool {
        match self {
            Self::Entry(entry) => entry < header.entry,
            Self::Index(index) => index < header.base(),
        }
    }

    fn last_mark(self, marks: &[Mark]) -> Option<Mark> {
        let after = match self {
            Self::Entry(entry) => marks.partition_point(|mark| mark.entry <= entry),
            Self::Index(index) => marks.partition_point(|mark| mark.base <= index),
        };
        marks.get(after.checked_sub(1)?).copied()
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

    /// Finds the entry that holds `index`, or the first after it, or the end.
    pub(super) fn find(&self, index: i64) -> Result<Found, Stop> {
        let index = {
            let view = self.partition.view.lock();
            if let Some(dead) = &view.dead {
                return Err(dead.clone().into());
            }
            index.max(view.start_index)
        };
        self.search(index)
    }

    /// Like [`Self::find`], trying first where the caller believes the entry to be.
    fn locate(&self, position: Position, index: i64) -> Result<Found, Stop> {
        if let Some(found) = self.at_position(position, index)? {
            return Ok(found);
        }
        self.search(index)
    }

    /// The entry at a position, unless it lies beyond `index` in a ledger that may have held earlier ones.
    fn at_position(&self, position: Position, index: i64) -> Result<Option<Found>, Stop> {
        let Ok(entry) = u32::try_from(position.entry) else {
            return Ok(None);
        };
        if !position.is_known() {
            return Ok(None);
        }
        let view = self.partition.view.lock();
        let Some(ledger) = view
            .ledger_by_id(position.ledger)
            .and_then(|at| view.ledgers.get(at).copied())
        else {
            return Ok(None);
        };
        let row = ledger.row;
        // Positions of a ledger that was replaced may be from before; the index says where to go.
        if row.replaced > 0 || index < row.first_index || index > row.last_index {
            return Ok(None);
        }
        let known = view.recall(row.id, row.replaced, entry);
        drop(view);
        if let Some(place) = known.filter(|place| place.base <= index) {
            return Ok(Some(Found {
                ledger: row.id,
                replaced: row.replaced,
                entry,
                offset: place.offset,
                base: place.base,
            }));
        }
        let source = self.source(ledger, Sought::Entry(entry))?;
        Ok(self
            .walk(&source, Sought::Entry(entry))?
            .filter(|(header, _)| header.entry == entry && header.base() <= index)
            .map(|(header, offset)| Found::of(row.key(), &header, offset)))
    }

    fn search(&self, index: i64) -> Result<Found, Stop> {
        let mut ledgers = {
            let view = self.partition.view.lock();
            let from = view.ledger_for_index(index).unwrap_or(view.ledgers.len());
            let end = Found {
                ledger: view.end_position().ledger,
                replaced: 0,
                entry: u32::try_from(view.end_position().entry).unwrap_or(0),
                offset: view.ledgers.last().map_or(0, |ledger| ledger.row.data_end),
                base: view.end_index + 1,
            };
            let rest = view.ledgers.get(from..).unwrap_or_default();
            (rest.iter().take(2).copied().collect::<Vec<_>>(), end, from)
        };
        let mut skipped = 0;
        loop {
            let Some(ledger) = ledgers.0.first().copied() else {
                return Ok(ledgers.1);
            };
            let source = self.source(ledger, Sought::Index(index))?;
            if let Some((header, offset)) = self.walk(&source, Sought::Index(index))? {
                return Ok(Found::of(ledger.row.key(), &header, offset));
            }
            // A replaced ledger may hold nothing from there on: the next one does.
            skipped += 1;
            let view = self.partition.view.lock();
            ledgers.0 = view
                .ledgers
                .get(ledgers.2 + skipped..)
                .unwrap_or_default()
                .iter()
                .take(1)
                .copied()
                .collect();
        }
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

    /// Opens a ledger for a search.
    fn source(&self, ledger: Ledger, sought: Sought) -> Result<Source, Stop> {
        let file = self.open(ledger.row.key())?;
        let mark = if ledger.row.sealed {
            sought.last_mark(&self.sealed_marks(&file, &ledger)?)
        } else {
            let view = self.partition.view.lock();
            if view
                .ledgers
                .last()
                .is_some_and(|last| last.row.id == ledger.row.id && !last.row.sealed)
            {
                sought.last_mark(&view.marks)
            } else {
                None
            }
        };
        let mark = mark.filter(|mark| mark.offset < ledger.row.data_end);
        Ok(Source { file, ledger, mark })
    }

    fn open(&self, key: (i64, u32)) -> Result<Arc<LedgerFile>, Stop> {
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

    /// The sparse index of a sealed ledger. A damaged one only makes searches slow.
    fn sealed_marks(&self, file: &LedgerFile, ledger: &Ledger) -> Result<Arc<[Mark]>, Stop> {
        if let Some(marks) = file.marks.get() {
            return Ok(Arc::clone(marks));
        }
        if self.patience == Patience::Inline {
            return Err(Stop::Cold);
        }
        let marks = load_footer(file, ledger.row.data_end).map_or_else(
            || {
                tracing::warn!(path = %file.path.display(), offset = ledger.row.data_end, "the index of a ledger is damaged: searches in it are slow");
                Vec::new()
            },
            |footer| unpack_marks(&footer.marks),
        );
        Ok(Arc::clone(file.marks.get_or_init(|| marks.into())))
    }

    /// Walks record headers from the mark to what is sought; answers its header and offset, `None` at the end.
    ///
    /// Headers on the way are believed as long as they make sense; the record that is answered is checked. Damage
    /// is an error only if what is sought may lie in it.
    fn walk(&self, source: &Source, sought: Sought) -> Result<Option<(RecordHeader, u64)>, Stop> {
        let mut offset = source
            .mark
            .map_or(FILE_HEADER_BYTES as u64, |mark| mark.offset);
        let (mut entry, mut index) = source
            .mark
            .map_or((0, source.ledger.row.first_index), |mark| {
                (mark.entry, mark.base)
            });
        let mut window = Window::default();
        while offset < source.end() {
            let left = source.end() - offset;
            let header =
                RecordHeader::decode(window.at(self, source, offset, RECORD_HEADER_BYTES)?)
                    .filter(|header| !header.is_footer() && header.size() <= left);
            let in_order = header
                .filter(|header| header.entry >= entry && header.base() >= index)
                .is_some();
            let reached = header.is_some_and(|header| sought.reached_by(&header));
            let good = match header {
                Some(header) if in_order && !reached => Some(header),
                Some(header) if header.size() <= self.core.largest_record() => {
                    let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
                    let record = window.at(self, source, offset, size)?;
                    header.matches(record).then_some(header)
                }
                _ => None,
            };
            let Some(header) = good else {
                let next = self.skip_damage(source, offset, entry)?;
                if next.is_none_or(|(header, _)| sought.lies_before(&header)) {
                    return Err(damaged(&source.file, offset, header).into());
                }
                offset = next.map_or(source.end(), |(_, offset)| offset);
                continue;
            };
            if reached {
                return Ok(Some((header, offset)));
            }
            offset += header.size();
            entry = header.entry + 1;
            index = header.index + 1;
        }
        Ok(None)
    }

    /// The next intact record behind a damaged one; needs the disk's threads.
    fn skip_damage(
        &self,
        source: &Source,
        offset: u64,
        entry: u32,
    ) -> Result<Option<(RecordHeader, u64)>, Stop> {
        if self.patience == Patience::Inline {
            return Err(Stop::Cold);
        }
        next_intact(&source.file, offset + 1, source.end(), entry)
            .map_err(|error| Stop::Failed(unreadable(&source.file, offset, &error)))
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

/// A piece of a file that a walk looks at.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

/// How much a walk reads at once.
const WINDOW_BYTES: usize = 64 * 1024;

impl Window {
    /// `length` bytes at `offset`, fewer at the end of the ledger.
    fn at(
        &mut self,
        reader: &Reader<'_>,
        source: &Source,
        offset: u64,
        length: usize,
    ) -> Result<&[u8], Stop> {
        let have = offset
            .checked_sub(self.start)
            .and_then(|skip| usize::try_from(skip).ok())
            .filter(|skip| skip + length <= self.bytes.len());
        let skip = if let Some(skip) = have {
            skip
        } else {
            let left = usize::try_from(source.end() - offset).unwrap_or(usize::MAX);
            self.bytes.resize(WINDOW_BYTES.max(length).min(left), 0);
            let files = &reader.core.files;
            let mut read = source
                .file
                .read_cached(&mut self.bytes, offset, &files.nowait);
            if read < self.bytes.len() {
                if reader.patience == Patience::Inline {
                    return Err(Stop::Cold);
                }
                let rest = self.bytes.get_mut(read..).unwrap_or_default();
                read += source
                    .file
                    .read_waiting(rest, offset + read as u64)
                    .map_err(|error| Stop::Failed(unreadable(&source.file, offset, &error)))?;
            }
            self.bytes.truncate(read);
            self.start = offset;
            0
        };
        Ok(self.bytes.get(skip..).unwrap_or_default())
    }
}

/// The footer of a sealed ledger, if it is intact.
pub(super) fn load_footer(file: &LedgerFile, offset: u64) -> Option<Footer> {
    let length = file.length().ok()?.checked_sub(offset)?;
    let bytes = file.read(offset, usize::try_from(length).ok()?).ok()?;
    let header = RecordHeader::decode(&bytes)?;
    if !header.is_footer() || !header.matches(&bytes) {
        return None;
    }
    let size = usize::try_from(header.size()).ok()?;
    prost::Message::decode(bytes.get(RECORD_HEADER_BYTES..size)?).ok()
}

/// The first intact record at or behind `offset`, and where it lies.
pub(super) fn next_intact(
    file: &LedgerFile,
    offset: u64,
    end: u64,
    entry: u32,
) -> std::io::Result<Option<(RecordHeader, u64)>> {
    let length = end.saturating_sub(offset).min(super::limits::RESYNC_BYTES);
    let bytes = file.read(offset, usize::try_from(length).unwrap_or(usize::MAX))?;
    Ok(resync(&bytes, offset, entry))
}

fn damaged(file: &LedgerFile, offset: u64, header: Option<RecordHeader>) -> ApiError {
    let entry = header.map_or_else(String::new, |header| format!(" (entry {})", header.entry));
    ApiError::new(
        ErrorCode::Corrupt,
        format!(
            "{} is damaged at offset {offset}{entry}: the record does not match its checksum",
            file.path.display()
        ),
    )
}

fn unreadable(file: &LedgerFile, offset: u64, error: &std::io::Error) -> ApiError {
    ApiError::new(
        ErrorCode::Corrupt,
        format!(
            "{} cannot be read at offset {offset}: {error}",
            file.path.display()
        ),
    )
}
