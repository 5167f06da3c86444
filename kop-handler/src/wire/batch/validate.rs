//! Whether a batch that a client sends may be appended, by Kafka 4.3.1's rules, and what of it has to be rewritten.
//!
//! Follows `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and `LogValidator` in their order.
//! A golden file holds Kafka's own verdicts. We differ where Kafka stores what no reader can use: records whose offsets
//! are not 0..n−1 (Kafka stores them uncompressed, and fails with an unknown error on compressed ones), whose fields do
//! not fill their length, or with a length below −1; and an unknown codec or packed data that cannot be unpacked is the
//! client's fault here, not an unknown error. Every record is walked, compressed ones while they are unpacked, in a window of fixed
//! size. It must not know topics or clocks: rules and the time are arguments.

use bytes::Bytes;

use super::header::{HEADER_BYTES, LENGTH_PREFIX_BYTES, has_right_crc, set_timestamps};
use super::walk::{self, Seen, Slice, Source, Stream};
use super::{BatchError, BatchHeader, Compression, MAX_UNPACKED_BYTES, TimestampType};
use crate::error::Fault;

/// First version of Produce that may carry zstd (KIP-110).
const ZSTD_SINCE: i16 = 7;
/// Smallest length that a batch of any format can have; below it the framing is broken.
const MIN_LENGTH: i32 = 14;
/// Record errors reported per batch; the rest only counts.
const MAX_RECORD_ERRORS: usize = 100;

/// What a topic and a request allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProduceRules {
    /// Version of the Produce request.
    pub api_version: i16,
    /// `max.message.bytes`: largest batch in bytes.
    pub max_batch_bytes: usize,
    /// Whether `cleanup.policy` holds `compact`: every record needs a key.
    pub compacted: bool,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far back a record's own time may lie.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far ahead it may lie.
    pub timestamp_after_max_ms: i64,
    /// The broker's time in milliseconds.
    pub now_ms: i64,
    /// Most bytes that compressed records may unpack to.
    pub max_unpacked_bytes: usize,
}

impl ProduceRules {
    /// Kafka's defaults for a topic, at a time and for a version of Produce.
    #[must_use]
    pub fn new(api_version: i16, now_ms: i64) -> Self {
        Self {
            api_version,
            max_batch_bytes: 1_048_588,
            compacted: false,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            now_ms,
            max_unpacked_bytes: MAX_UNPACKED_BYTES,
        }
    }
}

/// A batch that may be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidBatch {
    /// Exactly one batch. The client's own bytes, unless timestamps had to be rewritten.
    pub bytes: Bytes,
    /// Its header.
    pub header: BatchHeader,
    /// Offset delta of the first record that has the largest timestamp; with append time that of the last record.
    pub max_timestamp_delta: i32,
}

/// Why a batch is refused. Nothing of it may be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The fault, with Kafka's code and a message for the client.
    pub fault: Fault,
    /// The records at fault, for ProduceResponse 8 and later (KIP-467); empty if the batch as a whole is.
    pub records: Vec<RecordError>,
}

/// A record at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// Which record of the batch, from 0.
    pub index: i32,
    /// What is wrong with it.
    pub message: String,
}

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            records: Vec::new(),
        }
    }
}

/// Checks what a Produce request holds for one partition. `None` is null in the request.
///
/// # Errors
/// [`Rejection`] with CORRUPT_MESSAGE (2) for broken framing or checksum, MESSAGE_TOO_LARGE (10), INVALID_TIMESTAMP (32),
/// UNSUPPORTED_COMPRESSION_TYPE (76), and INVALID_RECORD (87) for the rest.
pub fn validate_produce(
    records: Option<&Bytes>,
    rules: &ProduceRules,
) -> Result<ValidBatch, Rejection> {
    let bytes = only_batch(records, rules)?;
    let header = BatchHeader::parse(&bytes).map_err(|e| Fault::CorruptMessage(e.to_string()))?;
    let codec = check_header(&header, &bytes, rules)?;
    let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let mut check = RecordCheck::new(&header, rules);
    match codec {
        Compression::None => check.run(&mut Slice::new(body))?,
        codec => {
            let stream = Stream::new(codec, body, rules.max_unpacked_bytes);
            check.run(&mut stream.map_err(batch_fault)?)?;
        }
    }
    let (max_timestamp, max_timestamp_delta) = check.finish()?;
    Ok(with_timestamps(
        bytes,
        header,
        rules,
        max_timestamp,
        max_timestamp_delta,
    ))
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::InvalidRecord(message.into())
}

