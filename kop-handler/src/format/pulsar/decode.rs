//! What Pulsar's producers, KoP or we wrote in Pulsar's format, as one uncompressed Kafka batch.
//!
//! A Pulsar transaction becomes a producer of its own to Kafka's eyes, so that each transaction has one. Messages keep
//! their places: one that Pulsar compacted away leaves a gap in the offsets. It must not know where an entry lies.

use bytes::Buf;

use super::extra::{self, Extra};
use super::payload::unpack;
use super::{TXN_ABORT, TXN_COMMIT, single};
use crate::format::metadata::{Envelope, Key, Properties};
use crate::format::proto::{self, Value};
use crate::format::{Batch, DecodeError, Pieces, base64, gap_of};
use crate::wire::batch::{BatchBuilder, BatchError, ControlType};

/// A bit that no producer id has that coordinators give out: those of Pulsar's transactions have it.
const TXN_PRODUCER: i64 = 1 << 62;

/// The batch of an entry.
pub(in super::super) fn decode(metadata: &[u8], payload: Pieces) -> Result<Batch, DecodeError> {
    let envelope = Envelope::read(metadata)?;
    // Pulsar's broker gives every producer a name; KoP and we leave it empty.
    let is_kafkas = envelope.producer_name.is_empty() && envelope.batched.is_some();
    if let Some(marker) = envelope.marker
        && !is_kafkas
    {
        return foreign_marker(&envelope, marker);
    }
    if envelope.is_encrypted {
        return Err(DecodeError::Encrypted);
    }
    if envelope.chunks > 1 {
        return Err(DecodeError::Chunk);
    }
    let payload = unpack(
        envelope.compression,
        payload.contiguous(),
        envelope.uncompressed_size,
    )?;
    let text = envelope
        .properties()
        .find(|(name, _)| is_kafkas && *name == extra::PROPERTY)
        .map(|(_, text)| extra::bytes_of(text))
        .transpose()?;
    let extra = text.as_deref().map(Extra::read).transpose()?;
    let extra = extra.unwrap_or_default();
    let mut decoding = Decoding {
        envelope: &envelope,
        batch: None,
        producer: producer(&envelope, &extra, is_kafkas),
        extra,
        scratch: Vec::new(),
        room: payload.len(),
    };
    match envelope.batched {
        Some(messages) => decoding.batched(messages, &payload)?,
        None => decoding.single(&payload)?,
    }
    decoding.finish()
}

/// Who wrote a batch, and whether within a transaction.
#[derive(Clone, Copy)]
struct Producer {
    id: i64,
    epoch: i16,
    base_sequence: i32,
    is_transactional: bool,
}

fn producer(envelope: &Envelope<'_>, extra: &Extra<'_>, is_kafkas: bool) -> Option<Producer> {
    match envelope.txn {
        Some((most, least)) if is_kafkas => Some(Producer {
            id: most as i64,
            epoch: least as i16,
            // KoP stores the sequence number of each record, and a marker has none.
            base_sequence: match envelope.marker {
                None => i32::try_from(envelope.sequence_id).unwrap_or(-1),
                Some(_) => -1,
            },
            is_transactional: true,
        }),
        Some(txn) => Some(Producer {
            id: producer_of_txn(txn),
            epoch: 0,
            base_sequence: -1,
            is_transactional: true,
        }),
        None => extra.producer.map(|producer| Producer {
            id: producer.id,
            epoch: producer.epoch,
            base_sequence: producer.base_sequence,
            is_transactional: false,
        }),
    }
}

/// The producer id that stands for a transaction of Pulsar: 16 bits of its coordinator, 46 of its number.
fn producer_of_txn((most, least): (u64, u64)) -> i64 {
    let coordinator = (most & 0xffff) << 46;
    TXN_PRODUCER | (coordinator | (least & ((1 << 46) - 1))) as i64
}

/// A marker that Pulsar wrote: the end of a transaction, or nothing that a Kafka client knows.
fn foreign_marker(envelope: &Envelope<'_>, marker: i32) -> Result<Batch, DecodeError> {
    let kind = match marker {
        TXN_COMMIT => Some(ControlType::Commit),
        TXN_ABORT => Some(ControlType::Abort),
        _ => None,
    };
    let time = envelope.publish_time_ms;
    let Some((kind, txn)) = kind.zip(envelope.txn) else {
        return Ok(gap_of(time));
    };
    let batch = BatchBuilder::end_transaction(kind, producer_of_txn(txn), 0, 0, time);
    Ok(Batch::whole(batch.map_err(too_large)?, time))
}

fn too_large(_: BatchError) -> DecodeError {
    DecodeError::TooLarge
}

struct Decoding<'a> {
    envelope: &'a Envelope<'a>,
    batch: Option<BatchBuilder>,
    producer: Option<Producer>,
    extra: Extra<'a>,
    /// Keys that are unpacked from base64.
    scratch: Vec<u8>,
    /// Room to take for the records.
    room: usize,
}

/// One message of a batch.
#[derive(Default)]
struct Single<'a> {
    key: Key<'a>,
    size: usize,
    event_time_ms: i64,
    is_compacted: bool,
    null_value: bool,
}

