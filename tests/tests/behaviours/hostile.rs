//! Bytes that no client sends: the broker closes such connections, serves the others, and does not grow.

use bytes::BufMut;
use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};
use kop_tests::broker::{Broker, is_reference};
use kop_tests::raw::Raw;

use crate::kit::{METADATA, append, batch, create, end_offset, start};

fn lives(broker: &Broker) {
    let mut raw = Raw::connect(broker.address());
    let reply = raw.call(
        METADATA,
        &MetadataRequest::default().with_topics(Some(vec![])),
    );
    assert_eq!(reply.brokers.len(), 1);
}

/// Memory of the broker that is its own, in bytes.
fn memory(broker: &Broker) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", broker.pid())).expect("the broker runs");
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .expect("a line of memory");
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    kib * 1024
}

#[test]
fn lengths_that_no_frame_can_have_close_the_connection() {
    let broker = Broker::start();
    for length in [-1, i32::MIN, 0, 1, 7, i32::MAX, 1 << 30] {
        if is_reference() && (0..8).contains(&length) {
            continue; // Kafka reads on.
        }
        let mut raw = Raw::connect(broker.address());
        raw.send_bytes(&i32::to_be_bytes(length));
        raw.try_send_bytes(&[0x5a; 16]);
        raw.expect_closed();
    }
    lives(&broker);
}

#[test]
fn four_bytes_cannot_bring_the_broker_down() {
    let broker = Broker::start();
    let before = memory(&broker);
    for _ in 0..20 {
        // Metadata 0 whose array claims two billion topics, Metadata 12 whose compact array claims four.
        for (version, body) in [
            (0, &[0x7f, 0xff, 0xff, 0xff][..]),
            (12, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut raw = Raw::connect(broker.address());
            raw.send_body(3, version, body);
            raw.expect_closed();
        }
    }
    lives(&broker);
    if !is_reference() {
        let grown = memory(&broker).saturating_sub(before);
        assert!(grown < 32 << 20, "grew by {grown} bytes");
    }
}

#[test]
fn a_million_empty_elements_are_refused() {
    if is_reference() {
        return; // Kafka takes them.
    }
    let broker = Broker::start();
    let before = memory(&broker);
    for _ in 0..5 {
        // ListGroups 4: a compact array of a million empty strings, one byte each.
        let mut body = vec![0xc1, 0x84, 0x3d];
        body.extend(vec![1; 1_000_000]);
        body.put_u8(0);
        let mut raw = Raw::connect(broker.address());
        raw.send_body(16, 4, &body);
        raw.expect_closed();
    }
    lives(&broker);
    let grown = memory(&broker).saturating_sub(before);
    assert!(grown < 48 << 20, "grew by {grown} bytes");
}

#[test]
fn noise_closes_connections_and_nothing_else() {
    let (broker, mut raw) = start();
    create(&mut raw, "calm", 1, &[]);
    append(&mut raw, "calm", 0, batch(&["before"]));
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let mut noise: Vec<u8> = (0..random() % 600).map(|_| random() as u8).collect();
        if round % 2 == 0 {
            // A right length and a key that exists, then noise.
            let mut frame = vec![0, (random() % 70) as u8, 0, (random() % 13) as u8];
            frame.extend(&noise);
            frame.extend([0; 8]);
            noise = (frame.len() as i32).to_be_bytes().to_vec();
            noise.extend(frame);
        }
        let mut stranger = Raw::connect(broker.address());
        stranger.try_send_bytes(&noise);
        stranger.finish_sending();
    }
    assert_eq!(
        raw.call(
            3,
            &ApiVersionsRequest::default()
                .with_client_software_name(crate::kit::text("raw"))
                .with_client_software_version(crate::kit::text("1"))
        )
        .error_code,
        0
    );
    assert_eq!(end_offset(&mut raw, "calm"), 1, "noise wrote nothing");
    lives(&broker);
}
