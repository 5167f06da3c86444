//! Pulsar's `MessageMetadata`: what stands before the payload in every entry.
//!
//! Read twice at most: a first look that every entry of every fetch passes, and all that the `pulsar` format needs.
//! Field numbers are those of `PulsarApi.proto`. Everything is borrowed. It must not know what a payload holds.

use bytes::Bytes;

use super::kafka::{FORMAT_PROPERTY, FORMAT_VALUE};
use super::proto::{self, Value};
use super::{DecodeError, Pieces};

/// Numbers of the fields of `MessageMetadata`.
pub(super) mod fields {
    pub(in super::super) const PRODUCER_NAME: u64 = 1;
    pub(in super::super) const SEQUENCE_ID: u64 = 2;
    pub(in super::super) const PUBLISH_TIME: u64 = 3;
    pub(in super::super) const PROPERTY: u64 = 4;
    pub(in super::super) const PARTITION_KEY: u64 = 6;
    pub(in super::super) const COMPRESSION: u64 = 8;
    pub(in super::super) const UNCOMPRESSED_SIZE: u64 = 9;
    pub(in super::super) const MESSAGES: u64 = 11;
    pub(in super::super) const EVENT_TIME: u64 = 12;
    pub(in super::super) const ENCRYPTION_KEY: u64 = 13;
    pub(in super::super) const KEY_IS_BASE64: u64 = 17;
    pub(in super::super) const ORDERING_KEY: u64 = 18;
    pub(in super::super) const MARKER_TYPE: u64 = 20;
    pub(in super::super) const TXN_LEAST_BITS: u64 = 22;
    pub(in super::super) const TXN_MOST_BITS: u64 = 23;
    pub(in super::super) const NULL_VALUE: u64 = 25;
    pub(in super::super) const CHUNKS: u64 = 27;
    pub(in super::super) const NULL_KEY: u64 = 30;
}

/// What the first look at an entry's metadata says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataView {
    /// Whether `entry.format` says `kafka`.
    pub is_kafka: bool,
    /// Messages that the entry takes up.
    pub messages: u32,
    /// In ms since the epoch.
    pub publish_time_ms: i64,
}

/// The key of a message in its three forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key<'a> {
    pub(super) partition: Option<&'a [u8]>,
    pub(super) is_base64: bool,
    pub(super) ordering: Option<&'a [u8]>,
    pub(super) is_null: bool,
}

/// All that the `pulsar` format reads of an entry's metadata.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Envelope<'a> {
    pub(super) producer_name: &'a [u8],
    pub(super) sequence_id: u64,
    pub(super) publish_time_ms: i64,
    pub(super) key: Key<'a>,
    pub(super) compression: u64,
    pub(super) uncompressed_size: u64,
    /// `None`: not a batch, the payload is one message.
    pub(super) batched: Option<u32>,
    pub(super) event_time_ms: i64,
    pub(super) is_encrypted: bool,
    pub(super) marker: Option<i32>,
    pub(super) txn: Option<(u64, u64)>,
    pub(super) null_value: bool,
    pub(super) chunks: u64,
    /// The metadata itself, for its properties.
    bytes: &'a [u8],
}

/// Magic of the optional checksum in front of the metadata.
pub(super) const CHECKSUM_MAGIC: [u8; 2] = [0x0e, 0x01];
/// Bytes of the magic and the checksum.
pub(super) const CHECKSUM_LENGTH: usize = 6;

/// Cuts the metadata off the front of an entry; what is left is its payload.
pub(super) fn take(entry: &mut Pieces) -> Result<Bytes, DecodeError> {
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
    entry.take(size).ok_or_else(cut_off)
}

/// The first look.
pub(super) fn look(mut bytes: &[u8]) -> Result<MetadataView, DecodeError> {
    let mut view = MetadataView {
        is_kafka: false,
        messages: 1,
        publish_time_ms: 0,
    };
    while !bytes.is_empty() {
        match proto::field(&mut bytes)? {
            (fields::PUBLISH_TIME, Value::Number(time)) => view.publish_time_ms = time_of(time)?,
            (fields::PROPERTY, Value::Slice(property)) => view.is_kafka |= marks_kafka(property)?,
            (fields::MESSAGES, Value::Number(messages)) => view.messages = count_of(messages)?,
            _ => {}
        }
    }
    Ok(view)
}

