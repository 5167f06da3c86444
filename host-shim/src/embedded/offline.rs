//! A data directory read while no broker uses it, changing nothing: for `kop inspect`.
//!
//! The catalog is copied and the copy is brought up to date as the next start would do it, so that what a killed
//! broker left can be looked at before anything is repaired. Nothing here prints.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use handler_api::ApiError;
use redb::{ReadTransaction, ReadableTable};

use super::catalog::{
    CURSORS, Catalog, LedgerRow, MANAGED, META, ManagedRow, NAMESPACES, TOPICS, TopicRow, VALUES,
    decode_row, meta,
};
use super::config::OpenError;
use super::files::{FileKey, Files, LedgerFile};
use super::layout::{self, Layout, Lock};
use super::partition::NOT_PARTITIONED;
use super::record::{FILE_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader};
use super::search::next_intact;

/// A directory at rest.
pub(crate) struct Offline {
    pub(crate) format: u32,
    /// How often it was opened, and whether the last process stopped cleanly.
    pub(crate) starts: i64,
    pub(crate) clean: bool,
    pub(crate) namespaces: Vec<String>,
    pub(crate) topics: BTreeMap<String, TopicRow>,
    /// By topic's number and partition.
    pub(crate) managed: BTreeMap<(u64, u32), ManagedRow>,
    /// Topic's number, partition, name, last index that is done with.
    pub(crate) cursors: Vec<(u64, u32, String, i64)>,
    /// Path, version and value.
    pub(crate) values: Vec<(String, i64, Vec<u8>)>,
    /// Ledger files that nothing refers to.
    pub(crate) waste: Vec<FileKey>,
    files: Files,
    layout: Layout,
    _lock: Lock,
}

/// A copy of the catalog, deleted when it is done with.
struct Copy(PathBuf);

impl Copy {
    fn of(layout: &Layout) -> Result<Self, OpenError> {
        let name = format!("kop-inspect-{}-{:p}.redb", std::process::id(), layout);
        let copy = Self(std::env::temp_dir().join(name));
        fs::copy(layout.catalog(), &copy.0)
            .map_err(OpenError::io("cannot copy the catalog to", &copy.0))?;
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Offline {
    /// Reads the catalog of a directory that no process uses.
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
        let layout = Layout::new(dir);
        let format = layout::check(&layout)?;
        let lock = Lock::take_for_reading(&layout)?;
        let copy = Copy::of(&layout)?;
        let failed = |error: ApiError| OpenError::Catalog {
            path: layout.catalog(),
            reason: error.message.into_string(),
        };
        let catalog = Catalog::open(&copy.0)?;
        let reader = Files::read_only(layout.clone());
        let listed = layout.clone();
        let waste = catalog
            .write(move |transaction| super::recover::reconcile(transaction, &listed, &reader))
            .map_err(failed)?;
        let files = Files::read_only(layout.clone());
        let read = catalog.read(|transaction| {
            let numbers = transaction.open_table(META)?;
            let number = |key| -> Result<i64, redb::Error> {
                Ok(numbers.get(key)?.map_or(0, |number| number.value()))
            };
            Ok(read_rows(transaction)?
                .map(|rows| (rows, number(meta::STARTS), number(meta::CLEAN))))
        });
        let (rows, starts, clean) = read.and_then(|read| read).map_err(failed)?;
        let number = |read: Result<i64, redb::Error>| {
            read.map_err(|error| OpenError::Catalog {
                path: layout.catalog(),
                reason: error.to_string(),
            })
        };
        let (starts, clean) = (number(starts)?, number(clean)? == 1);
        catalog.close();
        Ok(Self {
            format,
            starts,
            clean,
            namespaces: rows.namespaces,
            topics: rows.topics,
            managed: rows.managed,
            cursors: rows.cursors,
            values: rows.values,
            waste,
            files,
            layout,
            _lock: lock,
        })
    }

    /// Full name of a managed ledger.
    pub(crate) fn name(&self, owner: (u64, u32)) -> String {
        let topic = self.topics.iter().find(|(_, row)| row.id == owner.0);
        match topic {
            Some((name, _)) if owner.1 == NOT_PARTITIONED => name.clone(),
            Some((name, _)) => format!("{name}-partition-{}", owner.1),
            None => format!("(deleted topic {})/{}", owner.0, owner.1),
        }
    }

    /// Where a ledger's file lies.
    pub(crate) fn path(&self, key: FileKey) -> PathBuf {
        self.layout.ledger(key.0, key.1)
    }

    /// Walks all that lies in a ledger's file.
    pub(crate) fn records(&self, row: &LedgerRow) -> std::io::Result<Records> {
        let file = self.files.open(row.key())?;
        let length = file.length()?;
        Ok(Records {
            file,
            offset: FILE_HEADER_BYTES as u64,
            length,
            next_entry: 0,
        })
    }
}

/// What one step of a walk found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An intact entry.
    Entry {
        offset: u64,
        header: RecordHeader,
        payload: Vec<u8>,
    },
    /// The footer of a sealed ledger.
    Footer { offset: u64, bytes: u64 },
    /// Bytes that are no intact record, with intact ones behind them.
    Damage { offset: u64, bytes: u64 },
    /// Bytes at the end that are no intact record: the next start cuts them off.
    Torn { offset: u64, bytes: u64 },
}

