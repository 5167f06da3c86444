//! Entry formats: how a Kafka record batch lies in an entry of a managed ledger.
//!
//! Writing follows the format that was chosen (KoP's `entryFormat`, per topic `kafkaEntryFormat`); reading follows what
//! an entry says of itself in its metadata, so one partition may hold several. No I/O, no clock. It must not know
//! offsets beyond what an entry's index gives, nor who reads.

mod base64;
pub mod kafka;
mod legacy;
pub mod metadata;
mod proto;
mod pulsar;

use std::fmt;
use std::str::FromStr;

use bytes::{Bytes, BytesMut};

pub use crate::wire::batch::Compression;
use crate::wire::batch::{BatchBuilder, BatchError, BatchView, NewRecord};

/// Most bytes that the messages of one entry may have unpacked. Pulsar accepts entries of 5 MiB by default.
pub const MAX_PAYLOAD: usize = 64 * 1024 * 1024;

/// How new entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EntryFormat {
    /// A small Pulsar metadata header and the client's batch as it came (KoP's `kafka`).
    #[default]
    Kafka,
    /// The same, with the batch compressed anew by `kafkaCompressionType` (KoP's `mixed_kafka`).
    MixedKafka,
    /// A Pulsar message for each record, which Pulsar's clients read as well (KoP's `pulsar`).
    Pulsar,
}

/// Why a name is not an entry format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an entry format: use kafka, mixed_kafka or pulsar")]
pub struct EntryFormatError(String);

/// Why a batch cannot be written in a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The records cannot be read.
    #[error(transparent)]
    Batch(BatchError),
    /// It spans more offsets than it has records.
    #[error("the batch has gaps in its offsets")]
    Gaps,
    /// The records are too large in this format.
    #[error("the records take up more than {MAX_PAYLOAD} bytes unpacked")]
    TooLarge,
}

impl EntryFormat {
    /// The format that a value of `entryFormat` or `kafkaEntryFormat` names, without regard to case.
    pub fn parse(name: &str) -> Result<Self, EntryFormatError> {
        match name.trim().to_ascii_lowercase().as_str() {
            "kafka" => Ok(Self::Kafka),
            "mixed_kafka" => Ok(Self::MixedKafka),
            "pulsar" => Ok(Self::Pulsar),
            _ => Err(EntryFormatError(name.to_owned())),
        }
    }

    /// The entry of a batch, in two pieces. In the Kafka formats the batch is shared behind its envelope.
    pub fn encode(self, batch: &BatchView, now_ms: i64) -> Result<[Bytes; 2], EncodeError> {
        match self {
            Self::Kafka | Self::MixedKafka => {
                let span = u32::try_from(batch.header.offset_span());
                let envelope = kafka::envelope(span.map_err(|_| EncodeError::Gaps)?, now_ms);
                Ok([envelope, batch.bytes.clone()])
            }
            Self::Pulsar => pulsar::encode(batch, now_ms),
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
            Self::MixedKafka => "mixed_kafka",
            Self::Pulsar => "pulsar",
        })
    }
}

/// Why an entry cannot be given to a Kafka client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes before the payload are not Pulsar's.
    #[error("the entry's metadata is damaged: {0}")]
    Malformed(&'static str),
    /// The payload is not one whole record batch, or a message set of old.
    #[error("the entry's record batch is damaged: {0}")]
    Batch(&'static str),
    /// What we wrote beside Pulsar's metadata is damaged, or of a later version.
    #[error("the entry's property kop.batch cannot be read")]
    Extra,
    /// Only its Pulsar consumers have the key.
    #[error("the entry is encrypted end to end")]
    Encrypted,
    /// A part of a message that its producer cut into several entries.
    #[error("the entry is a chunk of a larger message")]
    Chunk,
    /// A codec that Pulsar did not have when this was written.
    #[error("the entry is compressed with Pulsar's codec {0}, which is not known")]
    UnknownCodec(u64),
    /// The payload cannot be unpacked.
    #[error("the entry cannot be unpacked")]
    Unpack,
    /// The payload is larger than is allowed, or than its metadata says.
    #[error("the entry unpacks to more than it says, or than {MAX_PAYLOAD} bytes")]
    TooLarge,
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
    /// A batch in one piece.
    pub(crate) fn whole(head: Bytes, publish_time_ms: i64) -> Self {
        Self {
            head,
            rest: Vec::new(),
            publish_time_ms,
        }
    }

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
        join(self.head, &self.rest)
    }
}

fn join(head: Bytes, rest: &[Bytes]) -> Bytes {
    if rest.is_empty() {
        return head;
    }
    let length = head.len() + rest.iter().map(Bytes::len).sum::<usize>();
    let mut joined = BytesMut::with_capacity(length);
    joined.extend_from_slice(&head);
    for piece in rest {
        joined.extend_from_slice(piece);
    }
    joined.freeze()
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
    let metadata = metadata::take(&mut entry)?;
    let view = metadata::look(&metadata)?;
    if view.is_kafka {
        kafka::decode(&view, entry)
    } else {
        pulsar::decode(&metadata, entry)
    }
}

/// What stands for an entry that is nothing to a Kafka client, or that cannot be read: one control record, which every
/// client steps over. It is a commit of no producer, and takes up one offset: those before it are a gap.
#[must_use]
pub fn gap() -> Batch {
    gap_of(0)
}

fn gap_of(publish_time_ms: i64) -> Batch {
    const KEY: [u8; 4] = [0, 0, 0, 1];
    const VALUE: [u8; 6] = [0; 6];
    let mut batch = BatchBuilder::new(publish_time_ms).control();
    let record = NewRecord::new(publish_time_ms, Some(&KEY), Some(&VALUE));
    let batch = batch.push(record).and_then(|()| batch.build());
    Batch::whole(batch.unwrap_or_default(), publish_time_ms)
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

    /// All bytes in one piece; copies only if they lie in several.
    fn contiguous(self) -> Bytes {
        join(self.head, &self.rest)
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
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