fn time_of(number: u64) -> Result<i64, DecodeError> {
    i64::try_from(number).map_err(|_| DecodeError::Malformed("a time is out of range"))
}

fn count_of(number: u64) -> Result<u32, DecodeError> {
    i32::try_from(number)
        .ok()
        .and_then(|messages| u32::try_from(messages).ok())
        .filter(|messages| *messages >= 1)
        .ok_or(DecodeError::Malformed("its message count is out of range"))
}

fn marks_kafka(property: &[u8]) -> Result<bool, DecodeError> {
    let (key, value) = proto::key_value(property)?;
    // KoP compares the value without regard to case.
    Ok(key == FORMAT_PROPERTY.as_bytes() && value.eq_ignore_ascii_case(FORMAT_VALUE.as_bytes()))
}

impl<'a> Envelope<'a> {
    /// Reads all fields.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut envelope = Self {
            bytes,
            ..Self::default()
        };
        let (mut most, mut least) = (None, None);
        let mut rest = bytes;
        while !rest.is_empty() {
            match proto::field(&mut rest)? {
                (number, Value::Slice(slice)) => envelope.note_slice(number, slice),
                (fields::TXN_MOST_BITS, Value::Number(bits)) => most = Some(bits),
                (fields::TXN_LEAST_BITS, Value::Number(bits)) => least = Some(bits),
                (number, Value::Number(value)) => envelope.note_number(number, value)?,
                (_, Value::Fixed) => {}
            }
        }
        envelope.txn = most.zip(least);
        Ok(envelope)
    }

    fn note_slice(&mut self, number: u64, slice: &'a [u8]) {
        match number {
            fields::PRODUCER_NAME => self.producer_name = slice,
            fields::PARTITION_KEY => self.key.partition = Some(slice),
            fields::ORDERING_KEY => self.key.ordering = Some(slice),
            fields::ENCRYPTION_KEY => self.is_encrypted = true,
            _ => {}
        }
    }

    fn note_number(&mut self, number: u64, value: u64) -> Result<(), DecodeError> {
        match number {
            fields::SEQUENCE_ID => self.sequence_id = value,
            fields::PUBLISH_TIME => self.publish_time_ms = time_of(value)?,
            fields::COMPRESSION => self.compression = value,
            fields::UNCOMPRESSED_SIZE => self.uncompressed_size = value,
            fields::MESSAGES => self.batched = Some(count_of(value)?),
            fields::EVENT_TIME => self.event_time_ms = time_of(value)?,
            fields::KEY_IS_BASE64 => self.key.is_base64 = value != 0,
            fields::MARKER_TYPE => self.marker = i32::try_from(value).ok().or(Some(0)),
            fields::NULL_VALUE => self.null_value = value != 0,
            fields::CHUNKS => self.chunks = value,
            fields::NULL_KEY => self.key.is_null = value != 0,
            _ => {}
        }
        Ok(())
    }

    /// Names and values of the properties, in order.
    pub(super) fn properties(&self) -> Properties<'a> {
        Properties {
            rest: self.bytes,
            field: fields::PROPERTY,
        }
    }
}

/// Iterates over the properties in a message's metadata. What does not hold together ends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Properties<'a> {
    rest: &'a [u8],
    field: u64,
}

impl<'a> Properties<'a> {
    /// Properties that stand in fields of this number.
    pub(super) fn of(bytes: &'a [u8], field: u64) -> Self {
        Self { rest: bytes, field }
    }
}

impl<'a> Iterator for Properties<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            match proto::field(&mut self.rest).ok()? {
                (number, Value::Slice(property)) if number == self.field => {
                    return proto::key_value(property).ok();
                }
                _ => {}
            }
        }
        None
    }
}
