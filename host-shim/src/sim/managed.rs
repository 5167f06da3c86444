//! One managed ledger of the simulated host: ledgers, entries, indexes, cursors, in memory.
//!
//! Entries are *assigned* (they have an index and a position) before they are *durable* (they can be read). It must
//! not know who waits for what, nor anything of topics.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use handler_api::ledger::{Ledger, Opened, Replacement};
use handler_api::{
    ApiError, Appended, Entry, ErrorCode, Handle, List, Position, ReadAnswer, ReadRequest, Segment,
};

/// An entry as stored: the segments are the appender's own bytes.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) index: i64,
    pub(super) messages: u32,
    pub(super) segments: Vec<Bytes>,
}

impl Stored {
    fn base(&self) -> i64 {
        self.index - i64::from(self.messages) + 1
    }

    fn len(&self) -> u64 {
        self.segments.iter().map(|s| s.len() as u64).sum()
    }
}

#[derive(Clone, Debug)]
struct LedgerState {
    id: i64,
    /// Entry number of `entries[0]`: grows when the head is trimmed.
    first_entry: i64,
    /// Range of indexes that the ledger covers; `last_index` is meant for sealed ones.
    first_index: i64,
    last_index: i64,
    entries: VecDeque<Stored>,
    sealed: bool,
    created_ms: i64,
    last_append_ms: i64,
    replaced: u32,
}

/// A managed ledger.
#[derive(Clone, Debug)]
pub(super) struct Managed {
    pub(super) id: u64,
    /// 0 while it is not open.
    pub(super) generation: u64,
    ledgers: VecDeque<LedgerState>,
    /// Assigned, in order, but not durable yet.
    pending: VecDeque<(Position, Stored)>,
    /// Index of the first message that retention has left.
    start_index: i64,
    /// Index of the last durable message.
    pub(super) end_index: i64,
    /// Index and position of the next message that is assigned.
    next_index: i64,
    next_position: Position,
    pub(super) properties: HashMap<String, String>,
    pub(super) cursors: BTreeMap<String, i64>,
    /// Step at which the last pending entry becomes durable: the next is not earlier.
    pub(super) last_due: u64,
}

impl Managed {
    pub(super) fn new(id: u64, ledger: i64, now_ms: i64) -> Self {
        let mut managed = Self {
            id,
            generation: 0,
            ledgers: VecDeque::new(),
            pending: VecDeque::new(),
            start_index: 0,
            end_index: -1,
            next_index: 0,
            next_position: Position::new(ledger, 0),
            properties: HashMap::new(),
            cursors: BTreeMap::new(),
            last_due: 0,
        };
        managed.add_ledger(ledger, now_ms);
        managed
    }

    fn add_ledger(&mut self, id: i64, now_ms: i64) {
        self.ledgers.push_back(LedgerState {
            id,
            first_entry: 0,
            first_index: self.next_index,
            last_index: self.next_index - 1,
            entries: VecDeque::new(),
            sealed: false,
            created_ms: now_ms,
            last_append_ms: 0,
            replaced: 0,
        });
        self.next_position = Position::new(id, 0);
    }

    pub(super) fn handle(&self) -> Handle {
        Handle {
            id: self.id,
            generation: self.generation,
        }
    }

    pub(super) fn opened(&self) -> Opened {
        Opened {
            handle: Some(self.handle().into()),
            fault: None,
            start_index: self.start_index,
            end_index: self.end_index,
            properties: self.properties.clone(),
        }
    }

