//! One open managed ledger: its bounds, who watches its end, and its life.
//!
//! The durable end is known from the completions of our own appends; that somebody else wrote shows in the last
//! confirmed entry, which is then read for its index. The index that the broker has given out last is never taken for
//! it while entries are under way. It must not know the plugin, nor JNI.

use std::collections::BTreeMap;

use handler_api::{ApiError, ErrorCode, Handle, Position};
use parking_lot::Mutex;

use crate::jvm::{Layout, PartitionRef};
use crate::places::Places;

/// Ledgers whose last index is remembered.
const MAX_BORDERS: usize = 1024;

/// An open managed ledger.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) handle: Handle,
    /// Full name of the partition.
    pub(crate) name: String,
    pub(crate) java: PartitionRef,
    state: Mutex<State>,
}

/// First and last index, and what they were learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Index of the first message that exists.
    pub(crate) start: i64,
    /// Index of the last durable message, −1 if there never was one.
    pub(crate) end: i64,
    /// The last confirmed entry.
    pub(crate) confirmed: Position,
    /// The first ledger.
    pub(crate) first_ledger: i64,
}

/// Nothing has been learned yet: no ledger has this number.
const UNLEARNED: i64 = i64::MIN;

#[derive(Debug)]
struct State {
    closed: Option<String>,
    bounds: Bounds,
    watch: Option<i64>,
    /// Whether Java was asked for a call when an entry is confirmed, and has not called yet.
    is_awaiting: bool,
    /// Last index of ledgers that are full.
    borders: BTreeMap<i64, i64>,
    places: Places,
    /// Mean size of an entry, in bytes, of late.
    entry_bytes: u64,
    /// Appends of ours under way: while there are any, the last confirmed entry is likely one of them.
    appending: usize,
}

/// A watch that came true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) position: Position,
    pub(crate) index: i64,
}

/// What a watch has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// The end lies beyond; nothing is armed.
    Beyond(i64),
    /// Armed. The bounds are those that were known then; Java must be asked for a call if `ask`.
    Armed { bounds: Bounds, ask: bool },
}

impl Partition {
    pub(crate) fn new(handle: Handle, name: String, java: PartitionRef) -> Self {
        let state = State {
            closed: None,
            bounds: Bounds {
                start: 0,
                end: -1,
                confirmed: Position::new(UNLEARNED, -1),
                first_ledger: UNLEARNED,
            },
            watch: None,
            is_awaiting: false,
            borders: BTreeMap::new(),
            places: Places::default(),
            entry_bytes: 0,
            appending: 0,
        };
        Self {
            handle,
            name,
            java,
            state: Mutex::new(state),
        }
    }

    /// Fails if the handle is dead.
    pub(crate) fn alive(&self) -> Result<(), ApiError> {
        match &self.state.lock().closed {
            None => Ok(()),
            Some(reason) => Err(closed(&self.name, reason)),
        }
    }

    /// The handle dies; whether it lived.
    pub(crate) fn die(&self, reason: &str) -> bool {
        let mut state = self.state.lock();
        state.watch = None;
        let lived = state.closed.is_none();
        state.closed.get_or_insert_with(|| reason.to_owned());
        lived
    }

    /// The bounds as they were learned last.
    pub(crate) fn known(&self) -> Bounds {
        self.state.lock().bounds
    }

    /// The bounds, if nothing has changed since they were learned.
    pub(crate) fn fresh(&self) -> Result<Option<Bounds>, ApiError> {
        let (bounds, appending) = {
            let state = self.state.lock();
            if let Some(reason) = &state.closed {
                return Err(closed(&self.name, reason));
            }
            (state.bounds, state.appending > 0)
        };
        // Our own appends tell the end when they are done; to read it meanwhile would gain nothing.
        let same = (appending && bounds.first_ledger != UNLEARNED)
            || self.java.is_at(bounds.confirmed, bounds.first_ledger)?;
        Ok(same.then_some(bounds))
    }

    /// An append of ours begins.
    pub(crate) fn began(&self) {
        self.state.lock().appending += 1;
    }

    /// An append of ours has ended without success.
    pub(crate) fn ended(&self) {
        let mut state = self.state.lock();
        state.appending = state.appending.saturating_sub(1);
    }

