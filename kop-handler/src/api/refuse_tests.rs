//! Facts about refusals, for every line of the table.

use bytes::BytesMut;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::protocol::{Decodable, HeaderVersion};

use super::*;
use crate::api::TABLE;

const CODE: i16 = -1;

fn fault() -> Fault {
    Fault::Internal("a bug".to_owned())
}

/// Encodes a request as its body in a version, refuses it, and reads the reply; `None`: the connection is closed.
fn refuse<Q: Request>(version: i16, request: &Q) -> Option<Q::Response>
where
    Q::Response: HeaderVersion,
{
    let mut body = BytesMut::new();
    request.encode(&mut body, version).unwrap();
    let key = ApiKey::try_from(Q::KEY).unwrap();
    match reply(key, version, 5, &body.freeze(), &fault()).unwrap() {
        Reply::Bytes(encoded) => {
            let header = if Q::Response::header_version(version) >= 1 {
                9
            } else {
                8
            };
            let mut bytes = Bytes::from(encoded.segments.concat()).split_off(header);
            let response = Q::Response::decode(&mut bytes, version).unwrap();
            assert!(bytes.is_empty());
            Some(response)
        }
        Reply::Close => None,
        Reply::Silent => panic!("a refusal is never silent"),
    }
}

/// Requests that are encoded in all versions, with a name where one is needed.
macro_rules! each_version {
    ($key:ident, $request:expr, |$version:ident, $response:ident| $check:expr) => {{
        let line = TABLE.iter().find(|line| line.key == ApiKey::$key).unwrap();
        for $version in line.min..=line.max {
            let $response = refuse($version, &$request($version))
                .unwrap_or_else(|| panic!("version {}", $version));
            $check;
        }
    }};
}

#[test]
fn every_api_is_refused_in_its_own_layout() {
    for line in TABLE {
        for version in line.min..=line.max {
            // An empty body is not every API's, but those with one error for the whole do not look at it.
            let refused = reply(line.key, version, 5, &Bytes::new(), &fault());
            let closes = matches!(refused, Ok(Reply::Close));
            // An old Fetch has no place for an error.
            let may_close = line.key == ApiKey::Fetch && version < 7;
            assert!(!closes || may_close, "{} has no refusal: add it", line.name);
        }
    }
}

#[test]
fn errors_stand_where_clients_look() {
    each_version!(
        FindCoordinator,
        |version| {
            let request = FindCoordinatorRequest::default();
            let key = StrBytes::from_static_str("g");
            if version >= 4 {
                request.with_coordinator_keys(vec![key])
            } else {
                request.with_key(key)
            }
        },
        |version, response| {
            let code = if version >= 4 {
                response.coordinators[0].error_code
            } else {
                response.error_code
            };
            assert_eq!(code, CODE);
        }
    );
    each_version!(
        OffsetFetch,
        |version| {
            let request = OffsetFetchRequest::default();
            if version >= 8 {
                request.with_groups(vec![
                    offset_fetch_request::OffsetFetchRequestGroup::default(),
                ])
            } else {
                request.with_topics(Some(vec![
                    offset_fetch_request::OffsetFetchRequestTopic::default()
                        .with_partition_indexes(vec![3]),
                ]))
            }
        },
        |version, response| {
            let code = match version {
                8.. => response.groups[0].error_code,
                2.. => response.error_code,
                _ => response.topics[0].partitions[0].error_code,
            };
            assert_eq!(code, CODE);
        }
    );
    each_version!(
        JoinGroup,
        |_| JoinGroupRequest::default(),
        |_version, response| {
            assert_eq!((response.error_code, response.generation_id), (CODE, -1));
        }
    );
    each_version!(
        CreateTopics,
        |_| CreateTopicsRequest::default().with_topics(vec![Default::default()]),
        |version, response| {
            assert_eq!(response.topics[0].error_code, CODE, "version {version}");
        }
    );
    each_version!(
        DescribeGroups,
        |_| DescribeGroupsRequest::default().with_groups(vec![Default::default()]),
        |_version, response| {
            assert_eq!(response.groups[0].error_code, CODE);
        }
    );
    each_version!(
        ListOffsets,
        |_| ListOffsetsRequest::default().with_topics(vec![
            list_offsets_request::ListOffsetsTopic::default()
                .with_partitions(vec![Default::default()]),
        ]),
        |_version, response| assert_eq!(response.topics[0].partitions[0].error_code, CODE)
    );
    each_version!(
        Produce,
        |_| ProduceRequest::default().with_acks(1).with_topic_data(vec![
            produce_request::TopicProduceData::default()
                .with_partition_data(vec![Default::default()]),
        ]),
        |_version, response| assert_eq!(
            response.responses[0].partition_responses[0].error_code,
            CODE
        )
    );
}

#[test]
fn a_version_without_a_place_for_the_error_closes_the_connection() {
    for version in 4..=6 {
        assert_eq!(refuse(version, &FetchRequest::default()), None);
    }
    assert_eq!(
        refuse(7, &FetchRequest::default()).unwrap().error_code,
        CODE
    );
    let all = MetadataRequest::default().with_topics(None);
    assert_eq!(refuse(12, &all), None);
    assert_eq!(refuse(13, &all).unwrap().error_code, CODE);
    let named = MetadataRequest::default().with_topics(Some(vec![
        MetadataRequestTopic::default().with_name(Some(TopicName::default())),
    ]));
    for version in 0..=13 {
        assert_eq!(refuse(version, &named).unwrap().topics[0].error_code, CODE);
    }
    let silent = ProduceRequest::default().with_acks(0).with_topic_data(vec![
        produce_request::TopicProduceData::default().with_partition_data(vec![Default::default()]),
    ]);
    assert_eq!(refuse(9, &silent), None, "nobody waits for a reply");
}
