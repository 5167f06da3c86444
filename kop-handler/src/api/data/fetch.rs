//! Fetch (key 1), versions 4–18: record batches from given offsets, waiting for more if there is little.
//!
//! Batches leave as they are stored, shared with whoever read them. The first partition that has any gives one whole
//! batch whatever its size (KIP-74), so that a reader never starves; after it the limits hold. A Fetch that finds less
//! than `min_bytes` waits for an append to one of its partitions, for `max_wait_ms` at most; an error in any partition
//! is answered at once. With read_committed the aborted list is an array, with read_uncommitted it is null. Only
//! consumers fetch here: a follower (`replica_id` ≥ 0) is answered NOT_LEADER_OR_FOLLOWER.
//! v5: log start offset. v7: sessions (KIP-227). v9: leader epochs (KIP-320). v10: zstd. v11: rack (KIP-392; there is one
//! replica to read from). v12: flexible. v13: topic ids (KIP-516). v15: replica state. v16: node endpoints (KIP-951;
//! left out). v17: replica directories. v18: high watermark of the follower, for followers only.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchTopic as AskedTopic, ForgottenTopic};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::fetch_sessions::{Ask, FINAL_EPOCH, Followed, NO_SESSION, Outcome, Plan, TopicKey};
use super::partitions::{self, TopicRef};
use crate::api::{Answer, Call, Reply, Server};
use crate::error::Fault;
use crate::log::{Fetched, Growth, Isolation, Partition, Read, Wake};
use crate::wire::WireError;
use crate::wire::batch::Compression;
use crate::wire::fetch::{FetchPartition, FetchReply, FetchTopic};

/// First version with sessions and an error for the whole.
const WITH_SESSIONS: i16 = 7;
/// First version that names topics by id.
const BY_TOPIC_ID: i16 = 13;
/// First version that may carry zstd (KIP-110).
const WITH_ZSTD: i16 = 10;
/// First version that says who replicates in a tagged field.
const WITH_REPLICA_STATE: i16 = 15;

/// Pause before reading again where the host does not watch.
const UNWATCHED: Duration = Duration::from_millis(100);
/// Pause before counting again after a wake-up that was not enough: many small appends would else wake as often.
const GATHER: Duration = Duration::from_millis(2);

impl Answer for FetchReply {
    fn encode(self, correlation_id: i32, version: i16) -> Result<Reply, WireError> {
        Self::encode(&self, correlation_id, version).map(Reply::Bytes)
    }
}

/// What holds for all partitions of a request.
#[derive(Clone, Copy, Debug)]
struct Terms {
    isolation: Isolation,
    min_bytes: usize,
    max_bytes: usize,
    max_wait: Duration,
    is_follower: bool,
    reads_zstd: bool,
}

pub(crate) async fn handle(server: &Arc<Server>, call: &Call, request: FetchRequest) -> FetchReply {
    let terms = terms(server, call.version, &request);
    let by_id = call.version >= BY_TOPIC_ID;
    let ask = ask(call.version, request);
    let mut plan = match server.fetch_sessions.plan(ask, server.clock.monotonic_ms()) {
        Ok(plan) => plan,
        Err(fault) => return refusal(&fault),
    };
    let opened = open(server, &mut plan, &terms).await;
    let results = read(server, plan.partitions(), opened, &terms).await;

    let partitions = plan.partitions().to_vec();
    let outcomes: Vec<Outcome> = results.iter().map(outcome).collect();
    let random = || i32::try_from(server.clock.random() & 0x7fff_ffff).unwrap_or(1);
    let answered =
        server
            .fetch_sessions
            .answer(plan, by_id, &outcomes, random, server.clock.monotonic_ms());
    match answered {
        Ok((session_id, needed)) => {
            let answers = partitions.into_iter().zip(results).zip(needed);
            let needed = answers
                .filter(|(_, needed)| *needed)
                .map(|(answer, _)| answer);
            reply(server, session_id, terms.isolation, needed)
        }
        Err(fault) => refusal(&fault),
    }
}

/// A reply that refuses the whole request. Versions without a place for the error say nothing of any partition.
pub(crate) fn refusal(fault: &Fault) -> FetchReply {
    FetchReply {
        error_code: fault.code(),
        session_id: NO_SESSION,
        ..FetchReply::default()
    }
}

