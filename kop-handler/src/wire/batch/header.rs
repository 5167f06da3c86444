//! The 61-byte header of a batch: reading, patching, checksum.

use bytes::{Buf, Bytes};
use crc_fast::CrcAlgorithm;

use super::{BatchError, Compression};

/// Length of the header in bytes; records start here.
pub const HEADER_BYTES: usize = 61;

/// Bytes that the batch length does not count: base offset and the length itself.
pub const LENGTH_PREFIX_BYTES: usize = 12;

/// The checksum covers everything from here.
const CHECKED_FROM: usize = 21;

/// The header of a batch, by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes of the batch after this field; at least 49.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch.
    pub leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: Attributes,
    /// Offset of the last record minus the base offset. After compaction larger than `record_count` − 1.
    pub last_offset_delta: i32,
    /// Timestamp that the deltas of records count from, in milliseconds; the delete horizon if that bit is set.
    pub base_timestamp: i64,
    /// Largest timestamp, or the append time of all records, in milliseconds.
    pub max_timestamp: i64,
    /// Producer, −1 for none.
    pub producer_id: i64,
    /// Epoch of the producer, −1 for none.
    pub producer_epoch: i16,
    /// Sequence number of the first record, −1 for none.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// A header of no records, that takes up one offset.
    pub const NOTHING: Self = Self {
        base_offset: 0,
        batch_length: (HEADER_BYTES - LENGTH_PREFIX_BYTES) as i32,
        leader_epoch: -1,
        crc: 0,
        attributes: Attributes(Attributes::CONTROL),
        last_offset_delta: 0,
        base_timestamp: 0,
        max_timestamp: -1,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: 0,
    };

    /// Reads the header at the start of `bytes`, which may be longer or hold only the header.
    ///
    /// # Errors
    /// [`BatchError::Incomplete`] below 61 bytes, [`BatchError::Magic`], [`BatchError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let Some(mut fields) = bytes.get(..HEADER_BYTES) else {
            return Err(BatchError::Incomplete {
                needed: HEADER_BYTES,
                have: bytes.len(),
            });
        };
        let base_offset = fields.get_i64();
        let batch_length = fields.get_i32();
        let leader_epoch = fields.get_i32();
        let magic = fields.get_i8();
        if magic != 2 {
            return Err(BatchError::Magic(magic));
        }
        if batch_length < (HEADER_BYTES - LENGTH_PREFIX_BYTES) as i32 {
            return Err(BatchError::Length(batch_length));
        }
        Ok(Self {
            base_offset,
            batch_length,
            leader_epoch,
            crc: fields.get_u32(),
            attributes: Attributes(fields.get_i16()),
            last_offset_delta: fields.get_i32(),
            base_timestamp: fields.get_i64(),
            max_timestamp: fields.get_i64(),
            producer_id: fields.get_i64(),
            producer_epoch: fields.get_i16(),
            base_sequence: fields.get_i32(),
            record_count: fields.get_i32(),
        })
    }

    /// Bytes that the whole batch takes up.
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        LENGTH_PREFIX_BYTES + usize::try_from(self.batch_length).unwrap_or(0)
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .wrapping_add(i64::from(self.last_offset_delta))
    }

    /// Offsets that the batch spans, compacted records included: what an entry counts as its messages.
    #[must_use]
    pub fn offset_span(&self) -> i64 {
        i64::from(self.last_offset_delta) + 1
    }

    /// Sequence number of the last record: numbers wrap from 2³¹−1 to 0. −1 without sequence.
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        (i64::from(self.base_sequence) + i64::from(self.last_offset_delta)).rem_euclid(1 << 31)
            as i32
    }

    /// Whether an idempotent or transactional producer wrote it.
    #[must_use]
    pub fn has_producer_id(&self) -> bool {
        self.producer_id > -1
    }
}

/// Codec and flags of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    /// Bit of log append time.
    pub const LOG_APPEND_TIME: i16 = 0x08;
    /// Bit of a transaction.
    pub const TRANSACTIONAL: i16 = 0x10;
    /// Bit of a control batch.
    pub const CONTROL: i16 = 0x20;
    /// Bit of a batch whose base timestamp is the time from which its tombstones may go (KIP-534).
    pub const DELETE_HORIZON: i16 = 0x40;
    /// Bits of the codec.
    pub const CODEC: i16 = 0x07;

    /// How the records are compressed.
    ///
    /// # Errors
    /// [`BatchError::UnknownCompression`].
    pub fn compression(self) -> Result<Compression, BatchError> {
        Compression::from_id((self.0 & Self::CODEC) as u8)
    }

    /// Where the timestamps of the records come from.
    #[must_use]
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds markers, which only brokers write.
    #[must_use]
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is a delete horizon.
    #[must_use]
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }
}

/// Topic setting `message.timestamp.type`, and the bit of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampType {
    /// The producer's time, per record.
    #[default]
    CreateTime,
    /// The broker's time at the append, one for the whole batch.
    LogAppendTime,
}

/// CRC-32C (Castagnoli), as batches carry it.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of bytes that lie in several pieces.
#[must_use]
pub fn crc32c_of(pieces: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize() as u32
}

