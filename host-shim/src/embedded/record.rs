//! The bytes of a ledger file: header, records, footer, checksums. See `DESIGN.md` for the layout.
//!
//! Sans I/O: everything works on slices. All integers are little-endian.

use crc_fast::{CrcAlgorithm, Digest, checksum};
use prost::Message;

/// Length of a ledger file's header, where the first record starts.
pub(crate) const FILE_HEADER_BYTES: usize = 64;

/// Length of a record's header, before its payload.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;

const MAGIC: [u8; 8] = *b"KOPLEDG1";
const VERSION: u32 = 1;
const MARK_BYTES: usize = 20;

/// CRC-32C.
fn crc32c(bytes: &[u8]) -> u32 {
    // The algorithm is 32 bits wide: the upper half is zero.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    u64_at(bytes, at).map(u64::cast_signed)
}

/// Lays parts one after the other into an array of exactly their length.
fn lay<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut rest = &mut bytes[..];
    for part in parts {
        if let Some((head, tail)) = rest.split_at_mut_checked(part.len()) {
            head.copy_from_slice(part);
            rest = tail;
        } else {
            return bytes;
        }
    }
    bytes
}

/// What a ledger file says about itself, so that it can be told whose it is without the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) ledger: i64,
    /// Number of the topic's life (a topic deleted and made again has another).
    pub(crate) topic_id: u64,
    pub(crate) partition: u32,
    /// How often the ledger had been replaced when this file was written.
    pub(crate) replaced: u32,
    /// Index of the first message that the ledger may hold.
    pub(crate) first_index: i64,
    pub(crate) created_ms: i64,
}

impl FileHeader {
    pub(crate) fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes: [u8; FILE_HEADER_BYTES] = lay(&[
            &MAGIC,
            &VERSION.to_le_bytes(),
            &0u32.to_le_bytes(),
            &self.ledger.to_le_bytes(),
            &self.topic_id.to_le_bytes(),
            &self.partition.to_le_bytes(),
            &self.replaced.to_le_bytes(),
            &self.first_index.to_le_bytes(),
            &self.created_ms.to_le_bytes(),
        ]);
        let crc = crc32c(&bytes).to_le_bytes();
        if let Some(place) = bytes.get_mut(12..16) {
            place.copy_from_slice(&crc);
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut copy: [u8; FILE_HEADER_BYTES] = bytes
            .get(..FILE_HEADER_BYTES)
            .and_then(|head| head.try_into().ok())
            .ok_or("the file header is cut off")?;
        if copy.get(..8) != Some(&MAGIC) {
            return Err("this is no ledger file");
        }
        let crc = u32_at(&copy, 12).ok_or("the file header is cut off")?;
        if let Some(place) = copy.get_mut(12..16) {
            place.fill(0);
        }
        if crc32c(&copy) != crc {
            return Err("the file header does not match its checksum");
        }
        if u32_at(&copy, 8) != Some(VERSION) {
            return Err("the ledger file has another version");
        }
        let read = || {
            Some(Self {
                ledger: i64_at(&copy, 16)?,
                topic_id: u64_at(&copy, 24)?,
                partition: u32_at(&copy, 32)?,
                replaced: u32_at(&copy, 36)?,
                first_index: i64_at(&copy, 40)?,
                created_ms: i64_at(&copy, 48)?,
            })
        };
        read().ok_or("the file header is cut off")
    }
}

/// A record's header: of an entry, or of the footer when it takes up no messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Over the rest of the header and the payload.
    pub(crate) crc: u32,
    /// Bytes of payload.
    pub(crate) length: u32,
    /// Entry number; in a footer the number that the next entry would have.
    pub(crate) entry: u32,
    /// Messages that the entry takes up; 0 marks the footer.
    pub(crate) messages: u32,
    /// Index of the entry's last message; in a footer that of the ledger.
    pub(crate) index: i64,
    /// When it was appended, in ms since the epoch.
    pub(crate) time_ms: i64,
}

impl RecordHeader {
    /// Encodes a header, computing the checksum over it and the payload's pieces.
    pub(crate) fn seal<'a>(
        mut self,
        payload: impl IntoIterator<Item = &'a [u8]>,
    ) -> [u8; RECORD_HEADER_BYTES] {
        self.crc = 0;
        let mut bytes = self.encode();
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(bytes.get(4..).unwrap_or_default());
        for piece in payload {
            digest.update(piece);
        }
        let crc = (digest.finalize() as u32).to_le_bytes();
        if let Some(place) = bytes.get_mut(..4) {
            place.copy_from_slice(&crc);
        }
        bytes
    }

    fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        lay(&[
            &self.crc.to_le_bytes(),
            &self.length.to_le_bytes(),
            &self.entry.to_le_bytes(),
            &self.messages.to_le_bytes(),
            &self.index.to_le_bytes(),
            &self.time_ms.to_le_bytes(),
        ])
    }

    /// Reads the fields; `None` if the slice is too short. Nothing is checked.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_HEADER_BYTES] =
            bytes.get(..RECORD_HEADER_BYTES)?.try_into().ok()?;
        Some(Self {
            crc: u32_at(bytes, 0)?,
            length: u32_at(bytes, 4)?,
            entry: u32_at(bytes, 8)?,
            messages: u32_at(bytes, 12)?,
            index: i64_at(bytes, 16)?,
            time_ms: i64_at(bytes, 24)?,
        })
    }

    /// Bytes of header and payload.
    pub(crate) fn size(&self) -> u64 {
        RECORD_HEADER_BYTES as u64 + u64::from(self.length)
    }

    /// Index of the entry's first message.
    pub(crate) fn base(&self) -> i64 {
        self.index.saturating_sub(i64::from(self.messages) - 1)
    }

    pub(crate) fn is_footer(&self) -> bool {
        self.messages == 0
    }

    /// Whether `record`, header and payload in one piece, matches its checksum.
    pub(crate) fn matches(&self, record: &[u8]) -> bool {
        let size = usize::try_from(self.size()).unwrap_or(usize::MAX);
        record
            .get(4..size)
            .is_some_and(|covered| crc32c(covered) == self.crc)
    }
}

