//! What Pulsar's metadata has no place for, in one property of the outer `MessageMetadata`.
//!
//! ```text
//! kop.batch = base64 of: version 1 | flags | producer | timestamps | headers       (each if its flag is set)
//! producer:   i64 id | i16 epoch | i32 base sequence | time of its arrival − publish time (that of its first record)
//! timestamps: number | (place | timestamp)*                  of records with a time that is no event time (≤ 0)
//! headers:    number | (place | number | length | bytes)*    of records with headers that are no properties
//! ```
//!
//! Numbers, places (of a record in its batch, rising) and lengths are varints, times zigzag varints; the bytes of headers
//! are those of a Kafka record. Nothing is written for a batch that KoP stores without loss. It must not know
//! messages.

use bytes::{Buf, BufMut};

use crate::format::{DecodeError, base64, proto};
use crate::wire::batch::Headers;
use crate::wire::put;

/// Name of the property.
pub(super) const PROPERTY: &[u8] = b"kop.batch";

const VERSION: u8 = 1;
const PRODUCER: u8 = 1;
const APPEND_TIME: u8 = 2;
const TIMESTAMPS: u8 = 4;
const HEADERS: u8 = 8;

/// What is kept of an idempotent producer's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) id: i64,
    pub(super) epoch: i16,
    pub(super) base_sequence: i32,
    /// When the batch arrived, in ms after the publish time of its entry.
    pub(super) arrived_after_ms: i64,
}

/// Gathers what is to be written.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    pub(super) producer: Option<Producer>,
    pub(super) append_time: bool,
    timestamps: (u64, Vec<u8>),
    headers: (u64, Vec<u8>),
}

impl Gathering {
    /// The timestamp of the record at a place.
    pub(super) fn timestamp(&mut self, place: u64, timestamp: i64) {
        let (count, out) = &mut self.timestamps;
        *count += 1;
        proto::put_varint(out, place);
        put::varlong(out, timestamp);
    }

    /// The headers of the record at a place, `count` of them.
    pub(super) fn headers(&mut self, place: u64, count: u32, raw: &[u8]) {
        let (records, out) = &mut self.headers;
        *records += 1;
        proto::put_varint(out, place);
        proto::put_varint(out, u64::from(count));
        proto::put_varint(out, raw.len() as u64);
        out.extend_from_slice(raw);
    }

    /// The bytes, if there is anything to say.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        let mut flags = 0;
        if self.producer.is_some() {
            flags |= PRODUCER;
        }
        if self.append_time {
            flags |= APPEND_TIME;
        }
        for (list, flag) in [(&self.timestamps, TIMESTAMPS), (&self.headers, HEADERS)] {
            if list.0 > 0 {
                flags |= flag;
            }
        }
        if flags == 0 {
            return None;
        }
        let mut out = vec![VERSION, flags];
        if let Some(producer) = self.producer {
            out.put_i64(producer.id);
            out.put_i16(producer.epoch);
            out.put_i32(producer.base_sequence);
            put::varlong(&mut out, producer.arrived_after_ms);
        }
        for (count, bytes) in [self.timestamps, self.headers] {
            if count > 0 {
                proto::put_varint(&mut out, count);
                out.extend_from_slice(&bytes);
            }
        }
        Some(out)
    }
}

/// What was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extra<'a> {
    pub(super) producer: Option<Producer>,
    pub(super) append_time: bool,
    timestamps: List<i64>,
    headers: List<(i32, &'a [u8])>,
}

/// Values by rising place, taken from the front.
#[derive(Debug, PartialEq, Eq)]
struct List<T> {
    /// Last first.
    rest: Vec<(u64, T)>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { rest: Vec::new() }
    }
}

impl<T> List<T> {
    fn read<'b>(
        bytes: &mut &'b [u8],
        mut value: impl FnMut(&mut &'b [u8]) -> Result<T, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let count = proto::varint(bytes)?;
        let mut rest = Vec::new(); // grows with bytes that are really there
        for _ in 0..count {
            rest.push((proto::varint(bytes)?, value(bytes)?));
        }
        rest.reverse();
        Ok(Self { rest })
    }

    fn take(&mut self, place: u64) -> Option<T> {
        self.rest
            .pop_if(|(at, _)| *at == place)
            .map(|(_, value)| value)
    }
}

/// Unpacks the property's text into `bytes`.
pub(super) fn bytes_of(text: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    base64::decode(&mut bytes, text).ok_or(DecodeError::Extra)?;
    Ok(bytes)
}

