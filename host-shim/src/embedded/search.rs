//! Searching: from an index or a position to the place of an entry in a file.
//!
//! The sparse index leads near it, a walk over record headers to it. It must not know what readers do with the place.

use std::sync::Arc;

use handler_api::{Handle, Position, Reply};

use super::files::LedgerFile;
use super::partition::Ledger;
use super::read::{Patience, Reader, Stop, damaged, unreadable};
use super::record::{
    FILE_HEADER_BYTES, Footer, Mark, RECORD_HEADER_BYTES, RecordHeader, resync, unpack_marks,
};
use super::services::Core;

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

    /// Where a walk starts: offset, entry number and index of its first message.
    fn start(&self) -> (u64, u32, i64) {
        self.mark.map_or(
            (FILE_HEADER_BYTES as u64, 0, self.ledger.row.first_index),
            |mark| (mark.offset, mark.entry, mark.base),
        )
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

impl Reader<'_> {
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
    pub(super) fn locate(&self, position: Position, index: i64) -> Result<Found, Stop> {
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
    /// Headers on the way are believed as long as they are in order, and the record that is answered is checked. At
    /// the first sign of damage the walk starts again and checks every record.
    fn walk(&self, source: &Source, sought: Sought) -> Result<Option<(RecordHeader, u64)>, Stop> {
        let (mut offset, mut entry, mut index) = source.start();
        let mut window = Window::default();
        while offset < source.end() {
            let header =
                RecordHeader::decode(window.at(self, source, offset, RECORD_HEADER_BYTES)?).filter(
                    |header| {
                        !header.is_footer()
                            && header.entry == entry
                            && header.base() >= index
                            && header.size()
                                <= (source.end() - offset).min(self.core.largest_record())
                    },
                );
            let Some(header) = header else {
                return self.walk_carefully(source, sought);
            };
            if sought.reached_by(&header) {
                let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
                if header.matches(window.at(self, source, offset, size)?) {
                    return Ok(Some((header, offset)));
                }
                return self.walk_carefully(source, sought);
            }
            offset += header.size();
            entry = header.entry + 1;
            index = header.index + 1;
        }
        Ok(None)
    }

    /// The same over damage: every record is checked, and behind one that is not intact the next intact one is looked
    /// for. Damage is an error only if what is sought may lie in it. Needs the disk's threads.
    fn walk_carefully(
        &self,
        source: &Source,
        sought: Sought,
    ) -> Result<Option<(RecordHeader, u64)>, Stop> {
        if self.patience == Patience::Inline {
            return Err(Stop::Cold);
        }
        let (mut offset, mut entry, _) = source.start();
        let mut window = Window::default();
        while offset < source.end() {
            let header =
                RecordHeader::decode(window.at(self, source, offset, RECORD_HEADER_BYTES)?).filter(
                    |header| {
                        header.size() <= (source.end() - offset).min(self.core.largest_record())
                    },
                );
            let intact = match header {
                Some(header) => {
                    let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
                    header.matches(window.at(self, source, offset, size)?)
                }
                None => false,
            };
            let Some(header) = header.filter(|_| intact) else {
                let next = next_intact(&source.file, offset + 1, source.end(), entry)
                    .map_err(|error| Stop::Failed(unreadable(&source.file, offset, &error)))?;
                match next {
                    Some((next, at)) if !sought.lies_before(&next) => offset = at,
                    _ => return Err(damaged(&source.file, offset, header).into()),
                }
                continue;
            };
            if sought.reached_by(&header) {
                return Ok(Some((header, offset)));
            }
            offset += header.size();
            entry = header.entry + 1;
        }
        Ok(None)
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
