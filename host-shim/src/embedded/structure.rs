//! Changes to the list of ledgers: rolling over, trimming, replacing, properties.
//!
//! Each holds the partition's `structure` lock from its decision to the commit in the catalog, and changes what
//! readers see only after it. All of it waits for the disk. Plugins are told once the lock is dropped.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;

use handler_api::ledger::{Opened, Replacement, ReplacementEntry, StartMoved};
use handler_api::{ApiError, ErrorCode};

use super::append::{Failure, WRITE_FAILED, write_footer};
use super::catalog::{LedgerRow, is_full};
use super::files::LedgerFile;
use super::limits::{ENTRY_HEADROOM_BYTES, MARK_INTERVAL_BYTES, MAX_PROPERTIES_BYTES};
use super::maintain::{Snapshot, Unrecorded, record};
use super::partition::{Ledger, Partition};
use super::read::{Patience, Reader, Stop};
use super::record::{FILE_HEADER_BYTES, FileHeader, Mark, RECORD_HEADER_BYTES, RecordHeader};
use super::services::{Core, now_ms};

/// Entries of a replacement that are written in one call.
const REPLACE_BATCH: usize = 256;

impl Partition {
    /// What opening and trimming answer.
    pub(crate) fn opened(&self) -> Opened {
        let view = self.view.lock();
        Opened {
            handle: Some(self.handle.into()),
            fault: None,
            start_index: view.start_index,
            end_index: view.end_index,
            properties: view.properties(),
        }
    }

    /// Seals a ledger that is too old, if it is still the open one and holds entries.
    pub(crate) fn seal_old(self: &Arc<Self>, core: &Arc<Core>, ledger: i64) {
        let mut writer = self.writer.lock();
        let due = writer.dead.is_none()
            && writer
                .tail
                .as_deref()
                .is_some_and(|tail| tail.ledger == ledger && tail.next_entry > 0);
        let sealed = if due {
            self.seal(core, &mut writer)
        } else {
            Ok(())
        };
        drop(writer);
        self.after_sealing(core, sealed);
    }

    /// Sealing for its age or after a trim may fail: the next append tries again.
    fn after_sealing(self: &Arc<Self>, core: &Arc<Core>, sealed: Result<(), Failure>) {
        if let Err(failure) = sealed {
            self.not_sealed(&failure.settle(core, self));
        }
    }

    fn not_sealed(&self, error: &ApiError) {
        tracing::warn!(topic = &*self.name, %error, "a ledger could not be sealed");
    }

