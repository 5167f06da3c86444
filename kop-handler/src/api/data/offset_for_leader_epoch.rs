//! OffsetForLeaderEpoch (key 23), versions 2–4: where a leader's epoch ends (KIP-320).
//!
//! A partition has one epoch for ever, or none that is known, because no replica of it can diverge from another: the
//! managed ledger is the only copy that clients see. That epoch ends at the high watermark; an older or newer one is not
//! known. On a host of several brokers none is known, clients are given none, and who asks for one all the same (it
//! may be from another cluster) hears that nothing was cut off.
//! v3: replica id, current leader epoch checked. v4: flexible.

use std::sync::Arc;

use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::partitions;
use crate::api::{Call, Server};
use crate::error::Fault;

pub(crate) async fn handle(
    server: &Arc<Server>,
    _call: &Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let asked: Vec<(&str, Vec<i32>)> = request
        .topics
        .iter()
        .map(|topic| {
            let numbers = topic.partitions.iter().map(|asked| asked.partition);
            (topic.topic.as_str(), numbers.collect())
        })
        .collect();
    let opened = partitions::open_named(server, &asked).await;
    let results = request
        .topics
        .into_iter()
        .zip(opened)
        .map(|(asked, opened)| {
            let ends = asked
                .partitions
                .iter()
                .zip(opened)
                .map(|(partition, found)| {
                    let end = found.and_then(|found| {
                        partitions::check_leader_epoch(&found, partition.current_leader_epoch)?;
                        let end = found.end_of_epoch(partition.leader_epoch);
                        Ok(end.map(|end| (partition.leader_epoch, end)))
                    });
                    answer(partition.partition, end)
                });
            let ends = ends.collect();
            OffsetForLeaderTopicResult::default()
                .with_topic(asked.topic)
                .with_partitions(ends)
        });
    let results = results.collect();
    OffsetForLeaderEpochResponse::default().with_topics(results)
}

/// The same fault for every partition.
pub(crate) fn refusal(
    request: OffsetForLeaderEpochRequest,
    fault: &Fault,
) -> OffsetForLeaderEpochResponse {
    let results = request.topics.into_iter().map(|topic| {
        let ends = topic
            .partitions
            .iter()
            .map(|partition| answer(partition.partition, Err(fault.clone())));
        let ends = ends.collect();
        OffsetForLeaderTopicResult::default()
            .with_topic(topic.topic)
            .with_partitions(ends)
    });
    OffsetForLeaderEpochResponse::default().with_topics(results.collect())
}

fn answer(partition: i32, end: Result<Option<(i32, i64)>, Fault>) -> EpochEndOffset {
    let (code, (epoch, offset)) = match end {
        Ok(end) => (0, end.unwrap_or((-1, -1))),
        Err(fault) => (fault.code(), (-1, -1)),
    };
    EpochEndOffset::default()
        .with_partition(partition)
        .with_error_code(code)
        .with_leader_epoch(epoch)
        .with_end_offset(offset)
}
