//! KoP's `kafka` and `mixed_kafka` formats: a Pulsar metadata header, then a Kafka record batch.
//!
//! Nothing is encoded again on the way out, and the batch keeps whatever base offset was stored: the reader sets it from
//! the entry's index. Message sets of magic 0 and 1, which KoP stores as they come, are converted to magic 2. See
//! `FORMATS.md`. It must not know where entries are kept.

use bytes::{BufMut, Bytes, BytesMut};

use super::metadata::{MetadataView, fields};
use super::{Batch, DecodeError, Pieces, legacy, proto};

/// Name of the property that marks the format.
pub(super) const FORMAT_PROPERTY: &str = "entry.format";
/// Its value.
pub(super) const FORMAT_VALUE: &str = "kafka";
/// Length of a record batch's header up to its records.
pub const BATCH_HEADER: usize = 61;
/// Where the length field of a batch starts counting.
const LENGTH_END: usize = 12;
const MAGIC_AT: usize = 16;
/// Magic and what stands before it: enough to tell a batch from a message set.
const MAGIC_END: usize = MAGIC_AT + 1;

/// What stands before the batch: the size of the metadata (u32), then the metadata.
pub(super) fn envelope(messages: u32, publish_time_ms: i64) -> Bytes {
    let publish_time = u64::try_from(publish_time_ms).unwrap_or(0);
    let property =
        proto::slice_len(1, FORMAT_PROPERTY.len()) + proto::slice_len(2, FORMAT_VALUE.len());
    let length = proto::slice_len(fields::PRODUCER_NAME, 0)
        + proto::number_len(fields::SEQUENCE_ID, 0)
        + proto::number_len(fields::PUBLISH_TIME, publish_time)
        + proto::slice_len(fields::PROPERTY, property)
        + proto::number_len(fields::MESSAGES, u64::from(messages));
    let mut out = BytesMut::with_capacity(4 + length);
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    proto::put_slice(&mut out, fields::PRODUCER_NAME, &[]);
    proto::put_number(&mut out, fields::SEQUENCE_ID, 0);
    proto::put_number(&mut out, fields::PUBLISH_TIME, publish_time);
    proto::put_slice_head(&mut out, fields::PROPERTY, property);
    proto::put_slice(&mut out, 1, FORMAT_PROPERTY.as_bytes());
    proto::put_slice(&mut out, 2, FORMAT_VALUE.as_bytes());
    proto::put_number(&mut out, fields::MESSAGES, u64::from(messages));
    out.freeze()
}

/// Checks that the payload is one batch of magic 2, and makes its header contiguous; converts older message sets.
pub(super) fn decode(view: &MetadataView, mut payload: Pieces) -> Result<Batch, DecodeError> {
    let short = DecodeError::Batch("shorter than a header");
    match payload
        .gather(MAGIC_END)
        .and_then(|start| start.get(MAGIC_AT))
    {
        Some(2) => {}
        Some(0 | 1) => {
            let batch = legacy::convert(&payload.contiguous(), view.messages)?;
            return Ok(Batch::whole(batch, view.publish_time_ms));
        }
        Some(_) => return Err(DecodeError::Batch("unknown magic")),
        None => return Err(short),
    }
    let total = payload.len();
    let header = payload.gather(BATCH_HEADER).ok_or(short)?;
    let field = |at: usize| {
        let bytes = header.get(at..at + 4)?.try_into().ok()?;
        Some(i32::from_be_bytes(bytes))
    };
    let declared = field(8)
        .and_then(|length| usize::try_from(length).ok())
        .map(|length| length.saturating_add(LENGTH_END));
    if declared != Some(total) {
        return Err(DecodeError::Batch("its length is not the entry's"));
    }
    let span = field(23).map(|delta| i64::from(delta) + 1);
    if span != Some(i64::from(view.messages)) {
        return Err(DecodeError::Batch("it spans other offsets than its entry"));
    }
    Ok(Batch {
        head: payload.head,
        rest: payload.rest,
        publish_time_ms: view.publish_time_ms,
    })
}
