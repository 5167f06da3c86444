//! What is kept of a partition beside its entries, as properties of its managed ledger: bytes in, bytes out.
//!
//! They live and die with the managed ledger, so a topic that is deleted and made again starts without them, and they
//! come with the answer to opening it. The bytes are described in `FORMATS.md`. No I/O; it must not know when a
//! snapshot is taken.

use std::collections::{HashMap, VecDeque};

use super::limits::{BATCHES_KEPT, POINTS_KEPT, PRODUCERS_SAVED};
use super::producers::{Producer, Producers, StoredBatch};
use super::text;
use super::time_index::{LedgerTimes, Point, TimeIndex};

/// Property: producers, and up to where the log is taken in.
pub const PRODUCERS: &str = "kop.producers";
/// Property: first offset that was not deleted by hand.
pub const LOG_START: &str = "kop.log-start";
/// Prefix of properties: the times of a ledger, by its id.
pub const TIMES_PREFIX: &str = "kop.times.";
/// Property: offset up to which the cleaner has been.
pub const CLEAN_END: &str = "kop.clean-end";

const VERSION: u8 = 1;

/// Why a stored property is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Another version than this build writes.
    #[error("it has version {0}, this build reads {VERSION}")]
    Version(u8),
    /// Not what any version writes.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

/// Name of the property with a ledger's times.
#[must_use]
pub fn times_key(ledger: i64) -> String {
    format!("{TIMES_PREFIX}{ledger}")
}

/// What the stored properties say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Producers as of `end_offset`.
    pub producers: Producers,
    /// Offset up to which the log is taken in; absent if there is no (usable) snapshot.
    pub end_offset: Option<i64>,
    /// Times of the ledgers.
    pub times: TimeIndex,
    /// First offset that was not deleted by hand.
    pub log_start: i64,
    /// Offset up to which the cleaner has been.
    pub clean_end: i64,
    /// Properties that could not be read, and why.
    pub unusable: Vec<(String, SnapshotError)>,
}

/// Reads the properties of a managed ledger whose log ends before `end_offset`.
#[must_use]
pub fn restore(properties: &HashMap<String, String>, end_offset: i64) -> Restored {
    let mut restored = Restored::default();
    for (key, value) in properties {
        let read = if key == PRODUCERS {
            read_producers(value, end_offset).map(|(producers, end)| {
                restored.producers = producers;
                restored.end_offset = Some(end.min(end_offset));
            })
        } else if key == LOG_START {
            read_offset(value).map(|start| restored.log_start = start)
        } else if key == CLEAN_END {
            read_offset(value).map(|end| restored.clean_end = end)
        } else if let Some(ledger) = key.strip_prefix(TIMES_PREFIX) {
            read_times(ledger, value)
                .map(|(ledger, times)| restored.times.restore(ledger, times, end_offset))
        } else {
            Ok(())
        };
        if let Err(error) = read {
            restored.unusable.push((key.clone(), error));
        }
    }
    restored
}

/// The property [`PRODUCERS`]. Numbers are written as differences to what is near: most take one byte.
#[must_use]
pub fn write_producers(producers: &Producers, end_offset: i64) -> String {
    let mut out = Writer::new();
    out.number(end_offset);
    let all = producers.last_seen(PRODUCERS_SAVED);
    out.count(all.len());
    let mut last_id = 0;
    for (id, producer) in all {
        out.number(id.wrapping_sub(last_id));
        last_id = id;
        out.number(i64::from(producer.epoch));
        out.number(producer.last_seen_ms);
        out.count(producer.batches.len());
        let (mut sequence, mut offset) = (0, end_offset);
        for batch in &producer.batches {
            out.number(i64::from(batch.first_sequence) - sequence);
            out.number(i64::from(batch.last_sequence) - i64::from(batch.first_sequence));
            out.number(batch.base_offset.wrapping_sub(offset));
            out.number(batch.last_offset.wrapping_sub(batch.base_offset));
            out.number(batch.timestamp_ms.wrapping_sub(producer.last_seen_ms));
            (sequence, offset) = (i64::from(batch.last_sequence), batch.last_offset);
        }
    }
    out.text()
}

fn read_producers(value: &str, end_offset: i64) -> Result<(Producers, i64), SnapshotError> {
    let bytes = open(value)?;
    let mut bytes = bytes.get(1..).unwrap_or_default();
    let end = number(&mut bytes)?;
    let mut producers = Producers::default();
    let mut id = 0i64;
    for _ in 0..count(&mut bytes)? {
        id = id.wrapping_add(number(&mut bytes)?);
        let epoch = narrow(number(&mut bytes)?)?;
        let last_seen_ms = number(&mut bytes)?;
        let kept = count(&mut bytes)?;
        if kept > BATCHES_KEPT {
            return Err(SnapshotError::Damaged("too many batches"));
        }
        let mut batches = VecDeque::with_capacity(kept);
        let (mut sequence, mut offset) = (0i64, end);
        for _ in 0..kept {
            let first_sequence = sequence.wrapping_add(number(&mut bytes)?);
            sequence = first_sequence.wrapping_add(number(&mut bytes)?);
            let base_offset = offset.wrapping_add(number(&mut bytes)?);
            offset = base_offset.wrapping_add(number(&mut bytes)?);
            batches.push_back(StoredBatch {
                first_sequence: narrow(first_sequence)?,
                last_sequence: narrow(sequence)?,
                base_offset,
                last_offset: offset,
                timestamp_ms: last_seen_ms.wrapping_add(number(&mut bytes)?),
            });
        }
        let producer = Producer {
            epoch,
            last_seen_ms,
            batches,
        };
        producers.restore(id, producer, end_offset);
    }
    at_end(bytes)?;
    Ok((producers, end))
}

