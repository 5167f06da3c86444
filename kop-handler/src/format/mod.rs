//! Entry formats: how a Kafka record batch lies in an entry of a managed ledger.
//!
//! Writing follows the format that was chosen (KoP's `entryFormat`, per topic `kafkaEntryFormat`); reading follows what
//! an entry says of itself in its metadata, so one partition may hold several. No I/O, no clock. It must not know
//! offsets beyond what an entry's index gives, nor who reads.

pub mod kafka;
pub mod metadata;

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use self::metadata::MetadataView;

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
    #[error("entryFormat={0} is not built into this version: set entryFormat=kafka")]
    NotBuilt(&'static str),
    /// Nobody knows it.
    #[error("entryFormat={0:?} is not an entry format: set entryFormat=kafka")]
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
    /// The batch as stored, in order; the first piece holds at least the 61 bytes of the header. Its base offset is
    /// not the partition's: that follows from the entry's index.
    pub pieces: Vec<Bytes>,
    /// When the entry was published, in ms since the epoch.
    pub publish_time_ms: i64,
}

impl Batch {
    /// Length of the batch in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Whether there is no batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The batch in one piece; copies only if it lies in several.
    #[must_use]
    pub fn contiguous(&self) -> Bytes {
        match self.pieces.as_slice() {
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}

/// The record batch in an entry, given the entry's bytes (without broker entry metadata) in order.
pub fn decode(segments: Vec<Bytes>) -> Result<Batch, DecodeError> {
    let (view, payload) = metadata::split(segments)?;
    decode_payload(&view, payload)
}

fn decode_payload(view: &MetadataView, payload: Vec<Bytes>) -> Result<Batch, DecodeError> {
    if view.is_kafka {
        kafka::decode(view, payload)
    } else {
        Err(DecodeError::NotBuilt("pulsar"))
    }
}

#[cfg(test)]
mod tests;
