//! The records of `__consumer_offsets`, byte for byte as Apache Kafka writes them (`FORMATS.md`).
//!
//! A key is `i16 version | fields`, a value likewise; a missing value (tombstone) deletes the key. Kafka's source:
//! `OffsetCommitKey/Value.json`, `GroupMetadataKey/Value.json`. It must not know logs, batches or what the state means.

pub mod kop;

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

/// Key version of a committed offset that we write; 0 and 1 are read (same layout).
const OFFSET_KEY: i16 = 1;
/// Key version of a group.
const GROUP_KEY: i16 = 2;
/// Value version of a committed offset without its own expiry (flexible, with the topic id as tag 0).
const OFFSET_VALUE: i16 = 4;
/// Value version of a committed offset whose client asked for its own retention (OffsetCommit v2–4).
const OFFSET_VALUE_WITH_EXPIRY: i16 = 1;
/// Value version of a group: Kafka's highest non-flexible one.
const GROUP_VALUE: i16 = 3;

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A committed offset, or its deletion.
    Offset {
        /// Group id.
        group: String,
        /// Topic name as Kafka clients spell it.
        topic: String,
        /// Partition number.
        partition: i32,
        /// What was committed; `None` deletes it.
        value: Option<OffsetValue>,
    },
    /// A group's membership, or its deletion.
    Group {
        /// Group id.
        group: String,
        /// Its membership; `None` deletes the group.
        value: Option<GroupValue>,
    },
}

impl Record {
    /// The group that the record speaks of.
    #[must_use]
    pub fn group(&self) -> &str {
        match self {
            Self::Offset { group, .. } | Self::Group { group, .. } => group,
        }
    }
}

/// A committed offset (`OffsetCommitValue`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetValue {
    /// Offset of the next record to read.
    pub offset: i64,
    /// Leader epoch of the last record read, −1 if unknown.
    pub leader_epoch: i32,
    /// The client's own text.
    pub metadata: String,
    /// When it was committed, ms since the epoch.
    pub commit_ms: i64,
    /// When it expires, if its client asked for a retention of its own (OffsetCommit v2–4).
    pub expire_ms: Option<i64>,
    /// Id of the topic when it was committed; nil if unknown.
    pub topic_id: Uuid,
}

/// A group's membership (`GroupMetadataValue`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupValue {
    /// `consumer`, `connect`, …; empty for none.
    pub protocol_type: String,
    /// Generation.
    pub generation: i32,
    /// Chosen protocol, e.g. `range`; `None` without members.
    pub protocol: Option<String>,
    /// Member id of the leader.
    pub leader: Option<String>,
    /// When the group entered its state, ms since the epoch; −1 if unknown (records before v2).
    pub state_ms: i64,
    /// Members.
    pub members: Vec<MemberValue>,
}

/// One member inside a [`GroupValue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberValue {
    /// Member id.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// Client id.
    pub client_id: String,
    /// Client host, `/address` as Kafka writes it.
    pub client_host: String,
    /// Rebalance timeout in ms.
    pub rebalance_timeout_ms: i32,
    /// Session timeout in ms.
    pub session_timeout_ms: i32,
    /// Metadata of the chosen protocol.
    pub subscription: Bytes,
    /// What the leader assigned.
    pub assignment: Bytes,
}

/// Why bytes of the log are no record of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Bytes end within a field.
    #[error("record ends within a field")]
    Truncated,
    /// A length is negative where it may not be.
    #[error("record holds a bad length")]
    BadLength,
    /// Text is not UTF-8.
    #[error("record holds text that is not UTF-8")]
    NotUtf8,
    /// A value version that this build cannot read.
    #[error("record has value version {0}, which is not known")]
    UnknownVersion(i16),
}

/// A key and its value as bytes, ready for a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// Key; never empty.
    pub key: Bytes,
    /// Value; `None` is a tombstone.
    pub value: Option<Bytes>,
}

impl KeyValue {
    /// Length in bytes of key and value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }

    /// Bytes that it takes up in a batch at most: the format puts lengths, a timestamp and an offset around it.
    #[must_use]
    pub fn batched_len(&self) -> usize {
        const AROUND: usize = 32;
        self.len() + AROUND
    }