/// Whether the checksum of `batch` (exactly one batch) is the one that its header carries.
#[must_use]
pub fn has_right_crc(batch: &[u8], header: &BatchHeader) -> bool {
    batch
        .get(CHECKED_FROM..)
        .is_some_and(|checked| crc32c(checked) == header.crc)
}

/// Writes base offset and leader epoch into a batch, or into the copy of a header. Both lie outside the checksum.
/// Bytes shorter than a header are left alone.
pub fn patch(header: &mut [u8], base_offset: i64, leader_epoch: i32) {
    if header.len() < HEADER_BYTES {
        return;
    }
    if let Some(field) = header.get_mut(..8) {
        field.copy_from_slice(&base_offset.to_be_bytes());
    }
    if let Some(field) = header.get_mut(12..16) {
        field.copy_from_slice(&leader_epoch.to_be_bytes());
    }
}

/// A batch with another base offset and leader epoch: a patched copy of its header, and the rest shared.
/// Bytes shorter than a header come back as they are.
#[must_use]
pub fn patched(batch: &Bytes, base_offset: i64, leader_epoch: i32) -> [Bytes; 2] {
    let Some(header) = batch.first_chunk::<HEADER_BYTES>() else {
        return [batch.clone(), Bytes::new()];
    };
    let mut header = *header;
    patch(&mut header, base_offset, leader_epoch);
    [Bytes::copy_from_slice(&header), batch.slice(HEADER_BYTES..)]
}

/// Sets the timestamp type and the largest timestamp of a batch and its checksum anew.
pub(super) fn set_timestamps(batch: &mut [u8], timestamp_type: TimestampType, max_timestamp: i64) {
    let Some(fields) = batch.get_mut(CHECKED_FROM..HEADER_BYTES) else {
        return;
    };
    if let Some([_, low]) = fields.first_chunk_mut::<2>() {
        match timestamp_type {
            TimestampType::CreateTime => *low &= !(Attributes::LOG_APPEND_TIME as u8),
            TimestampType::LogAppendTime => *low |= Attributes::LOG_APPEND_TIME as u8,
        }
    }
    if let Some(field) = fields.get_mut(14..22) {
        field.copy_from_slice(&max_timestamp.to_be_bytes());
    }
    set_crc(batch);
}

/// Sets the checksum of a batch anew.
pub(super) fn set_crc(batch: &mut [u8]) {
    let Some(crc) = batch.get(CHECKED_FROM..).map(crc32c) else {
        return;
    };
    if let Some(field) = batch.get_mut(17..21) {
        field.copy_from_slice(&crc.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::batch::{BatchBuilder, NewRecord};

    fn batch() -> Bytes {
        let mut builder = BatchBuilder::new(1000);
        builder
            .push(NewRecord::new(1000, Some(b"k"), Some(b"v")))
            .unwrap();
        builder
            .push(NewRecord::new(1005, None, Some(b"w")))
            .unwrap();
        builder.build().unwrap()
    }

    #[test]
    fn patching_leaves_the_checksum_right_and_shares_the_records() {
        let batch = batch();
        let [head, rest] = patched(&batch, 4_000_000_000, 7);
        assert_eq!(rest.as_ptr(), batch[HEADER_BYTES..].as_ptr());
        let whole = [head, rest].concat();
        let header = BatchHeader::parse(&whole).unwrap();
        assert_eq!(
            (header.base_offset, header.leader_epoch),
            (4_000_000_000, 7)
        );
        assert_eq!(header.last_offset(), 4_000_000_001);
        assert!(has_right_crc(&whole, &header));
    }

    #[test]
    fn every_flipped_bit_behind_the_checksum_is_seen() {
        let batch = batch();
        let header = BatchHeader::parse(&batch).unwrap();
        assert!(has_right_crc(&batch, &header));
        for bit in CHECKED_FROM * 8..batch.len() * 8 {
            let mut bytes = batch.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!has_right_crc(&bytes, &header), "bit {bit}");
        }
    }

    #[test]
    fn short_bytes_and_other_magics_are_no_header() {
        let batch = batch();
        for length in 0..HEADER_BYTES {
            assert_eq!(
                BatchHeader::parse(&batch[..length]),
                Err(BatchError::Incomplete {
                    needed: HEADER_BYTES,
                    have: length
                })
            );
            assert_eq!(patched(&batch.slice(..length), 1, 1)[0], batch[..length]);
        }
        let mut bytes = batch.to_vec();
        bytes[16] = 1;
        assert_eq!(BatchHeader::parse(&bytes), Err(BatchError::Magic(1)));
        bytes[16] = 2;
        bytes[8..12].copy_from_slice(&48i32.to_be_bytes());
        assert_eq!(BatchHeader::parse(&bytes), Err(BatchError::Length(48)));
    }

    #[test]
    fn sequence_numbers_wrap_to_zero() {
        let mut header = BatchHeader::parse(&batch()).unwrap();
        assert_eq!(header.last_sequence(), -1);
        header.base_sequence = i32::MAX;
        assert_eq!(header.last_sequence(), 0);
        header.base_sequence = 5;
        assert_eq!(header.last_sequence(), 6);
    }
}
