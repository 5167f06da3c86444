//! DeleteRecords (key 21), versions 0 to 2.
//!
//! Moves the first offset of partitions up: to any offset up to the high watermark, or to the high watermark by −1.

use std::sync::Arc;

use futures_util::future::join_all;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::{deadline, until};
use crate::api::{Call, Server};
use crate::error::Fault;
use crate::topics::Topic;

/// What the reply carries where nothing was deleted.
const NO_LOW_WATERMARK: i64 = -1;

pub(crate) async fn handle(
    server: &Arc<Server>,
    _call: &Call,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let names: Vec<&str> = request
        .topics
        .iter()
        .map(|topic| topic.name.as_str())
        .collect();
    let found = server.topics.by_names(&names).await;
    let deadline = deadline(request.timeout_ms);
    let topics = request
        .topics
        .into_iter()
        .zip(found)
        .map(|(topic, found)| async move {
            let partitions = topic.partitions.iter().map(|partition| {
                let found = &found;
                async move {
                    let work = async {
                        let found = found.as_ref().map_err(Clone::clone)?;
                        delete(server, found, partition.partition_index, partition.offset).await
                    };
                    let reply = DeleteRecordsPartitionResult::default()
                        .with_partition_index(partition.partition_index);
                    match until(deadline, work).await {
                        Ok(low_watermark) => reply.with_low_watermark(low_watermark),
                        Err(fault) => reply
                            .with_low_watermark(NO_LOW_WATERMARK)
                            .with_error_code(fault.code()),
                    }
                }
            });
            let partitions = join_all(partitions).await;
            DeleteRecordsTopicResult::default()
                .with_name(topic.name)
                .with_partitions(partitions)
        });
    DeleteRecordsResponse::default().with_topics(join_all(topics).await)
}

async fn delete(
    server: &Arc<Server>,
    topic: &Topic,
    index: i32,
    offset: i64,
) -> Result<i64, Fault> {
    if topic.internal {
        return Err(Fault::InvalidTopic(format!(
            "The topic '{}' is internal: groups live in its records.",
            topic.name
        )));
    }
    let name = topic.partition(index).ok_or_else(|| {
        Fault::UnknownTopicOrPartition(format!("{} has no partition {index}", topic.name))
    })?;
    let opened = server.logs.open(&[&name]).await;
    let partition = opened
        .into_iter()
        .next()
        .ok_or_else(|| Fault::Internal(String::new()))??;
    let before = match offset {
        -1 => partition.high_watermark(),
        offset => offset,
    };
    if before < 0 || before > partition.high_watermark() {
        return Err(Fault::OffsetOutOfRange(String::new()));
    }
    partition.delete_records(before).await
}
