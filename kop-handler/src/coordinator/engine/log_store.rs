//! Shards on Kafka's own topic `__consumer_offsets`: one partition each, records in batches like any other topic's.
//!
//! The topic is created on first use; compacted where the host can replace ledgers. Where there are several brokers, some
//! may still be KoP's, and so records are written in its layout ([`super::wrapped`]). It must not know what they mean.

use std::future::Future;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use super::store::{Chunk, Pending, ShardLog, ShardStore, StoreFault};
use super::wrapped::{Layout, Unwrapping};
use crate::clock::Clock;
use crate::coordinator::record::KeyValue;
use crate::error::Fault;
use crate::log::{
    Append, AppendInfo, Fetched, Isolation, Logs, Origin, Partition, Read, Rejection,
};
use crate::topics::Topics;
use crate::topics::configs::Overrides;
use crate::topics::names::{CONSUMER_OFFSETS, partition_name, split_partition};
use crate::wire::batch::{BatchError, BatchView, Batches};

/// Kafka's settings of the topic.
const CONFIGS: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("compression.type", "producer"),
    ("segment.bytes", "104857600"),
];

/// Shards on the partitions of `__consumer_offsets`.
pub struct LogStore {
    logs: Arc<Logs>,
    topics: Arc<Topics>,
    clock: Arc<dyn Clock>,
    partitions: u32,
    retention_ms: i64,
}

impl LogStore {
    /// `partitions` is `offsetsTopicNumPartitions`, which counts only when the topic is created; `retention_ms` how long
    /// offsets are kept, which KoP's brokers are told with each.
    #[must_use]
    pub fn new(
        logs: Arc<Logs>,
        topics: Arc<Topics>,
        clock: Arc<dyn Clock>,
        partitions: u32,
        retention_ms: i64,
    ) -> Self {
        Self {
            logs,
            topics,
            clock,
            partitions,
            retention_ms,
        }
    }

    /// The shard whose log has this full name, if it is one.
    #[must_use]
    pub fn shard_named(topics: &Topics, partition: &str) -> Option<u32> {
        let (topic, shard) = split_partition(partition)?;
        let offsets = topics.names().full_name(CONSUMER_OFFSETS).ok()?;
        (topic == offsets).then_some(shard)
    }
}

impl ShardStore for LogStore {
    fn shards(&self, create: bool) -> Pending<Option<u32>> {
        let (topics, partitions) = (Arc::clone(&self.topics), self.partitions);
        Box::pin(async move {
            let found = if create {
                let mut configs = Overrides::default();
                let compacts = topics.can_compact();
                for (name, value) in CONFIGS.into_iter().filter(|_| compacts) {
                    configs
                        .set(name, value)
                        .map_err(|fault| store_fault(&fault))?;
                }
                topics
                    .ensure_internal(CONSUMER_OFFSETS, partitions, &configs)
                    .await
            } else {
                topics.by_name(CONSUMER_OFFSETS).await
            };
            match found {
                Ok(topic) => Ok(Some(topic.partitions())),
                Err(Fault::UnknownTopicOrPartition(_)) if !create => Ok(None),
                Err(fault) => Err(store_fault(&fault)),
            }
        })
    }

    fn served(&self, count: u32) -> Pending<Vec<u32>> {
        let topics = Arc::clone(&self.topics);
        Box::pin(async move {
            let topic = topics.names().full_name(CONSUMER_OFFSETS);
            let topic = topic.map_err(|fault| store_fault(&fault))?;
            let names: Vec<String> = (0..count)
                .map(|shard| partition_name(&topic, shard))
                .collect();
            let local = topics.are_local(&names).await;
            let local = local.map_err(|fault| store_fault(&fault))?;
            let shards = (0..count).zip(local);
            Ok(shards
                .filter_map(|(shard, local)| local.then_some(shard))
                .collect())
        })
    }

    fn open(&self, shard: u32) -> Pending<Arc<dyn ShardLog>> {
        let topics = Arc::clone(&self.topics);
        let (logs, clock) = (Arc::clone(&self.logs), Arc::clone(&self.clock));
        let retention_ms = self.retention_ms;
        Box::pin(async move {
            let topic = topics.by_name(CONSUMER_OFFSETS).await;
            let topic = topic.map_err(|fault| store_fault(&fault))?;
            let name = i32::try_from(shard).ok().and_then(|n| topic.partition(n));
            let name = name.ok_or_else(|| {
                StoreFault::Failed(format!("{CONSUMER_OFFSETS} has no partition {shard}"))
            })?;
            let opened = logs.open(&[&name]).await.into_iter().next();
            let partition = opened
                .unwrap_or_else(|| Err(Fault::Internal("the log opened nothing".to_owned())))
                .map_err(|fault| store_fault(&fault))?;
            let names = topics.names().clone();
            let reading = Arc::new(Mutex::new(Unwrapping::new(names.clone())));
            let layout = if topics.is_kops(&topic.full_name) {
                Layout::Kop {
                    names,
                    retention_ms,
                }
            } else {
                Layout::Kafka
            };
            Ok(Arc::new(PartitionLog {
                logs,
                clock,
                partition,
                layout,
                reading,
            }) as Arc<dyn ShardLog>)
        })
    }
}

