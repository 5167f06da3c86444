//! Produce (key 0), versions 3–13: appends one record batch per partition.
//!
//! Each partition has an answer of its own; what is wrong with one does not touch the others. acks 1 and −1 both wait
//! until the batch is as durable as the host is set up to make it. With acks=0 there is no reply, and a failure closes
//! the connection, as in Kafka. Batches of one connection are handed over in the order of their requests, also when a
//! partition must be opened first. Until transactions are built, a transactional id is refused with INVALID_RECORD.
//! v7: zstd (KIP-110). v8: record errors and a message (KIP-467). v9: flexible. v10: current leader (KIP-951; left
//! out: clients learn leaders from Metadata). v11, v12: transactions (KIP-890). v13: topic ids instead of names (KIP-516).

use std::sync::Arc;

use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::partitions::{self, TopicRef};
use crate::api::{Answer, Call, Reply, Server};
use crate::error::Fault;
use crate::log::{Append, AppendInfo, Origin, Rejection};
use crate::topics::Topic;
use crate::wire::WireError;

/// First version that has record errors and a message.
const WITH_ERRORS: i16 = 8;
/// First version that names topics by id.
const BY_TOPIC_ID: i16 = 13;

/// The answer to a Produce.
#[derive(Debug)]
pub(crate) enum Produced {
    /// acks ≠ 0.
    Answer(ProduceResponse),
    /// acks = 0 and everything was appended.
    Silent,
    /// acks = 0 and something was not.
    SilentFailure,
}

impl Answer for Produced {
    fn encode(self, correlation_id: i32, version: i16) -> Result<Reply, WireError> {
        match self {
            Self::Answer(response) => response.encode(correlation_id, version),
            Self::Silent => Ok(Reply::Silent),
            Self::SilentFailure => Ok(Reply::Close),
        }
    }
}

/// One partition of the request: where its answer goes, and what becomes of it.
struct Share {
    topic: Option<Arc<Topic>>,
    index: i32,
    bytes: usize,
    result: Result<AppendInfo, Rejection>,
}

pub(crate) async fn handle(server: &Arc<Server>, call: &Call, request: ProduceRequest) -> Produced {
    let (acks, version) = (request.acks, call.version);
    let refused = if !(-1..=1).contains(&acks) {
        Some(Fault::InvalidRequiredAcks(String::new()))
    } else if request.transactional_id.is_some() {
        Some(Fault::InvalidRecord(
            "transactions are not built yet: produce without a transactional id".to_owned(),
        ))
    } else {
        None
    };
    let shares = match &refused {
        Some(fault) => refuse(&request, fault),
        None => append(server, call, &request).await,
    };
    respond(&request, version, shares)
}

/// The same fault for every partition.
pub(crate) fn refusal(request: &ProduceRequest, version: i16, fault: &Fault) -> Produced {
    respond(request, version, refuse(request, fault))
}

fn respond(request: &ProduceRequest, version: i16, shares: Vec<Vec<Share>>) -> Produced {
    if request.acks == 0 {
        let failed = shares.iter().flatten().any(|share| share.result.is_err());
        return if failed {
            Produced::SilentFailure
        } else {
            Produced::Silent
        };
    }
    let responses = request
        .topic_data
        .iter()
        .zip(shares)
        .map(|(topic, shares)| {
            let answers = shares
                .into_iter()
                .map(|share| answer(share, version))
                .collect();
            let response = TopicProduceResponse::default().with_partition_responses(answers);
            if version >= BY_TOPIC_ID {
                response.with_topic_id(topic.topic_id)
            } else {
                response.with_name(topic.name.clone())
            }
        });
    Produced::Answer(ProduceResponse::default().with_responses(responses.collect()))
}

fn refuse(request: &ProduceRequest, fault: &Fault) -> Vec<Vec<Share>> {
    request
        .topic_data
        .iter()
        .map(|topic| {
            topic
                .partition_data
                .iter()
                .map(|data| Share {
                    topic: None,
                    index: data.index,
                    bytes: 0,
                    result: Err(fault.clone().into()),
                })
                .collect()
        })
        .collect()
}