/// The property [`times_key`] of a ledger.
#[must_use]
pub fn write_times(times: &LedgerTimes) -> String {
    let mut out = Writer::new();
    out.number(times.first_offset);
    out.number(times.last_offset);
    out.number(times.max_timestamp_ms);
    out.number(times.max_at);
    out.number(i64::try_from(times.interval).unwrap_or(i64::MAX));
    out.number(i64::try_from(times.since_point).unwrap_or(i64::MAX));
    out.count(times.points.len());
    let (mut time, mut offset) = (0, times.first_offset);
    for point in &times.points {
        out.number(point.max_timestamp_ms.wrapping_sub(time));
        out.number(point.offset.wrapping_sub(offset));
        (time, offset) = (point.max_timestamp_ms, point.offset);
    }
    out.text()
}

fn read_times(ledger: &str, value: &str) -> Result<(i64, LedgerTimes), SnapshotError> {
    let ledger = ledger
        .parse()
        .map_err(|_| SnapshotError::Damaged("its name has no ledger id"))?;
    let bytes = open(value)?;
    let mut bytes = bytes.get(1..).unwrap_or_default();
    let mut times = LedgerTimes {
        first_offset: number(&mut bytes)?,
        last_offset: number(&mut bytes)?,
        max_timestamp_ms: number(&mut bytes)?,
        max_at: number(&mut bytes)?,
        interval: u64::try_from(number(&mut bytes)?)
            .map_err(|_| SnapshotError::Damaged("a negative size"))?,
        since_point: u64::try_from(number(&mut bytes)?)
            .map_err(|_| SnapshotError::Damaged("a negative size"))?,
        points: Vec::new(),
    };
    let kept = count(&mut bytes)?;
    if kept > POINTS_KEPT {
        return Err(SnapshotError::Damaged("too many points"));
    }
    let (mut time, mut offset) = (0i64, times.first_offset);
    for _ in 0..kept {
        time = time.wrapping_add(number(&mut bytes)?);
        offset = offset.wrapping_add(number(&mut bytes)?);
        times.points.push(Point {
            max_timestamp_ms: time,
            offset,
        });
    }
    at_end(bytes)?;
    Ok((ledger, times))
}

fn read_offset(value: &str) -> Result<i64, SnapshotError> {
    value
        .parse()
        .ok()
        .filter(|offset| *offset >= 0)
        .ok_or(SnapshotError::Damaged("not an offset"))
}

/// Numbers as zigzag varints behind the version.
struct Writer(Vec<u8>);

impl Writer {
    fn new() -> Self {
        Self(vec![VERSION])
    }