/// A walk over the records of a ledger file.
pub(crate) struct Records {
    file: Arc<LedgerFile>,
    offset: u64,
    length: u64,
    next_entry: u32,
}

impl Records {
    /// The next thing in the file, `None` at its end.
    pub(crate) fn step(&mut self) -> std::io::Result<Option<Found>> {
        let (offset, left) = (self.offset, self.length.saturating_sub(self.offset));
        if left == 0 {
            return Ok(None);
        }
        let header = RecordHeader::decode(&self.file.read(offset, RECORD_HEADER_BYTES)?)
            .filter(|header| header.size() <= left);
        if let Some(header) = header {
            let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
            let mut record = self.file.read(offset, size)?;
            if header.matches(&record) {
                self.offset += header.size();
                if header.is_footer() {
                    let bytes = header.size();
                    return Ok(Some(Found::Footer { offset, bytes }));
                }
                self.next_entry = header.entry + 1;
                let payload = record.split_off(RECORD_HEADER_BYTES);
                return Ok(Some(Found::Entry {
                    offset,
                    header,
                    payload,
                }));
            }
        }
        let next = next_intact(&self.file, offset + 1, self.length, self.next_entry)?;
        self.offset = next.map_or(self.length, |(_, next)| next);
        let bytes = self.offset - offset;
        Ok(Some(match next {
            Some(_) => Found::Damage { offset, bytes },
            None => Found::Torn { offset, bytes },
        }))
    }
}

struct Rows {
    namespaces: Vec<String>,
    topics: BTreeMap<String, TopicRow>,
    managed: BTreeMap<(u64, u32), ManagedRow>,
    cursors: Vec<(u64, u32, String, i64)>,
    values: Vec<(String, i64, Vec<u8>)>,
}

fn read_rows(transaction: &ReadTransaction) -> Result<Result<Rows, ApiError>, redb::Error> {
    let mut rows = Rows {
        namespaces: Vec::new(),
        topics: BTreeMap::new(),
        managed: BTreeMap::new(),
        cursors: Vec::new(),
        values: Vec::new(),
    };
    for row in transaction.open_table(NAMESPACES)?.iter()? {
        rows.namespaces.push(row?.0.value().to_owned());
    }
    for row in transaction.open_table(TOPICS)?.iter()? {
        let (name, row) = row?;
        match decode_row(row.value(), name.value()) {
            Ok(row) => rows.topics.insert(name.value().to_owned(), row),
            Err(error) => return Ok(Err(error)),
        };
    }
    for row in transaction.open_table(MANAGED)?.iter()? {
        let (owner, row) = row?;
        match decode_row(row.value(), "a managed ledger") {
            Ok(row) => rows.managed.insert(owner.value(), row),
            Err(error) => return Ok(Err(error)),
        };
    }
    for row in transaction.open_table(CURSORS)?.iter()? {
        let (key, index) = row?;
        let (topic, partition, name) = key.value();
        rows.cursors
            .push((topic, partition, name.to_owned(), index.value()));
    }
    for row in transaction.open_table(VALUES)?.iter()? {
        let (path, value) = row?;
        let (version, bytes) = value.value();
        rows.values
            .push((path.value().to_owned(), version, bytes.to_vec()));
    }
    Ok(Ok(rows))
}
