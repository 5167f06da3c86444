//! DescribeLogDirs (key 35), versions 1 to 4.
//!
//! One log directory: the host's storage. It lists the partitions that this broker leads, with the bytes that the host
//! stores for them; their replicas beneath are the host's business.
//!
//! v3: an error of the whole. v4: size of the volume (KIP-827).

use std::collections::HashMap;
use std::sync::Arc;

use handler_api::ledger::StorageUse;
use handler_api::topics::TopicNames;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};

use super::text;
use crate::api::{Call, Server};
use crate::error::Fault;

/// What a host is called that does not say where its data lies.
const UNNAMED: &str = "pulsar";

/// A partition that is asked for: topic, number, full Pulsar name.
type Asked = (TopicName, i32, String);

pub(crate) async fn handle(
    server: &Arc<Server>,
    call: &Call,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    match describe(server, call, request.topics).await {
        Ok(result) => DescribeLogDirsResponse::default().with_results(vec![result]),
        Err(fault) => {
            let reply = DescribeLogDirsResponse::default();
            if call.version >= 3 {
                return reply.with_error_code(fault.code());
            }
            let result = DescribeLogDirsResult::default()
                .with_error_code(fault.code())
                .with_log_dir(text(UNNAMED));
            reply.with_results(vec![result])
        }
    }
}

async fn describe(
    server: &Arc<Server>,
    call: &Call,
    topics: Option<Vec<DescribableLogDirTopic>>,
) -> Result<DescribeLogDirsResult, Fault> {
    let asked = asked(server, topics).await?;
    let names: Vec<String> = asked.iter().map(|(_, _, name)| name.clone()).collect();
    let local = server.topics.are_local(&names).await?;
    let asked: Vec<Asked> = asked
        .into_iter()
        .zip(local)
        .filter_map(|(partition, local)| local.then_some(partition))
        .collect();
    let names = TopicNames {
        names: asked.iter().map(|(_, _, name)| name.clone()).collect(),
    };
    let storage = server.host.control::<StorageUse>(&names).await?;
    let mut places: HashMap<TopicName, usize> = HashMap::new();
    let mut reply: Vec<DescribeLogDirsTopic> = Vec::new();
    for ((topic, index, _), bytes) in asked.into_iter().zip(storage.bytes) {
        let partition = DescribeLogDirsPartition::default()
            .with_partition_index(index)
            .with_partition_size(i64::try_from(bytes).unwrap_or(i64::MAX));
        let place = *places.entry(topic.clone()).or_insert_with(|| {
            reply.push(DescribeLogDirsTopic::default().with_name(topic));
            reply.len() - 1
        });
        if let Some(topic) = reply.get_mut(place) {
            topic.partitions.push(partition);
        }
    }
    let location = if storage.location.is_empty() {
        UNNAMED
    } else {
        &storage.location
    };
    let result = DescribeLogDirsResult::default()
        .with_log_dir(text(location))
        .with_topics(reply);
    if call.version < 4 {
        return Ok(result);
    }
    let known = storage.total_bytes > 0;
    let size = |bytes: u64| {
        if known {
            i64::try_from(bytes).unwrap_or(i64::MAX)
        } else {
            -1
        }
    };
    Ok(result
        .with_total_bytes(size(storage.total_bytes))
        .with_usable_bytes(size(storage.usable_bytes)))
}

/// The partitions that a request means; unknown ones are left out, as by Kafka.
async fn asked(
    server: &Arc<Server>,
    topics: Option<Vec<DescribableLogDirTopic>>,
) -> Result<Vec<Asked>, Fault> {
    let Some(topics) = topics else {
        let topics = server.topics.list().await?;
        return Ok(topics
            .iter()
            .flat_map(|topic| {
                let name = TopicName(text(topic.name.clone()));
                (0..)
                    .zip(topic.partition_names())
                    .map(move |(index, full)| (name.clone(), index, full))
            })
            .collect());
    };
    let names: Vec<&str> = topics.iter().map(|topic| topic.topic.as_str()).collect();
    let found = server.topics.by_names(&names).await;
    let mut asked = Vec::new();
    for (topic, found) in topics.into_iter().zip(found) {
        let Ok(found) = found else { continue };
        for index in topic.partitions {
            if let Some(full_name) = found.partition(index) {
                asked.push((topic.topic.clone(), index, full_name));
            }
        }
    }
    Ok(asked)
}
