//! One managed ledger in memory: what writers own, what readers see, and how the second follows the first.
//!
//! Two locks, taken in this order: `writer` (appends, rolling over) and `view` (what is durable, who waits). A third,
//! `structure`, is taken before both by whatever rewrites the list of ledgers in the catalog. No lock is held while
//! calling out, and none but `structure` while waiting for a sync.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use handler_api::{ApiError, ErrorCode, Handle, Position};
use parking_lot::Mutex;

use super::catalog::LedgerRow;
use super::limits::{MARK_INTERVAL_BYTES, REMEMBERED_READS};
use super::record::{FILE_HEADER_BYTES, Mark};

/// Partition number of a topic that is not partitioned.
pub(crate) const NOT_PARTITIONED: u32 = u32::MAX;

/// An open managed ledger.
pub(crate) struct Partition {
    pub(crate) handle: Handle,
    /// Full name of the partition.
    pub(crate) name: Arc<str>,
    /// Number of the topic's life.
    pub(crate) topic_id: u64,
    /// Number of the partition, or [`NOT_PARTITIONED`].
    pub(crate) number: u32,
    /// Held while the list of ledgers is changed in the catalog.
    pub(crate) structure: Mutex<()>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) view: Mutex<View>,
    /// Whether it waits for a checkpoint.
    pub(crate) dirty: AtomicBool,
}

/// What an append works on.
pub(crate) struct Writer {
    /// Why nothing can be written any more.
    pub(crate) dead: Option<ApiError>,
    /// Index of the next message.
    pub(crate) next_index: i64,
    /// The open ledger; none until the next append makes one.
    pub(crate) tail: Option<Box<Tail>>,
}

/// The end of the open ledger, as written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub(crate) ledger: i64,
    pub(crate) replaced: u32,
    pub(crate) first_index: i64,
    pub(crate) created_ms: i64,
    /// Where the next record goes.
    pub(crate) offset: u64,
    pub(crate) next_entry: u32,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) last_append_ms: i64,
    /// Room reserved up to here.
    pub(crate) allocated: u64,
    /// Offset from which the next mark is due.
    pub(crate) next_mark: u64,
}

impl Tail {
    /// The tail of an unsealed ledger.
    pub(crate) fn of(row: &LedgerRow, last_mark: Option<u64>) -> Self {
        Self {
            ledger: row.id,
            replaced: row.replaced,
            first_index: row.first_index,
            created_ms: row.created_ms,
            offset: row.data_end,
            next_entry: row.next_entry,
            entries: row.entries,
            bytes: row.bytes,
            last_append_ms: row.last_append_ms,
            allocated: row.data_end,
            next_mark: last_mark.map_or(0, |offset| offset + MARK_INTERVAL_BYTES),
        }
    }

    /// The ledger as of this tail, when `last_index` is its last message.
    pub(crate) fn row(&self, last_index: i64, sealed: bool) -> LedgerRow {
        LedgerRow {
            id: self.ledger,
            replaced: self.replaced,
            first_index: self.first_index,
            last_index,
            entries: self.entries,
            bytes: self.bytes,
            next_entry: self.next_entry,
            data_end: self.offset,
            created_ms: self.created_ms,
            last_append_ms: self.last_append_ms,
            sealed,
        }
    }
}

/// What readers see: durable entries only.
pub(crate) struct View {
    /// Why reads are over.
    pub(crate) dead: Option<ApiError>,
    /// Index of the first message that still exists.
    pub(crate) start_index: i64,
    /// Index of the last durable message; −1 if there never was one.
    pub(crate) end_index: i64,
    /// All ledgers, oldest first; only the last may be unsealed.
    pub(crate) ledgers: Vec<Ledger>,
    /// Highest ledger id that was ever in the list.
    pub(crate) last_ledger: i64,
    /// Sparse index of the unsealed ledger. May reach beyond what is durable.
    pub(crate) marks: Vec<Mark>,
    /// How many of them the catalog has.
    pub(crate) marks_saved: usize,
    /// Where recent reads ended.
    recent: Vec<Place>,
    /// Who waits for the end to move.
    pub(crate) watches: Vec<Watch>,
    /// Properties and cursors, absent if there are none.
    pub(crate) extras: Option<Box<Extras>>,
}

