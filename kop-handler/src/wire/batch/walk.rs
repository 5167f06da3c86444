//! Reads the structure of records, over bytes in memory or a stream that is being unpacked.
//!
//! Only the fields that validation needs come out; keys, values and headers are skipped without being held, so that the
//! memory does not depend on what a record claims. It must not know what makes a record acceptable.

use std::io::{BufRead, BufReader};

use super::codec::{Unpacker, unpack_error};
use super::{BatchError, Compression};

/// Window over unpacked records, in bytes.
const WINDOW_BYTES: usize = 32 * 1024;

/// What went wrong while reading a record.
#[derive(Debug)]
pub(super) enum Fault {
    /// The record does not hold together.
    Bad(&'static str),
    /// The source could not be read.
    Source(BatchError),
}

/// What validation wants to know of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) has_key: bool,
}

/// Bytes to read records from.
pub(super) trait Source {
    /// The next record, if it lies whole in memory and holds together. Else nothing is read.
    fn quick(&mut self) -> Option<Seen>;
    fn byte(&mut self) -> Result<u8, Fault>;
    fn skip(&mut self, count: usize) -> Result<(), Fault>;
    /// Bytes read so far.
    fn position(&self) -> u64;
    fn is_at_end(&mut self) -> Result<bool, Fault>;
}

const CUT: Fault = Fault::Bad("its bytes end early");

/// Reads one record and checks that its fields fill its length.
#[inline]
pub(super) fn next<S: Source>(source: &mut S) -> Result<Seen, Fault> {
    match source.quick() {
        Some(seen) => Ok(seen),
        None => next_by_bytes(source),
    }
}

/// The slow way: a record that is not whole in memory, or one to find the fault of.
fn next_by_bytes<S: Source>(source: &mut S) -> Result<Seen, Fault> {
    let length = varint(source)?;
    let length = u64::try_from(length).map_err(|_| Fault::Bad("its length is negative"))?;
    let start = source.position();
    let _attributes = source.byte()?;
    let timestamp_delta = varlong(source)?;
    let offset_delta = varint(source)?;
    let has_key = skip_nullable(source)?;
    skip_nullable(source)?;
    skip_headers(source)?;
    if source.position() - start != length {
        return Err(Fault::Bad("its fields do not fill its length"));
    }
    Ok(Seen {
        timestamp_delta,
        offset_delta,
        has_key,
    })
}

fn skip_headers<S: Source>(source: &mut S) -> Result<(), Fault> {
    // Each header takes bytes of its own, so a count that lies ends with them.
    let count = varint(source)?;
    if count < 0 {
        return Err(Fault::Bad("its number of headers is negative"));
    }
    for _ in 0..count {
        if !skip_nullable(source)? {
            return Err(Fault::Bad("a header has no key"));
        }
        skip_nullable(source)?;
    }
    Ok(())
}

/// Skips length and bytes; false for null.
fn skip_nullable<S: Source>(source: &mut S) -> Result<bool, Fault> {
    match varint(source)? {
        -1 => Ok(false),
        length => {
            let length = usize::try_from(length).map_err(|_| Fault::Bad("a length is negative"))?;
            source.skip(length)?;
            Ok(true)
        }
    }
}

fn varint<S: Source>(source: &mut S) -> Result<i32, Fault> {
    let mut value = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let byte = source.byte()?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok((value >> 1) as i32 ^ -((value & 1) as i32));
        }
    }
    Err(Fault::Bad("a varint is too long"))
}

fn varlong<S: Source>(source: &mut S) -> Result<i64, Fault> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = source.byte()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err(Fault::Bad("a varint is too long"))
}

/// Reads a record that lies whole in `bytes`; gives what it takes up as well.
#[inline]
fn whole(bytes: &[u8]) -> Option<(Seen, usize)> {
    let mut start = 0;
    let length = usize::try_from(short(bytes, &mut start)?).ok()?;
    let end = start.checked_add(length)?;
    let body = bytes.get(start..end)?;
    // The attributes of a record have no meaning.
    let mut at = 1;
    let timestamp_delta = long(body, &mut at)?;
    let offset_delta = short(body, &mut at)?;
    let has_key = pass_nullable(body, &mut at)?;
    pass_nullable(body, &mut at)?;
    let headers = short(body, &mut at)?;
    for _ in 0..u32::try_from(headers).ok()? {
        if !pass_nullable(body, &mut at)? {
            return None;
        }
        pass_nullable(body, &mut at)?;
    }
    let seen = Seen {
        timestamp_delta,
        offset_delta,
        has_key,
    };
    (at == length).then_some((seen, end))
}

