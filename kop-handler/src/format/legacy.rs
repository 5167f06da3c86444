//! Message sets of magic 0 and 1, as KoP stores what clients of before Kafka 0.11 send: converted to one batch of
//! magic 2.
//!
//! ```text
//! offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | timestamp i64 (magic 1) | key bytes | value bytes
//! ```
//!
//! A compressed message holds a message set as its value. Offsets are not those that stand there, which KoP sets for
//! the first message only: messages get the offsets of their entry in order. It must not know where an entry lies.

use bytes::{Buf, Bytes};

use super::{DecodeError, MAX_PAYLOAD};
use crate::wire::batch::{BatchBuilder, Compression, decompress};

/// Offset and size of a message.
const PREFIX: usize = 12;
/// Bits of the attributes that name the codec.
const CODEC: u8 = 0x07;
/// Bit of the attributes for the broker's time.
const LOG_APPEND_TIME: u8 = 0x08;
/// Id of LZ4, the last codec that these formats know.
const LZ4: u8 = 3;

/// A batch of magic 2 with the messages of a set, which takes up `messages` offsets.
pub(super) fn convert(set: &Bytes, messages: u32) -> Result<Bytes, DecodeError> {
    let messages = i32::try_from(messages).unwrap_or(i32::MAX);
    let mut out = Converted {
        batch: None,
        next: 0,
        messages,
        room: MAX_PAYLOAD,
    };
    let mut rest = set.as_ref();
    while let Some(message) = message(&mut rest)? {
        match message.attributes & CODEC {
            0 => out.push(&message, message.timestamp)?,
            codec => out.push_packed(set, &message, codec)?,
        }
    }
    let batch = out
        .batch
        .ok_or(DecodeError::Batch("it holds no message"))?
        .span(messages);
    batch.build().map_err(|_| DecodeError::TooLarge)
}

struct Converted {
    batch: Option<BatchBuilder>,
    next: i32,
    messages: i32,
    /// Bytes that may still be unpacked.
    room: usize,
}

impl Converted {
    fn push(&mut self, message: &Message<'_>, timestamp: i64) -> Result<(), DecodeError> {
        if self.next >= self.messages {
            return Err(DecodeError::Batch("it holds more messages than its entry"));
        }
        let batch = self.batch.get_or_insert_with(|| {
            let batch = BatchBuilder::new(timestamp);
            if message.attributes & LOG_APPEND_TIME != 0 && message.magic == 1 {
                batch.log_append_time()
            } else {
                batch
            }
        });
        let content = (message.key, message.value);
        batch
            .push_at(self.next, timestamp, content, std::iter::empty())
            .map_err(|_| DecodeError::TooLarge)?;
        self.next += 1;
        Ok(())
    }

    fn push_packed(
        &mut self,
        set: &Bytes,
        outer: &Message<'_>,
        codec: u8,
    ) -> Result<(), DecodeError> {
        let packed = outer.value.ok_or(DecodeError::Batch("nothing to unpack"))?;
        let unpacked = unpack(codec, set.slice_ref(packed), self.room)?;
        self.room -= unpacked.len().min(self.room);
        let has_append_time = outer.magic == 1 && outer.attributes & LOG_APPEND_TIME != 0;
        let mut rest = unpacked.as_ref();
        while let Some(mut inner) = message(&mut rest)? {
            if inner.attributes & CODEC != 0 {
                return Err(DecodeError::Batch("a packed message inside a packed one"));
            }
            if has_append_time {
                inner.attributes |= LOG_APPEND_TIME;
                inner.timestamp = outer.timestamp;
            }
            self.push(&inner, inner.timestamp)?;
        }
        Ok(())
    }
}

