//! ListOffsets (key 2), versions 1–10: the first, the last, or a record's offset by time.
//!
//! By time: the first *record* whose timestamp is the target or later, with its own timestamp; none is offset −1
//! without an error. Control batches do not count. A reader of committed records sees nothing beyond the last stable
//! offset. Special targets: −1 latest, −2 earliest, −3 largest timestamp (v7, KIP-734), −4 earliest local (v8,
//! KIP-405: all is local, so the earliest), −5 latest tiered (v9: nothing is tiered, so −1).
//! v2: isolation level. v4: leader epochs (KIP-320). v6: flexible. v10: timeout (KIP-1075; `requestTimeoutMs` rules here).

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::partitions;
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::log::{Isolation, Partition, TimestampOffset};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// Partitions that are searched at once.
const SEARCHES_AT_ONCE: usize = 32;

/// An offset as it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    offset: i64,
    timestamp: i64,
    leader_epoch: i32,
}

impl Found {
    const NONE: Self = Self {
        offset: -1,
        timestamp: -1,
        leader_epoch: -1,
    };
}

/// One partition of the request.
struct Asked {
    index: i32,
    current_leader_epoch: i32,
    target: i64,
    partition: Result<Arc<Partition>, Fault>,
}

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = if request.isolation_level == 1 {
        Isolation::ReadCommitted
    } else {
        Isolation::ReadUncommitted
    };
    let asked = open(server, &request).await;
    let mut found = Vec::new();
    let all: Vec<&Asked> = asked.iter().flatten().collect();
    for some in all.chunks(SEARCHES_AT_ONCE) {
        found.extend(
            join_all(
                some.iter()
                    .map(|asked| find(asked, call.version, isolation)),
            )
            .await,
        );
    }
    let mut found = found.into_iter();
    let topics = request
        .topics
        .into_iter()
        .zip(&asked)
        .map(|(topic, asked)| {
            let partitions = asked
                .iter()
                .zip(found.by_ref())
                .map(|(asked, found)| answer(asked.index, call.version, found))
                .collect();
            ListOffsetsTopicResponse::default()
                .with_name(topic.name)
                .with_partitions(partitions)
        });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

/// The same fault for every partition.
pub(crate) fn refusal(
    request: ListOffsetsRequest,
    version: i16,
    fault: &Fault,
) -> ListOffsetsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic
            .partitions
            .iter()
            .map(|partition| answer(partition.partition_index, version, Err(fault.clone())))
            .collect();
        ListOffsetsTopicResponse::default()
            .with_name(topic.name)
            .with_partitions(partitions)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

async fn open(server: &Server, request: &ListOffsetsRequest) -> Vec<Vec<Asked>> {
    let named: Vec<(&str, Vec<i32>)> = request
        .topics
        .iter()
        .map(|topic| {
            let numbers = topic.partitions.iter().map(|asked| asked.partition_index);
            (topic.name.as_str(), numbers.collect())
        })
        .collect();
    let mut times: HashMap<(&str, i32), u32> = HashMap::new();
    for (topic, numbers) in &named {
        for number in numbers {
            *times.entry((topic, *number)).or_default() += 1;
        }
    }
    let opened = partitions::open_named(server, &named).await;
    let topics = request.topics.iter().zip(opened);
    topics
        .map(|(topic, opened)| {
            let asked = topic.partitions.iter().zip(opened);
            asked
                .map(|(partition, found)| {
                    let twice = times
                        .get(&(topic.name.as_str(), partition.partition_index))
                        .is_some_and(|times| *times > 1);
                    Asked {
                        index: partition.partition_index,
                        current_leader_epoch: partition.current_leader_epoch,
                        target: partition.timestamp,
                        partition: if twice {
                            Err(Fault::InvalidRequest(
                                "a partition is named twice".to_owned(),
                            ))
                        } else {
                            found
                        },
                    }
                })
                .collect()
        })
        .collect()
}

async fn find(asked: &Asked, version: i16, isolation: Isolation) -> Result<Found, Fault> {
    if !is_offered(asked.target, version) {
        return Err(Fault::UnsupportedVersion(String::new()));
    }
    let partition = asked.partition.as_ref().map_err(Clone::clone)?;
    partitions::check_leader_epoch(partition, asked.current_leader_epoch)?;
    let at = |offset| Found {
        offset,
        timestamp: -1,
        leader_epoch: partition.leader_epoch(),
    };
    let end = match isolation {
        Isolation::ReadCommitted => partition.last_stable_offset(),
        Isolation::ReadUncommitted => partition.high_watermark(),
    };
    let record = |found: Option<TimestampOffset>| {
        found
            .filter(|found| found.offset < end)
            .map_or(Found::NONE, |found| Found {
                offset: found.offset,
                timestamp: found.timestamp_ms,
                leader_epoch: partition.leader_epoch(),
            })
    };
    Ok(match asked.target {
        LATEST => at(end),
        EARLIEST | EARLIEST_LOCAL => at(partition.log_start_offset()),
        LATEST_TIERED => Found::NONE,
        MAX_TIMESTAMP => record(partition.max_timestamp().await?),
        target => record(partition.offset_for_time(target).await?),
    })
}

/// Whether a version knows a target.
const fn is_offered(target: i64, version: i16) -> bool {
    match target {
        0.. | LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        _ => false,
    }
}

fn answer(index: i32, version: i16, found: Result<Found, Fault>) -> ListOffsetsPartitionResponse {
    let response = ListOffsetsPartitionResponse::default().with_partition_index(index);
    let (code, found) = match found {
        Ok(found) => (0, found),
        Err(fault) => (fault.code(), Found::NONE),
    };
    let response = response
        .with_error_code(code)
        .with_offset(found.offset)
        .with_timestamp(found.timestamp);
    if version >= 4 {
        response.with_leader_epoch(found.leader_epoch)
    } else {
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_targets_are_offered_from_their_versions_on() {
        let first = |target| (1..=10).find(|version| is_offered(target, *version));
        let firsts: Vec<Option<i16>> = (-7..=0).map(first).collect();
        assert_eq!(
            firsts,
            [
                None,
                None,
                Some(9),
                Some(8),
                Some(7),
                Some(1),
                Some(1),
                Some(1)
            ]
        );
        assert_eq!(first(i64::MIN), None);
    }
}