    /// Seals the open ledger if it holds entries, and starts another.
    pub(crate) fn roll_over(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ApiError> {
        let mut writer = self.writer.lock();
        if let Some(dead) = &writer.dead {
            return Err(dead.clone());
        }
        let died = match writer.tail.as_deref() {
            Some(tail) if tail.next_entry > 0 => self
                .seal(core, &mut writer)
                .and_then(|()| self.start_ledger(core, &mut writer, now_ms()).map(drop)),
            _ => Ok(()),
        };
        drop(writer);
        died.map_err(|failure| failure.settle(core, self))
    }

    /// Gives up what lies below an index; see [`handler_api::ledger::Trim`].
    pub(crate) fn trim(
        self: &Arc<Self>,
        core: &Arc<Core>,
        before: i64,
    ) -> Result<Opened, ApiError> {
        let moved = self.move_start(core, before);
        if let Some(start_index) = moved.map_err(|failure| failure.settle(core))? {
            core.announce(&StartMoved {
                handle: Some(self.handle.into()),
                start_index,
            });
        }
        Ok(self.opened())
    }

    /// The part of [`Self::trim`] under the lock: answers where the log starts now, if that is new.
    fn move_start(
        self: &Arc<Self>,
        core: &Arc<Core>,
        before: i64,
    ) -> Result<Option<i64>, Unrecorded> {
        let _guard = self.structure.lock();
        let (target, end, start) = {
            let view = self.view.lock();
            if let Some(dead) = &view.dead {
                return Err(dead.clone().into());
            }
            let held = view.held_from().unwrap_or(i64::MAX);
            let end = view.end_index + 1;
            (before.min(held).min(end), end, view.start_index)
        };
        if target <= start {
            return Ok(None);
        }
        let start = if target == end {
            self.seal_trimmed(core, end)?;
            end
        } else {
            let reader = Reader {
                core,
                partition: self,
                patience: Patience::Wait,
            };
            match reader.find(target) {
                Ok(found) => found.base.max(start),
                // What is damaged cannot be read, but it can be given up: by index, where it starts.
                Err(Stop::Failed(error)) if error.kind() == ErrorCode::Corrupt => target,
                Err(stop) => return Err(stop.into_error().into()),
            }
        };
        let view = self.view.lock();
        let mut snapshot = Snapshot::take(self, &view);
        drop(view);
        let gone: Vec<LedgerRow> = snapshot
            .row
            .ledgers
            .iter()
            .filter(|row| row.sealed && row.last_index < start)
            .copied()
            .collect();
        snapshot.row.start_index = start;
        snapshot.row.ledgers.retain(|row| !gone.contains(row));
        record(core, vec![(self, snapshot)])?;
        let mut view = self.view.lock();
        view.start_index = start;
        view.ledgers
            .retain(|ledger| !gone.iter().any(|row| row.id == ledger.row.id));
        drop(view);
        core.maintenance.discard(gone.iter().map(LedgerRow::key));
        Ok(Some(start))
    }

    /// Seals the open ledger if all that was ever written lies below `end`, so that its file can go.
    fn seal_trimmed(self: &Arc<Self>, core: &Arc<Core>, end: i64) -> Result<(), Unrecorded> {
        let mut writer = self.writer.lock();
        let whole = writer.next_index == end
            && writer.dead.is_none()
            && writer
                .tail
                .as_deref()
                .is_some_and(|tail| tail.next_entry > 0);
        let sealed = if whole {
            self.seal(core, &mut writer)
        } else {
            Ok(())
        };
        drop(writer);
        match sealed {
            Ok(()) => Ok(()),
            Err(Failure::Undone(error)) => {
                self.not_sealed(&error);
                Ok(())
            }
            Err(Failure::Unknown(error)) => Err(Unrecorded::ending(self, WRITE_FAILED, error)),
        }
    }

    /// Puts other entries into a sealed ledger's place; see [`handler_api::ledger::ReplaceLedger`].
    pub(crate) fn replace(
        self: &Arc<Self>,
        core: &Arc<Core>,
        request: &Replacement,
    ) -> Result<(), ApiError> {
        self.replace_locked(core, request)
            .map_err(|failure| failure.settle(core))
    }

    fn replace_locked(
        self: &Arc<Self>,
        core: &Arc<Core>,
        request: &Replacement,
    ) -> Result<(), Unrecorded> {
        let _guard = self.structure.lock();
        let old = {
            let view = self.view.lock();
            if let Some(dead) = &view.dead {
                return Err(dead.clone().into());
            }
            let ledger = view
                .ledger_by_id(request.ledger)
                .and_then(|at| view.ledgers.get(at).copied());
            replaceable(ledger, request, &self.name)?
        };
        check_entries(core, &old, &request.entries)?;
        let key = (old.id, old.replaced + 1);
        let built = self.build(core, &old, &request.entries);
        let (row, file, marks) = built.map_err(|error| {
            let _ = core.files.remove(key);
            if is_full(&error) {
                return core.space.full(&core.layout.ledgers());
            }
            ApiError::new(
                ErrorCode::Refused,
                format!("{}: {error}", core.layout.ledger(key.0, key.1).display()),
            )
        })?;
        let view = self.view.lock();
        let mut snapshot = Snapshot::take(self, &view);
        drop(view);
        for ledger in &mut snapshot.row.ledgers {
            if ledger.id == row.id {
                *ledger = row;
            }
        }
        record(core, vec![(self, snapshot)])?;
        core.metrics.created_files.add(1);
        let _ = file.marks.set(marks.into());
        let mut view = self.view.lock();
        if let Some(at) = view.ledger_by_id(row.id)
            && let Some(ledger) = view.ledgers.get_mut(at)
        {
            *ledger = Ledger::recorded(row);
        }
        drop(view);
        core.maintenance.discard([old.key()]);
        Ok(())
    }

    /// Writes the file of a replacement, to the last byte on the disk.
    fn build(
        &self,
        core: &Core,
        old: &LedgerRow,
        entries: &[ReplacementEntry],
    ) -> io::Result<(LedgerRow, Arc<LedgerFile>, Vec<Mark>)> {
        let mut row = LedgerRow {
            replaced: old.replaced + 1,
            entries: 0,
            bytes: 0,
            next_entry: 0,
            data_end: FILE_HEADER_BYTES as u64,
            ..*old
        };
        // What an attempt left that did not come to its end.
        core.files.remove(row.key())?;
        let file = core.files.create(row.key())?;
        let header = FileHeader {
            ledger: row.id,
            topic_id: self.topic_id,
            partition: self.number,
            replaced: row.replaced,
            first_index: row.first_index,
            created_ms: row.created_ms,
        };
        file.write_all_at(&mut [IoSlice::new(&header.encode())], 0)?;
        let mut marks: Vec<Mark> = Vec::new();
        for batch in entries.chunks(REPLACE_BATCH) {
            let at = row.data_end;
            let mut headers: Vec<[u8; RECORD_HEADER_BYTES]> = Vec::with_capacity(batch.len());
            for entry in batch {
                let header = RecordHeader {
                    crc: 0,
                    length: u32::try_from(entry.payload.len()).unwrap_or(u32::MAX),
                    entry: row.next_entry,
                    messages: entry.messages,
                    index: entry.index,
                    time_ms: row.last_append_ms,
                };
                if marks
                    .last()
                    .is_none_or(|mark| row.data_end >= mark.offset + MARK_INTERVAL_BYTES)
                {
                    marks.push(Mark {
                        offset: row.data_end,
                        base: header.base(),
                        entry: header.entry,
                    });
                }
                headers.push(header.seal([&*entry.payload]));
                row.data_end += header.size();
                row.next_entry += 1;
                row.entries += 1;
                row.bytes += u64::from(header.length);
            }
            let mut slices: Vec<IoSlice<'_>> = headers
                .iter()
                .zip(batch)
                .flat_map(|(header, entry)| [IoSlice::new(header), IoSlice::new(&entry.payload)])
                .collect();
            file.write_all_at(&mut slices, at)?;
        }
        write_footer(&file, &row, &marks)?;
        file.sync()?;
        Ok((row, file, marks))
    }

    /// Sets and removes properties.
    pub(crate) fn update_properties(
        self: &Arc<Self>,
        core: &Arc<Core>,
        set: HashMap<String, String>,
        remove: &[String],
    ) -> Result<HashMap<String, String>, ApiError> {
        self.update_properties_locked(core, set, remove)
            .map_err(|failure| failure.settle(core))
    }

    fn update_properties_locked(
        self: &Arc<Self>,
        core: &Arc<Core>,
        set: HashMap<String, String>,
        remove: &[String],
    ) -> Result<HashMap<String, String>, Unrecorded> {
        let _guard = self.structure.lock();
        let view = self.view.lock();
        if let Some(dead) = &view.dead {
            return Err(dead.clone().into());
        }
        let mut snapshot = Snapshot::take(self, &view);
        drop(view);
        let mut properties = snapshot.row.properties.clone();
        properties.extend(set);
        properties.retain(|key, _| !remove.contains(key));
        check_properties(&properties)?;
        snapshot.row.properties = properties.clone();
        record(core, vec![(self, snapshot)])?;
        self.view.lock().extras_mut().properties = properties.clone();
        Ok(properties)
    }
}

/// Bounds what a topic or managed ledger may carry along.
pub(crate) fn check_properties(properties: &HashMap<String, String>) -> Result<(), ApiError> {
    let bytes: usize = properties
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if bytes > MAX_PROPERTIES_BYTES {
        return Err(ApiError::new(
            ErrorCode::TooLarge,
            format!("properties of {bytes} bytes are larger than {MAX_PROPERTIES_BYTES}"),
        ));
    }
    Ok(())
}

/// The ledger to be replaced, if it can be.
fn replaceable(
    ledger: Option<Ledger>,
    request: &Replacement,
    name: &str,
) -> Result<LedgerRow, ApiError> {
    let Some(ledger) = ledger else {
        return Err(ApiError::new(
            ErrorCode::NotFound,
            format!("{name} has no ledger {}", request.ledger),
        ));
    };
    let row = ledger.row;
    if !row.sealed || row.data_end != ledger.sealed_end {
        return Err(ApiError::new(
            ErrorCode::InvalidArgument,
            format!("ledger {} of {name} is not sealed", row.id),
        ));
    }
    if row.replaced != request.replaced {
        return Err(ApiError::new(
            ErrorCode::Conflict,
            format!(
                "ledger {} of {name} was replaced {} times, not {}",
                row.id, row.replaced, request.replaced
            ),
        ));
    }
    Ok(row)
}

fn check_entries(
    core: &Core,
    old: &LedgerRow,
    entries: &[ReplacementEntry],
) -> Result<(), ApiError> {
    let most = core.config.max_message_size as usize + ENTRY_HEADROOM_BYTES as usize;
    let mut next = old.first_index;
    for entry in entries {
        let base = entry.index.checked_sub(i64::from(entry.messages) - 1);
        let fits = entry.messages > 0
            && base.is_some_and(|base| base >= next)
            && entry.index <= old.last_index;
        if !fits {
            return Err(ApiError::new(
                ErrorCode::InvalidArgument,
                format!(
                    "entry with index {} is out of order or outside of {}..={} of ledger {}",
                    entry.index, old.first_index, old.last_index, old.id
                ),
            ));
        }
        if entry.payload.len() > most {
            return Err(ApiError::new(
                ErrorCode::TooLarge,
                format!(
                    "an entry of {} bytes is larger than {most}",
                    entry.payload.len()
                ),
            ));
        }
        next = entry.index + 1;
    }
    let bytes: u64 = entries.iter().map(|entry| entry.payload.len() as u64).sum();
    core.space.take(bytes)
}
