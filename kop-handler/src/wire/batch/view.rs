//! A whole batch with its header read, and the batches that lie one after the other in a list of bytes.

use bytes::Bytes;

use super::header::HEADER_BYTES;
use super::header::has_right_crc;
use super::{BatchError, BatchHeader, Records, decompress};

/// One batch: its bytes, and its header by value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchView {
    /// The header.
    pub header: BatchHeader,
    /// The whole batch, header included.
    pub bytes: Bytes,
}

impl BatchView {
    /// The batch at the start of `bytes`; what follows it is left out.
    ///
    /// # Errors
    /// As [`BatchHeader::parse`], and [`BatchError::Incomplete`] if the batch's own length goes past the end.
    pub fn parse(bytes: &Bytes) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let needed = header.size_in_bytes();
        if bytes.len() < needed {
            return Err(BatchError::Incomplete {
                needed,
                have: bytes.len(),
            });
        }
        Ok(Self {
            header,
            bytes: bytes.slice(..needed),
        })
    }

    /// Whether the checksum is right.
    #[must_use]
    pub fn has_right_crc(&self) -> bool {
        has_right_crc(&self.bytes, &self.header)
    }

    /// The records, unpacked to at most `limit` bytes. Uncompressed records are shared, not copied.
    ///
    /// # Errors
    /// [`BatchError::UnknownCompression`], [`BatchError::Unpack`], [`BatchError::UnpackedTooLarge`].
    pub fn records(&self, limit: usize) -> Result<Records, BatchError> {
        let packed = self.bytes.slice(HEADER_BYTES.min(self.bytes.len())..);
        let data = decompress(self.header.attributes.compression()?, &packed, limit)?;
        Ok(Records::new(self.header, data))
    }
}

/// Batches that lie back to back. Ends at the first error or at a batch that is cut short.
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
}

impl Batches {
    /// The batches of `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }
}

impl Iterator for Batches {
    type Item = Result<BatchView, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let view = BatchView::parse(&self.rest);
        self.rest = match &view {
            Ok(batch) => self.rest.slice(batch.bytes.len()..),
            Err(_) => Bytes::new(),
        };
        Some(view)
    }
}
