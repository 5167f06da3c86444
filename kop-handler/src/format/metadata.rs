//! Pulsar's `MessageMetadata`: what stands before the payload in every entry.
//!
//! Written with prost, read by a scanner that borrows and allocates nothing, since every entry of every fetch passes
//! it. Field numbers are those of `PulsarApi.proto`. It must not know what a payload holds.

use bytes::Buf;
use prost::Message;

use super::kafka::{FORMAT_PROPERTY, FORMAT_VALUE};
use super::{DecodeError, Pieces};

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

/// Cuts the metadata off the front of an entry; what is left is its payload.
pub(super) fn take(entry: &mut Pieces) -> Result<MetadataView, DecodeError> {
    let cut_off = || DecodeError::Malformed("cut off");
    if entry.gather(2).ok_or_else(cut_off)? == CHECKSUM_MAGIC {
        entry.take(CHECKSUM_LENGTH).ok_or_else(cut_off)?;
    }
    let size = entry.take(4).ok_or_else(cut_off)?;
    let size = size
        .as_ref()
        .try_into()
        .map(u32::from_be_bytes)
        .map_err(|_| cut_off())?;
    let size = usize::try_from(size).map_err(|_| cut_off())?;
    let metadata = entry.take(size).ok_or_else(cut_off)?;
    scan(&metadata)
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