impl<'a> Decoding<'a> {
    fn batched(&mut self, messages: u32, payload: &[u8]) -> Result<(), DecodeError> {
        const CUT: DecodeError = DecodeError::Malformed("a message of the batch is cut off");
        let mut rest = payload;
        for place in 0..messages {
            if rest.len() < 4 {
                return Err(CUT);
            }
            let size = usize::try_from(rest.get_u32()).map_err(|_| CUT)?;
            let (metadata, after) = rest.split_at_checked(size).ok_or(CUT)?;
            let message = single(metadata)?;
            let (value, after) = after.split_at_checked(message.size).ok_or(CUT)?;
            rest = after;
            if message.is_compacted {
                continue;
            }
            let time = match message.event_time_ms {
                0 => self.envelope.publish_time_ms,
                time => time,
            };
            let value = (!message.null_value).then_some(value);
            let properties = Properties::of(metadata, single::PROPERTY);
            self.push(place, time, message.key, value, properties)?;
        }
        Ok(())
    }

    fn single(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let envelope = self.envelope;
        let time = match envelope.event_time_ms {
            0 => envelope.publish_time_ms,
            time => time,
        };
        let value = (!envelope.null_value).then_some(payload);
        self.push(0, time, envelope.key, value, envelope.properties())
    }

    fn push(
        &mut self,
        place: u32,
        time_ms: i64,
        key: Key<'_>,
        value: Option<&[u8]>,
        properties: Properties<'_>,
    ) -> Result<(), DecodeError> {
        let time_ms = self.extra.timestamp(place.into()).unwrap_or(time_ms);
        let room = self.room;
        let batch = self
            .batch
            .get_or_insert_with(|| BatchBuilder::with_capacity(time_ms, room));
        let place = i32::try_from(place).map_err(|_| DecodeError::TooLarge)?;
        let content = (key_bytes(key, &mut self.scratch), value);
        match self.extra.headers(u64::from(place.unsigned_abs())) {
            Some(headers) => batch.push_raw_headers(place, time_ms, content, headers),
            None => {
                let headers = properties.map(|(name, value)| (name, Some(value)));
                batch.push_at(place, time_ms, content, headers)
            }
        }
        .map_err(too_large)
    }

    fn finish(self) -> Result<Batch, DecodeError> {
        let arrived_after = self.extra.producer.map_or(0, |p| p.arrived_after_ms);
        let time = self.envelope.publish_time_ms.wrapping_add(arrived_after);
        // Nothing is left of a batch whose messages Pulsar compacted away.
        let Some(mut batch) = self.batch else {
            return Ok(gap_of(time));
        };
        let messages = self.envelope.batched.unwrap_or(1);
        batch = batch.span(i32::try_from(messages).map_err(|_| DecodeError::TooLarge)?);
        if let Some(producer) = self.producer {
            batch = batch.producer(producer.id, producer.epoch, producer.base_sequence);
            if producer.is_transactional {
                batch = batch.transactional();
            }
        }
        if self.extra.append_time {
            batch = batch.log_append_time();
        }
        if self.envelope.marker.is_some() {
            batch = batch.control();
        }
        Ok(Batch::whole(batch.build().map_err(too_large)?, time))
    }
}

fn single(mut bytes: &[u8]) -> Result<Single<'_>, DecodeError> {
    let mut message = Single::default();
    while !bytes.is_empty() {
        match proto::field(&mut bytes)? {
            (single::PARTITION_KEY, Value::Slice(key)) => message.key.partition = Some(key),
            (single::ORDERING_KEY, Value::Slice(key)) => message.key.ordering = Some(key),
            (single::PAYLOAD_SIZE, Value::Number(size)) => {
                message.size = usize::try_from(size)
                    .map_err(|_| DecodeError::Malformed("a payload size is out of range"))?;
            }
            (single::EVENT_TIME, Value::Number(time)) => {
                message.event_time_ms = i64::try_from(time)
                    .map_err(|_| DecodeError::Malformed("a time is out of range"))?;
            }
            (single::COMPACTED_OUT, Value::Number(flag)) => message.is_compacted = flag != 0,
            (single::KEY_IS_BASE64, Value::Number(flag)) => message.key.is_base64 = flag != 0,
            (single::NULL_VALUE, Value::Number(flag)) => message.null_value = flag != 0,
            (single::NULL_KEY, Value::Number(flag)) => message.key.is_null = flag != 0,
            _ => {}
        }
    }
    Ok(message)
}

/// The Kafka key of a message: the ordering key if there is one, as KoP has it, else the partition key.
fn key_bytes<'k>(key: Key<'k>, scratch: &'k mut Vec<u8>) -> Option<&'k [u8]> {
    if key.ordering.is_some() {
        return key.ordering;
    }
    let text = key.partition.filter(|_| !key.is_null)?;
    if key.is_base64 {
        scratch.clear();
        if base64::decode(scratch, text).is_some() {
            return Some(scratch);
        }
    }
    Some(text)
}
