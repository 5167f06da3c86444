//! Where readers will go on: offset → position, so that reading in sequence does not search. It must not know readers.

use std::collections::VecDeque;

use handler_api::Position;

use super::limits::POSITIONS_KEPT;

/// The last places that readers stopped at.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// Oldest first.
    kept: VecDeque<(i64, Position)>,
}

impl Positions {
    /// Where the entry with an offset lies, or [`Position::UNKNOWN`].
    pub(super) fn get(&self, offset: i64) -> Position {
        self.kept
            .iter()
            .rev()
            .find(|(kept, _)| *kept == offset)
            .map_or(Position::UNKNOWN, |(_, position)| *position)
    }

    /// Remembers where to go on. A reader that moved on from `from` leaves its old place to it.
    pub(super) fn put(&mut self, from: i64, offset: i64, position: Position) {
        if !position.is_known() {
            return;
        }
        self.kept
            .retain(|(kept, _)| *kept != from && *kept != offset);
        if self.kept.len() == POSITIONS_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((offset, position));
    }

    /// Forgets all: entries moved.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_finds_where_it_stopped_and_its_old_place_is_forgotten() {
        let mut positions = Positions::default();
        positions.put(0, 10, Position::new(1, 1));
        positions.put(10, 20, Position::new(1, 2));
        assert_eq!(positions.get(20), Position::new(1, 2));
        assert_eq!(positions.get(10), Position::UNKNOWN);
        positions.put(20, 30, Position::UNKNOWN);
        assert_eq!(positions.get(30), Position::UNKNOWN);
    }

    #[test]
    fn only_so_many_places_are_kept() {
        let mut positions = Positions::default();
        for offset in 0..1000 {
            positions.put(-1, offset, Position::new(1, offset));
        }
        assert_eq!(positions.kept.len(), POSITIONS_KEPT);
        assert_eq!(positions.get(999), Position::new(1, 999));
        assert_eq!(positions.get(0), Position::UNKNOWN);
    }
}
