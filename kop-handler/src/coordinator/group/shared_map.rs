//! An ordered map by name whose copies share what they have in common, so that a new state of a large group costs
//! what differs from the old one.
//!
//! ```text
//! chunks ──▶ [a … f] [g … m] [n … z]      a copy takes over the pointers, a change copies one chunk
//! ```
//!
//! It must not know what is kept in it.

use std::fmt;
use std::sync::Arc;

/// Entries of a chunk at most; one more and it is split.
const CHUNK: usize = 64;

type Chunk<V> = Vec<(Arc<str>, V)>;

/// The map.
#[derive(Clone)]
pub(crate) struct SharedMap<V> {
    /// In order; none is empty.
    chunks: Vec<Arc<Chunk<V>>>,
    len: usize,
}

impl<V> SharedMap<V> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Chunk and place in it where a key is (`Ok`) or would be.
    fn find(&self, key: &str) -> Result<(usize, usize), (usize, usize)> {
        let begins_before = |chunk: &Arc<Chunk<V>>| {
            let first = chunk.first();
            first.is_some_and(|(first, _)| **first <= *key)
        };
        let at = self.chunks.partition_point(begins_before).saturating_sub(1);
        let Some(chunk) = self.chunks.get(at) else {
            return Err((at, 0));
        };
        let found = chunk.binary_search_by(|(known, _)| (**known).cmp(key));
        found.map(|place| (at, place)).map_err(|place| (at, place))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&V> {
        let (at, place) = self.find(key).ok()?;
        let (_, value) = self.chunks.get(at)?.get(place)?;
        Some(value)
    }

    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    /// In order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        let entries = self.chunks.iter().flat_map(|chunk| chunk.iter());
        entries.map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

impl<V: Clone> SharedMap<V> {
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        let (at, place) = self.find(key).ok()?;
        let chunk = Arc::make_mut(self.chunks.get_mut(at)?);
        chunk.get_mut(place).map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let entries = self
            .chunks
            .iter_mut()
            .flat_map(|chunk| Arc::make_mut(chunk).iter_mut());
        entries.map(|(_, value)| value)
    }

    /// Answers the value before, if there was one.
    pub(crate) fn insert(&mut self, key: Arc<str>, value: V) -> Option<V> {
        let (at, place) = match self.find(&key) {
            Ok(_) => {
                let known = self.get_mut(&key)?;
                return Some(std::mem::replace(known, value));
            }
            Err(place) => place,
        };
        self.len += 1;
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Arc::new(vec![(key, value)]));
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        chunk.insert(place, (key, value));
        if chunk.len() > CHUNK {
            let upper = chunk.split_off(chunk.len() / 2);
            self.chunks.insert(at + 1, Arc::new(upper));
        }
        None
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<V> {
        let (at, place) = self.find(key).ok()?;
        let chunk = Arc::make_mut(self.chunks.get_mut(at)?);
        let (_, value) = chunk.remove(place);
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
        self.len -= 1;
        Some(value)
    }

    /// Keeps what `keep` says; chunks that stay whole stay shared.
    pub(crate) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.chunks.retain_mut(|chunk| {
            if !chunk.iter().all(|(_, value)| keep(value)) {
                Arc::make_mut(chunk).retain(|(_, value)| keep(value));
            }
            !chunk.is_empty()
        });
        self.len = self.chunks.iter().map(|chunk| chunk.len()).sum();
    }
}

impl<V: PartialEq> PartialEq for SharedMap<V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<V: Eq> Eq for SharedMap<V> {}

impl<V: fmt::Debug> fmt::Debug for SharedMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16, u32),
        Change(u16, u32),
        Remove(u16),
        Retain(u32),
        Clear,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = || 0_u16..300;
        let step = prop_oneof![
            400 => (key(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            50 => (key(), any::<u32>()).prop_map(|(key, value)| Step::Change(key, value)),
            100 => key().prop_map(Step::Remove),
            2 => (2_u32..5).prop_map(Step::Retain),
            1 => Just(Step::Clear),
        ];
        prop::collection::vec(step, 0..1500)
    }

    fn name(key: u16) -> Arc<str> {
        Arc::from(format!("member-{key}"))
    }

    fn content(map: &SharedMap<u32>) -> Vec<(Arc<str>, u32)> {
        map.iter().map(|(k, v)| (Arc::clone(k), *v)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_an_ordered_map_and_a_copy_stays_as_it_was(steps in steps()) {
            let mut map = SharedMap::new();
            let mut model: BTreeMap<Arc<str>, u32> = BTreeMap::new();
            for step in steps {
                let (before, copy) = (content(&map), map.clone());
                match step {
                    Step::Insert(key, value) => {
                        let old = map.insert(name(key), value);
                        prop_assert_eq!(old, model.insert(name(key), value));
                    }
                    Step::Change(key, value) => {
                        let (ours, models) = (map.get_mut(&name(key)), model.get_mut(&name(key)));
                        prop_assert_eq!(&ours, &models);
                        if let (Some(ours), Some(models)) = (ours, models) {
                            *ours = value;
                            *models = value;
                        }
                    }
                    Step::Remove(key) => {
                        prop_assert_eq!(map.remove(&name(key)), model.remove(&name(key)));
                    }
                    Step::Retain(divisor) => {
                        map.retain(|value| value % divisor != 0);
                        model.retain(|_, value| *value % divisor != 0);
                    }
                    Step::Clear => {
                        map.clear();
                        model.clear();
                    }
                }
                prop_assert_eq!(content(&copy), before);
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.is_empty(), model.is_empty());
                let expected: Vec<_> = model.iter().map(|(k, v)| (Arc::clone(k), *v)).collect();
                prop_assert_eq!(content(&map), expected);
                for key in [0, 7, 299] {
                    prop_assert_eq!(map.get(&name(key)), model.get(&name(key)));
                    prop_assert_eq!(map.contains_key(&name(key)), model.contains_key(&name(key)));
                }
            }
            let mut rebuilt = SharedMap::new();
            for (key, value) in model.iter().rev() {
                rebuilt.insert(Arc::clone(key), *value);
            }
            prop_assert_eq!(map, rebuilt, "equal however it came about");
        }
    }

    #[test]
    fn a_change_copies_one_chunk_and_leaves_the_others_shared() {
        let mut map = SharedMap::new();
        for key in 0..10_000 {
            map.insert(Arc::from(format!("member-{key:05}")), key);
        }
        let old = map.clone();
        map.insert(Arc::from("member-05000-new"), 1);
        assert_eq!(map.get_mut("member-00007").copied(), Some(7));
        map.remove("member-09999");
        let is_shared = |chunk: &&Arc<Chunk<i32>>| {
            let same = |other: &Arc<Chunk<i32>>| Arc::ptr_eq(chunk, other);
            old.chunks.iter().any(same)
        };
        let own = map.chunks.len() - map.chunks.iter().filter(is_shared).count();
        assert!((3..=4).contains(&own), "{own} of {}", map.chunks.len());
        assert!(map.chunks.len() < 10_000 / (CHUNK / 4));
    }
}
