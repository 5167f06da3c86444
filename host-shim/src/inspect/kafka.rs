//! Just enough of Kafka's public layouts to show an entry: the batch header and the records of `__consumer_offsets`.
//!
//! For display only: it never fails, it says what it cannot read. The plugin has its own, strict code.
//! Sources: Kafka's protocol guide (record batch, record) and its message descriptions `OffsetCommitKey/Value`,
//! `GroupMetadataKey/Value`; the envelope is Pulsar's `MessageMetadata`.

use std::collections::BTreeMap;

use crc_fast::{CrcAlgorithm, checksum};

use super::{printable, timestamp};

/// Length of a batch's header.
const BATCH_HEADER_BYTES: usize = 61;
/// Most members, tags or headers that are believed.
const MOST: u64 = 100_000;

/// Reads fields from the front; every method is `None` past the end.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn i8(&mut self) -> Option<i8> {
        Some(i8::from_be_bytes(self.take(1)?.try_into().ok()?))
    }

    fn i16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        self.i32().map(i32::cast_unsigned)
    }

    fn i64(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Seven bits a byte, lowest first.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The same in zigzag.
    fn zigzag(&mut self) -> Option<i64> {
        let raw = self.varint()?;
        Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// Bytes behind a zigzag length; −1 is null.
    fn sized(&mut self) -> Option<Option<&'a [u8]>> {
        match self.zigzag()? {
            -1 => Some(None),
            length => Some(Some(self.take(usize::try_from(length).ok()?)?)),
        }
    }

    /// A string, of the compact kind or the other; null is `None` inside.
    fn string(&mut self, flexible: bool) -> Option<Option<&'a str>> {
        let length = if flexible {
            i64::try_from(self.varint()?).ok()? - 1
        } else {
            i64::from(self.i16()?)
        };
        if length < 0 {
            return Some(None);
        }
        let bytes = self.take(usize::try_from(length).ok()?)?;
        Some(Some(std::str::from_utf8(bytes).ok()?))
    }

    fn bytes(&mut self, flexible: bool) -> Option<&'a [u8]> {
        let length = if flexible {
            i64::try_from(self.varint()?).ok()? - 1
        } else {
            i64::from(self.i32()?)
        };
        self.take(usize::try_from(length.max(0)).ok()?)
    }

    fn tags(&mut self, flexible: bool) -> Option<()> {
        if flexible {
            for _ in 0..self.varint()?.min(MOST) {
                self.varint()?;
                let length = self.varint()?;
                self.take(usize::try_from(length).ok()?)?;
            }
        }
        Some(())
    }
}

/// The batch inside an entry: behind an optional checksum and the metadata. `None` if there is none of format 2.
fn batch(payload: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader(payload);
    if payload.starts_with(&[0x0e, 0x01]) {
        reader.take(6)?;
    }
    let metadata = reader.u32()?;
    reader.take(usize::try_from(metadata).ok()?)?;
    let batch = reader.0;
    (batch.len() >= BATCH_HEADER_BYTES && batch.get(16) == Some(&2)).then_some(batch)
}

struct Header {
    length: i32,
    crc: u32,
    attributes: i16,
    last_offset_delta: i32,
    first_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    count: i32,
}

fn header(batch: &[u8]) -> Option<Header> {
    let mut reader = Reader(batch);
    reader.i64()?;
    let length = reader.i32()?;
    reader.i32()?;
    reader.i8()?;
    Some(Header {
        length,
        crc: reader.u32()?,
        attributes: reader.i16()?,
        last_offset_delta: reader.i32()?,
        first_timestamp: reader.i64()?,
        max_timestamp: reader.i64()?,
        producer_id: reader.i64()?,
        producer_epoch: reader.i16()?,
        base_sequence: reader.i32()?,
        count: reader.i32()?,
    })
}

fn codec(attributes: i16) -> &'static str {
    match attributes & 7 {
        0 => "none",
        1 => "gzip",
        2 => "snappy",
        3 => "lz4",
        4 => "zstd",
        _ => "unknown",
    }
}

/// Lines that describe the batch of an entry, whose first message has the index `base`, and its records if wanted.
pub(super) fn describe(payload: &[u8], base: i64, with_records: bool) -> Vec<String> {
    let Some((batch, header)) = batch(payload).and_then(|batch| Some((batch, header(batch)?)))
    else {
        return vec!["no record batch of format 2".into()];
    };
    let crc = batch.get(21..).is_some_and(|covered| {
        checksum(CrcAlgorithm::Crc32Iscsi, covered) == u64::from(header.crc)
    });
    let whole = usize::try_from(header.length).is_ok_and(|length| length + 12 == batch.len());
    let mut line = format!(
        "batch offsets {base}..={} records {} compression {} timestamps {}..={} crc {}",
        base + i64::from(header.last_offset_delta),
        header.count,
        codec(header.attributes),
        timestamp(header.first_timestamp),
        timestamp(header.max_timestamp),
        if crc { "ok" } else { "WRONG" },
    );
    if header.producer_id >= 0 {
        line += &format!(
            " producer {} epoch {} sequence {}",
            header.producer_id, header.producer_epoch, header.base_sequence
        );
    }
    for (bit, name) in [
        (8, "log-append-time"),
        (16, "transactional"),
        (32, "control"),
    ] {
        if header.attributes & bit != 0 {
            line += " ";
            line += name;
        }
    }
    if !whole {
        line += " LENGTH WRONG";
    }
    let mut lines = vec![line];
    if !with_records {
        return lines;
    }
    for record in records(batch).unwrap_or_default() {
        let text = |bytes: Option<&[u8]>| bytes.map_or_else(|| "null".into(), printable);
        lines.push(format!(
            "record offset {} timestamp {} key {} value {}",
            base + record.offset_delta,
            timestamp(
                header
                    .first_timestamp
                    .saturating_add(record.timestamp_delta)
            ),
            text(record.key),
            text(record.value)
        ));
    }
    lines
}