/// Opens the partitions, hands all batches over in one call, and waits until they are durable. Answers in the order of
/// the request.
async fn append(server: &Arc<Server>, call: &Call, request: &ProduceRequest) -> Vec<Vec<Share>> {
    // Held until the batches are handed over: requests that come later wait for it, in their order.
    let turn = call.connection.produce_turn.lock().await;
    let started = Instant::now();
    let wanted: Vec<TopicRef<'_>> = request
        .topic_data
        .iter()
        .map(|topic| {
            if call.version >= BY_TOPIC_ID {
                TopicRef::Id(topic.topic_id)
            } else {
                TopicRef::Name(&topic.name)
            }
        })
        .collect();
    let topics = partitions::topics(server, &wanted).await;
    let mut shares: Vec<Vec<Share>> = Vec::with_capacity(topics.len());
    // Where the answer of each batch to open a partition for goes.
    let mut opening = Vec::new();
    for (topic, data) in topics.into_iter().zip(&request.topic_data) {
        let topic = topic.and_then(|topic| {
            if topic.internal {
                Err(Fault::InvalidTopic(format!(
                    "{} is internal: clients may not write to it",
                    topic.name
                )))
            } else {
                Ok(topic)
            }
        });
        let mut of_topic = Vec::with_capacity(data.partition_data.len());
        for data in &data.partition_data {
            let result = match &topic {
                Ok(topic) => {
                    opening.push((Arc::clone(topic), data.index));
                    Err(Fault::Internal("the batch was not answered".to_owned()))
                }
                Err(fault) => Err(fault.clone()),
            };
            of_topic.push(Share {
                topic: topic.as_ref().ok().cloned(),
                index: data.index,
                bytes: data.records.as_ref().map_or(0, |records| records.len()),
                result: result.map_err(Rejection::from),
            });
        }
        shares.push(of_topic);
    }
    let opened = partitions::open(server, &opening).await;
    server
        .metrics
        .pending_topic_latency
        .observe(started.elapsed());

    let origin = Origin::Client {
        version: call.version,
    };
    let mut appends = Vec::with_capacity(opened.len());
    let mut appended = Vec::with_capacity(opened.len());
    let batches = request
        .topic_data
        .iter()
        .flat_map(|topic| &topic.partition_data);
    let mut opened = opened.into_iter();
    for (share, data) in shares.iter_mut().flatten().zip(batches) {
        if share.topic.is_none() {
            continue;
        }
        match opened.next() {
            Some(Ok(partition)) => {
                // A missing batch is an empty one: the log refuses both alike.
                let records = data.records.clone().unwrap_or_default();
                appends.push(Append {
                    partition,
                    records,
                    origin,
                });
                appended.push(share);
            }
            Some(Err(fault)) => share.result = Err(fault.into()),
            None => {}
        }
    }
    let handed_over = Instant::now();
    let durable = server.logs.append(appends);
    drop(turn);
    for (share, result) in appended.into_iter().zip(durable.await) {
        share.result = result;
    }
    server
        .metrics
        .message_publish
        .observe(handed_over.elapsed());
    count(server, &shares);
    shares
}

fn count(server: &Server, shares: &[Vec<Share>]) {
    for share in shares.iter().flatten() {
        if let (Some(topic), Ok(info)) = (&share.topic, &share.result) {
            let metrics = server.metrics.partition(&topic.name, share.index);
            metrics.bytes_in.add(share.bytes as u64);
            let records = info
                .last_offset
                .saturating_sub(info.base_offset)
                .saturating_add(1);
            metrics.messages_in.add(u64::try_from(records).unwrap_or(0));
        }
    }
}

fn answer(share: Share, version: i16) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(share.index);
    match share.result {
        Ok(info) => response
            .with_base_offset(info.base_offset)
            .with_log_append_time_ms(info.log_append_time_ms)
            .with_log_start_offset(info.log_start_offset),
        Err(Rejection { fault, records }) => {
            let response = response
                .with_error_code(fault.code())
                .with_base_offset(-1)
                .with_log_append_time_ms(-1);
            if version < WITH_ERRORS {
                return response;
            }
            let records = records.into_iter().map(|record| {
                BatchIndexAndErrorMessage::default()
                    .with_batch_index(record.index)
                    .with_batch_index_error_message(Some(StrBytes::from_string(record.message)))
            });
            response
                .with_record_errors(records.collect())
                .with_error_message(Some(StrBytes::from_string(fault.to_string())))
        }
    }
}
