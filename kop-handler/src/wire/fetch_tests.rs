//! The own encoder against the codec's.

use super::*;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
    PartitionData,
};
use kafka_protocol::messages::{BrokerId, ProducerId, TopicName};
use proptest::prelude::*;

use crate::wire::response;

/// The same reply in the codec's types, without what `version` has no place for.
fn codec(reply: &FetchReply, version: i16) -> FetchResponse {
    let topics = reply.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|p| codec_partition(p, version));
        let mut out = FetchableTopicResponse::default().with_partitions(partitions.collect());
        if version >= 13 {
            out.topic_id = topic.topic_id;
        } else {
            out.topic = TopicName(topic.name.clone());
        }
        out
    });
    let mut out = FetchResponse::default()
        .with_throttle_time_ms(reply.throttle_time_ms)
        .with_session_id(reply.session_id)
        .with_responses(topics.collect());
    if version >= 7 {
        out.error_code = reply.error_code;
    }
    if version >= 16 {
        let endpoints = reply.node_endpoints.iter().map(|e| {
            NodeEndpoint::default()
                .with_node_id(BrokerId(e.node_id))
                .with_host(e.host.clone())
                .with_port(e.port)
                .with_rack(e.rack.clone())
        });
        out.node_endpoints = endpoints.collect();
    }
    out
}

fn codec_partition(p: &FetchPartition, version: i16) -> PartitionData {
    let aborted = p.aborted.as_ref().map(|all| {
        all.iter()
            .map(|(id, first)| {
                AbortedTransaction::default()
                    .with_producer_id(ProducerId(*id))
                    .with_first_offset(*first)
            })
            .collect()
    });
    let mut out = PartitionData::default()
        .with_partition_index(p.partition)
        .with_error_code(p.error_code)
        .with_high_watermark(p.high_watermark)
        .with_last_stable_offset(p.last_stable_offset)
        .with_preferred_read_replica(BrokerId(p.preferred_read_replica))
        .with_aborted_transactions(aborted)
        .with_records(Some(p.records.concat().into()));
    if version >= 5 {
        out.log_start_offset = p.log_start_offset;
    }
    if version >= 12 {
        if let Some((epoch, end)) = p.diverging_epoch {
            out.diverging_epoch = EpochEndOffset::default()
                .with_epoch(epoch)
                .with_end_offset(end);
        }
        if let Some((leader, epoch)) = p.current_leader {
            out.current_leader = LeaderIdAndEpoch::default()
                .with_leader_id(BrokerId(leader))
                .with_leader_epoch(epoch);
        }
    }
    out
}

/// Removes what a version must not carry.
fn fit(mut reply: FetchReply, version: i16) -> FetchReply {
    if version < 7 {
        reply.session_id = 0;
    }
    if version < 11 {
        for topic in &mut reply.topics {
            for partition in &mut topic.partitions {
                partition.preferred_read_replica = -1;
            }
        }
    }
    reply
}

fn any_partition() -> impl Strategy<Value = FetchPartition> {
    let leader = proptest::option::of((0..100i32, 0..100i32));
    let diverging = proptest::option::of((0..100i32, 0..100i64));
    let aborted = proptest::option::of(proptest::collection::vec((0..1000i64, 0..1000i64), 0..200));
    let records = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..4);
    let offsets = (any::<i64>(), any::<i64>(), any::<i64>());
    (
        any::<i32>(),
        any::<i16>(),
        offsets,
        diverging,
        leader,
        aborted,
        -1..5i32,
        records,
    )
        .prop_map(
            |(
                partition,
                error_code,
                offsets,
                diverging_epoch,
                current_leader,
                aborted,
                replica,
                records,
            )| FetchPartition {
                partition,
                error_code,
                high_watermark: offsets.0,
                last_stable_offset: offsets.1,
                log_start_offset: offsets.2,
                diverging_epoch,
                current_leader,
                aborted,
                preferred_read_replica: replica,
                records: records.into_iter().map(Bytes::from).collect(),
            },
        )
}

fn any_reply() -> impl Strategy<Value = FetchReply> {
    let topic = (
        ".{0,200}",
        any::<u128>(),
        proptest::collection::vec(any_partition(), 0..4),
    )
        .prop_map(|(name, id, partitions)| FetchTopic {
            name: StrBytes::from_string(name),
            topic_id: Uuid::from_u128(id),
            partitions,
        });
    let endpoint = (
        any::<i32>(),
        "[a-z.]{0,200}",
        any::<i32>(),
        proptest::option::of("[a-z]{0,9}"),
    )
        .prop_map(|(node_id, host, port, rack)| FetchEndpoint {
            node_id,
            host: StrBytes::from_string(host),
            port,
            rack: rack.map(StrBytes::from_string),
        });
    let head = (any::<i32>(), any::<i16>(), any::<i32>());
    let topics = proptest::collection::vec(topic, 0..4);
    let endpoints = proptest::collection::vec(endpoint, 0..3);
    (head, topics, endpoints).prop_map(|(head, topics, node_endpoints)| FetchReply {
        throttle_time_ms: head.0,
        error_code: head.1,
        session_id: head.2,
        topics,
        node_endpoints,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_version_is_byte_for_byte_the_codecs(reply in any_reply()) {
        for version in 4..=18 {
            let reply = fit(reply.clone(), version);
            let own = reply.encode(5, version).unwrap();
            let theirs = response::encode(5, version, &codec(&reply, version)).unwrap();
            prop_assert_eq!(own.segments.concat(), theirs.segments.concat(), "version {}", version);
        }
    }
}

#[test]
fn record_segments_are_shared_not_copied() {
    let batch = Bytes::from(vec![1u8; 100]);
    let header = Bytes::from(vec![2u8; 61]);
    let partition = FetchPartition {
        records: vec![header.clone(), Bytes::new(), batch.clone()],
        ..FetchPartition::default()
    };
    let topic = FetchTopic {
        partitions: vec![partition.clone(), FetchPartition::default(), partition],
        ..FetchTopic::default()
    };
    let reply = FetchReply {
        topics: vec![topic],
        ..FetchReply::default()
    };
    let encoded = reply.encode(1, 17).unwrap();
    let shared = |s: &&Bytes| s.as_ptr() == batch.as_ptr() || s.as_ptr() == header.as_ptr();
    assert_eq!(encoded.segments.iter().filter(shared).count(), 4);
    assert_eq!(
        encoded.segments.len(),
        7,
        "own bytes between, before and after"
    );
}

#[test]
fn what_a_version_has_no_place_for_is_refused() {
    let session = FetchReply {
        session_id: 1,
        ..FetchReply::default()
    };
    assert!(session.encode(1, 6).is_err());
    assert!(session.encode(1, 7).is_ok());
    assert!(session.encode(1, 3).is_err());
    assert!(session.encode(1, 19).is_err());
    let topic = FetchTopic {
        partitions: vec![FetchPartition {
            preferred_read_replica: 2,
            ..FetchPartition::default()
        }],
        ..FetchTopic::default()
    };
    let replica = FetchReply {
        topics: vec![topic],
        ..FetchReply::default()
    };
    assert!(replica.encode(1, 10).is_err());
    assert!(replica.encode(1, 11).is_ok());
}
