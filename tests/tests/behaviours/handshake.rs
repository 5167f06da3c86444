//! The first words of a connection: versions, keys, order, SASL on a plaintext listener.

use std::time::Duration;

use bytes::Buf;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest,
    FindCoordinatorRequest, MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use kafka_protocol::protocol::Decodable;
use kop_tests::broker::{Broker, Options, is_reference};
use kop_tests::raw::Raw;

use crate::groups::find_coordinator;
use crate::kit::{METADATA, create, start, text, topic_name};

fn software() -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(text("raw"))
        .with_client_software_version(text("1.0"))
}

/// Row 81.
#[test]
fn a_future_version_of_api_versions_is_answered_in_version_0_with_the_range() {
    let (_broker, mut raw) = start();
    for version in [5, 99, i16::MAX] {
        let mut body = Vec::new();
        kafka_protocol::protocol::Encodable::encode(&software(), &mut body, 4).expect("a body");
        let correlation_id = raw.send_body(ApiKey::ApiVersions as i16, version, &body);
        let mut frame = raw.receive_frame().expect("an answer");
        assert_eq!(frame.get_i32(), correlation_id);
        let reply = ApiVersionsResponse::decode(&mut frame, 0).expect("the layout of version 0");
        assert!(!frame.has_remaining());
        assert_eq!(reply.error_code, 35);
        let own: Vec<_> = reply
            .api_keys
            .iter()
            .filter(|line| line.api_key == 18)
            .collect();
        assert_eq!(
            (own.len(), own[0].min_version, own[0].max_version),
            (1, 0, 4)
        );
    }
    // The connection lives: the client tries again with what it was told.
    assert_eq!(raw.call(4, &software()).error_code, 0);
}

#[test]
fn every_version_of_api_versions_tells_the_same_keys() {
    let (_broker, mut raw) = start();
    let told: Vec<_> = (0..=4)
        .map(|version| {
            let reply = raw.call(version, &software());
            assert_eq!(reply.error_code, 0);
            let mut lines: Vec<_> = reply
                .api_keys
                .iter()
                .map(|line| (line.api_key, line.min_version, line.max_version))
                .collect();
            lines.sort_unstable();
            lines
        })
        .collect();
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]));
    let keys: Vec<_> = told[0].iter().map(|line| line.0).collect();
    for key in [
        0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 22, 32, 37, 42, 44, 47, 60,
    ] {
        assert!(keys.contains(&key), "key {key} is missing");
    }
    // librdkafka switches compression off if Produce does not begin at 0.
    assert_eq!(told[0].first().map(|line| (line.0, line.1)), Some((0, 0)));
}

/// Row 37: a client that finds `transaction.version` 2 drops AddPartitionsToTxn and expects bumped epochs.
#[test]
fn features_that_would_change_what_clients_do_are_not_offered() {
    if is_reference() {
        return; // Kafka 4 offers them all.
    }
    let (_broker, mut raw) = start();
    for version in 3..=4 {
        let reply = raw.call(version, &software());
        assert_eq!(reply.error_code, 0);
        let supported = reply.supported_features.iter().map(|f| f.name.to_string());
        let finalized = reply.finalized_features.iter().map(|f| f.name.to_string());
        let offered: Vec<String> = supported.chain(finalized).collect();
        for feature in ["transaction.version", "group.version", "share.version"] {
            assert!(
                !offered.iter().any(|name| name == feature),
                "version {version} offers {offered:?}"
            );
        }
        // What the features stand for is not there either.
        for key in [
            ApiKey::AddPartitionsToTxn,
            ApiKey::EndTxn,
            ApiKey::ConsumerGroupHeartbeat,
        ] {
            let key = key as i16;
            assert!(
                reply.api_keys.iter().all(|line| line.api_key != key),
                "{key}"
            );
        }
    }
}

#[test]
fn a_software_name_that_is_none_is_refused() {
    let (_broker, mut raw) = start();
    for name in ["", "no spaces", "-begins-badly"] {
        assert_eq!(
            raw.call(3, &software().with_client_software_name(text(name)))
                .error_code,
            42,
            "{name:?}"
        );
    }
}

/// Row 44.
#[test]
fn unknown_keys_and_versions_close_the_connection_without_a_reply() {
    let broker = Broker::start();
    let cases = [
        (ApiKey::Produce, 0),
        (ApiKey::Produce, 2),
        (ApiKey::Produce, 99),
        (ApiKey::Fetch, 3),
        (ApiKey::Fetch, 99),
        (ApiKey::Metadata, 99),
        (ApiKey::Metadata, -1),
        (ApiKey::ListOffsets, 0),
        (ApiKey::JoinGroup, 50),
    ];
    for (key, version) in cases {
        let mut raw = Raw::connect(broker.address());
        raw.send_body(key as i16, version, &[0; 40]);
        raw.expect_closed();
    }
    for key in [4i16, 7, 93, 1000, -1, i16::MIN] {
        let mut raw = Raw::connect(broker.address());
        let mut frame = key.to_be_bytes().to_vec();
        frame.extend([0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0]);
        raw.send_frame(&frame);
        raw.expect_closed();
    }
    // Other connections go on.
    assert_eq!(
        Raw::connect(broker.address())
            .call(4, &software())
            .error_code,
        0
    );
}

