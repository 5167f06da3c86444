//! What happens to a batch before any lock is taken: validation by the topic's rules, another codec, the envelope.
//!
//! It must not know the partition's state.

use bytes::{Bytes, BytesMut};

use super::pending::Arrived;
use super::producers::Sequence;
use super::shared::Shared;
use super::types::{Append, Origin, Rejection, TopicSettings};
use crate::error::Fault;
use crate::format::{EncodeError, EntryFormat};
use crate::wire::batch::{
    Attributes, BatchError, BatchHeader, BatchView, Compression, HEADER_BYTES, LENGTH_PREFIX_BYTES,
    MAX_UNPACKED_BYTES, ProduceRules, TimestampType, compress, crc32c, decompress,
    validate_produce,
};

/// Where the checksum of a batch lies, and from where on it covers.
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

/// A batch that may be appended if the producer's state agrees.
pub(super) struct Prepared {
    pub(super) arrived: Arrived,
    /// The entry's bytes.
    pub(super) segments: [Bytes; 2],
    /// The time that its records carry, if it is the broker's; else −1.
    pub(super) log_append_time_ms: i64,
}

pub(super) fn prepare(
    shared: &Shared,
    append: &Append,
    now_ms: i64,
) -> Result<Prepared, Rejection> {
    let settings = append.partition.settings();
    let batch = match append.origin {
        Origin::Client { version } => {
            let codec = codec_of(shared, &settings);
            client_batch(&append.records, version, &settings, codec, now_ms)?
        }
        Origin::Coordinator => BatchView::parse(&append.records)
            .map_err(|error| Fault::CorruptMessage(error.to_string()))?,
    };
    check_sizes(shared, &settings, batch.bytes.len())?;
    let header = &batch.header;
    let span = u32::try_from(header.offset_span())
        .ok()
        .filter(|span| *span >= 1)
        .ok_or_else(|| Fault::InvalidRecord("the batch takes up no offsets".to_owned()))?;
    let segments = settings
        .entry_format
        .encode(&batch, now_ms)
        .map_err(encode_fault)?;
    let entry_bytes = segments.iter().map(Bytes::len).sum();
    check_entry(shared, settings.entry_format, entry_bytes)?;
    let uses_append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    Ok(Prepared {
        arrived: Arrived::of(header, batch.bytes.len(), now_ms, span),
        log_append_time_ms: if uses_append_time {
            header.max_timestamp
        } else {
            -1
        },
        segments,
    })
}

impl Arrived {
    /// What is kept of a batch.
    pub(super) fn of(header: &BatchHeader, bytes: usize, arrived_ms: i64, span: u32) -> Self {
        let is_control = header.attributes.is_control();
        let is_sequenced = header.has_producer_id() && header.base_sequence >= 0 && !is_control;
        Self {
            span,
            sequence: is_sequenced.then(|| Sequence {
                producer_id: header.producer_id,
                epoch: header.producer_epoch,
                first: header.base_sequence,
                last: header.last_sequence(),
            }),
            max_timestamp_ms: if is_control { -1 } else { header.max_timestamp },
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
            arrived_ms,
        }
    }
}

/// What a client's batches are compressed with; `None`: as it chose.
fn codec_of(shared: &Shared, settings: &TopicSettings) -> Option<Compression> {
    let of_format = match settings.entry_format {
        EntryFormat::MixedKafka => shared.options.mixed_compression,
        EntryFormat::Kafka | EntryFormat::Pulsar => None,
    };
    settings.compression.or(of_format)
}

fn encode_fault(error: EncodeError) -> Fault {
    match error {
        EncodeError::TooLarge | EncodeError::Batch(BatchError::UnpackedTooLarge { .. }) => {
            Fault::MessageTooLarge(error.to_string())
        }
        EncodeError::Batch(_) | EncodeError::Gaps => Fault::InvalidRecord(error.to_string()),
    }
}

