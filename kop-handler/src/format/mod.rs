//! Entry formats: how a Kafka record batch lies in an entry of a managed ledger.
//!
//! Writing follows the format that was chosen (KoP's `entryFormat`, per topic `kafkaEntryFormat`); reading follows what
//! an entry says of itself in its metadata, so one partition may hold several. No I/O, no clock. It must not know
//! offsets beyond what an entry's index gives, nor who reads.

pub mod kafka;
pub mod metadata;

use std::fmt;
use std::str::FromStr;

use bytes::{Bytes, BytesMut};

/// How new entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EntryFormat {
    /// A small Pulsar metadata header and the client's batch as it came (KoP's `kafka`).
    #[default]
    Kafka,
}

/// Why a name is not an entry format that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryFormatError {
    /// KoP knows it, this build does not write it.
    #[error("the entry format {0} is not built yet: use kafka")]
    NotBuilt(&'static str),
    /// Nobody knows it.
    #[error("{0:?} is not an entry format: use kafka")]
    Unknown(String),
}

impl EntryFormat {
    /// The format that a value of `entryFormat` or `kafkaEntryFormat` names, without regard to case.
    pub fn parse(name: &str) -> Result<Self, EntryFormatError> {
        match name.trim().to_ascii_lowercase().as_str() {
            "kafka" => Ok(Self::Kafka),
            "mixed_kafka" => Err(EntryFormatError::NotBuilt("mixed_kafka")),
            "pulsar" => Err(EntryFormatError::NotBuilt("pulsar")),
            _ => Err(EntryFormatError::Unknown(name.to_owned())),
        }
    }

    /// The bytes that stand before a batch of `messages` offsets in its entry.
    #[must_use]
    pub fn envelope(self, messages: u32, publish_time_ms: i64) -> Bytes {
        match self {
            Self::Kafka => kafka::envelope(messages, publish_time_ms),
        }
    }
}

impl FromStr for EntryFormat {
    type Err = EntryFormatError;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name)
    }
}

impl fmt::Display for EntryFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kafka => "kafka",
        })
    }
}

/// Why an entry cannot be given to a Kafka client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes before the payload are not Pulsar's.
    #[error("the entry's metadata is damaged: {0}")]
    Malformed(&'static str),
    /// The payload is not one whole record batch.
    #[error("the entry's record batch is damaged: {0}")]
    Batch(&'static str),
    /// An entry in a format that this build does not read.
    #[error("the entry is in a format that is not built into this version: {0}")]
    NotBuilt(&'static str),
}

/// A Kafka record batch inside an entry.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The batch as stored, or its beginning: at least the 61 bytes of its header. The base offset in it is not the
    /// partition's: that follows from the entry's index.
    pub head: Bytes,
    /// The rest of it in order; usually nothing.
    pub rest: Vec<Bytes>,
    /// When the entry was published, in ms since the epoch.
    pub publish_time_ms: i64,
}

impl Batch {
    /// Length of the batch in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether there is no batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The batch in one piece; copies only if it lies in several.
    #[must_use]
    pub fn contiguous(self) -> Bytes {
        if self.rest.is_empty() {
            return self.head;
        }
        let mut joined = BytesMut::with_capacity(self.len());
        joined.extend_from_slice(&self.head);
        for piece in &self.rest {
            joined.extend_from_slice(piece);
        }
        joined.freeze()
    }
}

/// The record batch in an entry, given the entry's bytes (without broker entry metadata) in order. Shares them: only
/// what is cut apart within the metadata or the batch's header is copied.
pub fn decode(segments: impl IntoIterator<Item = Bytes>) -> Result<Batch, DecodeError> {
    let mut segments = segments.into_iter().filter(|segment| !segment.is_empty());
    let head = segments.next().unwrap_or_default();
    let mut entry = Pieces {
        head,
        rest: segments.collect(),
    };
    let view = metadata::take(&mut entry)?;
    if view.is_kafka {
        kafka::decode(&view, entry)
    } else {
        Err(DecodeError::NotBuilt("pulsar"))
    }
}

/// Bytes in pieces, cut from the front. `head` is empty only at the end.
#[derive(Debug)]
pub(crate) struct Pieces {
    head: Bytes,
    rest: Vec<Bytes>,
}

impl Pieces {
    fn len(&self) -> usize {
        self.head.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    /// Makes the first `length` bytes contiguous; `None` if there are fewer.
    fn gather(&mut self, length: usize) -> Option<&[u8]> {
        if self.head.len() < length {
            if self.len() < length {
                return None;
            }
            let mut joined = BytesMut::with_capacity(length);
            joined.extend_from_slice(&self.head);
            for piece in &mut self.rest {
                let missing = length - joined.len();
                joined.extend_from_slice(&piece.split_to(missing.min(piece.len())));
            }
            self.rest.retain(|piece| !piece.is_empty());
            self.head = joined.freeze();
        }
        self.head.get(..length)
    }

    /// Cuts `length` bytes off the front; `None` if there are fewer.
    fn take(&mut self, length: usize) -> Option<Bytes> {
        self.gather(length)?;
        let taken = self.head.split_to(length);
        if self.head.is_empty() && !self.rest.is_empty() {
            self.head = self.rest.remove(0);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests;
