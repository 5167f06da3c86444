//! Which records of a compacted topic stay: the newest of each key, and tombstones for a while. No I/O, no clock.
//!
//! ```text
//! dirty ledgers ─> Newest (key → last offset, bounded) ─> every sealed ledger up to there: batch by batch, retain()
//! ```
//!
//! Offsets stay as they are. A batch that loses records keeps the span of its offsets; one that loses all goes, and
//! leaves a gap. Rules are those of Kafka's `Cleaner`, with the delete horizon in the batch (KIP-534).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;

use crate::wire::batch::{BatchBuilder, BatchError, BatchView, MAX_UNPACKED_BYTES, Record};

/// The newest offset of each key in a range of the log.
///
/// Keys are kept as 128 bits of two hashes under random keys: nobody can choose two keys that meet, and by chance they
/// do not.
pub(super) struct Newest {
    offsets: HashMap<(u64, u64), i64>,
    hashers: (RandomState, RandomState),
    most: usize,
    end: i64,
}

impl Newest {
    /// Of nothing yet; the range begins at `start`.
    pub(super) fn new(start: i64, most: usize) -> Self {
        Self {
            offsets: HashMap::new(),
            hashers: (RandomState::new(), RandomState::new()),
            most,
            end: start,
        }
    }

    /// Takes a batch in. Answers false, having changed nothing that counts, if it does not fit any more.
    pub(super) fn add(&mut self, batch: &BatchView) -> Result<bool, BatchError> {
        let header = &batch.header;
        let count = usize::try_from(header.record_count).unwrap_or(0);
        let is_empty = self.offsets.is_empty();
        if !is_empty && self.offsets.len().saturating_add(count) > self.most {
            return Ok(false);
        }
        if !header.attributes.is_control() {
            for record in &batch.records(MAX_UNPACKED_BYTES)? {
                let record = record?;
                if let Some(key) = record.key {
                    let hash = self.hash(key);
                    self.offsets.insert(hash, record.offset);
                }
            }
        }
        self.end = header.last_offset() + 1;
        Ok(true)
    }

    /// Takes in that nothing stands below an offset any more.
    pub(super) fn skip_to(&mut self, end: i64) {
        self.end = self.end.max(end);
    }

    /// The offset up to which batches are taken in.
    pub(super) fn end(&self) -> i64 {
        self.end
    }

    /// Whether no later record of the range has this one's key.
    fn is_newest(&self, key: &[u8], offset: i64) -> bool {
        self.offsets
            .get(&self.hash(key))
            .is_none_or(|newest| *newest <= offset)
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        (self.hashers.0.hash_one(key), self.hashers.1.hash_one(key))
    }
}

/// What becomes of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays as it is.
    Stays,
    /// It is replaced by one with fewer records, or with a delete horizon.
    Shrinks(Bytes),
    /// It goes.
    Goes,
}

/// When things happen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Now, in ms since the epoch.
    pub(super) now_ms: i64,
    /// How long a tombstone stays after it was cleaned first.
    pub(super) delete_retention_ms: i64,
}

/// Decides about one batch. The last one of a log must stay, emptied if need be (`must_stay`), so that readers get past
/// it.
pub(super) fn retain(
    newest: &Newest,
    batch: &BatchView,
    times: Times,
    must_stay: bool,
) -> Result<Fate, BatchError> {
    let header = &batch.header;
    // Markers end transactions for readers, also when the transaction's records are gone.
    if header.attributes.is_control() || header.last_offset() >= newest.end() {
        return Ok(Fate::Stays);
    }
    let horizon = header
        .attributes
        .has_delete_horizon()
        .then_some(header.base_timestamp);
    let records = batch.records(MAX_UNPACKED_BYTES)?;
    let mut kept = Vec::new();
    let mut tombstones = false;
    let mut lost = 0;
    for record in &records {
        let record = record?;
        if stays(newest, &record, horizon, times.now_ms) {
            tombstones |= record.value.is_none();
            kept.push(record);
        } else {
            lost += 1;
        }
    }
    if kept.is_empty() && !must_stay {
        return Ok(Fate::Goes);
    }
    let sets_horizon = tombstones && horizon.is_none();
    if lost == 0 && !sets_horizon {
        return Ok(Fate::Stays);
    }
    let horizon = if sets_horizon {
        Some(times.now_ms.saturating_add(times.delete_retention_ms))
    } else {
        horizon
    };
    BatchBuilder::retain(header, kept, horizon).map(Fate::Shrinks)
}

