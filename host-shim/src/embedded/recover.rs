//! What the last process left: whose the ledger files are, and where an unsealed ledger really ends.
//!
//! Runs at the start (files against the catalog, only after an unclean stop) and when a managed ledger is opened
//! (only ledgers that are not sealed, only from their last checkpoint on).

use std::collections::{BTreeMap, HashMap};
use std::fs;

use handler_api::{ApiError, ErrorCode};
use redb::{ReadableTable, WriteTransaction};

use super::append::write_footer;
use super::catalog::{
    CURSORS, LedgerRow, MANAGED, MARKS, ManagedRow, Outcome, TOPICS, TopicRow, decode_row,
};
use super::files::{FileKey, Files, LedgerFile};
use super::layout::Layout;
use super::limits::MARK_INTERVAL_BYTES;
use super::partition::{Extras, Ledger, Loaded, NOT_PARTITIONED, fresh_row};
use super::record::{
    FILE_HEADER_BYTES, FileHeader, Footer, Mark, RECORD_HEADER_BYTES, RecordHeader, unpack_marks,
};
use super::search::next_intact;
use super::services::Core;

/// Brings the catalog's lists of ledgers up to what lies in the directory. New ledgers are adopted, waste is named.
pub(crate) fn reconcile(
    transaction: &WriteTransaction,
    layout: &Layout,
    files: &Files,
) -> Outcome<Vec<FileKey>> {
    let mut found: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
    let listing = match fs::read_dir(layout.ledgers()) {
        Ok(listing) => listing,
        Err(error) => return Err(redb::Error::Io(error)),
    };
    for item in listing.flatten() {
        if let Some((id, replaced)) = item
            .file_name()
            .to_str()
            .and_then(Layout::parse_ledger_name)
        {
            found.entry(id).or_default().push(replaced);
        }
    }
    let mut topics: HashMap<u64, u32> = HashMap::new();
    for row in transaction.open_table(TOPICS)?.iter()? {
        let (name, row) = row?;
        match decode_row::<TopicRow>(row.value(), name.value()) {
            Ok(row) => topics.insert(row.id, row.partitions),
            Err(error) => return Ok(Err(error)),
        };
    }
    let mut table = transaction.open_table(MANAGED)?;
    let mut last_ledgers: HashMap<(u64, u32), i64> = HashMap::new();
    for row in table.iter()? {
        let (key, row) = row?;
        let row: ManagedRow = match decode_row(row.value(), "a managed ledger") {
            Ok(row) => row,
            Err(error) => return Ok(Err(error)),
        };
        last_ledgers.insert(key.value(), row.last_ledger);
        for ledger in &row.ledgers {
            if let Some(replaced) = found.get_mut(&ledger.id) {
                replaced.retain(|replaced| *replaced != ledger.replaced);
            }
        }
    }
    // What is left is news (a ledger that the catalog has not heard of) or waste.
    let mut waste = Vec::new();
    let mut news: BTreeMap<(u64, u32), Vec<LedgerRow>> = BTreeMap::new();
    for (id, replaced) in found
        .into_iter()
        .flat_map(|(id, all)| all.into_iter().map(move |r| (id, r)))
    {
        match adoptable(files, id, replaced, &topics, &last_ledgers) {
            Some((owner, row)) => news.entry(owner).or_default().push(row),
            None => waste.push((id, replaced)),
        }
    }
    for (owner, ledgers) in news {
        let mut row = match table.get(owner)? {
            Some(row) => match decode_row::<ManagedRow>(row.value(), "a managed ledger") {
                Ok(row) => row,
                Err(error) => return Ok(Err(error)),
            },
            None => ManagedRow::default(),
        };
        row.last_ledger = ledgers.last().map_or(row.last_ledger, |ledger| ledger.id);
        row.ledgers.extend(ledgers);
        table.insert(owner, prost::Message::encode_to_vec(&row).as_slice())?;
    }
    Ok(Ok(waste))
}

/// Whose an unknown file is, if it is anyone's.
fn adoptable(
    files: &Files,
    id: i64,
    replaced: u32,
    topics: &HashMap<u64, u32>,
    last_ledgers: &HashMap<(u64, u32), i64>,
) -> Option<((u64, u32), LedgerRow)> {
    let file = files.open((id, replaced)).ok()?;
    let header = read_header(&file).ok()?;
    let owner = (header.topic_id, header.partition);
    let partitions = *topics.get(&header.topic_id)?;
    let exists = if header.partition == NOT_PARTITIONED {
        partitions == 0
    } else {
        header.partition < partitions
    };
    let newer = last_ledgers.get(&owner).is_none_or(|last| *last < id);
    let fits = header.ledger == id && header.replaced == 0 && replaced == 0;
    (exists && newer && fits).then(|| (owner, fresh_row(id, header.first_index, header.created_ms)))
}

