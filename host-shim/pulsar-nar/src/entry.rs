//! What a broker stores in front of an entry, and the little that the host must know of the entry itself.
//!
//! `[0x0e02][length][BrokerEntryMetadata]` comes first if the broker has interceptors for it; then, with or without
//! `[0x0e01][checksum]`, `[length][MessageMetadata]` and the payload. It must not know what a payload is.

use bytes::{Buf, Bytes};
use handler_api::Position;
use prost::Message;

const BROKER_MAGIC: u16 = 0x0e02;
const CHECKSUM_MAGIC: u16 = 0x0e01;

/// More than any interceptor writes; what claims to be longer is no metadata.
const MAX_BROKER_METADATA: usize = 4096;

/// Pulsar's `BrokerEntryMetadata`.
#[derive(Clone, Copy, PartialEq, Message)]
struct BrokerEntryMetadata {
    #[prost(uint64, optional, tag = "1")]
    broker_timestamp: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    index: Option<u64>,
}

/// The part of Pulsar's `MessageMetadata` that says how many messages an entry holds.
#[derive(Clone, Copy, PartialEq, Message)]
struct MessageCount {
    #[prost(uint64, tag = "3")]
    publish_time: u64,
    #[prost(int32, optional, tag = "11")]
    num_messages_in_batch: Option<i32>,
}

/// An entry as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Where it lies.
    pub(crate) position: Position,
    /// Index of its last message, −1 if it has none.
    pub(crate) index: i64,
    /// When the broker took it in, in ms since the epoch, if it says so.
    pub(crate) broker_ms: Option<i64>,
    /// What was appended.
    pub(crate) segments: Vec<Bytes>,
}

impl Stored {
    /// Takes the broker's metadata off.
    pub(crate) fn parse(position: Position, mut segments: Vec<Bytes>) -> Self {
        let metadata = broker_metadata(&mut segments).unwrap_or_default();
        segments.retain(|segment| !segment.is_empty());
        let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
        Self {
            position,
            index: number(metadata.index).unwrap_or(-1),
            broker_ms: number(metadata.broker_timestamp),
            segments,
        }
    }

    /// Length of what was appended.
    pub(crate) fn len(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| segment.len() as u64)
            .sum()
    }

    /// How many messages it says that it holds; nothing if it is no message of Pulsar's.
    pub(crate) fn messages(&self) -> Option<i64> {
        let count = self.metadata()?.num_messages_in_batch.unwrap_or(1);
        (count > 0).then_some(i64::from(count))
    }

    /// When it was published, in ms since the epoch, by the broker's word or the producer's.
    pub(crate) fn time_ms(&self) -> Option<i64> {
        let published = || {
            let time = self.metadata()?.publish_time;
            i64::try_from(time).ok().filter(|time| *time > 0)
        };
        self.broker_ms.or_else(published)
    }

    fn metadata(&self) -> Option<MessageCount> {
        let mut rest = Chain::new(&self.segments);
        if rest.peek_u16()? == CHECKSUM_MAGIC {
            rest.skip(6)?;
        }
        let length = rest.u32()?;
        if length > rest.remaining() {
            return None;
        }
        MessageCount::decode(rest.take(length)).ok()
    }
}

/// Reads and removes the broker's metadata, if there is any.
fn broker_metadata(segments: &mut [Bytes]) -> Option<BrokerEntryMetadata> {
    let mut rest = Chain::new(segments);
    if rest.peek_u16()? != BROKER_MAGIC {
        return None;
    }
    rest.skip(2)?;
    let length = rest.u32()?;
    if length > MAX_BROKER_METADATA || length > rest.remaining() {
        return None;
    }
    let metadata = BrokerEntryMetadata::decode(rest.take(length)).ok()?;
    let mut cut = length + 6;
    for segment in segments {
        let here = cut.min(segment.len());
        segment.advance(here);
        cut -= here;
    }
    Some(metadata)
}

/// Segments as one buffer, without touching them.
#[derive(Clone)]
struct Chain<'a> {
    head: &'a [u8],
    tail: &'a [Bytes],
}

impl<'a> Chain<'a> {
    fn new(segments: &'a [Bytes]) -> Self {
        let mut chain = Self {
            head: &[],
            tail: segments,
        };
        chain.settle();
        chain
    }