/// A shard on a partition.
struct PartitionLog {
    logs: Arc<Logs>,
    clock: Arc<dyn Clock>,
    partition: Arc<Partition>,
    layout: Layout,
    /// What the part of the log that was read leaves open.
    reading: Arc<Mutex<Unwrapping>>,
}

/// The records of a read; what of them is damaged is reported and passed over.
fn take_in(
    reading: &Mutex<Unwrapping>,
    partition: &Partition,
    fetched: &Fetched,
) -> Result<Chunk, StoreFault> {
    let mut reading = reading.lock();
    let chunk = chunk(
        &mut reading,
        &fetched.records,
        fetched.size,
        fetched.high_watermark,
    )
    .map_err(|error| StoreFault::Failed(error.to_string()))?;
    let damaged = std::mem::take(&mut reading.damaged);
    if damaged > 0 {
        tracing::warn!(
            partition = partition.name(),
            damaged,
            "records of the offsets topic cannot be read and are passed over"
        );
    }
    Ok(chunk)
}

impl ShardLog for PartitionLog {
    fn append(&self, records: Vec<KeyValue>) -> Pending<()> {
        let batches = match self.layout.build(&records, self.clock.now_ms()) {
            Ok(batches) => batches,
            Err(error) => {
                let refused = StoreFault::TooLarge(error.to_string());
                return Box::pin(std::future::ready(Err(refused)));
            }
        };
        let append = |records| Append {
            partition: Arc::clone(&self.partition),
            records,
            origin: Origin::Coordinator,
        };
        let appended = self.logs.append(batches.into_iter().map(append).collect());
        Box::pin(outcome(appended))
    }

    fn is_open(&self) -> bool {
        self.partition.is_alive()
    }

    fn read(&self, from: i64, max_bytes: usize) -> Pending<Chunk> {
        let (logs, partition) = (Arc::clone(&self.logs), Arc::clone(&self.partition));
        let reading = Arc::clone(&self.reading);
        Box::pin(async move {
            let offset = from.max(partition.log_start_offset());
            if offset >= partition.high_watermark() {
                return Ok(Chunk::default());
            }
            let read = Read {
                partition: Arc::clone(&partition),
                offset,
                max_bytes,
                isolation: Isolation::ReadUncommitted,
            };
            let fetched = logs
                .read(vec![read], max_bytes, true)
                .await
                .into_iter()
                .next();
            let fetched = fetched
                .unwrap_or_else(|| Err(Fault::Internal("the log read nothing".to_owned())))
                .map_err(|fault| store_fault(&fault))?;
            take_in(&reading, &partition, &fetched)
        })
    }
}

/// How an append of one decision ended that may have taken several batches: only if none was written, nothing was.
async fn outcome(
    appended: impl Future<Output = Vec<Result<AppendInfo, Rejection>>> + Send,
) -> Result<(), StoreFault> {
    let results = appended.await;
    let written = results.iter().any(Result::is_ok);
    let mut faults = results.into_iter().filter_map(Result::err);
    match faults.next() {
        Some(first) if written => Err(match store_fault(&first.fault) {
            moved @ StoreFault::NotOwner(_) => moved,
            _ => StoreFault::Failed(first.fault.to_string()),
        }),
        Some(first) => {
            let unknown = faults.find(|other| !is_harmless(&other.fault));
            Err(append_fault(&unknown.unwrap_or(first).fault))
        }
        None if written => Ok(()),
        None => Err(StoreFault::Failed("the log answered nothing".to_owned())),
    }
}

fn is_harmless(fault: &Fault) -> bool {
    matches!(
        append_fault(fault),
        StoreFault::Refused(_) | StoreFault::TooLarge(_)
    )
}

/// The batches of a read, of which the log has made sure that they are whole.
fn batches(
    pieces: &[Bytes],
    size: usize,
) -> impl Iterator<Item = Result<BatchView, BatchError>> + use<> {
    let mut joined = BytesMut::with_capacity(size);
    for piece in pieces {
        joined.extend_from_slice(piece);
    }
    Batches::new(joined.freeze())
}