fn client_batch(
    records: &Bytes,
    version: i16,
    settings: &TopicSettings,
    wanted: Option<Compression>,
    now_ms: i64,
) -> Result<BatchView, Rejection> {
    let rules = ProduceRules {
        api_version: version,
        max_batch_bytes: settings.max_message_bytes,
        compacted: settings.compact,
        timestamp_type: settings.timestamp_type,
        timestamp_before_max_ms: settings.timestamp_before_max_ms,
        timestamp_after_max_ms: settings.timestamp_after_max_ms,
        now_ms,
        max_unpacked_bytes: MAX_UNPACKED_BYTES,
    };
    let valid = validate_produce(Some(records), &rules)?;
    let batch = BatchView {
        header: valid.header,
        bytes: valid.bytes,
    };
    let attributes = batch.header.attributes;
    if attributes.is_transactional() || attributes.is_control() {
        return Err(Fault::InvalidRecord(
            "transactions are not offered here: batches may be neither transactional nor control"
                .to_owned(),
        )
        .into());
    }
    let codec = attributes
        .compression()
        .map_err(|error| Fault::InvalidRecord(error.to_string()))?;
    match wanted {
        Some(wanted) if wanted != codec => Ok(recompress(&batch, codec, wanted)?),
        _ => Ok(batch),
    }
}

/// The same records under another codec.
fn recompress(batch: &BatchView, from: Compression, to: Compression) -> Result<BatchView, Fault> {
    let unusable =
        |error| Fault::InvalidRecord(format!("the batch cannot be compressed anew: {error}"));
    let packed = batch.bytes.slice(HEADER_BYTES.min(batch.bytes.len())..);
    let plain = decompress(from, &packed, MAX_UNPACKED_BYTES).map_err(unusable)?;
    let body = if to == Compression::None {
        plain
    } else {
        compress(to, &plain).map_err(unusable)?.into()
    };
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(batch.bytes.get(..HEADER_BYTES).unwrap_or_default());
    bytes.extend_from_slice(&body);
    let too_large =
        || Fault::MessageTooLarge("the batch is too large for its new codec".to_owned());
    let length =
        i32::try_from(bytes.len().saturating_sub(LENGTH_PREFIX_BYTES)).map_err(|_| too_large())?;
    let attributes = (batch.header.attributes.0 & !Attributes::CODEC) | i16::from(to.id());
    put(&mut bytes, 8, &length.to_be_bytes());
    put(&mut bytes, CRC_FROM, &attributes.to_be_bytes());
    let crc = crc32c(bytes.get(CRC_FROM..).unwrap_or_default());
    put(&mut bytes, CRC_AT, &crc.to_be_bytes());
    BatchView::parse(&bytes.freeze()).map_err(|error| Fault::Internal(error.to_string()))
}

fn put(bytes: &mut BytesMut, at: usize, field: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// Kafka's order: the topic's bound again (a new codec may have made the batch larger), then the segment's; and the
/// host's own.
fn check_sizes(shared: &Shared, settings: &TopicSettings, bytes: usize) -> Result<(), Fault> {
    let most = settings
        .max_message_bytes
        .min(shared.options.max_entry_bytes);
    if bytes > most {
        return Err(Fault::MessageTooLarge(format!(
            "the record batch has {bytes} bytes, {most} are accepted"
        )));
    }
    let segment = settings.segment_bytes;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes > segment) {
        return Err(Fault::RecordListTooLarge(format!(
            "the record batch has {bytes} bytes, a segment {segment}"
        )));
    }
    Ok(())
}

/// Pulsar's format can take more room than the batch that was checked; what the others put around it, hosts have room for.
fn check_entry(shared: &Shared, format: EntryFormat, bytes: usize) -> Result<(), Fault> {
    let most = shared.options.max_entry_bytes;
    if format == EntryFormat::Pulsar && bytes > most {
        return Err(Fault::MessageTooLarge(format!(
            "the record batch takes up {bytes} bytes in the format {format}, {most} are accepted"
        )));
    }
    Ok(())
}