#[inline]
fn pass_nullable(body: &[u8], at: &mut usize) -> Option<bool> {
    match short(body, at)? {
        -1 => Some(false),
        length => {
            *at = at.checked_add(usize::try_from(length).ok()?)?;
            // The next read finds out if this went past the end; the last one is checked against the length.
            Some(true)
        }
    }
}

/// A varint of 32 bits at `at`, which moves behind it.
#[inline]
fn short(bytes: &[u8], at: &mut usize) -> Option<i32> {
    let value = long(bytes, at)?;
    i32::try_from(value).ok()
}

/// A varint of 64 bits; most have one or two bytes.
#[inline]
fn long(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(i64::from(first >> 1) ^ -i64::from(first & 1));
    }
    let mut value = u64::from(first & 0x7f);
    for shift in (7..70).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

/// Records in memory.
pub(super) struct Slice<'a> {
    rest: &'a [u8],
    position: u64,
}

impl<'a> Slice<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            position: 0,
        }
    }
}

impl Source for Slice<'_> {
    #[inline]
    fn quick(&mut self) -> Option<Seen> {
        let (seen, length) = whole(self.rest)?;
        self.rest = self.rest.get(length..)?;
        self.position += length as u64;
        Some(seen)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        let (first, rest) = self.rest.split_first().ok_or(CUT)?;
        self.rest = rest;
        self.position += 1;
        Ok(*first)
    }

    #[inline]
    fn skip(&mut self, count: usize) -> Result<(), Fault> {
        self.rest = self.rest.get(count..).ok_or(CUT)?;
        self.position += count as u64;
        Ok(())
    }

    #[inline]
    fn position(&self) -> u64 {
        self.position
    }

    fn is_at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.rest.is_empty())
    }
}

/// Records that are unpacked as they are read, up to a cap.
pub(super) struct Stream<'a> {
    codec: Compression,
    limit: usize,
    window: BufReader<Unpacker<'a>>,
    position: u64,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        codec: Compression,
        packed: &'a [u8],
        limit: usize,
    ) -> Result<Self, BatchError> {
        let unpacker =
            Unpacker::new(codec, packed, limit).map_err(|e| unpack_error(codec, limit, &e))?;
        Ok(Self {
            codec,
            limit,
            window: BufReader::with_capacity(WINDOW_BYTES, unpacker),
            position: 0,
        })
    }

    fn fill(&mut self) -> Result<&[u8], Fault> {
        if self.window.buffer().is_empty() && self.position > self.limit as u64 {
            return Err(Fault::Source(BatchError::UnpackedTooLarge {
                limit: self.limit,
            }));
        }
        self.window
            .fill_buf()
            .map_err(|e| Fault::Source(unpack_error(self.codec, self.limit, &e)))
    }

    fn consume(&mut self, count: usize) {
        self.window.consume(count);
        self.position += count as u64;
    }
}

impl Source for Stream<'_> {
    #[inline]
    fn quick(&mut self) -> Option<Seen> {
        let (seen, length) = whole(self.window.buffer())?;
        self.consume(length);
        Some(seen)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        if let Some(byte) = self.window.buffer().first().copied() {
            self.consume(1);
            return Ok(byte);
        }
        let byte = self.fill()?.first().copied().ok_or(CUT)?;
        self.consume(1);
        Ok(byte)
    }

    fn skip(&mut self, mut count: usize) -> Result<(), Fault> {
        while count > 0 {
            let ready = self.fill()?.len().min(count);
            if ready == 0 {
                return Err(CUT);
            }
            self.consume(ready);
            count -= ready;
        }
        Ok(())
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn is_at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.fill()?.is_empty())
    }
}