fn stays(newest: &Newest, record: &Record<'_>, horizon: Option<i64>, now_ms: i64) -> bool {
    let Some(key) = record.key else {
        return false;
    };
    let is_void = record.value.is_none() && horizon.is_some_and(|horizon| now_ms >= horizon);
    newest.is_newest(key, record.offset) && !is_void
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::limits::MAX_KEYS;
    use crate::wire::batch::{Compression, NewRecord};

    const NOW: i64 = 1_000_000;
    const TIMES: Times = Times {
        now_ms: NOW,
        delete_retention_ms: 500,
    };

    fn batch(base_offset: i64, codec: Compression, records: &[(&str, Option<&str>)]) -> BatchView {
        let mut builder = BatchBuilder::new(10).compression(codec);
        for (place, (key, value)) in records.iter().enumerate() {
            let timestamp = 10 + i64::try_from(place).unwrap_or(0);
            builder
                .push(NewRecord::new(
                    timestamp,
                    Some(key.as_bytes()),
                    value.map(str::as_bytes),
                ))
                .expect("a record");
        }
        view(base_offset, builder.build().expect("a batch"))
    }

    fn view(base_offset: i64, bytes: Bytes) -> BatchView {
        let mut view = BatchView::parse(&bytes).expect("a batch");
        view.header.base_offset = base_offset;
        view
    }

    fn newest(batches: &[BatchView]) -> Newest {
        let mut newest = Newest::new(0, MAX_KEYS);
        for batch in batches {
            assert_eq!(newest.add(batch), Ok(true));
        }
        newest
    }

    fn content(batch: &BatchView) -> Vec<(i64, i64, String, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        batch
            .records(1 << 20)
            .expect("records")
            .iter()
            .map(|record| {
                let record = record.expect("a record");
                (
                    record.offset,
                    record.timestamp,
                    text(record.key.expect("a key")),
                    record.value.map(text),
                )
            })
            .collect()
    }

    fn shrunk(fate: Result<Fate, BatchError>, base_offset: i64) -> BatchView {
        match fate {
            Ok(Fate::Shrinks(bytes)) => {
                let batch = view(base_offset, bytes);
                assert!(batch.has_right_crc());
                batch
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_newest_of_each_key_stays_with_its_offset_and_time() {
        for codec in Compression::ALL {
            let batches = [
                batch(
                    0,
                    codec,
                    &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))],
                ),
                batch(3, codec, &[("a", Some("2")), ("a", Some("3"))]),
                batch(5, codec, &[("b", Some("2"))]),
            ];
            let newest = newest(&batches);
            let first = shrunk(retain(&newest, &batches[0], TIMES, false), 0);
            assert_eq!(
                content(&first),
                [(2, 12, "c".to_owned(), Some("1".to_owned()))]
            );
            assert_eq!(first.header.offset_span(), 3, "the span stays");
            assert_eq!(first.header.attributes.compression(), Ok(codec));
            let second = shrunk(retain(&newest, &batches[1], TIMES, false), 3);
            assert_eq!(
                content(&second),
                [(4, 11, "a".to_owned(), Some("3".to_owned()))]
            );
            assert_eq!(retain(&newest, &batches[2], TIMES, false), Ok(Fate::Stays));
        }
    }

    #[test]
    fn a_batch_without_records_goes_unless_it_must_stay() {
        let batches = [
            batch(0, Compression::None, &[("a", Some("1"))]),
            batch(1, Compression::None, &[("a", Some("2"))]),
        ];
        let newest = newest(&batches);
        assert_eq!(retain(&newest, &batches[0], TIMES, false), Ok(Fate::Goes));
        let empty = shrunk(retain(&newest, &batches[0], TIMES, true), 0);
        assert_eq!(
            (empty.header.record_count, empty.header.offset_span()),
            (0, 1)
        );
    }

    #[test]
    fn a_tombstone_stays_until_its_horizon_and_a_later_cleaning_takes_it() {
        let batches = [
            batch(0, Compression::None, &[("a", Some("1"))]),
            batch(1, Compression::None, &[("a", None), ("b", Some("1"))]),
        ];
        let newest = newest(&batches);
        assert_eq!(retain(&newest, &batches[0], TIMES, false), Ok(Fate::Goes));
        let cleaned = shrunk(retain(&newest, &batches[1], TIMES, false), 1);
        assert!(cleaned.header.attributes.has_delete_horizon());
        assert_eq!(cleaned.header.base_timestamp, NOW + 500);
        assert_eq!(
            content(&cleaned).first(),
            Some(&(1, 10, "a".to_owned(), None))
        );
        let at = |now_ms| Times { now_ms, ..TIMES };
        assert_eq!(
            retain(&newest, &cleaned, at(NOW + 499), false),
            Ok(Fate::Stays)
        );
        let later = shrunk(retain(&newest, &cleaned, at(NOW + 500), false), 1);
        assert_eq!(
            content(&later),
            [(2, 11, "b".to_owned(), Some("1".to_owned()))]
        );
    }

    #[test]
    fn what_is_beyond_the_map_is_not_touched() {
        let batches = [
            batch(0, Compression::None, &[("a", Some("1"))]),
            batch(1, Compression::None, &[("a", Some("2"))]),
        ];
        let newest = newest(&batches[..1]);
        assert_eq!(retain(&newest, &batches[0], TIMES, false), Ok(Fate::Stays));
        assert_eq!(retain(&newest, &batches[1], TIMES, false), Ok(Fate::Stays));
    }

    #[test]
    fn records_without_a_key_go() {
        let mut builder = BatchBuilder::new(10);
        builder
            .push(NewRecord::new(10, None, Some(b"v")))
            .expect("a record");
        let batch = view(0, builder.build().expect("a batch"));
        assert_eq!(
            retain(&newest(std::slice::from_ref(&batch)), &batch, TIMES, false),
            Ok(Fate::Goes)
        );
    }

    #[test]
    fn a_full_map_ends_before_the_batch_that_does_not_fit() {
        let batches = [
            batch(
                0,
                Compression::None,
                &[("a", None), ("b", None), ("c", None)],
            ),
            batch(3, Compression::None, &[("d", None)]),
        ];
        let mut newest = Newest::new(0, 3);
        assert_eq!(newest.add(&batches[0]), Ok(true));
        assert_eq!(newest.add(&batches[1]), Ok(false));
        assert_eq!(newest.end(), 3);
        let mut tiny = Newest::new(0, 1);
        assert_eq!(
            tiny.add(&batches[0]),
            Ok(true),
            "one batch at least, or it would never end"
        );
    }
}