/// One place of the sparse index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Where the entry's record starts in the file.
    pub(crate) offset: u64,
    /// Index of the entry's first message.
    pub(crate) base: i64,
    /// Entry number.
    pub(crate) entry: u32,
}

/// Packs marks for a footer or for the catalog.
pub(crate) fn pack_marks(marks: &[Mark]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(marks.len() * MARK_BYTES);
    for mark in marks {
        bytes.extend_from_slice(&mark.offset.to_le_bytes());
        bytes.extend_from_slice(&mark.base.to_le_bytes());
        bytes.extend_from_slice(&mark.entry.to_le_bytes());
    }
    bytes
}

/// Reads what [`pack_marks`] wrote; a piece at the end that is no whole mark is left out.
pub(crate) fn unpack_marks(bytes: &[u8]) -> Vec<Mark> {
    bytes
        .chunks_exact(MARK_BYTES)
        .filter_map(|mark| {
            Some(Mark {
                offset: u64_at(mark, 0)?,
                base: i64_at(mark, 8)?,
                entry: u32_at(mark, 16)?,
            })
        })
        .collect()
}

/// Payload of a footer record.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Footer {
    /// Entries in the file.
    #[prost(uint64, tag = "1")]
    pub(crate) entries: u64,
    /// Bytes of their payloads.
    #[prost(uint64, tag = "2")]
    pub(crate) bytes: u64,
    /// The sparse index, see [`pack_marks`].
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) marks: Vec<u8>,
}

/// Searches `bytes`, which lie at `offset` in a ledger, for the first intact record of an entry not before
/// `entry`; answers its header and offset. Used behind damage, where lengths cannot be trusted.
pub(crate) fn resync(bytes: &[u8], offset: u64, entry: u32) -> Option<(RecordHeader, u64)> {
    (0..bytes.len().saturating_sub(RECORD_HEADER_BYTES - 1)).find_map(|at| {
        let rest = bytes.get(at..)?;
        let header = RecordHeader::decode(rest)?;
        let plausible = header.entry >= entry
            && header.entry - entry <= u32::MAX / 2
            && header.size() <= rest.len() as u64;
        (plausible && header.matches(rest)).then_some((header, offset + at as u64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(entry: u32, payload: &[u8]) -> Vec<u8> {
        let header = RecordHeader {
            crc: 0,
            length: payload.len() as u32,
            entry,
            messages: 2,
            index: i64::from(entry) * 2 + 1,
            time_ms: 1_700_000_000_000,
        };
        let mut bytes = header.seal([payload]).to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn file_headers_are_read_back_and_every_flipped_bit_is_seen() {
        let header = FileHeader {
            ledger: 7,
            topic_id: 3,
            partition: 2,
            replaced: 1,
            first_index: 99,
            created_ms: 5,
        };
        let bytes = header.encode();
        assert_eq!(FileHeader::decode(&bytes), Ok(header));
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert!(FileHeader::decode(&damaged).is_err(), "byte {at}");
            assert!(FileHeader::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn records_match_whole_and_every_flipped_byte_is_seen() {
        let bytes = record(4, b"some payload");
        let header = RecordHeader::decode(&bytes).unwrap();
        assert!(header.matches(&bytes));
        assert_eq!((header.base(), header.index), (8, 9));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let header = RecordHeader::decode(&damaged).unwrap();
            assert!(!header.matches(&damaged), "byte {at}");
        }
    }

    #[test]
    fn a_checksum_over_pieces_equals_that_over_the_whole() {
        let whole = record(1, b"abcdef");
        let header = RecordHeader::decode(&whole).unwrap();
        assert_eq!(header.seal([&b"ab"[..], b"", b"cdef"]), whole[..32]);
    }

    #[test]
    fn marks_are_read_back() {
        let marks: Vec<_> = (0..10)
            .map(|n| Mark {
                offset: n * 1000,
                base: n as i64 * 3,
                entry: n as u32,
            })
            .collect();
        assert_eq!(unpack_marks(&pack_marks(&marks)), marks);
    }

    #[test]
    fn resync_finds_the_next_intact_record() {
        let mut bytes = record(0, b"first");
        let second = bytes.len();
        bytes.extend(record(1, b"second"));
        let third = bytes.len();
        bytes.extend(record(2, b"third"));
        let found = |bytes: &[u8], offset, entry| {
            resync(bytes, offset, entry).map(|(header, offset)| (header.entry, offset))
        };
        assert_eq!(found(&bytes, 1000, 0), Some((0, 1000)));
        assert_eq!(found(&bytes, 1000, 1), Some((1, 1000 + second as u64)));
        bytes[second + 33] ^= 1;
        assert_eq!(found(&bytes, 0, 1), Some((2, third as u64)));
        assert_eq!(found(&bytes, 0, 3), None);
    }
}
