//! The records of a batch, one after the other, as slices of the unpacked bytes.
//!
//! Nothing is copied and headers are read when asked for: duplicate keys, null values and their order are kept. It
//! must not know what the records mean.

use bytes::Bytes;

use super::{BatchError, BatchHeader, TimestampType};

/// Unpacked records with the header that they are relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    header: BatchHeader,
    data: Bytes,
}

impl Records {
    /// Records of `header`'s batch; `data` is unpacked.
    #[must_use]
    pub fn new(header: BatchHeader, data: Bytes) -> Self {
        Self { header, data }
    }

    /// The batch's header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The unpacked bytes of all records.
    #[must_use]
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// A part of the unpacked bytes, shared. Empty for bytes that are none of them.
    #[must_use]
    pub fn slice_of(&self, part: &[u8]) -> Bytes {
        let bounds = self.data.as_ptr_range();
        let part_bounds = part.as_ptr_range();
        if bounds.start <= part_bounds.start && part_bounds.end <= bounds.end {
            self.data.slice_ref(part)
        } else {
            Bytes::new()
        }
    }

    /// The records in order.
    #[must_use]
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter {
            header: self.header,
            rest: &self.data,
            index: 0,
            failed: false,
        }
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = Result<Record<'a>, BatchError>;
    type IntoIter = RecordIter<'a>;

    fn into_iter(self) -> RecordIter<'a> {
        self.iter()
    }
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its offset in the log, as far as the header's base offset is that of the log.
    pub offset: i64,
    /// In milliseconds, −1 for none: its own, or the batch's append time.
    pub timestamp: i64,
    /// Its key, `None` for null.
    pub key: Option<&'a [u8]>,
    /// Its value, `None` for null: a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: Headers<'a>,
    /// The record as it lies in the batch, length included.
    pub raw: &'a [u8],
}

/// Iterator over the records of a batch. It gives one error for the first record that does not hold together, or for
/// bytes behind the last one, and then ends.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    header: BatchHeader,
    rest: &'a [u8],
    index: i32,
    failed: bool,
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.index >= self.header.record_count {
            self.failed = true;
            let trailing = !self.rest.is_empty();
            return trailing.then_some(Err(BatchError::TrailingRecords(self.header.record_count)));
        }
        match self.read() {
            Some(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            None => {
                self.failed = true;
                Some(Err(BatchError::Record {
                    index: self.index.unsigned_abs(),
                    reason: "its fields do not fit its length",
                }))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // A record takes at least 7 bytes, whatever the header counts.
        let left = usize::try_from(self.header.record_count - self.index).unwrap_or(0);
        (0, Some(left.min(self.rest.len() / 7) + 1))
    }
}

impl<'a> RecordIter<'a> {
    fn read(&mut self) -> Option<Record<'a>> {
        let mut rest = self.rest;
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let (mut body, after) = rest.split_at_checked(length)?;
        let raw = self.rest.get(..self.rest.len() - after.len())?;
        let (_attributes, fields) = body.split_first()?;
        body = fields;
        let timestamp_delta = varlong(&mut body)?;
        let offset_delta = varint(&mut body)?;
        let key = nullable(&mut body)?;
        let value = nullable(&mut body)?;
        let count = u32::try_from(varint(&mut body)?).ok()?;
        let timestamp = match self.header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => self.header.max_timestamp,
            TimestampType::CreateTime => self.header.base_timestamp.wrapping_add(timestamp_delta),
        };
        self.rest = after;
        Some(Record {
            offset: self
                .header
                .base_offset
                .wrapping_add(i64::from(offset_delta)),
            timestamp,
            key,
            value,
            headers: Headers {
                rest: body,
                left: count,
            },
            raw,
        })
    }
}

/// A record header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its key: UTF-8 by contract, bytes in fact. Keys may repeat.
    pub key: &'a [u8],
    /// Its value, `None` for null.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, in order, duplicates kept. Iterating ends early if they do not hold together
/// ([`super::validate_produce`] lets no such record in).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Headers<'a> {
    /// `declared` headers as they lie in a record, without their number.
    #[must_use]
    pub fn new(declared: u32, raw: &'a [u8]) -> Self {
        Self {
            rest: raw,
            left: declared,
        }
    }

    /// Whether there are as many as declared, and nothing behind them.
    #[must_use]
    pub fn are_whole(mut self) -> bool {
        while self.left > 0 {
            if self.next().is_none() {
                return false;
            }
        }
        self.rest.is_empty()
    }

    /// How many the record claims to have.
    #[must_use]
    pub fn declared(&self) -> u32 {
        self.left
    }

    /// Their bytes as they lie in the record, without their number.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        let header = nullable(&mut self.rest).and_then(|key| {
            let value = nullable(&mut self.rest)?;
            Some(Header { key: key?, value })
        });
        if header.is_none() {
            self.left = 0;
        }
        header
    }
}

/// Length and bytes; `Some(None)` for null.
#[expect(
    clippy::option_option,
    reason = "broken and null are two different things"
)]
fn nullable<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = varint(rest)?;
    if length == -1 {
        return Some(None);
    }
    let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(Some(bytes))
}

fn varint(rest: &mut &[u8]) -> Option<i32> {
    let mut value = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u32::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some((value >> 1) as i32 ^ -((value & 1) as i32));
        }
    }
    None
}

fn varlong(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}
