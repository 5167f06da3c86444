//! Replies to requests whose handler panicked or ran out of time: the API's own layout, with the error in every place
//! that a client looks at.
//!
//! Where a version has no place for an error (an old Fetch, a Metadata of all topics), the connection is closed
//! instead, which every client survives. It must not know handlers.

use bytes::Bytes;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use kafka_protocol::messages::describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as Altered;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, StrBytes};

use super::data::{
    describe_producers, fetch, init_producer_id, list_offsets, offset_for_leader_epoch, produce,
};
use super::group::{
    delete_groups, describe_groups, find_coordinator, join_group, offset_commit, offset_fetch,
};
use super::{Answer, Reply};
use crate::error::Fault;
use crate::wire::WireError;
use crate::wire::request::decode;

/// The reply that tells of `fault`.
///
/// # Errors
/// What the decoding of the body or the encoding of the reply says.
pub(crate) fn reply(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &Bytes,
    fault: &Fault,
) -> Result<Reply, WireError> {
    let refusal = Refusal {
        version,
        correlation_id,
        body,
        fault,
    };
    match key {
        ApiKey::Produce => refusal
            .answer(|request: ProduceRequest| Some(produce::refusal(&request, version, fault))),
        ApiKey::Fetch => refusal.of_waiting((version >= 7).then(|| fetch::refusal(fault))),
        ApiKey::ListOffsets => {
            refusal.answer(|request| Some(list_offsets::refusal(request, version, fault)))
        }
        ApiKey::InitProducerId => {
            refusal.answer(|_: InitProducerIdRequest| Some(init_producer_id::refusal(fault)))
        }
        ApiKey::OffsetForLeaderEpoch => {
            refusal.answer(|request| Some(offset_for_leader_epoch::refusal(request, fault)))
        }
        ApiKey::DescribeProducers => {
            refusal.answer(|request| Some(describe_producers::refusal(request, fault)))
        }
        ApiKey::Metadata => refusal.answer(|request| metadata(request, version, fault)),
        ApiKey::OffsetCommit => {
            refusal.answer(|request| Some(offset_commit::refusal(&request, fault.code())))
        }
        ApiKey::OffsetFetch => refusal.answer(|request| {
            Some(offset_fetch::refusal(
                request,
                version,
                fault.response_error(),
            ))
        }),
        ApiKey::FindCoordinator => {
            refusal.answer(|request| Some(find_coordinator::refusal(request, version, fault)))
        }
        ApiKey::DescribeGroups => {
            refusal.answer(|request| Some(describe_groups::refusal(request, fault.code())))
        }
        ApiKey::DeleteGroups => {
            refusal.answer(|request| Some(delete_groups::refusal(request, fault.code())))
        }
        ApiKey::CreateTopics => {
            refusal.answer(|request| Some(create_topics(request, version, fault)))
        }
        ApiKey::DeleteTopics => {
            refusal.answer(|request| Some(delete_topics(request, version, fault)))
        }
        ApiKey::DeleteRecords => refusal.answer(|request| Some(delete_records(request, fault))),
        ApiKey::CreatePartitions => {
            refusal.answer(|request| Some(create_partitions(request, fault)))
        }
        ApiKey::DescribeConfigs => refusal.answer(|request| Some(describe_configs(request, fault))),
        ApiKey::AlterConfigs => refusal.answer(|request| Some(alter_configs(request, fault))),
        ApiKey::IncrementalAlterConfigs => {
            refusal.answer(|request| Some(incremental_alter_configs(request, fault)))
        }
        ApiKey::DescribeLogDirs => {
            refusal.answer(|_: DescribeLogDirsRequest| Some(describe_log_dirs(version, fault)))
        }
        ApiKey::DescribeTopicPartitions => {
            refusal.answer(|request| Some(describe_topic_partitions(request, fault)))
        }
        ApiKey::LeaveGroup => refusal.answer(|_: LeaveGroupRequest| {
            Some(LeaveGroupResponse::default().with_error_code(fault.code()))
        }),
        ApiKey::JoinGroup => refusal.of_waiting(Some(join_group::refusal(version, fault.code()))),
        key => refusal.whole(key),
    }
}

struct Refusal<'a> {
    version: i16,
    correlation_id: i32,
    body: &'a Bytes,
    fault: &'a Fault,
}

impl Refusal<'_> {
    /// Builds the reply from the request; `None` closes the connection.
    fn answer<Q: Request, A: Answer>(
        &self,
        build: impl FnOnce(Q) -> Option<A>,
    ) -> Result<Reply, WireError> {
        self.of_waiting(build(decode(self.version, self.body)?))
    }

    /// The reply to an API that waits: its body is not kept, so that the reply names nothing of it.
    fn of_waiting(&self, answer: Option<impl Answer>) -> Result<Reply, WireError> {
        match answer {
            Some(answer) => Answer::encode(answer, self.correlation_id, self.version),
            None => Ok(Reply::Close),
        }
    }

    /// APIs whose reply has one error for the whole, and nothing else that must be filled.
    fn whole(&self, key: ApiKey) -> Result<Reply, WireError> {
        macro_rules! whole {
            ($($key:ident => $response:ident,)+) => {
                match key {
                    $(ApiKey::$key => Answer::encode(
                        $response::default().with_error_code(self.fault.code()),
                        self.correlation_id,
                        self.version,
                    ),)+
                    _ => Ok(Reply::Close),
                }
            };
        }
        whole! {
            SyncGroup => SyncGroupResponse,
            Heartbeat => HeartbeatResponse,
            ListGroups => ListGroupsResponse,
            OffsetDelete => OffsetDeleteResponse,
            SaslHandshake => SaslHandshakeResponse,
            SaslAuthenticate => SaslAuthenticateResponse,
            ApiVersions => ApiVersionsResponse,
            ElectLeaders => ElectLeadersResponse,
            AlterPartitionReassignments => AlterPartitionReassignmentsResponse,
            ListPartitionReassignments => ListPartitionReassignmentsResponse,
            DescribeCluster => DescribeClusterResponse,
            ListConfigResources => ListConfigResourcesResponse,
        }
    }
}

