//! Pulsar's `MessageMetadata`: what stands before the payload in every entry.
//!
//! Written with prost, read by a scanner that borrows and allocates nothing, since every entry of every fetch passes
//! it. Field numbers are those of `PulsarApi.proto`. It must not know what a payload holds.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

use super::DecodeError;
use super::kafka::{FORMAT_PROPERTY, FORMAT_VALUE};

/// The fields that are written.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MessageMetadata {
    /// Name of the Pulsar producer.
    #[prost(string, required, tag = "1")]
    pub producer_name: String,
    /// Its sequence.
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    /// In ms since the epoch.
    #[prost(uint64, required, tag = "3")]
    pub publish_time: u64,
    /// Properties of the message.
    #[prost(message, repeated, tag = "4")]
    pub properties: Vec<KeyValue>,
    /// Messages in the entry; 1 if absent.
    #[prost(int32, optional, tag = "11")]
    pub num_messages_in_batch: Option<i32>,
}

/// A property.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyValue {
    /// Name.
    #[prost(string, required, tag = "1")]
    pub key: String,
    /// Value.
    #[prost(string, required, tag = "2")]
    pub value: String,
}

/// What reading needs of an entry's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataView {
    /// Whether `entry.format` says `kafka`.
    pub is_kafka: bool,
    /// Messages that the entry takes up.
    pub messages: u32,
    /// In ms since the epoch.
    pub publish_time_ms: i64,
}

/// Magic of the optional checksum in front of the metadata.
const CHECKSUM_MAGIC: [u8; 2] = [0x0e, 0x01];
const CHECKSUM_LENGTH: usize = 6;

/// Splits an entry into its metadata and its payload.
pub fn split(mut segments: Vec<Bytes>) -> Result<(MetadataView, Vec<Bytes>), DecodeError> {
    segments.retain(|segment| !segment.is_empty());
    if has_checksum(&segments)? {
        skip(&mut segments, CHECKSUM_LENGTH)?;
    }
    let size = take(&mut segments, 4)?;
    let size = size
        .as_ref()
        .try_into()
        .map(u32::from_be_bytes)
        .map_err(|_| DecodeError::Malformed("no size"))?;
    let size =
        usize::try_from(size).map_err(|_| DecodeError::Malformed("its size is too large"))?;
    let metadata = take(&mut segments, size)?;
    Ok((scan(&metadata)?, segments))
}

fn has_checksum(segments: &[Bytes]) -> Result<bool, DecodeError> {
    let mut bytes = segments.iter().flat_map(|segment| segment.iter().copied());
    match (bytes.next(), bytes.next()) {
        (Some(a), Some(b)) => Ok([a, b] == CHECKSUM_MAGIC),
        _ => Err(DecodeError::Malformed("too short")),
    }
}

fn skip(segments: &mut Vec<Bytes>, length: usize) -> Result<(), DecodeError> {
    take(segments, length).map(|_| ())
}

/// Cuts `length` bytes off the front; without a copy if they lie in one segment.
fn take(segments: &mut Vec<Bytes>, length: usize) -> Result<Bytes, DecodeError> {
    let available: usize = segments.iter().map(Bytes::len).sum();
    if length > available {
        return Err(DecodeError::Malformed("cut off"));
    }
    let head = match segments.first_mut() {
        Some(first) if first.len() >= length => first.split_to(length),
        _ => {
            let mut joined = BytesMut::with_capacity(length);
            for segment in segments.iter_mut() {
                let part = (length - joined.len()).min(segment.len());
                joined.extend_from_slice(&segment.split_to(part));
            }
            joined.freeze()
        }
    };
    segments.retain(|segment| !segment.is_empty());
    Ok(head)
}

/// Walks the fields and keeps what [`MetadataView`] names.
fn scan(mut bytes: &[u8]) -> Result<MetadataView, DecodeError> {
    let mut view = MetadataView {
        is_kafka: false,
        messages: 1,
        publish_time_ms: 0,
    };
    while !bytes.is_empty() {
        match field(&mut bytes)? {
            (3, Value::Number(time)) => {
                view.publish_time_ms = i64::try_from(time)
                    .map_err(|_| DecodeError::Malformed("its publish time is out of range"))?;
            }
            (4, Value::Slice(property)) => view.is_kafka |= marks_kafka(property)?,
            (11, Value::Number(messages)) => {
                view.messages = u32::try_from(messages)
                    .ok()
                    .filter(|messages| *messages >= 1)
                    .ok_or(DecodeError::Malformed("its message count is out of range"))?;
            }
            _ => {}
        }
    }
    Ok(view)
}

fn marks_kafka(mut property: &[u8]) -> Result<bool, DecodeError> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    while !property.is_empty() {
        match field(&mut property)? {
            (1, Value::Slice(bytes)) => key = bytes,
            (2, Value::Slice(bytes)) => value = bytes,
            _ => {}
        }
    }
    // KoP compares the value without regard to case.
    Ok(key == FORMAT_PROPERTY.as_bytes() && value.eq_ignore_ascii_case(FORMAT_VALUE.as_bytes()))
}

enum Value<'a> {
    Number(u64),
    Slice(&'a [u8]),
    Fixed,
}

fn field<'a>(bytes: &mut &'a [u8]) -> Result<(u64, Value<'a>), DecodeError> {
    let tag = varint(bytes)?;
    let value = match tag & 7 {
        0 => Value::Number(varint(bytes)?),
        1 => fixed(bytes, 8)?,
        2 => {
            let length = usize::try_from(varint(bytes)?).unwrap_or(usize::MAX);
            let slice = bytes
                .get(..length)
                .ok_or(DecodeError::Malformed("a field is cut off"))?;
            bytes.advance(length);
            Value::Slice(slice)
        }
        5 => fixed(bytes, 4)?,
        _ => return Err(DecodeError::Malformed("unknown wire type")),
    };
    Ok((tag >> 3, value))
}

fn fixed<'a>(bytes: &mut &'a [u8], length: usize) -> Result<Value<'a>, DecodeError> {
    if bytes.len() < length {
        return Err(DecodeError::Malformed("a field is cut off"));
    }
    bytes.advance(length);
    Ok(Value::Fixed)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let Some((&byte, rest)) = bytes.split_first() else {
            return Err(DecodeError::Malformed("a number is cut off"));
        };
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Malformed("a number is too long"))
}