/// A ledger in the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ledger {
    pub(crate) row: LedgerRow,
    /// Whether the catalog knows it as sealed.
    pub(crate) recorded: bool,
    /// Where its records end once it is sealed; `row` follows as they become durable.
    pub(crate) sealed_end: u64,
}

impl Ledger {
    pub(crate) fn open(row: LedgerRow) -> Self {
        Self {
            row,
            recorded: false,
            sealed_end: 0,
        }
    }

    pub(crate) fn recorded(row: LedgerRow) -> Self {
        Self {
            row,
            recorded: row.sealed,
            sealed_end: row.data_end,
        }
    }
}

/// Where an entry's record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) ledger: i64,
    pub(crate) replaced: u32,
    pub(crate) entry: u32,
    pub(crate) offset: u64,
    /// Index of its first message, at least.
    pub(crate) base: i64,
}

/// One plugin waits for one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) attachment: u64,
    pub(crate) after_index: i64,
}

/// What few managed ledgers have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    pub(crate) properties: HashMap<String, String>,
    /// By name, the last index that is done with.
    pub(crate) cursors: BTreeMap<String, i64>,
}

/// A wake-up to be delivered once no lock is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fired {
    pub(crate) attachment: u64,
    pub(crate) handle: Handle,
    pub(crate) position: Position,
    pub(crate) index: i64,
}

/// Entries that became durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    /// The open ledger as of their end.
    pub(crate) row: LedgerRow,
}

impl View {
    /// Takes in durable entries; answers who is to be told.
    pub(crate) fn publish(
        &mut self,
        handle: Handle,
        published: &Published,
        fired: &mut Vec<Fired>,
    ) {
        let row = published.row;
        let Some(ledger) = self
            .ledgers
            .iter_mut()
            .rev()
            .find(|ledger| ledger.row.id == row.id && ledger.row.replaced == row.replaced)
        else {
            return;
        };
        if ledger.row.data_end < row.data_end {
            let sealed = ledger.row.sealed;
            ledger.row = LedgerRow { sealed, ..row };
        }
        if row.last_index <= self.end_index {
            return;
        }
        self.end_index = row.last_index;
        if self.watches.is_empty() {
            return;
        }
        let end_index = self.end_index;
        let position = Position::new(row.id, i64::from(row.next_entry) - 1);
        self.watches.retain(|watch| {
            let waits = watch.after_index >= end_index;
            if !waits {
                fired.push(Fired {
                    attachment: watch.attachment,
                    handle,
                    position,
                    index: end_index,
                });
            }
            waits
        });
        if self.watches.is_empty() {
            self.watches = Vec::new();
        }
    }

    /// Arms a watch unless the end is beyond it already; answers the end.
    pub(crate) fn watch(&mut self, attachment: u64, after_index: i64) -> i64 {
        self.watches.retain(|watch| watch.attachment != attachment);
        if self.end_index <= after_index {
            self.watches.push(Watch {
                attachment,
                after_index,
            });
        }
        self.end_index
    }

    /// Which ledger holds an index, or the first message after it: its place in the list.
    pub(crate) fn ledger_for_index(&self, index: i64) -> Option<usize> {
        let at = self
            .ledgers
            .partition_point(|ledger| ledger.row.last_index < index);
        (at < self.ledgers.len()).then_some(at)
    }

    /// A ledger by id: its place in the list.
    pub(crate) fn ledger_by_id(&self, id: i64) -> Option<usize> {
        self.ledgers
            .binary_search_by_key(&id, |ledger| ledger.row.id)
            .ok()
    }

    /// Where an entry lies, if a recent read ended there.
    pub(crate) fn recall(&self, ledger: i64, replaced: u32, entry: u32) -> Option<Place> {
        self.recent
            .iter()
            .find(|place| {
                place.ledger == ledger && place.replaced == replaced && place.entry == entry
            })
            .copied()
    }

