//! Appending: one vectored write under the partition's lock, on the caller's thread.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use handler_api::{ApiError, AppendRequest, Appended, ErrorCode, Position, Reply};

use super::catalog::is_full;
use super::files::LedgerFile;
use super::limits::{ENTRY_HEADROOM_BYTES, MARK_INTERVAL_BYTES, MAX_IO_SLICES, PREALLOCATE_BYTES};
use super::partition::{Fired, Ledger, Partition, Published, Tail, Writer, fresh_row};
use super::record::{FileHeader, Footer, Mark, RECORD_HEADER_BYTES, RecordHeader, pack_marks};
use super::services::{Core, now_ms};
use super::sync::{Item, Ticket};

type Results = Vec<Result<Appended, ApiError>>;

/// See [`handler_api::HostServices::append`].
pub(crate) fn append(core: &Arc<Core>, requests: &[AppendRequest]) -> Reply<Results> {
    let mut results = Results::with_capacity(requests.len());
    let mut fired = Vec::new();
    let ticket = core.config.sync_data.then(Ticket::new);
    for run in requests.chunk_by(|left, right| left.handle == right.handle) {
        let Some(first) = run.first() else { continue };
        match core.handles.get(first.handle) {
            Ok(partition) => {
                let died = partition.append(core, run, &mut results, &mut fired, ticket.as_ref());
                if let Some(reason) = died {
                    core.bury(&partition, &reason);
                }
            }
            Err(error) => results.extend(run.iter().map(|_| Err(error.clone()))),
        }
    }
    core.deliver(&fired);
    let failed = results.iter().filter(|result| result.is_err()).count();
    if failed > 0 {
        core.metrics.append_failures.add(failed as u64);
    }
    match ticket {
        None => Reply::ok(results),
        Some(ticket) => ticket.reply(results),
    }
}

/// Why an opening ends when nobody knows what a failed write left.
pub(super) const WRITE_FAILED: &str = "a write failed; open the topic again";

/// How a write failed.
pub(super) enum Failure {
    /// Nothing of it stayed.
    Undone(ApiError),
    /// Nobody knows what stayed.
    Unknown(ApiError),
}

impl Failure {
    /// The error, once the handle is ended if it must be. No lock of the partition may be held.
    pub(super) fn settle(self, core: &Arc<Core>, partition: &Arc<Partition>) -> ApiError {
        match self {
            Self::Undone(error) => error,
            Self::Unknown(error) => {
                core.kill(partition, WRITE_FAILED);
                error
            }
        }
    }
}

impl Partition {
    /// Appends a run of entries to this managed ledger; answers why the handle died if it did.
    fn append(
        self: &Arc<Self>,
        core: &Arc<Core>,
        run: &[AppendRequest],
        results: &mut Results,
        fired: &mut Vec<Fired>,
        ticket: Option<&Arc<Ticket>>,
    ) -> Option<ApiError> {
        let mut writer = self.writer.lock();
        if let Some(dead) = &writer.dead {
            results.extend(run.iter().map(|_| Err(dead.clone())));
            return None;
        }
        if ticket.is_some()
            && let Err(error) = core.sync.check_room()
        {
            results.extend(run.iter().map(|_| Err(error.clone())));
            return None;
        }
        let now = now_ms();
        let mut rest = run;
        while let Some(first) = rest.first() {
            let length = match admit(core, first) {
                Ok(length) => length,
                Err(error) => {
                    results.push(Err(error));
                    rest = rest.get(1..).unwrap_or_default();
                    continue;
                }
            };
            let file = match self.open_tail(core, &mut writer, now) {
                Ok(file) => file,
                Err(Failure::Undone(error)) => {
                    results.push(Err(error));
                    rest = rest.get(1..).unwrap_or_default();
                    continue;
                }
                Err(Failure::Unknown(error)) => {
                    return Some(self.die(&mut writer, error, rest.len(), results));
                }
            };
            // As many of the following entries as go into the same ledger and one system call share the write.
            let (batch, others) = rest.split_at(batch_size(core, &writer, rest, length));
            rest = others;
            let from = results.len();
            match self.write(core, &mut writer, &file, batch, now, results) {
                Ok(published) => {
                    if let Some(ticket) = ticket {
                        core.sync.push(Item {
                            partition: Arc::clone(self),
                            file,
                            published,
                            ticket: ticket.hold(),
                            slots: from..results.len(),
                        });
                    } else {
                        self.view.lock().publish(self.handle, &published, fired);
                    }
                    core.maintenance.mark_dirty(self);
                }
                Err(Failure::Undone(error)) => {
                    results.extend(batch.iter().map(|_| Err(error.clone())));
                }
                Err(Failure::Unknown(error)) => {
                    let left = batch.len() + rest.len();
                    return Some(self.die(&mut writer, error, left, results));
                }
            }
        }
        None
    }