    /// Whether it holds no byte (never so for an encoded record).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Encodes a record as Kafka 4.3 does.
#[must_use]
pub fn encode(record: &Record) -> KeyValue {
    let mut key = BytesMut::new();
    match record {
        Record::Offset {
            group,
            topic,
            partition,
            value,
        } => {
            key.put_i16(OFFSET_KEY);
            put_string(&mut key, group);
            put_string(&mut key, topic);
            key.put_i32(*partition);
            KeyValue {
                key: key.freeze(),
                value: value.as_ref().map(encode_offset),
            }
        }
        Record::Group { group, value } => {
            key.put_i16(GROUP_KEY);
            put_string(&mut key, group);
            KeyValue {
                key: key.freeze(),
                value: value.as_ref().map(encode_group),
            }
        }
    }
}

fn encode_offset(value: &OffsetValue) -> Bytes {
    let mut out = BytesMut::new();
    if let Some(expire_ms) = value.expire_ms {
        out.put_i16(OFFSET_VALUE_WITH_EXPIRY);
        out.put_i64(value.offset);
        put_string(&mut out, &value.metadata);
        out.put_i64(value.commit_ms);
        out.put_i64(expire_ms);
        return out.freeze();
    }
    out.put_i16(OFFSET_VALUE);
    out.put_i64(value.offset);
    out.put_i32(value.leader_epoch);
    put_varint(&mut out, value.metadata.len() + 1);
    out.put_slice(value.metadata.as_bytes());
    out.put_i64(value.commit_ms);
    if value.topic_id.is_nil() {
        out.put_u8(0);
    } else {
        out.put_slice(&[1, 0, 16]); // one tagged field: tag 0, 16 bytes
        out.put_slice(value.topic_id.as_bytes());
    }
    out.freeze()
}

fn encode_group(value: &GroupValue) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(GROUP_VALUE);
    put_string(&mut out, &value.protocol_type);
    out.put_i32(value.generation);
    put_nullable(&mut out, value.protocol.as_deref());
    put_nullable(&mut out, value.leader.as_deref());
    out.put_i64(value.state_ms);
    put_i32_len(&mut out, value.members.len());
    for member in &value.members {
        put_string(&mut out, &member.member_id);
        put_nullable(&mut out, member.instance_id.as_deref());
        put_string(&mut out, &member.client_id);
        put_string(&mut out, &member.client_host);
        out.put_i32(member.rebalance_timeout_ms);
        out.put_i32(member.session_timeout_ms);
        put_i32_len(&mut out, member.subscription.len());
        out.put_slice(&member.subscription);
        put_i32_len(&mut out, member.assignment.len());
        out.put_slice(&member.assignment);
    }
    out.freeze()
}

/// Decodes a record. `Ok(None)` is a record of another kind (a newer coordinator's): it is skipped, as Kafka does.
///
/// # Errors
/// [`RecordError`] if the bytes are none that Kafka writes.
pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, RecordError> {
    let mut key = Reader(key);
    match key.i16()? {
        0 | OFFSET_KEY => {
            let group = key.string()?;
            let topic = key.string()?;
            let partition = key.i32()?;
            let value = value.map(decode_offset).transpose()?;
            Ok(Some(Record::Offset {
                group,
                topic,
                partition,
                value,
            }))
        }
        GROUP_KEY => {
            let group = key.string()?;
            let value = value.map(decode_group).transpose()?;
            Ok(Some(Record::Group { group, value }))
        }
        _ => Ok(None),
    }
}

fn decode_offset(bytes: &[u8]) -> Result<OffsetValue, RecordError> {
    read_offset(&mut Reader(bytes))
}

fn read_offset(reader: &mut Reader<'_>) -> Result<OffsetValue, RecordError> {
    let version = reader.i16()?;
    if !(0..=4).contains(&version) {
        return Err(RecordError::UnknownVersion(version));
    }
    let offset = reader.i64()?;
    let leader_epoch = if version >= 3 { reader.i32()? } else { -1 };
    let metadata = if version >= 4 {
        reader.compact_string()?
    } else {
        reader.string()?
    };
    let commit_ms = reader.i64()?;
    let expire_ms = if version == 1 {
        Some(reader.i64()?).filter(|at| *at >= 0)
    } else {
        None
    };
    let mut topic_id = Uuid::nil();
    if version >= 4 {
        reader.tagged(|tag, field| {
            if tag == 0
                && let Ok(id) = Uuid::from_slice(field)
            {
                topic_id = id;
            }
        })?;
    }
    Ok(OffsetValue {
        offset,
        leader_epoch,
        metadata,
        commit_ms,
        expire_ms,
        topic_id,
    })
}

fn decode_group(bytes: &[u8]) -> Result<GroupValue, RecordError> {
    read_group(&mut Reader(bytes))
}