fn read_header(file: &LedgerFile) -> Result<FileHeader, ApiError> {
    let bytes = file
        .read(0, FILE_HEADER_BYTES)
        .map_err(|error| unreadable(file, &error))?;
    FileHeader::decode(&bytes).map_err(|reason| {
        ApiError::new(
            ErrorCode::Corrupt,
            format!("{}: {reason}", file.path.display()),
        )
    })
}

fn unreadable(file: &LedgerFile, error: &std::io::Error) -> ApiError {
    ApiError::new(
        ErrorCode::NotReady,
        format!("{} cannot be read: {error}", file.path.display()),
    )
}

/// Reads a managed ledger from the catalog, and from the ends of its unsealed ledgers. Waits for the disk.
pub(crate) fn load(
    core: &Core,
    topic_id: u64,
    number: u32,
    name: &str,
) -> Result<Loaded, ApiError> {
    let (row, saved, cursors) = core.catalog.read(|transaction| {
        let row = match transaction.open_table(MANAGED)?.get((topic_id, number))? {
            Some(row) => decode_row::<ManagedRow>(row.value(), name),
            None => Ok(ManagedRow::default()),
        };
        let mut marks: Vec<(i64, Vec<Mark>)> = Vec::new();
        if let Ok(row) = &row {
            let table = transaction.open_table(MARKS)?;
            for ledger in row.ledgers.iter().filter(|ledger| !ledger.sealed) {
                let mut saved = Vec::new();
                for part in table.range((ledger.id, 0)..=(ledger.id, u32::MAX))? {
                    saved.extend(unpack_marks(part?.1.value()));
                }
                marks.push((ledger.id, saved));
            }
        }
        let mut cursors = BTreeMap::new();
        let table = transaction.open_table(CURSORS)?;
        for cursor in table.range((topic_id, number, "")..)? {
            let (key, index) = cursor?;
            let (owner, partition, cursor) = key.value();
            if (owner, partition) != (topic_id, number) {
                break;
            }
            cursors.insert(cursor.to_owned(), index.value());
        }
        Ok((row, marks, cursors))
    })?;
    let row = row?;
    let mut loaded = Loaded {
        start_index: row.start_index,
        next_index: row.next_index,
        last_ledger: row.last_ledger,
        extras: Extras {
            properties: row.properties,
            cursors,
        },
        ..Loaded::default()
    };
    let count = row.ledgers.len();
    for (at, ledger) in row.ledgers.into_iter().enumerate() {
        if ledger.sealed {
            loaded.ledgers.push(Ledger::recorded(ledger));
        } else {
            let marks = saved
                .iter()
                .find(|(id, _)| *id == ledger.id)
                .map(|(_, marks)| marks.clone())
                .unwrap_or_default();
            recover_ledger(core, name, ledger, marks, at + 1 == count, &mut loaded)?;
        }
    }
    if let Some(last) = loaded.ledgers.last() {
        loaded.next_index = loaded.next_index.max(last.row.last_index + 1);
    }
    Ok(loaded)
}

/// Finds the end of an unsealed ledger.
fn recover_ledger(
    core: &Core,
    name: &str,
    row: LedgerRow,
    mut marks: Vec<Mark>,
    is_last: bool,
    loaded: &mut Loaded,
) -> Result<(), ApiError> {
    let file = match core.files.open(row.key()) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::error!(
                topic = name,
                ledger = row.id,
                "a ledger file is missing: its entries are lost"
            );
            let sealed = LedgerRow {
                sealed: true,
                ..row
            };
            loaded.ledgers.push(Ledger {
                recorded: false,
                ..Ledger::recorded(sealed)
            });
            loaded.dirty = true;
            return Ok(());
        }
        Err(error) => {
            return Err(ApiError::new(
                ErrorCode::NotReady,
                format!(
                    "{}: {error}",
                    core.layout.ledger(row.id, row.replaced).display()
                ),
            ));
        }
    };
    let length = file.length().map_err(|error| unreadable(&file, &error))?;
    // Shorter than what was synced: the volume lost something. Nothing that was noted can be relied on.
    let shrunk = length < row.data_end;
    let row = if shrunk {
        tracing::error!(topic = name, path = %file.path.display(), length, expected = row.data_end, "a ledger file is shorter than it was");
        fresh_row(row.id, row.first_index, row.created_ms)
    } else {
        row
    };
    marks.retain(|mark| mark.offset < row.data_end);
    let saved = marks.len();
    if is_last && length == row.data_end {
        loaded.marks = marks;
        loaded.marks_saved = saved;
        loaded.ledgers.push(Ledger::open(row));
        return Ok(());
    }
    loaded.dirty = true;
    let mut scan = Scan {
        file: &file,
        row,
        marks,
        footer: false,
        torn: None,
    };
    scan.run(length, core.largest_record())
        .map_err(|error| unreadable(&file, &error))?;
    if let Some(bytes) = scan.torn {
        tracing::warn!(
            topic = name,
            path = %file.path.display(),
            offset = scan.row.data_end,
            bytes,
            "cut off a torn end"
        );
        file.truncate(scan.row.data_end)
            .map_err(|error| unreadable(&file, &error))?;
    }
    let Scan {
        mut row,
        marks,
        footer,
        ..
    } = scan;
    row.sealed = footer || !is_last || shrunk;
    if row.sealed {
        if !footer {
            write_footer(&file, &row, &marks).map_err(|error| {
                ApiError::new(
                    ErrorCode::NotReady,
                    format!("{}: {error}", file.path.display()),
                )
            })?;
        }
        let _ = file.marks.set(marks.into());
        loaded.ledgers.push(Ledger {
            recorded: false,
            ..Ledger::recorded(row)
        });
    } else {
        loaded.marks = marks;
        loaded.marks_saved = saved;
        loaded.ledgers.push(Ledger::open(row));
    }
    Ok(())
}

