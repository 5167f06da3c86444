//! A Kafka batch as one Pulsar batch message.
//!
//! Each record is measured first and then written straight into the payload: nothing is allocated per record. It must
//! not decide what may be written.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use super::extra::{self, Gathering};
use super::payload::pack;
use super::{TXN_ABORT, TXN_COMMIT, single};
use crate::format::metadata::{CHECKSUM_LENGTH, CHECKSUM_MAGIC, fields};
use crate::format::{EncodeError, MAX_PAYLOAD, base64, proto};
use crate::wire::batch::{
    BatchHeader, BatchView, Compression, ControlType, Header, Record, TimestampType, crc32c_of,
};

/// Room for the metadata of a message, over what its record takes up.
const AROUND: usize = 24;
/// What a record takes up at least in a batch.
const MIN_RECORD: usize = 7;

/// The entry of a batch in two pieces: checksum and metadata, then the payload.
pub(in super::super) fn encode(view: &BatchView, now_ms: i64) -> Result<[Bytes; 2], EncodeError> {
    let header = &view.header;
    if i64::from(header.record_count) != header.offset_span() {
        return Err(EncodeError::Gaps);
    }
    let records = view.records(MAX_PAYLOAD).map_err(EncodeError::Batch)?;
    let mut extra = Gathering::default();
    extra.append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    let most = records.data().len() / MIN_RECORD;
    let count = usize::try_from(header.record_count).unwrap_or(0).min(most);
    let mut payload = Vec::with_capacity(records.data().len() + count * AROUND);
    let mut first = None;
    for (place, record) in (0u64..).zip(&records) {
        let record = record.map_err(EncodeError::Batch)?;
        put_message(&mut payload, place, &record, header, &mut extra)?;
        first = first.or(Some(record));
    }
    let first = first.ok_or(EncodeError::Gaps)?;
    let publish_time_ms = if first.timestamp >= 0 {
        first.timestamp
    } else {
        now_ms
    };
    if header.has_producer_id() && !header.attributes.is_transactional() {
        extra.producer = Some(extra::Producer {
            id: header.producer_id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            arrived_after_ms: now_ms.wrapping_sub(publish_time_ms),
        });
    }
    if payload.len() > MAX_PAYLOAD {
        return Err(EncodeError::TooLarge);
    }
    let codec = header.attributes.compression().unwrap_or(Compression::None);
    let packed = pack(codec, &payload);
    let outer = Outer {
        header,
        first,
        publish_time_ms,
        extra: extra.finish(),
        compression: packed.as_ref().map(|(id, _)| (*id, payload.len())),
    };
    let payload = Bytes::from(packed.map_or(payload, |(_, packed)| packed));
    Ok([outer.write(&payload), payload])
}

/// Sequence number of the record at a place, by Kafka's wrapping rule; 0 without one, as KoP has it.
fn sequence(header: &BatchHeader, place: u64) -> u64 {
    u64::try_from(header.base_sequence).map_or(0, |base| base.wrapping_add(place) & 0x7fff_ffff)
}

fn put_message(
    out: &mut Vec<u8>,
    place: u64,
    record: &Record<'_>,
    header: &BatchHeader,
    extra: &mut Gathering,
) -> Result<(), EncodeError> {
    let event_time = u64::try_from(record.timestamp)
        .ok()
        .filter(|time| *time > 0);
    if event_time.is_none() {
        extra.timestamp(place, record.timestamp);
    }
    let mut properties = 0;
    let mut fit = true;
    for header in record.headers {
        let fits = fits(&header);
        fit &= fits;
        let (name, value) = texts(&header, fits);
        properties += proto::slice_len(single::PROPERTY, pair_len(&name, &value));
    }
    if !fit {
        extra.headers(place, record.headers.declared(), record.headers.raw());
    }
    let value = record.value.unwrap_or_default();
    let sequence = sequence(header, place);
    let value_len = value.len() as u64;
    let length = properties
        + record.key.map_or(0, |key| {
            proto::slice_len(single::PARTITION_KEY, base64::encoded_len(key.len()))
                + proto::number_len(single::KEY_IS_BASE64, 1)
                + proto::slice_len(single::ORDERING_KEY, key.len())
        })
        + proto::number_len(single::PAYLOAD_SIZE, value_len)
        + event_time.map_or(0, |time| proto::number_len(single::EVENT_TIME, time))
        + proto::number_len(single::SEQUENCE_ID, sequence)
        + record
            .value
            .map_or(proto::number_len(single::NULL_VALUE, 1), |_| 0);
    out.put_u32(u32::try_from(length).map_err(|_| EncodeError::TooLarge)?);
    for header in record.headers {
        let (name, value) = texts(&header, fit);
        proto::put_slice_head(out, single::PROPERTY, pair_len(&name, &value));
        proto::put_slice(out, 1, &name);
        proto::put_slice(out, 2, &value);
    }
    if let Some(key) = record.key {
        put_base64(out, single::PARTITION_KEY, key);
    }
    proto::put_number(out, single::PAYLOAD_SIZE, value_len);
    if let Some(time) = event_time {
        proto::put_number(out, single::EVENT_TIME, time);
    }
    if let Some(key) = record.key {
        proto::put_number(out, single::KEY_IS_BASE64, 1);
        proto::put_slice(out, single::ORDERING_KEY, key);
    }
    proto::put_number(out, single::SEQUENCE_ID, sequence);
    if record.value.is_none() {
        proto::put_number(out, single::NULL_VALUE, 1);
    }
    out.put_slice(value);
    Ok(())
}