    fn number(&mut self, number: i64) {
        let mut zigzag = (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned();
        while zigzag >= 0x80 {
            self.0.push(zigzag.to_le_bytes()[0] | 0x80);
            zigzag >>= 7;
        }
        self.0.push(zigzag.to_le_bytes()[0]);
    }

    fn count(&mut self, count: usize) {
        self.number(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn text(self) -> String {
        text::encode(&self.0)
    }
}

fn open(value: &str) -> Result<Vec<u8>, SnapshotError> {
    let bytes = text::decode(value).ok_or(SnapshotError::Damaged("not base64"))?;
    match bytes.first() {
        Some(&VERSION) => Ok(bytes),
        Some(&version) => Err(SnapshotError::Version(version)),
        None => Err(SnapshotError::Damaged("empty")),
    }
}

fn number(bytes: &mut &[u8]) -> Result<i64, SnapshotError> {
    let mut zigzag = 0u64;
    for shift in (0..64).step_by(7) {
        let Some((&byte, rest)) = bytes.split_first() else {
            return Err(SnapshotError::Damaged("cut off"));
        };
        *bytes = rest;
        zigzag |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
        }
    }
    Err(SnapshotError::Damaged("a number is too long"))
}

/// A count of things that take up at least a byte each.
fn count(bytes: &mut &[u8]) -> Result<usize, SnapshotError> {
    usize::try_from(number(bytes)?)
        .ok()
        .filter(|count| *count <= bytes.len())
        .ok_or(SnapshotError::Damaged("a count is out of range"))
}

fn narrow<T: TryFrom<i64>>(number: i64) -> Result<T, SnapshotError> {
    T::try_from(number).map_err(|_| SnapshotError::Damaged("a number is out of range"))
}

fn at_end(bytes: &[u8]) -> Result<(), SnapshotError> {
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(SnapshotError::Damaged("bytes after the end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::time_index::BatchTimes;

    fn sample() -> (Producers, TimeIndex) {
        let mut producers = Producers::default();
        for n in 0..8 {
            let batch = StoredBatch {
                first_sequence: if n == 7 { i32::MAX } else { n },
                last_sequence: if n == 7 { 1 } else { n },
                base_offset: i64::from(n) * 10,
                last_offset: i64::from(n) * 10 + 2,
                timestamp_ms: 1_700_000_000_000 - i64::from(n),
            };
            producers.replay(4000 + i64::from(n % 2), 3, batch, 1_700_000_000_123);
        }
        let mut times = TimeIndex::default();
        for n in 0..40 {
            times.add(&BatchTimes {
                ledger: 5 + n / 30,
                base_offset: n * 10,
                last_offset: n * 10 + 9,
                max_timestamp_ms: 1_700_000_000_000 + (n * 37) % 50,
                bytes: 30_000,
            });
        }
        (producers, times)
    }

    fn properties() -> HashMap<String, String> {
        let (producers, times) = sample();
        let mut properties = HashMap::from([
            (PRODUCERS.to_owned(), write_producers(&producers, 400)),
            (LOG_START.to_owned(), "17".to_owned()),
            (CLEAN_END.to_owned(), "300".to_owned()),
            ("foreign".to_owned(), "left alone".to_owned()),
        ]);
        for (ledger, times) in times.ledgers() {
            properties.insert(times_key(ledger), write_times(times));
        }
        properties
    }

    #[test]
    fn what_was_written_is_restored() {
        let (producers, times) = sample();
        assert_eq!(
            restore(&properties(), 400),
            Restored {
                producers,
                end_offset: Some(400),
                times,
                log_start: 17,
                clean_end: 300,
                unusable: Vec::new(),
            }
        );
    }

    /// The bytes of version 1, for ever: added to, never edited.
    #[test]
    fn the_golden_properties_are_read_and_written_alike() {
        let golden: HashMap<String, String> = include_str!("testdata/properties-v1.txt")
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(properties(), golden);
    }

    #[test]
    fn a_snapshot_beyond_the_end_of_the_log_is_cut_to_it() {
        let restored = restore(&properties(), 45);
        assert_eq!(restored.end_offset, Some(45));
        let kept: Vec<usize> = restored
            .producers
            .sorted()
            .iter()
            .map(|(_, producer)| producer.batches.len())
            .collect();
        assert_eq!(kept, [3, 2]);
        assert_eq!(restored.times, TimeIndex::default());
    }

    #[test]
    fn damage_is_reported_by_name_and_the_rest_is_used() {
        let whole = properties();
        for (key, value) in &whole {
            if ["foreign", LOG_START, CLEAN_END].contains(&key.as_str()) {
                continue;
            }
            for length in 0..value.len() {
                let mut damaged = whole.clone();
                damaged.insert(key.clone(), value[..length].to_owned());
                let restored = restore(&damaged, 400);
                assert_eq!(restored.unusable.len(), 1, "{key} cut to {length}");
                assert_eq!(&restored.unusable[0].0, key);
            }
        }
    }

    #[test]
    fn the_largest_snapshot_leaves_room_within_the_hosts_bound() {
        let mut producers = Producers::default();
        for n in 0..2 * 10_000 {
            for batch in 0..5 {
                let first_sequence = i32::MAX / 2 + batch * 1000;
                let base_offset = (1 << 45) + i64::from(n) * 1_000_000 + i64::from(batch) * 100_000;
                let stored = StoredBatch {
                    first_sequence,
                    last_sequence: first_sequence + 999,
                    base_offset,
                    last_offset: base_offset + 999,
                    timestamp_ms: 1_700_000_000_000 - i64::from(n % 1000) * 60_000,
                };
                producers.replay(
                    i64::from(n) * 5000,
                    3,
                    stored,
                    1_700_000_000_000 + i64::from(n),
                );
            }
        }
        let text = write_producers(&producers, 1 << 46);
        assert!(text.len() < 110 * 1024, "{}", text.len());
        let restored = restore(&HashMap::from([(PRODUCERS.to_owned(), text)]), i64::MAX);
        assert_eq!(restored.producers.len(), PRODUCERS_SAVED);
        let oldest = restored
            .producers
            .sorted()
            .first()
            .map(|(_, p)| p.last_seen_ms);
        assert_eq!(oldest, Some(1_700_000_000_000 + 20_000 - 1_000));
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut newer = properties();
        newer.insert(PRODUCERS.to_owned(), text::encode(&[2, 0]));
        assert_eq!(
            restore(&newer, 400).unusable,
            [(PRODUCERS.to_owned(), SnapshotError::Version(2))]
        );
    }

    #[test]
    fn arbitrary_values_are_reported_and_nothing_worse() {
        proptest::proptest!(|(bytes: Vec<u8>)| {
            let mut bytes = bytes;
            bytes.insert(0, VERSION);
            for key in [PRODUCERS.to_owned(), CLEAN_END.to_owned(), times_key(3)] {
                let _ = restore(&HashMap::from([(key, text::encode(&bytes))]), 1000);
            }
        });
    }
}