/// A walk over the records behind a checkpoint.
struct Scan<'a> {
    file: &'a LedgerFile,
    row: LedgerRow,
    marks: Vec<Mark>,
    footer: bool,
    /// Bytes behind the last intact record.
    torn: Option<u64>,
}

/// How much a scan reads at once.
const SCAN_BYTES: usize = 4 * 1024 * 1024;

impl Scan<'_> {
    fn run(&mut self, length: u64, largest: u64) -> std::io::Result<()> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut start = self.row.data_end;
        while self.row.data_end < length && !self.footer {
            let at = usize::try_from(self.row.data_end - start).unwrap_or(usize::MAX);
            let rest = bytes.get(at..).unwrap_or_default();
            let header = RecordHeader::decode(rest);
            let size = header.map_or(RECORD_HEADER_BYTES as u64, |header| header.size());
            let left = length - self.row.data_end;
            if (rest.len() as u64) < size.min(left).min(largest) {
                start = self.row.data_end;
                let wanted = size.min(largest).max(SCAN_BYTES as u64).min(left);
                bytes = self
                    .file
                    .read(start, usize::try_from(wanted).unwrap_or(usize::MAX))?;
                if bytes.len()
                    < RECORD_HEADER_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX))
                {
                    break;
                }
                if header.is_none() {
                    continue;
                }
            }
            let rest = bytes
                .get(usize::try_from(self.row.data_end - start).unwrap_or(usize::MAX)..)
                .unwrap_or_default();
            match RecordHeader::decode(rest).filter(|header| header.matches(rest)) {
                Some(header) if header.is_footer() => self.take_footer(&header, rest),
                Some(header) => self.take(&header),
                None => {
                    // Damage with intact records behind it is no torn end: it stays, and readers are told.
                    let Some((_, offset)) = next_intact(
                        self.file,
                        self.row.data_end + 1,
                        length,
                        self.row.next_entry,
                    )?
                    else {
                        break;
                    };
                    tracing::error!(path = %self.file.path.display(), offset = self.row.data_end, bytes = offset - self.row.data_end, "a ledger is damaged");
                    self.row.data_end = offset;
                    bytes = Vec::new();
                    start = offset;
                }
            }
        }
        if !self.footer && self.row.data_end < length {
            self.torn = Some(length - self.row.data_end);
        }
        Ok(())
    }

    fn take(&mut self, header: &RecordHeader) {
        let due = self
            .marks
            .last()
            .is_none_or(|mark| self.row.data_end >= mark.offset + MARK_INTERVAL_BYTES);
        if due {
            self.marks.push(Mark {
                offset: self.row.data_end,
                base: header.base(),
                entry: header.entry,
            });
        }
        self.row.data_end += header.size();
        self.row.last_index = header.index;
        self.row.next_entry = header.entry + 1;
        self.row.entries += 1;
        self.row.bytes += u64::from(header.length);
        self.row.last_append_ms = header.time_ms;
    }

    fn take_footer(&mut self, header: &RecordHeader, record: &[u8]) {
        self.footer = true;
        let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
        let footer: Option<Footer> = record
            .get(RECORD_HEADER_BYTES..size)
            .and_then(|payload| prost::Message::decode(payload).ok());
        if let Some(footer) = footer {
            self.marks = unpack_marks(&footer.marks);
        }
    }
}
