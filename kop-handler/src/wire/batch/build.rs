//! Builds batches of our own: records of coordinators, control markers, and what compaction leaves of a batch.
//!
//! It must not know what the records mean, apart from the two markers that end a transaction.

use bytes::{BufMut, Bytes};

use super::header::{HEADER_BYTES, LENGTH_PREFIX_BYTES, set_crc};
use super::{Attributes, BatchError, BatchHeader, Compression, Record, TimestampType, compress};
use crate::wire::put;

/// A record to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// In milliseconds.
    pub timestamp: i64,
    /// Key, `None` for null.
    pub key: Option<&'a [u8]>,
    /// Value, `None` for null.
    pub value: Option<&'a [u8]>,
    /// Headers in order; keys may repeat.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

impl<'a> NewRecord<'a> {
    /// A record without headers.
    #[must_use]
    pub fn new(timestamp: i64, key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Self {
        Self {
            timestamp,
            key,
            value,
            headers: &[],
        }
    }
}

/// How a transaction ended: the kind of a control record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlType {
    /// Its records are void.
    Abort,
    /// Its records count.
    Commit,
}

impl ControlType {
    /// Reads the key of a control record; `None` for one that is not a transaction's end.
    #[must_use]
    pub fn from_key(key: &[u8]) -> Option<Self> {
        let (_version, kind) = key.split_first_chunk::<2>()?;
        match i16::from_be_bytes(*kind.first_chunk()?) {
            0 => Some(Self::Abort),
            1 => Some(Self::Commit),
            _ => None,
        }
    }
}

/// A batch in the making. Offsets start at 0: [`super::patched`] gives the batch its place.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    attributes: i16,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    record_count: i32,
    /// Offsets up to the last record, or up to where [`Self::span`] says.
    offsets: i32,
    /// Room for the header, then the records.
    out: Vec<u8>,
}

impl BatchBuilder {
    /// An uncompressed batch whose timestamps are written relative to `base_timestamp` (ms), by convention that of
    /// its first record.
    #[must_use]
    pub fn new(base_timestamp: i64) -> Self {
        Self::with_capacity(base_timestamp, 0)
    }

    /// The same with room for `bytes` bytes of records.
    #[must_use]
    pub fn with_capacity(base_timestamp: i64, bytes: usize) -> Self {
        let mut out = Vec::with_capacity(HEADER_BYTES + bytes);
        out.resize(HEADER_BYTES, 0);
        Self {
            attributes: 0,
            base_timestamp,
            max_timestamp: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 0,
            offsets: 0,
            out,
        }
    }

    /// Compresses the records as a whole.
    #[must_use]
    pub fn compression(mut self, codec: Compression) -> Self {
        self.attributes = (self.attributes & !Attributes::CODEC) | i16::from(codec.id());
        self
    }