/// The one batch of the request; bytes behind it that cannot be a batch are cut off, as Kafka does.
fn only_batch(records: Option<&Bytes>, rules: &ProduceRules) -> Result<Bytes, Fault> {
    let version = rules.api_version;
    let none = || {
        invalid(format!(
            "Produce {version} needs one record batch per partition, there is none"
        ))
    };
    let bytes = records.ok_or_else(none)?;
    let size = batch_size(bytes)?.ok_or_else(none)?;
    match bytes.get(16).copied() {
        Some(2) => {}
        magic => {
            return Err(invalid(format!(
                "record batches need magic 2, not {magic:?}"
            )));
        }
    }
    let codec = bytes.get(22).map_or(0, |low| low & 0x07);
    if version < ZSTD_SINCE && codec == Compression::Zstd.id() {
        return Err(Fault::UnsupportedCompression(format!(
            "Produce {version} cannot carry zstd"
        )));
    }
    if batch_size(bytes.get(size..).unwrap_or_default())?.is_some() {
        return Err(invalid(
            "there is more than one record batch for the partition",
        ));
    }
    Ok(bytes.slice(..size))
}

/// Size of the batch at the start of `bytes`; `None` if no whole batch is there.
fn batch_size(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let Some(length) = bytes
        .get(8..LENGTH_PREFIX_BYTES)
        .and_then(<[u8]>::first_chunk)
    else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(*length);
    if length < MIN_LENGTH {
        return Err(Fault::CorruptMessage(format!(
            "record batch length {length} is impossible"
        )));
    }
    let Some(magic) = bytes.get(16) else {
        return Ok(None);
    };
    if *magic > 2 {
        return Err(Fault::CorruptMessage(format!(
            "record batch magic {magic} does not exist"
        )));
    }
    let size = LENGTH_PREFIX_BYTES + length.unsigned_abs() as usize;
    Ok((size <= bytes.len()).then_some(size))
}

fn check_header(
    header: &BatchHeader,
    bytes: &[u8],
    rules: &ProduceRules,
) -> Result<Compression, Fault> {
    if header.base_offset != 0 {
        return Err(invalid(format!(
            "the base offset must be 0, not {}",
            header.base_offset
        )));
    }
    if bytes.len() > rules.max_batch_bytes {
        return Err(Fault::MessageTooLarge(format!(
            "the record batch has {} bytes, the topic accepts {}",
            bytes.len(),
            rules.max_batch_bytes
        )));
    }
    if !has_right_crc(bytes, header) {
        return Err(Fault::CorruptMessage(format!(
            "the checksum is not {:#010x}",
            header.crc
        )));
    }
    let codec = header.attributes.compression().map_err(batch_fault)?;
    let (count, span) = (header.record_count, header.offset_span());
    if span <= 0 || count <= 0 || span != i64::from(count) {
        return Err(invalid(format!(
            "{count} records cannot span {span} offsets"
        )));
    }
    if header.attributes.is_control() {
        return Err(invalid("clients may not write control records"));
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        return Err(invalid(format!(
            "sequence {} of producer {} is negative",
            header.base_sequence, header.producer_id
        )));
    }
    Ok(codec)
}

fn batch_fault(error: BatchError) -> Fault {
    match error {
        BatchError::UnpackedTooLarge { .. } => Fault::MessageTooLarge(error.to_string()),
        error => invalid(error.to_string()),
    }
}

/// Walks the records and remembers what the topic's rules say against them.
struct RecordCheck<'r> {
    header: &'r BatchHeader,
    rules: &'r ProduceRules,
    errors: Vec<RecordError>,
    error_count: usize,
    has_bad_timestamp: bool,
    max_timestamp: i64,
    max_timestamp_delta: i32,
}

impl<'r> RecordCheck<'r> {
    fn new(header: &'r BatchHeader, rules: &'r ProduceRules) -> Self {
        Self {
            header,
            rules,
            errors: Vec::new(),
            error_count: 0,
            has_bad_timestamp: false,
            max_timestamp: -1,
            max_timestamp_delta: 0,
        }
    }

