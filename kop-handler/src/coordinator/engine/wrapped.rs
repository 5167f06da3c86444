//! Records of `__consumer_offsets` in what the log takes and gives: batches of Kafka's records, or KoP's layout.
//!
//! ```text
//! Kafka's:  batch of records
//! KoP's:    batch of messages: key = key of the record, value = a batch of its own with the record
//! ```
//!
//! In KoP's layout the log's entry format makes Pulsar messages of the outer records. KoP puts all records of a commit
//! into one message, whose key is the same for every commit of the group, so that Pulsar's compaction loses all but the
//! last commit; here each record is a message with a key of its own. Reading takes all of it, whoever wrote it, also the
//! commits of transactions, which count when their marker says so. What is damaged is counted and passed over.
//!
//! It must not know the partition that it works for.

use std::collections::HashMap;

use bytes::Bytes;

use crate::coordinator::record::{self, KeyValue, Record};
use crate::topics::names::Names;
use crate::wire::batch::{
    BatchBuilder, BatchError, BatchHeader, BatchView, Batches, ControlType, NewRecord,
    has_right_crc,
};

/// What one batch of the topic may unpack to.
const MAX_UNPACKED: usize = 64 * 1024 * 1024;
/// Records of transactions that wait for their markers while a shard loads; further ones are dropped.
const MAX_PENDING: usize = 100_000;
/// An outer batch of this size is closed: Pulsar's format repeats its keys, and the entry must fit into a frame.
const OUTER_BYTES: usize = 512 * 1024;

/// How records are written.
#[derive(Clone, Debug)]
pub(super) enum Layout {
    /// As Apache Kafka does.
    Kafka,
    /// As KoP does.
    Kop {
        /// Full names of topics.
        names: Names,
        /// How long offsets are kept, in ms.
        retention_ms: i64,
    },
}

impl Layout {
    /// The batches that hold some records, in order; at least one.
    pub(super) fn build(
        &self,
        records: &[KeyValue],
        now_ms: i64,
    ) -> Result<Vec<Bytes>, BatchError> {
        match self {
            Self::Kafka => {
                let mut batch = BatchBuilder::new(now_ms);
                for record in records {
                    push(&mut batch, now_ms, &record.key, record.value.as_deref())?;
                }
                Ok(vec![batch.build()?])
            }
            Self::Kop {
                names,
                retention_ms,
            } => {
                let records = records
                    .iter()
                    .map(|record| kops(record, names, *retention_ms));
                wrap(records, now_ms)
            }
        }
    }
}