fn unpack(codec: u8, packed: Bytes, limit: usize) -> Result<Bytes, DecodeError> {
    let (codec, packed) = match codec {
        LZ4 => (Compression::Lz4, with_right_lz4_header(packed)),
        codec => (
            Compression::from_id(codec)
                .ok()
                .filter(|codec| *codec != Compression::Zstd)
                .ok_or(DecodeError::Batch("an unknown codec"))?,
            packed,
        ),
    };
    decompress(codec, &packed, limit).map_err(|_| DecodeError::Unpack)
}

struct Message<'a> {
    magic: u8,
    attributes: u8,
    timestamp: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

/// The next message of a set; `None` at its end.
fn message<'a>(rest: &mut &'a [u8]) -> Result<Option<Message<'a>>, DecodeError> {
    const CUT: DecodeError = DecodeError::Batch("a message is cut off");
    if rest.is_empty() {
        return Ok(None);
    }
    let size = rest
        .get(PREFIX - 4..PREFIX)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_be_bytes);
    let size = size
        .and_then(|size| usize::try_from(size).ok())
        .ok_or(CUT)?;
    let (mut body, after) = rest
        .get(PREFIX..)
        .and_then(|body| body.split_at_checked(size))
        .ok_or(CUT)?;
    *rest = after;
    if body.len() < 6 {
        return Err(CUT);
    }
    let _crc = body.get_u32();
    let (magic, attributes) = (body.get_u8(), body.get_u8());
    let timestamp = match magic {
        0 => -1,
        1 if body.len() >= 8 => body.get_i64(),
        1 => return Err(CUT),
        _ => return Err(DecodeError::Batch("magics are mixed in it")),
    };
    Ok(Some(Message {
        magic,
        attributes,
        timestamp,
        key: nullable(&mut body).ok_or(CUT)?,
        value: nullable(&mut body).ok_or(CUT)?,
    }))
}

/// Length and bytes; `Some(None)` for null.
#[expect(
    clippy::option_option,
    reason = "broken and null are two different things"
)]
fn nullable<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = i32::from_be_bytes(*length);
    if length == -1 {
        *rest = after;
        return Some(None);
    }
    let (bytes, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(Some(bytes))
}

/// Clients of before Kafka 0.10 computed the checksum of LZ4's frame header over too many bytes; readers that check it
/// are given the right one.
fn with_right_lz4_header(packed: Bytes) -> Bytes {
    const MAGIC: usize = 4;
    const CONTENT_SIZE: u8 = 0x08;
    const DICTIONARY: u8 = 0x01;
    let Some(flags) = packed.get(MAGIC) else {
        return packed;
    };
    let mut end = MAGIC + 2;
    if flags & CONTENT_SIZE != 0 {
        end += 8;
    }
    if flags & DICTIONARY != 0 {
        end += 4;
    }
    let (Some(descriptor), Some(stored)) = (packed.get(MAGIC..end), packed.get(end)) else {
        return packed;
    };
    let right = (xxh32_short(descriptor) >> 8) as u8;
    if right == *stored {
        return packed;
    }
    let mut copy = packed.to_vec();
    if let Some(checksum) = copy.get_mut(end) {
        *checksum = right;
    }
    copy.into()
}

/// XXH32 with seed 0 of fewer than 16 bytes.
fn xxh32_short(bytes: &[u8]) -> u32 {
    const PRIMES: [u32; 5] = [
        2_654_435_761,
        2_246_822_519,
        3_266_489_917,
        668_265_263,
        374_761_393,
    ];
    let [one, two, three, four, five] = PRIMES;
    let mut hash = five.wrapping_add(bytes.len() as u32);
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        hash = hash
            .wrapping_add(u32::from_le_bytes(*word).wrapping_mul(three))
            .rotate_left(17)
            .wrapping_mul(four);
    }
    for byte in rest {
        hash = hash
            .wrapping_add(u32::from(*byte).wrapping_mul(five))
            .rotate_left(11)
            .wrapping_mul(one);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(two);
    hash = (hash ^ (hash >> 13)).wrapping_mul(three);
    hash ^ (hash >> 16)
}

#[cfg(test)]
#[path = "legacy_tests.rs"]
mod tests;
