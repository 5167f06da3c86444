//! KoP's `kafka` format: a Pulsar metadata header, then the client's record batch unchanged.
//!
//! Nothing is encoded again on the way in or out, and the batch keeps the base offset that the client sent (0): the
//! reader sets it from the entry's index. See `FORMATS.md`. It must not know where entries are kept.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::metadata::{KeyValue, MessageMetadata, MetadataView};
use super::{Batch, DecodeError, Pieces};

/// Name of the property that marks the format.
pub(super) const FORMAT_PROPERTY: &str = "entry.format";
/// Its value.
pub(super) const FORMAT_VALUE: &str = "kafka";
/// Length of a record batch's header up to its records.
pub const BATCH_HEADER: usize = 61;
/// Where the length field of a batch starts counting.
const LENGTH_END: usize = 12;
const MAGIC_AT: usize = 16;

/// What stands before the batch: the size of the metadata (u32), then the metadata.
pub(super) fn envelope(messages: u32, publish_time_ms: i64) -> Bytes {
    let metadata = MessageMetadata {
        producer_name: String::new(),
        sequence_id: 0,
        publish_time: u64::try_from(publish_time_ms).unwrap_or(0),
        properties: vec![KeyValue {
            key: FORMAT_PROPERTY.to_owned(),
            value: FORMAT_VALUE.to_owned(),
        }],
        num_messages_in_batch: Some(i32::try_from(messages).unwrap_or(i32::MAX)),
    };
    let length = metadata.encoded_len();
    let mut bytes = BytesMut::with_capacity(4 + length);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    metadata.encode_raw(&mut bytes);
    bytes.freeze()
}

/// Checks that the payload is one batch of magic 2, and makes its header contiguous.
pub(super) fn decode(view: &MetadataView, mut payload: Pieces) -> Result<Batch, DecodeError> {
    let total = payload.len();
    let header = payload
        .gather(BATCH_HEADER)
        .ok_or(DecodeError::Batch("shorter than a header"))?;
    match header.get(MAGIC_AT) {
        Some(2) => {}
        Some(0 | 1) => return Err(DecodeError::NotBuilt("message sets of magic 0 and 1")),
        _ => return Err(DecodeError::Batch("unknown magic")),
    }
    let declared = header
        .get(8..LENGTH_END)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_be_bytes)
        .and_then(|length| usize::try_from(length).ok())
        .map(|length| length.saturating_add(LENGTH_END));
    if declared != Some(total) {
        return Err(DecodeError::Batch("its length is not the entry's"));
    }
    Ok(Batch {
        head: payload.head,
        rest: payload.rest,
        publish_time_ms: view.publish_time_ms,
    })
}