    /// Remembers where a read ended, in the place of where it started.
    pub(crate) fn remember(&mut self, from: Option<(i64, u32)>, place: Place) {
        if let Some(old) = self.recent.iter_mut().find(|old| {
            from == Some((old.ledger, old.entry))
                || (old.ledger == place.ledger && old.entry == place.entry)
        }) {
            *old = place;
            return;
        }
        if self.recent.len() >= REMEMBERED_READS {
            self.recent.remove(0);
        }
        self.recent.push(place);
    }

    /// The position where the next entry will lie.
    pub(crate) fn end_position(&self) -> Position {
        self.ledgers.last().map_or(Position::UNKNOWN, |ledger| {
            Position::new(ledger.row.id, i64::from(ledger.row.next_entry))
        })
    }

    /// Cursors hold data back: the lowest index that must stay, if there is a cursor.
    pub(crate) fn held_from(&self) -> Option<i64> {
        let extras = self.extras.as_ref()?;
        extras.cursors.values().min().map(|index| index + 1)
    }

    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    pub(crate) fn properties(&self) -> HashMap<String, String> {
        self.extras
            .as_ref()
            .map(|extras| extras.properties.clone())
            .unwrap_or_default()
    }
}

/// What [`Partition::new`] starts from.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) start_index: i64,
    pub(crate) next_index: i64,
    pub(crate) ledgers: Vec<Ledger>,
    pub(crate) last_ledger: i64,
    pub(crate) marks: Vec<Mark>,
    pub(crate) marks_saved: usize,
    pub(crate) extras: Extras,
    /// Whether the catalog is behind.
    pub(crate) dirty: bool,
}

impl Partition {
    pub(crate) fn new(
        handle: Handle,
        name: Arc<str>,
        topic_id: u64,
        number: u32,
        loaded: Loaded,
    ) -> Self {
        let tail = loaded
            .ledgers
            .last()
            .filter(|ledger| !ledger.row.sealed)
            .map(|ledger| {
                Box::new(Tail::of(
                    &ledger.row,
                    loaded.marks.last().map(|mark| mark.offset),
                ))
            });
        let extras = (!loaded.extras.properties.is_empty() || !loaded.extras.cursors.is_empty())
            .then(|| Box::new(loaded.extras));
        Self {
            handle,
            name,
            topic_id,
            number,
            structure: Mutex::new(()),
            writer: Mutex::new(Writer {
                dead: None,
                next_index: loaded.next_index,
                tail,
            }),
            view: Mutex::new(View {
                dead: None,
                start_index: loaded.start_index,
                end_index: loaded.next_index - 1,
                ledgers: loaded.ledgers,
                last_ledger: loaded.last_ledger,
                marks: loaded.marks,
                marks_saved: loaded.marks_saved,
                recent: Vec::new(),
                watches: Vec::new(),
                extras,
            }),
            dirty: AtomicBool::new(false),
        }
    }

    /// Ends this opening: appends and reads are answered with `reason` from now on. `false` if it was over before.
    pub(crate) fn end(&self, reason: &ApiError) -> bool {
        let mut writer = self.writer.lock();
        if writer.dead.is_some() {
            return false;
        }
        writer.dead = Some(reason.clone());
        let mut view = self.view.lock();
        view.dead = Some(reason.clone());
        view.watches = Vec::new();
        true
    }

    /// What calls with a dead handle are answered.
    pub(crate) fn closed(&self, why: &str) -> ApiError {
        ApiError::new(
            ErrorCode::HandleClosed,
            format!("the handle of {} is closed: {why}", self.name),
        )
    }
}

/// An empty ledger's row.
pub(crate) fn fresh_row(id: i64, first_index: i64, created_ms: i64) -> LedgerRow {
    LedgerRow {
        id,
        replaced: 0,
        first_index,
        last_index: first_index - 1,
        entries: 0,
        bytes: 0,
        next_entry: 0,
        data_end: FILE_HEADER_BYTES as u64,
        created_ms,
        last_append_ms: 0,
        sealed: false,
    }
}