    /// Goes on to the next segment that holds anything.
    fn settle(&mut self) {
        while self.head.is_empty()
            && let Some((next, tail)) = self.tail.split_first()
        {
            self.head = next;
            self.tail = tail;
        }
    }

    fn peek_u16(&self) -> Option<u16> {
        self.clone().try_get_u16().ok()
    }

    fn u32(&mut self) -> Option<usize> {
        self.try_get_u32().ok()?.try_into().ok()
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        (count <= self.remaining()).then(|| self.advance(count))
    }
}

impl Buf for Chain<'_> {
    fn remaining(&self) -> usize {
        self.head.len() + self.tail.iter().map(Bytes::len).sum::<usize>()
    }

    fn chunk(&self) -> &[u8] {
        self.head
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 && !self.head.is_empty() {
            let here = count.min(self.head.len());
            self.head = self.head.get(here..).unwrap_or_default();
            count -= here;
            self.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(index: Option<u64>, body: &[u8]) -> Vec<u8> {
        let metadata = BrokerEntryMetadata {
            broker_timestamp: Some(1_700_000_000_000),
            index,
        }
        .encode_to_vec();
        let mut bytes = BROKER_MAGIC.to_be_bytes().to_vec();
        bytes.extend((metadata.len() as u32).to_be_bytes());
        bytes.extend(metadata);
        bytes.extend(body);
        bytes
    }

    fn message(count: i32) -> Vec<u8> {
        let metadata = MessageCount {
            publish_time: 5,
            num_messages_in_batch: Some(count),
        }
        .encode_to_vec();
        let mut bytes = CHECKSUM_MAGIC.to_be_bytes().to_vec();
        bytes.extend([1, 2, 3, 4]);
        bytes.extend((metadata.len() as u32).to_be_bytes());
        bytes.extend(metadata);
        bytes.extend(b"payload");
        bytes
    }

    fn joined(entry: &Stored) -> Vec<u8> {
        entry.segments.concat()
    }

    #[test]
    fn metadata_is_read_and_cut_off_wherever_segments_end() {
        let body = message(3);
        let whole = stored(Some(41), &body);
        for first in 0..whole.len() {
            for second in [first, (first + 3).min(whole.len()), whole.len()] {
                let pieces = [&whole[..first], &whole[first..second], &whole[second..]];
                let pieces = pieces.map(Bytes::copy_from_slice).to_vec();
                let entry = Stored::parse(Position::new(1, 2), pieces);
                assert_eq!(
                    (entry.index, entry.broker_ms),
                    (41, Some(1_700_000_000_000))
                );
                assert_eq!(joined(&entry), body);
                assert_eq!(entry.messages(), Some(3));
            }
        }
    }

    #[test]
    fn without_metadata_an_entry_has_no_index() {
        let entry = Stored::parse(Position::new(0, 0), vec![Bytes::from(message(2))]);
        assert_eq!(
            (entry.index, entry.messages(), entry.time_ms()),
            (-1, Some(2), Some(5))
        );
        assert_eq!(joined(&entry), message(2));
        let foreign = Stored::parse(Position::new(0, 0), vec![Bytes::from_static(b"x")]);
        assert_eq!(
            (foreign.index, foreign.messages(), foreign.len()),
            (-1, None, 1)
        );
        let bare = Stored::parse(Position::new(0, 0), vec![stored(None, b"x").into()]);
        assert_eq!((bare.index, joined(&bare)), (-1, b"x".to_vec()));
    }

    proptest! {
        #[test]
        fn nothing_that_is_stored_can_do_harm(bytes: Vec<u8>, cut in 0usize..64, broker: bool) {
            let mut whole = if broker { BROKER_MAGIC.to_be_bytes().to_vec() } else { Vec::new() };
            whole.extend(bytes);
            let cut = cut.min(whole.len());
            let pieces = vec![Bytes::copy_from_slice(&whole[..cut]), Bytes::copy_from_slice(&whole[cut..])];
            let entry = Stored::parse(Position::new(0, 0), pieces);
            prop_assert!(entry.len() <= whole.len() as u64);
            let _ = entry.messages();
        }
    }
}