/// The keyed records of a read.
fn chunk(
    reading: &mut Unwrapping,
    pieces: &[Bytes],
    size: usize,
    high_watermark: i64,
) -> Result<Chunk, BatchError> {
    let mut chunk = Chunk::default();
    for batch in batches(pieces, size) {
        let batch = batch?;
        let end = batch.header.last_offset().saturating_add(1);
        chunk.next = (end < high_watermark).then_some(end);
        reading.take(&batch, &mut chunk.records);
    }
    Ok(chunk)
}

/// What a fault of an append means. After those that say that nothing was written the partition stays open, and so a
/// busy host, say, does not cost the shard its life.
fn append_fault(fault: &Fault) -> StoreFault {
    match fault {
        Fault::LeaderNotAvailable(_)
        | Fault::InvalidRequest(_)
        | Fault::SaslAuthenticationFailed(_)
        | Fault::TopicAuthorizationFailed(_) => StoreFault::Refused(fault.to_string()),
        _ => store_fault(fault),
    }
}

fn store_fault(fault: &Fault) -> StoreFault {
    let text = fault.to_string();
    match fault {
        Fault::NotLeader(_) | Fault::UnknownTopicOrPartition(_) | Fault::UnknownTopicId(_) => {
            StoreFault::NotOwner(text)
        }
        Fault::MessageTooLarge(_) | Fault::RecordListTooLarge(_) => StoreFault::TooLarge(text),
        Fault::StorageRefused(_) => StoreFault::Refused(text),
        _ => StoreFault::Failed(text),
    }
}

#[cfg(test)]
mod tests {
    use handler_api::{ApiError, ErrorCode};

    use super::*;

    #[test]
    fn what_is_appended_is_what_a_load_reads() {
        let record = |key: &'static str, value: Option<&'static str>| KeyValue {
            key: Bytes::from_static(key.as_bytes()),
            value: value.map(|value| Bytes::from_static(value.as_bytes())),
        };
        let first = vec![record("a", Some("1")), record("b", None)];
        let second = vec![record("a", Some("2"))];
        let build = |records: &[KeyValue]| Layout::Kafka.build(records, 7).unwrap().remove(0);
        let (one, two) = (build(&first), build(&second));
        let mut pieces = crate::wire::batch::patched(&one, 0, 0).to_vec();
        pieces.extend(crate::wire::batch::patched(&two, 2, 0));
        let mut reading = Unwrapping::new(crate::topics::names::Names::new("a", "b", "c", "d"));
        let read = chunk(&mut reading, &pieces, one.len() + two.len(), 3).unwrap();
        assert_eq!(read.records, [first.as_slice(), &second].concat());
        assert_eq!(read.next, None);

        let part = chunk(&mut reading, &pieces[..2], one.len(), 3).unwrap();
        assert_eq!((part.records, part.next), (first, Some(2)));
    }

    #[tokio::test]
    async fn an_append_of_which_nothing_was_written_is_refused_and_the_shard_lives_on() {
        let refused = [
            ErrorCode::Refused,
            ErrorCode::NoSpace,
            ErrorCode::NotReady,
            ErrorCode::InvalidArgument,
            ErrorCode::Unauthenticated,
            ErrorCode::Unauthorized,
        ];
        for code in ErrorCode::ALL {
            let fault = Fault::from(ApiError::new(*code, "text"));
            let answer = vec![Err(Rejection::from(fault))];
            let fault = outcome(std::future::ready(answer)).await.unwrap_err();
            assert_eq!(
                matches!(fault, StoreFault::Refused(_)),
                refused.contains(code),
                "{code:?}: {fault:?}"
            );
        }
        let unknown = vec![Err(Rejection::from(Fault::StorageUnknown(String::new())))];
        let fault = outcome(std::future::ready(unknown)).await.unwrap_err();
        assert!(matches!(fault, StoreFault::Failed(_)), "{fault:?}");
    }

    #[test]
    fn a_full_disk_refuses_and_a_moved_partition_is_lost() {
        let text = String::new;
        let kind = |fault: Fault| std::mem::discriminant(&store_fault(&fault));
        let is = |fault: StoreFault| std::mem::discriminant(&fault);
        assert_eq!(
            kind(Fault::StorageRefused(text())),
            is(StoreFault::Refused(text()))
        );
        assert_eq!(
            kind(Fault::NotLeader(text())),
            is(StoreFault::NotOwner(text()))
        );
        assert_eq!(
            kind(Fault::MessageTooLarge(text())),
            is(StoreFault::TooLarge(text()))
        );
        assert_eq!(
            kind(Fault::StorageUnknown(text())),
            is(StoreFault::Failed(text()))
        );
        assert_eq!(
            kind(Fault::TimedOut(text())),
            is(StoreFault::Failed(text()))
        );
    }
}