    /// An append of ours is durable.
    pub(crate) fn appended(&self, at: Position, index: i64, messages: i64) -> Option<Moved> {
        let mut state = self.state.lock();
        state.appending = state.appending.saturating_sub(1);
        let before = state.bounds;
        if index <= before.end {
            return None;
        }
        if at.ledger != before.confirmed.ledger && index - messages == before.end && before.end >= 0
        {
            state.border(before.confirmed.ledger, before.end);
        }
        state.bounds.end = index;
        if at > before.confirmed {
            state.bounds.confirmed = at;
        }
        state.moved(at)
    }

    /// The end was read.
    pub(crate) fn learned_end(&self, layout: &Layout, index: i64) -> Option<Moved> {
        let mut state = self.state.lock();
        if index < state.bounds.end {
            return None;
        }
        state.bounds.end = index;
        if layout.confirmed > state.bounds.confirmed {
            state.bounds.confirmed = layout.confirmed;
        }
        state.moved(layout.last)
    }

    /// The start was read, of a first ledger; the new start if it moved.
    pub(crate) fn learned_start(&self, first_ledger: i64, start: i64) -> Option<i64> {
        let mut state = self.state.lock();
        let before = state.bounds;
        if first_ledger < before.first_ledger {
            return None;
        }
        state.bounds.first_ledger = first_ledger;
        state.bounds.start = start;
        // What lay before the first ledger is of no use but its last index.
        let keep = state
            .borders
            .range(..first_ledger)
            .next_back()
            .map(|(ledger, _)| *ledger);
        if let Some(keep) = keep {
            state.borders = state.borders.split_off(&keep);
        }
        (before.first_ledger != UNLEARNED && start > before.start).then_some(start)
    }

    /// Remembers the last index of a full ledger.
    pub(crate) fn learned_border(&self, ledger: i64, last_index: i64) {
        self.state.lock().border(ledger, last_index);
    }

    /// The last index of a full ledger, if it is known.
    pub(crate) fn border(&self, ledger: i64) -> Option<i64> {
        self.state.lock().borders.get(&ledger).copied()
    }

    /// The last index of the newest ledger before one, among those that are known.
    pub(crate) fn border_before(&self, ledger: i64) -> Option<i64> {
        let state = self.state.lock();
        state
            .borders
            .range(..ledger)
            .next_back()
            .map(|(_, last)| *last)
    }

    /// Where an index lies, if that is known.
    pub(crate) fn place(&self, index: i64) -> Option<Position> {
        self.state.lock().places.get(index)
    }

    /// Remembers where an index lies.
    pub(crate) fn put_place(&self, index: i64, position: Position) {
        self.state.lock().places.put(index, position);
    }

    /// Arms a watch, unless the end lies beyond already.
    pub(crate) fn watch(&self, after: i64) -> Result<Watched, ApiError> {
        let mut state = self.state.lock();
        if let Some(reason) = &state.closed {
            return Err(closed(&self.name, reason));
        }
        let bounds = state.bounds;
        if bounds.end > after {
            state.watch = None;
            return Ok(Watched::Beyond(bounds.end));
        }
        state.watch = Some(after);
        Ok(Watched::Armed {
            bounds,
            ask: !std::mem::replace(&mut state.is_awaiting, true),
        })
    }

    /// Java has made its call; whether somebody still watches, so that it must be asked again.
    pub(crate) fn called(&self) -> bool {
        let mut state = self.state.lock();
        state.is_awaiting = state.watch.is_some() && state.closed.is_none();
        state.is_awaiting
    }

    /// Entries that together hold about so many bytes, by the entries of late; at least one.
    pub(crate) fn entries_for(&self, bytes: u64) -> u64 {
        let mean = self.state.lock().entry_bytes.max(1);
        (bytes / mean).max(1)
    }

    /// Takes in the size of an entry.
    pub(crate) fn sized(&self, bytes: u64) {
        let mut state = self.state.lock();
        // Grows at once, so that a guess errs towards few entries, and falls slowly.
        state.entry_bytes = bytes.max(state.entry_bytes - state.entry_bytes / 16);
    }
}

/// The answer to calls with a dead handle.
pub(crate) fn closed(name: &str, reason: &str) -> ApiError {
    ApiError::new(
        ErrorCode::HandleClosed,
        format!("{name} is not open any more: {reason}"),
    )
}

impl State {
    fn border(&mut self, ledger: i64, last_index: i64) {
        self.borders.insert(ledger, last_index);
        if self.borders.len() > MAX_BORDERS {
            self.borders.pop_first();
        }
    }

    /// The end may lie beyond what is watched.
    fn moved(&mut self, position: Position) -> Option<Moved> {
        let index = self.bounds.end;
        self.watch.take_if(|after| index > *after)?;
        Some(Moved { position, index })
    }
}