fn read_group(reader: &mut Reader<'_>) -> Result<GroupValue, RecordError> {
    let version = reader.i16()?;
    if !(0..=4).contains(&version) {
        return Err(RecordError::UnknownVersion(version));
    }
    let flexible = version >= 4;
    let protocol_type = reader.text(flexible)?.ok_or(RecordError::BadLength)?;
    let generation = reader.i32()?;
    let protocol = reader.text(flexible)?;
    let leader = reader.text(flexible)?;
    let state_ms = if version >= 2 { reader.i64()? } else { -1 };
    let count = if flexible {
        reader
            .varint()?
            .checked_sub(1)
            .ok_or(RecordError::BadLength)?
    } else {
        usize::try_from(reader.i32()?).map_err(|_| RecordError::BadLength)?
    };
    let mut members = Vec::with_capacity(count.min(64)); // grows with bytes that are really there
    for _ in 0..count {
        members.push(decode_member(reader, version)?);
    }
    if flexible {
        reader.tagged(|_, _| ())?;
    }
    Ok(GroupValue {
        protocol_type,
        generation,
        protocol,
        leader,
        state_ms,
        members,
    })
}

fn decode_member(reader: &mut Reader<'_>, version: i16) -> Result<MemberValue, RecordError> {
    let flexible = version >= 4;
    let member_id = reader.text(flexible)?.ok_or(RecordError::BadLength)?;
    let instance_id = if version >= 3 {
        reader.text(flexible)?
    } else {
        None
    };
    let client_id = reader.text(flexible)?.ok_or(RecordError::BadLength)?;
    let client_host = reader.text(flexible)?.ok_or(RecordError::BadLength)?;
    let stored_rebalance = if version >= 1 { reader.i32()? } else { -1 };
    let session_timeout_ms = reader.i32()?;
    let subscription = reader.blob(flexible)?;
    let assignment = reader.blob(flexible)?;
    if flexible {
        reader.tagged(|_, _| ())?;
    }
    Ok(MemberValue {
        member_id,
        instance_id,
        client_id,
        client_host,
        // Kafka: a member of the time before rebalance timeouts uses its session timeout.
        rebalance_timeout_ms: if stored_rebalance == -1 {
            session_timeout_ms
        } else {
            stored_rebalance
        },
        session_timeout_ms,
        subscription,
        assignment,
    })
}

fn put_string(out: &mut BytesMut, text: &str) {
    // Group ids, topic names, client ids and metadata come from fields with an i16 length, so they fit; a longer one
    // (a compact string of a newer version) is cut at a character rather than written with a wrong length.
    let mut end = text.len().min(i16::MAX as usize);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default();
    out.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    out.put_slice(text.as_bytes());
}

fn put_nullable(out: &mut BytesMut, text: Option<&str>) {
    match text {
        Some(text) => put_string(out, text),
        None => out.put_i16(-1),
    }
}

fn put_i32_len(out: &mut BytesMut, len: usize) {
    out.put_i32(i32::try_from(len).unwrap_or(i32::MAX)); // frames are below 2 GiB
}

fn put_varint(out: &mut BytesMut, value: usize) {
    let mut rest = value;
    while rest >= 0x80 {
        out.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

/// Reads fields from the front of bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(RecordError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        self.take(N)?.try_into().map_err(|_| RecordError::Truncated)
    }

    fn i16(&mut self) -> Result<i16, RecordError> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, RecordError> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, RecordError> {
        self.array().map(i64::from_be_bytes)
    }

    fn varint(&mut self) -> Result<usize, RecordError> {
        let mut value = 0_usize;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(RecordError::BadLength)
    }

    fn utf8(&mut self, len: usize) -> Result<String, RecordError> {
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| RecordError::NotUtf8)
    }

    fn nullable(&mut self) -> Result<Option<String>, RecordError> {
        match self.i16()? {
            -1 => Ok(None),
            len => self
                .utf8(usize::try_from(len).map_err(|_| RecordError::BadLength)?)
                .map(Some),
        }
    }

    fn string(&mut self) -> Result<String, RecordError> {
        self.nullable()?.ok_or(RecordError::BadLength)
    }

    fn compact_nullable(&mut self) -> Result<Option<String>, RecordError> {
        match self.varint()? {
            0 => Ok(None),
            len => self.utf8(len - 1).map(Some),
        }
    }

    fn compact_string(&mut self) -> Result<String, RecordError> {
        self.compact_nullable()?.ok_or(RecordError::BadLength)
    }

    fn text(&mut self, flexible: bool) -> Result<Option<String>, RecordError> {
        if flexible {
            self.compact_nullable()
        } else {
            self.nullable()
        }
    }

    fn blob(&mut self, flexible: bool) -> Result<Bytes, RecordError> {
        let len = if flexible {
            self.varint()?.checked_sub(1)
        } else {
            usize::try_from(self.i32()?).ok()
        };
        self.take(len.ok_or(RecordError::BadLength)?)
            .map(Bytes::copy_from_slice)
    }

    fn tagged(&mut self, mut visit: impl FnMut(usize, &[u8])) -> Result<(), RecordError> {
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let len = self.varint()?;
            visit(tag, self.take(len)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