    /// Ends this opening from within an append.
    fn die(
        &self,
        writer: &mut Writer,
        error: ApiError,
        left: usize,
        results: &mut Results,
    ) -> ApiError {
        tracing::error!(topic = &*self.name, %error, "a write failed and could not be undone");
        let reason = self.closed("a write failed; open the topic again");
        writer.dead = Some(reason.clone());
        let mut view = self.view.lock();
        view.dead = Some(reason.clone());
        view.watches = Vec::new();
        results.extend((0..left).map(|_| Err(error.clone())));
        reason
    }

    /// The file to append to: the open ledger's, or that of a new one if there is none or it is full.
    fn open_tail(
        self: &Arc<Self>,
        core: &Arc<Core>,
        writer: &mut Writer,
        now: i64,
    ) -> Result<Arc<LedgerFile>, Failure> {
        if writer
            .tail
            .as_deref()
            .is_some_and(|tail| is_due(core, tail, now))
        {
            self.seal(core, writer)?;
        }
        if let Some(tail) = writer.tail.as_deref() {
            return core
                .files
                .open((tail.ledger, tail.replaced))
                .map_err(|error| Failure::Undone(refused(core, &self.name, &error)));
        }
        self.start_ledger(core, writer, now)
    }

    pub(super) fn start_ledger(
        self: &Arc<Self>,
        core: &Arc<Core>,
        writer: &mut Writer,
        now: i64,
    ) -> Result<Arc<LedgerFile>, Failure> {
        let id = core.next_ledger_id().map_err(Failure::Undone)?;
        let row = fresh_row(id, writer.next_index, now);
        let header = FileHeader {
            ledger: id,
            topic_id: self.topic_id,
            partition: self.number,
            replaced: 0,
            first_index: row.first_index,
            created_ms: now,
        };
        let created = core.files.create(row.key()).and_then(|file| {
            file.write_all_at(&mut [IoSlice::new(&header.encode())], 0)?;
            Ok(file)
        });
        let file = created.map_err(|error| {
            // The id is not used again, so a file that cannot be removed is only waste for the next start to clear.
            let _ = core.files.remove(row.key());
            Failure::Undone(refused(core, &self.name, &error))
        })?;
        core.metrics.created_files.add(1);
        writer.tail = Some(Box::new(Tail::of(&row, None)));
        let mut view = self.view.lock();
        view.ledgers.push(Ledger::open(row));
        view.last_ledger = id;
        view.marks = Vec::new();
        view.marks_saved = 0;
        drop(view);
        if core.config.max_rollover_ms > 0 {
            let age = Duration::from_millis(core.config.max_rollover_ms);
            core.maintenance.schedule_rollover(self, id, age);
        }
        Ok(file)
    }