    /// Whether the open ledger holds `entries` entries, the pending ones among them.
    pub(super) fn is_full(&self, entries: u32) -> bool {
        self.next_position.entry >= i64::from(entries)
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Gives the next index and position to an entry.
    pub(super) fn assign(&mut self, messages: u32, segments: Vec<Bytes>) -> Appended {
        let index = self.next_index + i64::from(messages) - 1;
        let position = self.next_position;
        self.pending.push_back((
            position,
            Stored {
                index,
                messages,
                segments,
            },
        ));
        self.next_index = index + 1;
        self.next_position.entry += 1;
        Appended { position, index }
    }

    /// Makes the oldest pending entry durable and returns where it lies.
    pub(super) fn persist_next(&mut self, now_ms: i64) -> Option<Appended> {
        let (position, stored) = self.pending.pop_front()?;
        let index = stored.index;
        let ledger = self.ledgers.back_mut()?;
        ledger.last_index = index;
        ledger.last_append_ms = now_ms;
        ledger.entries.push_back(stored);
        self.end_index = index;
        Some(Appended { position, index })
    }

    /// Forgets what is pending: its indexes are given again.
    pub(super) fn drop_pending(&mut self) {
        self.pending.clear();
        self.next_index = self.end_index + 1;
        if let Some(ledger) = self.ledgers.back() {
            self.next_position =
                Position::new(ledger.id, ledger.first_entry + ledger.entries.len() as i64);
        }
    }

    /// Seals the open ledger if it holds anything and starts another. Nothing may be pending.
    pub(super) fn roll(&mut self, next_ledger: i64, now_ms: i64) -> bool {
        match self.ledgers.back_mut() {
            Some(ledger) if self.next_position.entry > 0 => {
                ledger.sealed = true;
                self.add_ledger(next_ledger, now_ms);
                true
            }
            _ => false,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let entries = self.ledgers.iter().flat_map(|l| &l.entries);
        entries.map(Stored::len).sum()
    }

    /// All durable entries, oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Position, &Stored)> {
        self.ledgers.iter().flat_map(|ledger| {
            let numbers = ledger.first_entry..;
            let entries = numbers.zip(&ledger.entries);
            entries.map(|(number, stored)| (Position::new(ledger.id, number), stored))
        })
    }

    /// Ledger and offset in it of the first entry whose last message is `index` or later.
    fn locate(&self, index: i64) -> Option<(usize, usize)> {
        let mut ledger_number = self
            .ledgers
            .partition_point(|l| l.last_index < index && l.sealed);
        while let Some(ledger) = self.ledgers.get(ledger_number) {
            let entry = ledger.entries.partition_point(|e| e.index < index);
            if entry < ledger.entries.len() {
                return Some((ledger_number, entry));
            }
            ledger_number += 1;
        }
        None
    }

    /// Position of the entry that holds `index` or of the first after it; past the end, where the next will lie.
    pub(super) fn find(&self, index: i64) -> Position {
        let Some((ledger, entry)) = self.locate(index) else {
            return self
                .pending
                .front()
                .map_or(self.next_position, |(position, _)| *position);
        };
        self.ledgers.get(ledger).map_or(Position::UNKNOWN, |l| {
            Position::new(l.id, l.first_entry + entry as i64)
        })
    }

    /// Reads durable entries. `budget` is what the whole call may still return, `first` whether it returned nothing
    /// so far. `split` cuts a segment's bytes anew, as a host's cache may.
    pub(super) fn read(
        &self,
        request: &ReadRequest,
        budget: &mut u64,
        first: &mut bool,
        mut split: impl FnMut(&Bytes) -> Vec<Bytes>,
    ) -> ReadAnswer {
        let mut entries = List::new();
        let mut next = Position::UNKNOWN;
        let mut left = request.max_bytes;
        let mut place = self.locate(request.index);
        while let Some((ledger_number, entry)) = place {
            let Some(ledger) = self.ledgers.get(ledger_number) else {
                break;
            };
            let Some(stored) = ledger.entries.get(entry) else {
                place = Some((ledger_number + 1, 0));
                continue;
            };
            if entries.len() as u64 >= u64::from(request.max_entries) {
                break;
            }
            let size = stored.len();
            let forced = *first && request.flags & ReadRequest::AT_LEAST_ONE != 0;
            if (size > left || size > *budget) && !forced {
                break;
            }
            *first = false;
            left = left.saturating_sub(size);
            *budget = budget.saturating_sub(size);
            let position = Position::new(ledger.id, ledger.first_entry + entry as i64);
            let segments = stored.segments.iter().flat_map(&mut split);
            entries.push(Entry {
                position,
                index: stored.index,
                segments: segments.map(Segment::from).collect(),
            });
            next = self.find(stored.index + 1);
            place = Some((ledger_number, entry + 1));
        }
        ReadAnswer {
            entries,
            next,
            start_index: self.start_index,
            end_index: self.end_index,
        }
    }

    pub(super) fn describe(&self) -> Vec<Ledger> {
        let describe = |l: &LedgerState| Ledger {
            id: l.id,
            first_index: l.first_index,
            last_index: l.last_index,
            entries: l.entries.len() as u64,
            bytes: l.entries.iter().map(Stored::len).sum(),
            sealed: l.sealed,
            created_ms: l.created_ms,
            last_append_ms: l.last_append_ms,
            replaced: l.replaced,
        };
        self.ledgers.iter().map(describe).collect()
    }

    /// The largest index not above this one at which a sealed ledger ends, so that only whole ledgers lie below it.
    fn whole_ledgers_below(&self, index: i64) -> i64 {
        let sealed = self.ledgers.iter().filter(|ledger| ledger.sealed);
        let ends = sealed.map(|ledger| ledger.last_index + 1);
        ends.filter(|end| *end <= index).max().unwrap_or(0)
    }

    /// Gives up entries below an index, or whole ledgers, but none that a cursor still wants. Returns whether the start
    /// moved.
    pub(super) fn trim(&mut self, before_index: i64, to_entry: bool) -> bool {
        let wanted = self.cursors.values().map(|done| done + 1).min();
        let before = before_index
            .min(self.end_index + 1)
            .min(wanted.unwrap_or(i64::MAX));
        let before = if to_entry {
            before
        } else {
            self.whole_ledgers_below(before)
        };
        if before <= self.start_index {
            return false;
        }
        while let Some(ledger) = self.ledgers.front_mut() {
            while ledger.entries.front().is_some_and(|e| e.index < before) {
                ledger.entries.pop_front();
                ledger.first_entry += 1;
            }
            if !ledger.sealed || ledger.last_index >= before {
                let base = ledger.entries.front().map(Stored::base);
                ledger.first_index = base.unwrap_or(ledger.last_index + 1);
                break;
            }
            self.ledgers.pop_front();
        }
        let start = self.entries().next().map(|(_, stored)| stored.base());
        let start = start.unwrap_or(self.end_index + 1);
        let moved = start > self.start_index;
        self.start_index = self.start_index.max(start);
        moved
    }

    /// Puts other entries into a sealed ledger's place.
    pub(super) fn replace(&mut self, replacement: &Replacement) -> Result<(), ApiError> {
        let ledger = self
            .ledgers
            .iter_mut()
            .find(|l| l.id == replacement.ledger)
            .ok_or_else(|| {
                ApiError::new(
                    ErrorCode::NotFound,
                    format!("there is no ledger {}", replacement.ledger),
                )
            })?;
        let wrong = |text: String| Err(ApiError::new(ErrorCode::InvalidArgument, text));
        if !ledger.sealed {
            return wrong(format!("ledger {} is not sealed", ledger.id));
        }
        if ledger.replaced != replacement.replaced {
            return Err(ApiError::new(
                ErrorCode::Conflict,
                format!(
                    "ledger {} was replaced {} times, not {}",
                    ledger.id, ledger.replaced, replacement.replaced
                ),
            ));
        }
        let mut entries = VecDeque::new();
        let mut free_from = ledger.first_index;
        for entry in &replacement.entries {
            let base = entry.index - i64::from(entry.messages) + 1;
            if entry.messages == 0 || base < free_from || entry.index > ledger.last_index {
                return wrong(format!(
                    "entry {base}..={} does not fit into {free_from}..={}",
                    entry.index, ledger.last_index
                ));
            }
            free_from = entry.index + 1;
            entries.push_back(Stored {
                index: entry.index,
                messages: entry.messages,
                segments: vec![entry.payload.clone()],
            });
        }
        ledger.entries = entries;
        ledger.first_entry = 0;
        ledger.replaced += 1;
        Ok(())
    }
}