fn terms(server: &Server, version: i16, request: &FetchRequest) -> Terms {
    let bytes = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
    let max_bytes = bytes(request.max_bytes).min(server.limits.max_fetch_bytes);
    let replica = if version >= WITH_REPLICA_STATE {
        request.replica_state.replica_id
    } else {
        request.replica_id
    };
    Terms {
        isolation: if request.isolation_level == 1 {
            Isolation::ReadCommitted
        } else {
            Isolation::ReadUncommitted
        },
        // More than may be answered would wait in vain.
        min_bytes: bytes(request.min_bytes).min(max_bytes),
        max_bytes,
        max_wait: Duration::from_millis(
            u64::try_from(request.max_wait_ms)
                .unwrap_or(0)
                .min(server.limits.max_fetch_wait_ms),
        ),
        is_follower: replica.0 >= 0,
        reads_zstd: version >= WITH_ZSTD,
    }
}

fn topic_key(version: i16, name: &str, id: Uuid) -> TopicKey {
    if version >= BY_TOPIC_ID {
        TopicKey::Id(id)
    } else {
        TopicKey::Name(name.into())
    }
}

fn ask(version: i16, request: FetchRequest) -> Ask {
    let (id, epoch) = if version >= WITH_SESSIONS {
        (request.session_id, request.session_epoch)
    } else {
        (NO_SESSION, FINAL_EPOCH)
    };
    let followed = |topic: AskedTopic| {
        let key = topic_key(version, &topic.topic, topic.topic_id);
        topic.partitions.into_iter().map(move |partition| {
            Followed::new(
                key.clone(),
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
            )
        })
    };
    let forgotten = |topic: ForgottenTopic| {
        let key = topic_key(version, &topic.topic, topic.topic_id);
        topic
            .partitions
            .into_iter()
            .map(move |partition| (key.clone(), partition))
    };
    Ask {
        id,
        epoch,
        by_id: version >= BY_TOPIC_ID,
        partitions: request.topics.into_iter().flat_map(followed).collect(),
        forgotten: request
            .forgotten_topics_data
            .into_iter()
            .flat_map(forgotten)
            .collect(),
    }
}

/// Opens the partitions of a plan that are not open yet, and notes them in it; answers in its order.
async fn open(
    server: &Server,
    plan: &mut Plan,
    terms: &Terms,
) -> Vec<Result<Arc<Partition>, Fault>> {
    let partitions = plan.partitions_mut();
    if terms.is_follower {
        let fault = || Fault::NotLeader("no broker replicates another here".to_owned());
        return partitions.iter().map(|_| Err(fault())).collect();
    }
    let is_open =
        |partition: &Followed| partition.open.as_ref().is_some_and(|open| open.is_alive());
    let missing: Vec<usize> = partitions
        .iter()
        .enumerate()
        .filter_map(|(place, partition)| (!is_open(partition)).then_some(place))
        .collect();
    let mut faults: Vec<(usize, Fault)> = Vec::new();
    if !missing.is_empty() {
        let wanted: Vec<TopicRef<'_>> = missing
            .iter()
            .filter_map(|place| partitions.get(*place))
            .map(|partition| match &partition.topic {
                TopicKey::Name(name) => TopicRef::Name(name),
                TopicKey::Id(id) => TopicRef::Id(*id),
            })
            .collect();
        let topics = partitions::topics(server, &wanted).await;
        let mut opening = Vec::with_capacity(missing.len());
        let mut places = Vec::with_capacity(missing.len());
        for (place, topic) in missing.into_iter().zip(topics) {
            let number = partitions
                .get(place)
                .map_or(-1, |partition| partition.partition);
            match topic {
                Ok(topic) => {
                    opening.push((topic, number));
                    places.push(place);
                }
                Err(fault) => faults.push((place, fault)),
            }
        }
        for (place, opened) in places
            .into_iter()
            .zip(partitions::open(server, &opening).await)
        {
            match (opened, partitions.get_mut(place)) {
                (Ok(opened), Some(partition)) => partition.open = Some(opened),
                (Err(fault), _) => faults.push((place, fault)),
                (Ok(_), None) => {}
            }
        }
    }
    let mut opened: Vec<Result<Arc<Partition>, Fault>> = partitions
        .iter()
        .map(|partition| match &partition.open {
            Some(open) => partitions::check_leader_epoch(open, partition.leader_epoch)
                .and_then(|()| check_compression(open, terms))
                .map(|()| Arc::clone(open)),
            None => Err(Fault::UnknownTopicOrPartition(String::new())),
        })
        .collect();
    for (place, fault) in faults {
        if let Some(slot) = opened.get_mut(place) {
            *slot = Err(fault);
        }
        if let Some(partition) = partitions.get_mut(place) {
            partition.open = None;
        }
    }
    opened
}