    fn run<S: Source>(&mut self, source: &mut S) -> Result<(), Fault> {
        for index in 0..self.header.record_count {
            match walk::next(source) {
                Ok(seen) => self.see(index, &seen)?,
                Err(walk::Fault::Bad(reason)) => {
                    return Err(invalid(format!("record {index}: {reason}")));
                }
                Err(walk::Fault::Source(error)) => return Err(batch_fault(error)),
            }
        }
        match source.is_at_end() {
            Ok(true) => Ok(()),
            Ok(false) => Err(batch_fault(BatchError::TrailingRecords(
                self.header.record_count,
            ))),
            Err(walk::Fault::Source(error)) => Err(batch_fault(error)),
            Err(walk::Fault::Bad(reason)) => Err(invalid(reason)),
        }
    }

    fn see(&mut self, index: i32, seen: &Seen) -> Result<(), Fault> {
        if seen.offset_delta != index {
            return Err(invalid(format!(
                "record {index} has offset {} in its batch",
                seen.offset_delta
            )));
        }
        let timestamp = match self.header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => self.header.max_timestamp,
            TimestampType::CreateTime => self
                .header
                .base_timestamp
                .wrapping_add(seen.timestamp_delta),
        };
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.max_timestamp_delta = index;
        }
        if self.rules.compacted && !seen.has_key {
            self.refuse(index, || {
                "a compacted topic needs a key in every record".to_owned()
            });
        } else if let Some(message) = self.bad_timestamp(timestamp) {
            self.has_bad_timestamp = true;
            self.refuse(index, || message);
        }
        Ok(())
    }

    fn bad_timestamp(&self, timestamp: i64) -> Option<String> {
        let rules = self.rules;
        if rules.timestamp_type == TimestampType::CreateTime && timestamp != -1 {
            // Wrapping as Kafka's: an absurd time can come out as a near one, in both.
            let age = rules.now_ms.wrapping_sub(timestamp);
            let is_out = age > rules.timestamp_before_max_ms
                || age.wrapping_neg() > rules.timestamp_after_max_ms;
            return is_out.then(|| {
                format!(
                    "timestamp {timestamp} is more than {} ms before or {} ms after {}",
                    rules.timestamp_before_max_ms, rules.timestamp_after_max_ms, rules.now_ms
                )
            });
        }
        let claims_append_time =
            self.header.attributes.timestamp_type() == TimestampType::LogAppendTime;
        claims_append_time
            .then(|| "a producer may not set the timestamp type to LogAppendTime".to_owned())
    }

    fn refuse(&mut self, index: i32, message: impl FnOnce() -> String) {
        self.error_count += 1;
        if self.errors.len() < MAX_RECORD_ERRORS {
            self.errors.push(RecordError {
                index,
                message: message(),
            });
        }
    }

    /// Largest timestamp and the delta of its first record.
    fn finish(self) -> Result<(i64, i32), Rejection> {
        if self.error_count == 0 {
            return Ok((self.max_timestamp, self.max_timestamp_delta));
        }
        let fault = if self.has_bad_timestamp {
            Fault::InvalidTimestamp("one or more records have an invalid timestamp".to_owned())
        } else {
            invalid(format!("{} records are not valid", self.error_count))
        };
        Err(Rejection {
            fault,
            records: self.errors,
        })
    }
}

/// Rewrites timestamp type, largest timestamp and checksum where they are not what the topic wants.
fn with_timestamps(
    bytes: Bytes,
    header: BatchHeader,
    rules: &ProduceRules,
    max_timestamp: i64,
    max_timestamp_delta: i32,
) -> ValidBatch {
    let (max_timestamp, max_timestamp_delta) = match rules.timestamp_type {
        TimestampType::CreateTime => (max_timestamp, max_timestamp_delta),
        TimestampType::LogAppendTime => (rules.now_ms, header.last_offset_delta),
    };
    let is_right = header.attributes.timestamp_type() == rules.timestamp_type
        && header.max_timestamp == max_timestamp;
    if is_right {
        return ValidBatch {
            bytes,
            header,
            max_timestamp_delta,
        };
    }
    let mut copy = bytes.to_vec();
    set_timestamps(&mut copy, rules.timestamp_type, max_timestamp);
    let header = BatchHeader::parse(&copy).unwrap_or(header);
    ValidBatch {
        bytes: copy.into(),
        header,
        max_timestamp_delta,
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