fn push(
    batch: &mut BatchBuilder,
    now_ms: i64,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<(), BatchError> {
    batch.push(NewRecord::new(now_ms, Some(key), value))
}

/// A record of Kafka's as KoP has it. One of a kind that KoP does not know stays as it is.
fn kops(stored: &KeyValue, names: &Names, retention_ms: i64) -> KeyValue {
    let Ok(Some(record)) = record::decode(&stored.key, stored.value.as_deref()) else {
        return stored.clone();
    };
    let topic = match &record {
        Record::Offset { topic, .. } => names.full_name(topic).unwrap_or_else(|_| topic.clone()),
        Record::Group { .. } => String::new(),
    };
    record::kop::encode(&record, &topic, retention_ms)
}

fn wrap(records: impl Iterator<Item = KeyValue>, now_ms: i64) -> Result<Vec<Bytes>, BatchError> {
    let mut done = Vec::new();
    let mut outer = BatchBuilder::new(now_ms);
    for record in records {
        let mut inner = BatchBuilder::new(now_ms);
        push(&mut inner, now_ms, &record.key, record.value.as_deref())?;
        push(&mut outer, now_ms, &record.key, Some(&inner.build()?))?;
        if record.value.is_none() {
            // To Pulsar's compaction this deletes the key; readers find nothing in it.
            push(&mut outer, now_ms, &record.key, Some(&[]))?;
        }
        if outer.size_in_bytes() >= OUTER_BYTES {
            let full = std::mem::replace(&mut outer, BatchBuilder::new(now_ms));
            done.push(full.build()?);
        }
    }
    if !outer.is_empty() || done.is_empty() {
        done.push(outer.build()?);
    }
    Ok(done)
}

/// Reads a shard's records from the start of its log to the end.
#[derive(Debug)]
pub(super) struct Unwrapping {
    names: Names,
    /// Records of transactions that are not decided yet, by producer: key and value, the newest of each key.
    pending: HashMap<i64, HashMap<Bytes, Option<Bytes>>>,
    pending_count: usize,
    /// What could not be read.
    pub(super) damaged: u64,
}

impl Unwrapping {
    pub(super) fn new(names: Names) -> Self {
        Self {
            names,
            pending: HashMap::new(),
            pending_count: 0,
            damaged: 0,
        }
    }

    /// Adds to `out` what a batch of the log says.
    pub(super) fn take(&mut self, batch: &BatchView, out: &mut Vec<KeyValue>) {
        let header = &batch.header;
        let Ok(records) = batch.records(MAX_UNPACKED) else {
            self.damaged += 1;
            return;
        };
        let txn = header
            .attributes
            .is_transactional()
            .then_some(header.producer_id);
        for record in &records {
            let Ok(record) = record else {
                self.damaged += 1;
                return;
            };
            let Some(key) = record.key else {
                continue; // KoP writes one when it begins to load
            };
            if header.attributes.is_control() {
                if let Some((producer, end)) = txn.zip(ControlType::from_key(key)) {
                    self.end(producer, end, out);
                }
                continue;
            }
            match record.value {
                // Says to Pulsar's compaction that the key is gone.
                Some([]) => {}
                Some(value) if is_wrapped(value) => self.unwrap(records.slice_of(value), out),
                value => {
                    let stored = KeyValue {
                        key: Bytes::copy_from_slice(key),
                        value: value.map(Bytes::copy_from_slice),
                    };
                    self.put(txn, stored, out);
                }
            }
        }
    }

    fn unwrap(&mut self, value: Bytes, out: &mut Vec<KeyValue>) {
        for batch in Batches::new(value) {
            let Ok((header, records)) =
                batch.and_then(|batch| Ok((batch.header, batch.records(MAX_UNPACKED)?)))
            else {
                self.damaged += 1;
                return;
            };
            let txn = header
                .attributes
                .is_transactional()
                .then_some(header.producer_id);
            for record in &records {
                let decoded = record.ok().and_then(|record| {
                    let key = record.key?;
                    let kafka_name = |full: &str| self.names.kafka_name(full);
                    record::kop::decode(key, record.value, kafka_name).ok()
                });
                match decoded {
                    Some(Some(record)) => self.put(txn, record::encode(&record), out),
                    Some(None) => {}
                    None => self.damaged += 1,
                }
            }
        }
    }

    /// A record counts at once, or when its transaction is committed. It goes before what an open transaction said of
    /// the same key earlier.
    fn put(&mut self, txn: Option<i64>, record: KeyValue, out: &mut Vec<KeyValue>) {
        let Some(producer) = txn else {
            for pending in self.pending.values_mut() {
                if pending.remove(&record.key).is_some() {
                    self.pending_count = self.pending_count.saturating_sub(1);
                }
            }
            out.push(record);
            return;
        };
        if self.pending_count >= MAX_PENDING {
            self.damaged += 1;
            return;
        }
        let pending = self.pending.entry(producer).or_default();
        if pending.insert(record.key, record.value).is_none() {
            self.pending_count += 1;
        }
    }

    fn end(&mut self, producer: i64, end: ControlType, out: &mut Vec<KeyValue>) {
        let pending = self.pending.remove(&producer).unwrap_or_default();
        self.pending_count = self.pending_count.saturating_sub(pending.len());
        if end == ControlType::Commit {
            let records = pending.into_iter();
            out.extend(records.map(|(key, value)| KeyValue { key, value }));
        }
    }
}

/// Whether a value is one of KoP's: a batch, which no value of Kafka's looks like (their first bytes are a version, and
/// the rest of a batch's offset would have to be one too).
fn is_wrapped(value: &[u8]) -> bool {
    BatchHeader::parse(value).is_ok_and(|header| {
        let batch = value.get(..header.size_in_bytes());
        batch.is_some_and(|batch| has_right_crc(batch, &header))
    })
}

#[cfg(test)]
#[path = "wrapped_tests.rs"]
mod tests;