fn text(fault: &Fault) -> Option<StrBytes> {
    Some(StrBytes::from_string(fault.to_string()))
}

fn metadata(request: MetadataRequest, version: i16, fault: &Fault) -> Option<MetadataResponse> {
    let response = MetadataResponse::default();
    let response = if version >= 13 {
        response.with_error_code(fault.code())
    } else {
        response
    };
    // Up to version 0 an empty list asks for all topics, later none at all.
    let named = request
        .topics
        .filter(|topics| version > 0 || !topics.is_empty());
    if named.is_none() && version < 13 {
        return None;
    }
    let topics = named.unwrap_or_default().into_iter().map(|topic| {
        MetadataResponseTopic::default()
            .with_name(
                topic
                    .name
                    .or_else(|| (version < 12).then(TopicName::default)),
            )
            .with_topic_id(topic.topic_id)
            .with_error_code(fault.code())
    });
    Some(response.with_topics(topics.collect()))
}

fn create_topics(
    request: CreateTopicsRequest,
    version: i16,
    fault: &Fault,
) -> CreateTopicsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let topic = CreatableTopicResult::default()
            .with_name(topic.name)
            .with_error_code(fault.code())
            .with_error_message(text(fault));
        if version >= 5 {
            topic.with_configs(None)
        } else {
            topic
        }
    });
    CreateTopicsResponse::default().with_topics(topics.collect())
}

fn delete_topics(
    request: DeleteTopicsRequest,
    version: i16,
    fault: &Fault,
) -> DeleteTopicsResponse {
    let refused = |name: Option<TopicName>| {
        let result = DeletableTopicResult::default()
            .with_name(name)
            .with_error_code(fault.code());
        if version >= 5 {
            result.with_error_message(text(fault))
        } else {
            result
        }
    };
    let by_name = request
        .topic_names
        .into_iter()
        .map(|name| refused(Some(name)));
    let by_state = request
        .topics
        .into_iter()
        .map(|topic| refused(topic.name).with_topic_id(topic.topic_id));
    DeleteTopicsResponse::default().with_responses(by_name.chain(by_state).collect())
}

fn delete_records(request: DeleteRecordsRequest, fault: &Fault) -> DeleteRecordsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            DeleteRecordsPartitionResult::default()
                .with_partition_index(partition.partition_index)
                .with_low_watermark(-1)
                .with_error_code(fault.code())
        });
        let partitions = partitions.collect();
        DeleteRecordsTopicResult::default()
            .with_name(topic.name)
            .with_partitions(partitions)
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}

fn create_partitions(request: CreatePartitionsRequest, fault: &Fault) -> CreatePartitionsResponse {
    let results = request.topics.into_iter().map(|topic| {
        CreatePartitionsTopicResult::default()
            .with_name(topic.name)
            .with_error_code(fault.code())
            .with_error_message(text(fault))
    });
    CreatePartitionsResponse::default().with_results(results.collect())
}

fn describe_configs(request: DescribeConfigsRequest, fault: &Fault) -> DescribeConfigsResponse {
    let results = request.resources.into_iter().map(|resource| {
        DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
            .with_error_code(fault.code())
            .with_error_message(text(fault))
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn alter_configs(request: AlterConfigsRequest, fault: &Fault) -> AlterConfigsResponse {
    let responses = request.resources.into_iter().map(|resource| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
            .with_error_code(fault.code())
            .with_error_message(text(fault))
    });
    AlterConfigsResponse::default().with_responses(responses.collect())
}

fn incremental_alter_configs(
    request: IncrementalAlterConfigsRequest,
    fault: &Fault,
) -> IncrementalAlterConfigsResponse {
    let responses = request.resources.into_iter().map(|resource| {
        Altered::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
            .with_error_code(fault.code())
            .with_error_message(text(fault))
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

fn describe_log_dirs(version: i16, fault: &Fault) -> DescribeLogDirsResponse {
    let response = DescribeLogDirsResponse::default();
    if version >= 3 {
        return response.with_error_code(fault.code());
    }
    response.with_results(vec![
        DescribeLogDirsResult::default().with_error_code(fault.code()),
    ])
}

fn describe_topic_partitions(
    request: DescribeTopicPartitionsRequest,
    fault: &Fault,
) -> DescribeTopicPartitionsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        DescribeTopicPartitionsResponseTopic::default()
            .with_name(Some(topic.name))
            .with_error_code(fault.code())
    });
    DescribeTopicPartitionsResponse::default().with_topics(topics.collect())
}

#[cfg(test)]
#[path = "refuse_tests.rs"]
mod tests;