/// A reader that cannot know zstd gets nothing of a topic whose batches are all zstd.
fn check_compression(partition: &Partition, terms: &Terms) -> Result<(), Fault> {
    if !terms.reads_zstd && partition.settings().compression == Some(Compression::Zstd) {
        return Err(Fault::UnsupportedCompression(
            "the topic is compressed with zstd, which this version of Fetch cannot carry"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Reads until there is enough, something is wrong, or the time is over.
async fn read(
    server: &Server,
    partitions: &[Followed],
    opened: Vec<Result<Arc<Partition>, Fault>>,
    terms: &Terms,
) -> Vec<Result<Fetched, Fault>> {
    let deadline = Instant::now() + terms.max_wait;
    let mut waited = false;
    loop {
        // Before the read: what comes in between is counted twice rather than never.
        let marks: Vec<Option<Growth>> = opened
            .iter()
            .map(|opened| opened.as_ref().ok().map(|partition| partition.growth()))
            .collect();
        let results = read_once(server, partitions, &opened, terms).await;
        let found: usize = results.iter().flatten().map(|fetched| fetched.size).sum();
        let enough =
            found >= terms.min_bytes || results.iter().any(Result::is_err) || results.is_empty();
        if enough || Instant::now() >= deadline || *server.closing.borrow() {
            if waited && found > 0 {
                server.metrics.waiting_fetches_triggered.add(1);
            }
            return results;
        }
        let watched: Vec<Watched> = opened
            .iter()
            .zip(&results)
            .zip(marks)
            .filter_map(|((opened, result), mark)| {
                Some(Watched {
                    partition: Arc::clone(opened.as_ref().ok()?),
                    end: result.as_ref().ok()?.high_watermark,
                    mark: mark?,
                })
            })
            .collect();
        drop(results);
        let wanted = u64::try_from(terms.min_bytes - found).unwrap_or(u64::MAX);
        waited = tokio::select! {
            woken = grown(server, watched, wanted) => woken != Wake::Overloaded,
            () = tokio::time::sleep_until(deadline) => false,
            () = server.closed() => false,
        };
        if !waited {
            // Nothing came in time, or nobody may wait: what is there now is the answer.
            return read_once(server, partitions, &opened, terms).await;
        }
    }
}

/// A partition that a Fetch waits for.
struct Watched {
    partition: Arc<Partition>,
    /// Where its end was when it was looked at last.
    end: i64,
    mark: Growth,
}

/// Waits until reading again is worth it: `wanted` bytes have come, or something that only reading can tell of.
async fn grown(server: &Server, mut watched: Vec<Watched>, wanted: u64) -> Wake {
    loop {
        let ends: Vec<(Arc<Partition>, i64)> = watched
            .iter()
            .map(|watched| (Arc::clone(&watched.partition), watched.end))
            .collect();
        let woken = server.logs.wait(&ends).await;
        match woken {
            Wake::Overloaded => return woken,
            Wake::Unwatched => {
                tokio::time::sleep(UNWATCHED).await;
                return woken;
            }
            Wake::Moved if wanted <= 1 => return woken,
            Wake::Moved => tokio::time::sleep(GATHER).await,
        }
        for watched in &mut watched {
            watched.end = watched.partition.high_watermark();
        }
        let counted = watched
            .iter()
            .map(|watched| watched.partition.bytes_since(watched.mark))
            .try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)));
        if counted.is_none_or(|bytes| bytes >= wanted) {
            return woken;
        }
    }
}

async fn read_once(
    server: &Server,
    partitions: &[Followed],
    opened: &[Result<Arc<Partition>, Fault>],
    terms: &Terms,
) -> Vec<Result<Fetched, Fault>> {
    let reads: Vec<Read> = partitions
        .iter()
        .zip(opened)
        .filter_map(|(wanted, opened)| {
            Some(Read {
                partition: Arc::clone(opened.as_ref().ok()?),
                offset: wanted.offset,
                max_bytes: usize::try_from(wanted.max_bytes).unwrap_or(0),
                isolation: terms.isolation,
            })
        })
        .collect();
    if reads.is_empty() {
        return opened.iter().map(|opened| Err(fault_of(opened))).collect();
    }
    let started = Instant::now();
    let mut answers = server
        .logs
        .read(reads, terms.max_bytes, true)
        .await
        .into_iter();
    server.metrics.message_read.observe(started.elapsed());
    opened
        .iter()
        .map(|opened| match opened {
            Ok(_) => answers
                .next()
                .unwrap_or_else(|| Err(Fault::Internal("a read was not answered".to_owned()))),
            Err(_) => Err(fault_of(opened)),
        })
        .collect()
}

fn fault_of(opened: &Result<Arc<Partition>, Fault>) -> Fault {
    match opened {
        Ok(_) => Fault::Internal("a partition was not read".to_owned()),
        Err(fault) => fault.clone(),
    }
}

fn outcome(result: &Result<Fetched, Fault>) -> Outcome {
    match result {
        Ok(fetched) => Outcome {
            error: false,
            has_records: fetched.size > 0,
            high_watermark: fetched.high_watermark,
            log_start_offset: fetched.log_start_offset,
        },
        Err(_) => Outcome {
            error: true,
            ..Outcome::default()
        },
    }
}

fn reply(
    server: &Server,
    session_id: i32,
    isolation: Isolation,
    answers: impl Iterator<Item = (Followed, Result<Fetched, Fault>)>,
) -> FetchReply {
    let mut topics: Vec<(TopicKey, FetchTopic)> = Vec::new();
    for (followed, result) in answers {
        count(server, &followed, &result);
        let answer = partition(followed.partition, result, isolation);
        match topics.last_mut() {
            Some((key, topic)) if *key == followed.topic => topic.partitions.push(answer),
            _ => {
                let (name, topic_id) = match &followed.topic {
                    TopicKey::Name(name) => (StrBytes::from_string(name.to_string()), Uuid::nil()),
                    TopicKey::Id(id) => (StrBytes::default(), *id),
                };
                topics.push((
                    followed.topic,
                    FetchTopic {
                        name,
                        topic_id,
                        partitions: vec![answer],
                    },
                ));
            }
        }
    }
    FetchReply {
        session_id,
        topics: topics.into_iter().map(|(_, topic)| topic).collect(),
        ..FetchReply::default()
    }
}

fn partition(number: i32, result: Result<Fetched, Fault>, isolation: Isolation) -> FetchPartition {
    match result {
        Ok(fetched) => FetchPartition {
            partition: number,
            high_watermark: fetched.high_watermark,
            last_stable_offset: fetched.last_stable_offset,
            log_start_offset: fetched.log_start_offset,
            aborted: (isolation == Isolation::ReadCommitted).then(|| {
                fetched
                    .aborted
                    .iter()
                    .map(|a| (a.producer_id, a.first_offset))
                    .collect()
            }),
            records: fetched.records,
            ..FetchPartition::default()
        },
        Err(fault) => FetchPartition {
            partition: number,
            error_code: fault.code(),
            ..FetchPartition::default()
        },
    }
}

fn count(server: &Server, followed: &Followed, result: &Result<Fetched, Fault>) {
    let fetched = match result {
        Ok(fetched) if fetched.size > 0 => fetched,
        _ => return,
    };
    let metrics = match &followed.topic {
        TopicKey::Name(name) => server.metrics.partition(name, followed.partition),
        TopicKey::Id(id) => match server.topics.cached_by_id(*id) {
            Some(topic) => server.metrics.partition(&topic.name, followed.partition),
            None => return,
        },
    };
    metrics.bytes_out.add(fetched.size as u64);
    metrics.entries_out.add(fetched.batches);
    metrics.messages_out.add(fetched.record_count);
}