impl<'a> Extra<'a> {
    /// Reads the bytes of the property.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let [version, flags, rest @ ..] = bytes else {
            return Err(DecodeError::Extra);
        };
        let known = PRODUCER | APPEND_TIME | TIMESTAMPS | HEADERS;
        if *version != VERSION || flags & !known != 0 {
            return Err(DecodeError::Extra);
        }
        let mut rest = rest;
        let mut extra = Self {
            append_time: flags & APPEND_TIME != 0,
            ..Self::default()
        };
        if flags & PRODUCER != 0 {
            if rest.len() < 14 {
                return Err(DecodeError::Extra);
            }
            extra.producer = Some(Producer {
                id: rest.get_i64(),
                epoch: rest.get_i16(),
                base_sequence: rest.get_i32(),
                arrived_after_ms: varlong(&mut rest)?,
            });
        }
        if flags & TIMESTAMPS != 0 {
            extra.timestamps = List::read(&mut rest, varlong)?;
        }
        if flags & HEADERS != 0 {
            extra.headers = List::read(&mut rest, headers)?;
        }
        Ok(extra)
    }

    /// The timestamp of the record at a place, if it is here. Places must be asked for in order.
    pub(super) fn timestamp(&mut self, place: u64) -> Option<i64> {
        self.timestamps.take(place)
    }

    /// Number and bytes of the headers of the record at a place, if they are here. Places must be asked for in order.
    pub(super) fn headers(&mut self, place: u64) -> Option<(i32, &'a [u8])> {
        self.headers.take(place)
    }
}

fn varlong(bytes: &mut &[u8]) -> Result<i64, DecodeError> {
    let value = proto::varint(bytes)?;
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

fn headers<'a>(bytes: &mut &'a [u8]) -> Result<(i32, &'a [u8]), DecodeError> {
    let count = i32::try_from(proto::varint(bytes)?).map_err(|_| DecodeError::Extra)?;
    let length = usize::try_from(proto::varint(bytes)?).map_err(|_| DecodeError::Extra)?;
    let (raw, rest) = bytes.split_at_checked(length).ok_or(DecodeError::Extra)?;
    *bytes = rest;
    // They go into a record as they are, and anybody may have written them.
    if !Headers::new(count.unsigned_abs(), raw).are_whole() {
        return Err(DecodeError::Extra);
    }
    Ok((count, raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCER_OF_TEST: Producer = Producer {
        id: 1 << 40,
        epoch: 3,
        base_sequence: i32::MAX,
        arrived_after_ms: -70_000,
    };

    /// One header: key `k`, value null.
    const RAW: &[u8] = &[2, b'k', 1];

    #[test]
    fn what_is_written_is_read_and_nothing_is_written_for_nothing() {
        assert_eq!(Gathering::default().finish(), None);
        let mut gathering = Gathering {
            producer: Some(PRODUCER_OF_TEST),
            append_time: true,
            ..Gathering::default()
        };
        gathering.timestamp(0, -1);
        gathering.timestamp(300, i64::MIN);
        gathering.headers(2, 1, RAW);
        let bytes = gathering.finish().expect("bytes");
        let mut extra = Extra::read(&bytes).expect("what was written");
        assert_eq!(extra.producer, Some(PRODUCER_OF_TEST));
        assert!(extra.append_time);
        let times: Vec<_> = (0..301).filter_map(|at| extra.timestamp(at)).collect();
        assert_eq!(times, [-1, i64::MIN]);
        let headers: Vec<_> = (0..301).map(|at| extra.headers(at)).collect();
        assert_eq!(headers[2], Some((1, RAW)));
        assert_eq!(headers.iter().flatten().count(), 1);
    }

    #[test]
    fn another_version_unknown_flags_and_cut_bytes_are_errors() {
        let mut gathering = Gathering {
            producer: Some(PRODUCER_OF_TEST),
            ..Gathering::default()
        };
        gathering.headers(2, 1, RAW);
        let bytes = gathering.finish().expect("bytes");
        for length in 0..bytes.len() {
            assert!(Extra::read(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Extra::read(&[2, 0]).is_err());
        assert!(Extra::read(&[1, 16]).is_err());
        assert!(
            Extra::read(&[1, HEADERS, 1, 0, 1, 2, 1, 1]).is_err(),
            "a header without key"
        );
        assert!(
            Extra::read(&[1, HEADERS, 1, 0, 2, 3, 2, b'k', 1]).is_err(),
            "two headers are one"
        );
        proptest::proptest!(|(bytes: Vec<u8>)| {
            let _ = Extra::read(&bytes);
        });
    }
}