/// Row 84.
#[test]
fn sasl_on_a_plaintext_listener_is_told_that_it_is_out_of_place() {
    let (_broker, mut raw) = start();
    for version in 0..=1 {
        let request = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
        assert_eq!(
            raw.call(version, &request).error_code,
            34,
            "version {version}"
        );
    }
    for version in 0..=2 {
        assert_eq!(
            raw.call(version, &SaslAuthenticateRequest::default())
                .error_code,
            34,
            "version {version}"
        );
    }
    assert_eq!(
        raw.call(4, &software()).error_code,
        0,
        "the connection lives"
    );
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let (_broker, mut raw) = start();
    let mut sent = Vec::new();
    for turn in 0..100 {
        if turn % 3 == 0 {
            sent.push((
                true,
                raw.send(
                    METADATA,
                    &MetadataRequest::default().with_topics(Some(vec![])),
                ),
            ));
        } else {
            sent.push((false, raw.send(4, &software())));
        }
    }
    for (is_metadata, correlation_id) in sent {
        if is_metadata {
            raw.receive::<MetadataRequest>(METADATA, correlation_id);
        } else {
            raw.receive::<ApiVersionsRequest>(4, correlation_id);
        }
    }
}

/// Row 87.
#[test]
fn clients_are_told_the_address_that_the_listener_advertises() {
    if is_reference() {
        return; // The harness sets Kafka's addresses.
    }
    let options = Options::default().set(
        "kafkaAdvertisedListeners",
        "PLAINTEXT://broker.example:2222",
    );
    let broker = Broker::with(options);
    let mut raw = Raw::connect(broker.address());
    let reply = raw.call(
        METADATA,
        &MetadataRequest::default().with_topics(Some(vec![])),
    );
    assert_eq!(
        (&*reply.brokers[0].host, reply.brokers[0].port),
        ("broker.example", 2222)
    );
}

/// Row 87: each listener advertises its own address, in everything that names a broker.
#[test]
fn clients_of_a_second_listener_are_told_its_own_address() {
    let options = Options {
        external: Some("broker.example:2222".to_owned()),
        ..Options::default()
    };
    let broker = Broker::with(options);
    let mut inside = Raw::connect(broker.address());
    let mut outside = Raw::connect(broker.external_address());
    create(&mut inside, "seen-from-both", 1, &[]);
    find_coordinator(&mut inside, "any");
    let own = ("127.0.0.1".to_owned(), i32::from(broker.address().port()));
    let other = ("broker.example".to_owned(), 2222);
    for (raw, address) in [(&mut inside, &own), (&mut outside, &other)] {
        let topics =
            vec![MetadataRequestTopic::default().with_name(Some(topic_name("seen-from-both")))];
        let reply = raw.call(
            METADATA,
            &MetadataRequest::default().with_topics(Some(topics)),
        );
        let brokers: Vec<_> = reply
            .brokers
            .iter()
            .map(|b| (b.host.to_string(), b.port))
            .collect();
        assert_eq!(brokers, std::slice::from_ref(address), "Metadata");
        let leader = reply.topics[0].partitions[0].leader_id;
        assert_eq!(
            (leader, reply.controller_id),
            (reply.brokers[0].node_id, reply.brokers[0].node_id),
            "leader and controller are among the brokers of the listener"
        );

        let reply = raw.call(2, &DescribeClusterRequest::default());
        let found = &reply.brokers[0];
        assert_eq!((found.host.to_string(), found.port), *address, "cluster");

        for version in [3, 4] {
            let mut request = FindCoordinatorRequest::default();
            if version == 4 {
                request.coordinator_keys = vec![text("any")];
            } else {
                request.key = text("any");
            }
            let reply = raw.call(version, &request);
            let found = match reply.coordinators.first() {
                Some(found) => (found.host.to_string(), found.port),
                None => (reply.host.to_string(), reply.port),
            };
            assert_eq!(found, *address, "FindCoordinator {version}");
        }
    }
}

#[test]
fn a_half_open_connection_holds_up_nobody() {
    let broker = Broker::start();
    let mut half = Raw::connect(broker.address());
    half.send_bytes(&[0, 0]);
    let mut begun = Raw::connect(broker.address());
    begun.send_bytes(&[0, 0, 0, 100, 0, 18, 0, 4]);
    let silent = Raw::connect(broker.address());
    let mut other = Raw::connect(broker.address());
    assert_eq!(other.call(4, &software()).error_code, 0);
    assert!(begun.is_silent_for(Duration::from_millis(200)));
    // A peer that stops sending in the middle of a frame gets no reply, only an end.
    begun.finish_sending();
    begun.expect_closed();
    drop(silent);
}