struct Record<'a> {
    offset_delta: i64,
    timestamp_delta: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

/// The records of a batch that is not compressed, as far as they can be read.
fn records(batch: &[u8]) -> Option<Vec<Record<'_>>> {
    let header = header(batch)?;
    if header.attributes & 7 != 0 {
        return None;
    }
    let mut reader = Reader(batch.get(BATCH_HEADER_BYTES..)?);
    let mut records = Vec::new();
    for _ in 0..header.count {
        let Some(record) = record(&mut reader) else {
            break;
        };
        records.push(record);
    }
    Some(records)
}

fn record<'a>(reader: &mut Reader<'a>) -> Option<Record<'a>> {
    let length = reader.zigzag()?;
    let mut fields = Reader(reader.take(usize::try_from(length).ok()?)?);
    fields.i8()?;
    Some(Record {
        timestamp_delta: fields.zigzag()?,
        offset_delta: fields.zigzag()?,
        key: fields.sized()?,
        value: fields.sized()?,
    })
}

/// State of groups, replayed from the records of `__consumer_offsets`.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Group → a line about it.
    groups: BTreeMap<String, String>,
    /// Group, topic, partition → a line about the committed offset.
    offsets: BTreeMap<(String, String, i32), String>,
}

impl Groups {
    /// Takes in the records of one entry.
    pub(super) fn replay(&mut self, payload: &[u8]) {
        for record in batch(payload).and_then(records).unwrap_or_default() {
            let _ = self.apply(&record);
        }
    }

    fn apply(&mut self, record: &Record<'_>) -> Option<()> {
        let mut key = Reader(record.key?);
        match key.i16()? {
            0 | 1 => {
                let group = key.string(false)??.to_owned();
                let topic = key.string(false)??.to_owned();
                let partition = key.i32()?;
                let place = (group, topic, partition);
                match record.value {
                    Some(value) => self.offsets.insert(
                        place,
                        offset(value).unwrap_or_else(|| "value that cannot be read".into()),
                    ),
                    None => self.offsets.remove(&place),
                };
            }
            2 => {
                let group = key.string(false)??.to_owned();
                match record.value {
                    Some(value) => self.groups.insert(
                        group,
                        members(value).unwrap_or_else(|| "value that cannot be read".into()),
                    ),
                    None => self.groups.remove(&group),
                };
            }
            // Records of consumer, share and streams groups: not shown.
            _ => {}
        }
        Some(())
    }

    /// What there is, by group, topic and partition.
    pub(super) fn lines(&self) -> Vec<String> {
        let groups = self
            .groups
            .iter()
            .map(|(group, line)| format!("group {group} {line}"));
        let offsets = self
            .offsets
            .iter()
            .map(|((group, topic, partition), line)| {
                format!("offset {group} {topic} {partition} {line}")
            });
        groups.chain(offsets).collect()
    }
}

fn offset(value: &[u8]) -> Option<String> {
    let mut value = Reader(value);
    let version = value.i16()?;
    if !(0..=4).contains(&version) {
        return Some(format!("value version {version}"));
    }
    let offset = value.i64()?;
    let epoch = if version >= 3 { value.i32()? } else { -1 };
    let metadata = value.string(version >= 4)?.unwrap_or_default();
    let committed = timestamp(value.i64()?);
    let mut line = format!("at {offset} committed {committed}");
    if epoch >= 0 {
        line += &format!(" leader-epoch {epoch}");
    }
    if version == 1 {
        line += &format!(" expires {}", timestamp(value.i64()?));
    }
    if !metadata.is_empty() {
        line += &format!(" metadata {}", printable(metadata.as_bytes()));
    }
    Some(line)
}

fn members(value: &[u8]) -> Option<String> {
    let mut value = Reader(value);
    let version = value.i16()?;
    if !(0..=4).contains(&version) {
        return Some(format!("value version {version}"));
    }
    let flexible = version >= 4;
    let protocol_type = value.string(flexible)?.unwrap_or_default().to_owned();
    let generation = value.i32()?;
    let protocol = value.string(flexible)?.unwrap_or("none").to_owned();
    let leader = value.string(flexible)?.unwrap_or("none").to_owned();
    if version >= 2 {
        value.i64()?;
    }
    let count = if flexible {
        value.varint()?.saturating_sub(1)
    } else {
        u64::try_from(value.i32()?).ok()?
    };
    let mut names = Vec::new();
    for _ in 0..count.min(MOST) {
        let member = value.string(flexible)??.to_owned();
        if version >= 3 {
            value.string(flexible)?;
        }
        let client = value.string(flexible)?.unwrap_or_default();
        let host = value.string(flexible)?.unwrap_or_default();
        names.push(format!("{member} (client {client} at {host})"));
        if version >= 1 {
            value.i32()?;
        }
        value.i32()?;
        value.bytes(flexible)?;
        value.bytes(flexible)?;
        value.tags(flexible)?;
    }
    Some(format!(
        "type {protocol_type} generation {generation} protocol {protocol} leader {leader} members [{}]",
        names.join(", ")
    ))
}