    /// Seals the open ledger: its sparse index becomes the footer. The lock of the writer is held by the caller.
    pub(super) fn seal(
        self: &Arc<Self>,
        core: &Arc<Core>,
        writer: &mut Writer,
    ) -> Result<(), Failure> {
        let Some(tail) = writer.tail.as_deref() else {
            return Ok(());
        };
        let last_index = writer.next_index - 1;
        let key = (tail.ledger, tail.replaced);
        let file = core
            .files
            .open(key)
            .map_err(|error| Failure::Undone(refused(core, &self.name, &error)))?;
        let marks: Arc<[Mark]> = self.view.lock().marks.as_slice().into();
        if let Err(error) = write_footer(&file, &tail.row(last_index, true), &marks) {
            undo(&file, tail.offset)?;
            return Err(Failure::Undone(refused(core, &self.name, &error)));
        }
        let _ = file.marks.set(marks);
        let (id, end) = (tail.ledger, tail.offset);
        writer.tail = None;
        let mut view = self.view.lock();
        if let Some(ledger) = view.ledgers.last_mut().filter(|ledger| ledger.row.id == id) {
            ledger.row.sealed = true;
            ledger.sealed_end = end;
        }
        view.marks = Vec::new();
        view.marks_saved = 0;
        drop(view);
        core.maintenance.mark_dirty(self);
        Ok(())
    }

    /// Writes entries behind each other and gives them their indexes; all of them or none.
    fn write(
        &self,
        core: &Arc<Core>,
        writer: &mut Writer,
        file: &LedgerFile,
        batch: &[AppendRequest],
        now: i64,
        results: &mut Results,
    ) -> Result<Published, Failure> {
        let Writer {
            tail, next_index, ..
        } = writer;
        let Some(tail) = tail.as_deref_mut() else {
            return Err(Failure::Undone(ApiError::new(
                ErrorCode::Internal,
                "there is no open ledger",
            )));
        };
        let mut headers: Vec<[u8; RECORD_HEADER_BYTES]> = Vec::with_capacity(batch.len());
        let mut index = *next_index;
        let mut payload = 0u64;
        let mut mark: Vec<Mark> = Vec::new();
        let mut offset = tail.offset;
        let mut next_mark = tail.next_mark;
        for (entry, request) in (tail.next_entry..).zip(batch) {
            let length: usize = request.segments.iter().map(|piece| piece.len()).sum();
            if offset >= next_mark {
                mark.push(Mark {
                    offset,
                    base: index,
                    entry,
                });
                next_mark = offset + MARK_INTERVAL_BYTES;
            }
            index += i64::from(request.messages);
            let header = RecordHeader {
                crc: 0,
                // Checked by `admit`.
                length: u32::try_from(length).unwrap_or(u32::MAX),
                entry,
                messages: request.messages,
                index: index - 1,
                time_ms: now,
            };
            headers.push(header.seal(request.segments.iter().map(|piece| &**piece)));
            offset += header.size();
            payload += length as u64;
        }
        let mut slices = Vec::with_capacity(batch.iter().map(|r| r.segments.len() + 1).sum());
        for (header, request) in headers.iter().zip(batch) {
            slices.push(IoSlice::new(header));
            slices.extend(request.segments.iter().map(|piece| IoSlice::new(piece)));
        }
        preallocate(core, file, tail, offset);
        if let Err(error) = file.write_all_at(&mut slices, tail.offset) {
            tail.allocated = tail.offset;
            undo(file, tail.offset)?;
            return Err(Failure::Undone(refused(core, &self.name, &error)));
        }
        if !mark.is_empty() {
            self.view.lock().marks.append(&mut mark);
        }
        let mut last = *next_index - 1;
        for (entry, request) in (tail.next_entry..).zip(batch) {
            last += i64::from(request.messages);
            results.push(Ok(Appended {
                position: Position::new(tail.ledger, i64::from(entry)),
                index: last,
            }));
        }
        core.metrics.appended_entries.add(batch.len() as u64);
        core.metrics.appended_bytes.add(payload);
        *next_index = index;
        tail.offset = offset;
        tail.next_mark = next_mark;
        tail.next_entry += batch.len() as u32;
        tail.entries += batch.len() as u64;
        tail.bytes += payload;
        tail.last_append_ms = now;
        Ok(Published {
            row: tail.row(index - 1, false),
        })
    }
}

