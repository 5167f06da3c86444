//! The codec, called by API key.

use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, VersionRange};
use kop_handler::wire::request;

/// Runs a generic function with the request type of an API key.
macro_rules! by_key {
    ($key:expr, $function:ident($($argument:expr),*)) => {
        by_key!(@ $key, $function($($argument),*);
            ProduceRequest FetchRequest ListOffsetsRequest MetadataRequest OffsetCommitRequest OffsetFetchRequest FindCoordinatorRequest JoinGroupRequest HeartbeatRequest LeaveGroupRequest SyncGroupRequest DescribeGroupsRequest ListGroupsRequest SaslHandshakeRequest ApiVersionsRequest CreateTopicsRequest DeleteTopicsRequest DeleteRecordsRequest InitProducerIdRequest OffsetForLeaderEpochRequest AddPartitionsToTxnRequest AddOffsetsToTxnRequest EndTxnRequest WriteTxnMarkersRequest TxnOffsetCommitRequest DescribeAclsRequest CreateAclsRequest DeleteAclsRequest DescribeConfigsRequest AlterConfigsRequest AlterReplicaLogDirsRequest DescribeLogDirsRequest SaslAuthenticateRequest CreatePartitionsRequest CreateDelegationTokenRequest RenewDelegationTokenRequest ExpireDelegationTokenRequest DescribeDelegationTokenRequest DeleteGroupsRequest ElectLeadersRequest IncrementalAlterConfigsRequest AlterPartitionReassignmentsRequest ListPartitionReassignmentsRequest OffsetDeleteRequest DescribeClientQuotasRequest AlterClientQuotasRequest DescribeUserScramCredentialsRequest AlterUserScramCredentialsRequest UpdateFeaturesRequest DescribeClusterRequest DescribeProducersRequest DescribeTransactionsRequest ListTransactionsRequest ConsumerGroupHeartbeatRequest ConsumerGroupDescribeRequest ListConfigResourcesRequest DescribeTopicPartitionsRequest ShareGroupHeartbeatRequest ShareGroupDescribeRequest ShareFetchRequest ShareAcknowledgeRequest InitializeShareGroupStateRequest ReadShareGroupStateRequest WriteShareGroupStateRequest DeleteShareGroupStateRequest ReadShareGroupStateSummaryRequest DescribeShareGroupOffsetsRequest AlterShareGroupOffsetsRequest DeleteShareGroupOffsetsRequest)
    };
    (@ $key:expr, $function:ident $arguments:tt; $($request:ident)+) => {
        match $key {
            $(key if key == $request::KEY => by_key!(% $function, $request, $arguments),)+
            key => panic!("no request type for key {key}"),
        }
    };
    (% $function:ident, $request:ident, ($($argument:expr),*)) => { $function::<$request>($($argument),*) };
}

/// The versions that the codec knows.
pub(crate) fn versions(key: i16) -> VersionRange {
    fn of<R: Request>() -> VersionRange {
        R::VERSIONS
    }
    by_key!(key, of())
}

/// Decodes behind the guard and encodes again.
pub(crate) fn round_trip(key: i16, version: i16, body: &Bytes) -> Result<Vec<u8>, String> {
    fn go<R: Request>(version: i16, body: &Bytes) -> Result<Vec<u8>, String> {
        let request = request::decode::<R>(version, body).map_err(|e| e.to_string())?;
        let mut out = Vec::new();
        request
            .encode(&mut out, version)
            .map_err(|e| e.to_string())?;
        Ok(out)
    }
    by_key!(key, go(version, body))
}

/// Decodes behind the guard; the value is dropped.
pub(crate) fn decode_only(key: i16, version: i16, body: &Bytes) -> Result<Vec<u8>, String> {
    fn go<R: Request>(version: i16, body: &Bytes) -> Result<Vec<u8>, String> {
        request::decode::<R>(version, body).map_err(|e| e.to_string())?;
        Ok(Vec::new())
    }
    by_key!(key, go(version, body))
}
