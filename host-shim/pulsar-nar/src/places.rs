//! Where indexes lie that were read up to: pairs of an index and the position of its entry, the newest ones.
//!
//! A position that a plugin names is only a hint; one of these is true. It must not know how they were learned.

use std::collections::VecDeque;

use handler_api::Position;

/// Places that are remembered per partition: about one per reader.
const MAX_PLACES: usize = 32;

/// Remembered places, newest last.
#[derive(Debug, Default)]
pub(crate) struct Places(VecDeque<(i64, Position)>);

impl Places {
    /// Remembers that the first entry at or after `index` lies at `position`, or will.
    pub(crate) fn put(&mut self, index: i64, position: Position) {
        self.0.retain(|(known, _)| *known != index);
        if self.0.len() == MAX_PLACES {
            self.0.pop_front();
        }
        self.0.push_back((index, position));
    }

    /// Where an index lies, if that is known.
    pub(crate) fn get(&self, index: i64) -> Option<Position> {
        let found = self.0.iter().rev().find(|(known, _)| *known == index);
        found.map(|(_, position)| *position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_places_are_kept() {
        let mut places = Places::default();
        for index in 0..100 {
            places.put(index, Position::new(1, index));
        }
        assert_eq!(places.get(99), Some(Position::new(1, 99)));
        assert_eq!(places.get(0), None);
        places.put(99, Position::new(2, 0));
        assert_eq!(places.get(99), Some(Position::new(2, 0)));
        assert_eq!(places.0.len(), MAX_PLACES);
    }
}