/// Whether a property carries a header unharmed.
fn fits(header: &Header<'_>) -> bool {
    let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
    is_text(header.key) && header.value.is_some_and(is_text)
}

/// What Pulsar's clients see of a header: text, damaged where it is none (as KoP has it), and empty for null.
fn texts<'h>(header: &Header<'h>, fits: bool) -> (Cow<'h, [u8]>, Cow<'h, [u8]>) {
    let text = |bytes: &'h [u8]| {
        if fits {
            return Cow::Borrowed(bytes);
        }
        match String::from_utf8_lossy(bytes) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    };
    (text(header.key), text(header.value.unwrap_or_default()))
}

fn pair_len(name: &[u8], value: &[u8]) -> usize {
    proto::slice_len(1, name.len()) + proto::slice_len(2, value.len())
}

fn put_base64(out: &mut impl BufMut, field: u64, bytes: &[u8]) {
    proto::put_slice_head(out, field, base64::encoded_len(bytes.len()));
    base64::encode(out, bytes);
}

/// The metadata of the entry.
struct Outer<'a> {
    header: &'a BatchHeader,
    first: Record<'a>,
    publish_time_ms: i64,
    extra: Option<Vec<u8>>,
    /// Codec, and the payload's length before it.
    compression: Option<(u64, usize)>,
}

impl Outer<'_> {
    /// Everything before the payload, checksum included.
    fn write(&self, payload: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(256);
        out.put_slice(&CHECKSUM_MAGIC);
        out.put_u32(0);
        out.put_u32(0);
        let start = out.len();
        self.put_fields(&mut out);
        let size = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
        put_at(&mut out, CHECKSUM_LENGTH, size);
        let checked = out.get(CHECKSUM_LENGTH..).unwrap_or_default();
        let crc = crc32c_of(&[checked, payload]);
        put_at(&mut out, CHECKSUM_MAGIC.len(), crc);
        out.freeze()
    }

    fn put_fields(&self, out: &mut BytesMut) {
        let header = self.header;
        let publish_time = u64::try_from(self.publish_time_ms).unwrap_or(0);
        proto::put_slice(out, fields::PRODUCER_NAME, &[]);
        proto::put_number(out, fields::SEQUENCE_ID, sequence(header, 0));
        proto::put_number(out, fields::PUBLISH_TIME, publish_time);
        if let Some(extra) = &self.extra {
            let text = base64::encoded_len(extra.len());
            let length = proto::slice_len(1, extra::PROPERTY.len()) + proto::slice_len(2, text);
            proto::put_slice_head(out, fields::PROPERTY, length);
            proto::put_slice(out, 1, extra::PROPERTY);
            put_base64(out, 2, extra);
        }
        if let Some(key) = self.first.key {
            put_base64(out, fields::PARTITION_KEY, key);
        }
        if let Some((codec, length)) = self.compression {
            proto::put_number(out, fields::COMPRESSION, codec);
            proto::put_number(out, fields::UNCOMPRESSED_SIZE, length as u64);
        }
        let messages = u64::try_from(header.record_count).unwrap_or(0);
        proto::put_number(out, fields::MESSAGES, messages);
        if let Some(key) = self.first.key {
            proto::put_number(out, fields::KEY_IS_BASE64, 1);
            proto::put_slice(out, fields::ORDERING_KEY, key);
        }
        if header.attributes.is_control() {
            let marker = match self.first.key.and_then(ControlType::from_key) {
                Some(ControlType::Commit) => TXN_COMMIT,
                Some(ControlType::Abort) => TXN_ABORT,
                None => 0,
            };
            proto::put_number(out, fields::MARKER_TYPE, u64::from(marker.unsigned_abs()));
        }
        if header.attributes.is_transactional() {
            let least = i64::from(header.producer_epoch) as u64;
            proto::put_number(out, fields::TXN_LEAST_BITS, least);
            proto::put_number(out, fields::TXN_MOST_BITS, header.producer_id as u64);
        }
    }
}

fn put_at(out: &mut BytesMut, at: usize, number: u32) {
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_be_bytes());
    }
}