    /// Names the producer.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Makes the batch part of its producer's transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.attributes |= Attributes::TRANSACTIONAL;
        self
    }

    /// Makes it a batch of control records, which clients do not give to applications.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.attributes |= Attributes::CONTROL;
        self
    }

    /// Says that the timestamps are the broker's: all records have the largest.
    #[must_use]
    pub fn log_append_time(mut self) -> Self {
        self.attributes |= Attributes::LOG_APPEND_TIME;
        self
    }

    /// Makes the batch take up at least `offsets` offsets, whatever records are in it.
    #[must_use]
    pub fn span(mut self, offsets: i32) -> Self {
        self.offsets = self.offsets.max(offsets);
        self
    }

    /// Records so far.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.record_count).unwrap_or(0)
    }

    /// Whether there is no record yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Bytes that the batch would take up uncompressed.
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        self.out.len()
    }

    /// Adds a record behind the last offset.
    ///
    /// # Errors
    /// [`BatchError::Length`] if a field or the batch would be larger than the format can say.
    pub fn push(&mut self, record: NewRecord<'_>) -> Result<(), BatchError> {
        let headers = record.headers.iter().copied();
        let NewRecord {
            timestamp,
            key,
            value,
            ..
        } = record;
        self.push_at(self.offsets, timestamp, (key, value), headers)
    }

    /// Adds a record at an offset relative to the batch's first, which must rise from record to record.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_at<'h>(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        (key, value): (Option<&[u8]>, Option<&[u8]>),
        headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
    ) -> Result<(), BatchError> {
        let deltas = (timestamp.wrapping_sub(self.base_timestamp), offset_delta);
        let (mut count, mut size) = (0i32, 0);
        for (key, value) in headers.clone() {
            count = count.saturating_add(1);
            size += nullable_len(Some(key)) + nullable_len(value);
        }
        size += put::varint_len(count);
        put_record(&mut self.out, deltas, (key, value), size, |out| {
            put::varint(out, count);
            for (key, value) in headers {
                put_nullable(out, Some(key));
                put_nullable(out, value);
            }
        })?;
        self.note(offset_delta, timestamp);
        Ok(())
    }

    /// Adds a record whose headers are encoded already: `count` of them in `headers`.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_raw_headers(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        (key, value): (Option<&[u8]>, Option<&[u8]>),
        (count, headers): (i32, &[u8]),
    ) -> Result<(), BatchError> {
        let deltas = (timestamp.wrapping_sub(self.base_timestamp), offset_delta);
        let size = put::varint_len(count) + headers.len();
        put_record(&mut self.out, deltas, (key, value), size, |out| {
            put::varint(out, count);
            out.put_slice(headers);
        })?;
        self.note(offset_delta, timestamp);
        Ok(())
    }

    fn note(&mut self, offset_delta: i32, timestamp: i64) {
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.offsets = self.offsets.max(offset_delta.saturating_add(1));
        self.record_count += 1;
    }

    /// The finished batch, base offset 0 and leader epoch −1.
    ///
    /// # Errors
    /// [`BatchError::Length`] if it is larger than the format can say, [`BatchError::Unpack`] if packing fails.
    pub fn build(self) -> Result<Bytes, BatchError> {
        let header = BatchHeader {
            base_offset: 0,
            batch_length: 0,
            leader_epoch: -1,
            crc: 0,
            attributes: Attributes(self.attributes),
            last_offset_delta: self.offsets - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.record_count,
        };
        seal(header, self.out)
    }

    /// The marker that ends a transaction (KIP-98): one control record that carries the coordinator's epoch.
    ///
    /// # Errors
    /// As [`Self::build`]; in practice none.
    pub fn end_transaction(
        kind: ControlType,
        producer_id: i64,
        producer_epoch: i16,
        coordinator_epoch: i32,
        timestamp: i64,
    ) -> Result<Bytes, BatchError> {
        let kind: i16 = match kind {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
        };
        let mut key = vec![0, 0];
        key.put_i16(kind);
        let mut value = vec![0, 0];
        value.put_i32(coordinator_epoch);
        let mut builder = Self::new(timestamp)
            .producer(producer_id, producer_epoch, -1)
            .transactional()
            .control();
        builder.push(NewRecord::new(timestamp, Some(&key), Some(&value)))?;
        builder.build()
    }

    /// What compaction leaves of a batch: the same header with fewer records, whose offsets and timestamps stay.
    /// The last offset delta stays too, so that the batch still spans its offsets and its sequence numbers.
    ///
    /// With `delete_horizon_ms` the batch says from when on its tombstones may go (KIP-534). With no records at all
    /// it is kept for its producer's sequence numbers.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn retain<'a>(
        header: &BatchHeader,
        kept: impl IntoIterator<Item = Record<'a>>,
        delete_horizon_ms: Option<i64>,
    ) -> Result<Bytes, BatchError> {
        let mut header = *header;
        let log_append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
        let append_time = header.max_timestamp;
        if let Some(horizon) = delete_horizon_ms {
            header.attributes.0 |= Attributes::DELETE_HORIZON;
            header.base_timestamp = horizon;
        }
        header.max_timestamp = -1;
        header.record_count = 0;
        let mut out = vec![0; HEADER_BYTES];
        for record in kept {
            let timestamp_delta = record.timestamp.wrapping_sub(header.base_timestamp);
            let offset_delta = record.offset.wrapping_sub(header.base_offset) as i32;
            let (count, headers) = (record.headers.declared() as i32, record.headers.raw());
            put_record(
                &mut out,
                (timestamp_delta, offset_delta),
                (record.key, record.value),
                put::varint_len(count) + headers.len(),
                |out| {
                    put::varint(out, count);
                    out.put_slice(headers);
                },
            )?;
            header.max_timestamp = header.max_timestamp.max(record.timestamp);
            header.record_count += 1;
        }
        if log_append_time {
            header.max_timestamp = append_time;
        }
        seal(header, out)
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put::varint(out, -1),
        Some(bytes) => {
            put::varint(out, bytes.len() as i32);
            out.put_slice(bytes);
        }
    }
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    match bytes {
        None => put::varint_len(-1),
        Some(bytes) => put::varint_len(bytes.len() as i32) + bytes.len(),
    }
}

/// Writes a record behind its length, which is computed first. `headers` writes `headers_len` bytes.
fn put_record(
    out: &mut Vec<u8>,
    (timestamp_delta, offset_delta): (i64, i32),
    (key, value): (Option<&[u8]>, Option<&[u8]>),
    headers_len: usize,
    headers: impl FnOnce(&mut Vec<u8>),
) -> Result<(), BatchError> {
    let length = 1
        + put::varlong_len(timestamp_delta)
        + put::varint_len(offset_delta)
        + nullable_len(key)
        + nullable_len(value)
        + headers_len;
    let length = i32::try_from(length).map_err(|_| BatchError::Length(i32::MAX))?;
    put::varint(out, length);
    out.put_u8(0);
    put::varlong(out, timestamp_delta);
    put::varint(out, offset_delta);
    put_nullable(out, key);
    put_nullable(out, value);
    headers(out);
    Ok(())
}

/// Packs the records if the header says so, and fills in the header in front of them, with length and checksum.
fn seal(header: BatchHeader, mut out: Vec<u8>) -> Result<Bytes, BatchError> {
    let codec = header.attributes.compression()?;
    if codec != Compression::None {
        let packed = compress(codec, out.get(HEADER_BYTES..).unwrap_or_default())?;
        out.truncate(HEADER_BYTES);
        out.extend_from_slice(&packed);
    }
    let length =
        i32::try_from(out.len() - LENGTH_PREFIX_BYTES).map_err(|_| BatchError::Length(i32::MAX))?;
    let mut fields = out.get_mut(..HEADER_BYTES).unwrap_or_default();
    fields.put_i64(header.base_offset);
    fields.put_i32(length);
    fields.put_i32(header.leader_epoch);
    fields.put_i8(2);
    fields.put_u32(0);
    fields.put_i16(header.attributes.0);
    fields.put_i32(header.last_offset_delta);
    fields.put_i64(header.base_timestamp);
    fields.put_i64(header.max_timestamp);
    fields.put_i64(header.producer_id);
    fields.put_i16(header.producer_epoch);
    fields.put_i32(header.base_sequence);
    fields.put_i32(header.record_count);
    set_crc(&mut out);
    Ok(out.into())
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