/// Checks one entry before anything is touched; answers its length.
fn admit(core: &Core, request: &AppendRequest) -> Result<u64, ApiError> {
    let length: u64 = request
        .segments
        .iter()
        .map(|piece| piece.len() as u64)
        .sum();
    let most = u64::from(core.config.max_message_size) + u64::from(ENTRY_HEADROOM_BYTES);
    if length > most {
        return Err(ApiError::new(
            ErrorCode::TooLarge,
            format!("an entry of {length} bytes is larger than {most}: raise maxMessageSize"),
        ));
    }
    if request.messages == 0 || request.segments.len() >= MAX_IO_SLICES {
        return Err(ApiError::new(
            ErrorCode::InvalidArgument,
            "an entry takes up at least one message, in less than 1024 pieces",
        ));
    }
    core.space.take(length + RECORD_HEADER_BYTES as u64)?;
    Ok(length)
}

/// How many entries from the front of `rest` go into one write: the first, and others while they surely fit.
fn batch_size(core: &Core, writer: &Writer, rest: &[AppendRequest], first: u64) -> usize {
    let Some(tail) = writer.tail.as_deref() else {
        return 1;
    };
    let (mut size, mut count, mut slices) = (tail.offset + first, 1, 0);
    for (before, request) in rest.iter().zip(rest.iter().skip(1)) {
        slices += before.segments.len() + request.segments.len() + 2;
        let full = size >= core.config.max_ledger_bytes
            || u64::from(tail.next_entry) + count as u64
                >= u64::from(core.config.max_ledger_entries);
        if full || slices > MAX_IO_SLICES {
            break;
        }
        let Ok(length) = admit(core, request) else {
            break;
        };
        size += length;
        count += 1;
    }
    count
}

/// Whether a ledger with entries has to be sealed before the next one.
fn is_due(core: &Core, tail: &Tail, now: i64) -> bool {
    let age = u64::try_from(now - tail.created_ms).unwrap_or(0);
    let config = &core.config;
    let full =
        tail.offset >= config.max_ledger_bytes || tail.next_entry >= config.max_ledger_entries;
    let old = config.max_rollover_ms > 0 && age >= config.max_rollover_ms;
    tail.next_entry > 0
        && ((full && age >= config.min_rollover_ms) || old || tail.next_entry >= u32::MAX / 2)
}

fn preallocate(core: &Core, file: &LedgerFile, tail: &mut Tail, end: u64) {
    let (least, most) = PREALLOCATE_BYTES;
    if end <= tail.allocated || tail.offset < least {
        return;
    }
    let step = tail.offset.clamp(least, most).max(end - tail.offset);
    if core.space.allows_preallocation(step) {
        file.preallocate(tail.offset, step);
    }
    tail.allocated = tail.offset + step;
}

/// Takes back what a failed write left.
fn undo(file: &LedgerFile, offset: u64) -> Result<(), Failure> {
    file.truncate(offset).map_err(|error| {
        Failure::Unknown(ApiError::new(
            ErrorCode::UnknownOutcome,
            format!(
                "{}: a write failed and could not be undone: {error}",
                file.path.display()
            ),
        ))
    })
}

/// Writes the footer of a ledger behind its records and gives back the room reserved behind it.
pub(super) fn write_footer(
    file: &LedgerFile,
    row: &super::catalog::LedgerRow,
    marks: &[Mark],
) -> io::Result<()> {
    let payload = prost::Message::encode_to_vec(&Footer {
        entries: row.entries,
        bytes: row.bytes,
        marks: pack_marks(marks),
    });
    let header = RecordHeader {
        crc: 0,
        length: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        entry: row.next_entry,
        messages: 0,
        index: row.last_index,
        time_ms: row.last_append_ms,
    };
    let head = header.seal([payload.as_slice()]);
    file.write_all_at(
        &mut [IoSlice::new(&head), IoSlice::new(&payload)],
        row.data_end,
    )?;
    file.truncate(row.data_end + header.size())
}

/// The error of a write that was undone.
fn refused(core: &Core, topic: &str, error: &io::Error) -> ApiError {
    let path = core.layout.ledgers();
    if is_full(error) {
        return core.space.full(&path);
    }
    tracing::error!(topic, path = %path.display(), %error, "a write was refused");
    ApiError::new(
        ErrorCode::Refused,
        format!("{topic} cannot be written in {}: {error}", path.display()),
    )
}
