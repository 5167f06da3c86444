//! The guard against Kafka's own descriptions, against the codec, and against hostile bytes.
//!
//! `tests/tests/descriptions.rs` holds the committed extract of the descriptions against the jar of kafka-clients.
//! `KOP_TEST_LONG` makes the mutation runs twenty times as long, `KOP_FUZZ_ROUNDS` as long as it says.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test binary: what cannot happen may panic"
)]

mod codec;
mod describe;
mod generate;
mod random;

use bytes::Bytes;
use kop_handler::wire::guard::{self, BYTES_PER_ELEMENT, FREE_ELEMENTS};
use kop_handler::wire::request::{self, RequestHead};

use describe::Description;
use random::Random;

/// What the descriptions of kafka-clients 4.3.1 say about the requests that we may serve.
const EXTRACT: &str = include_str!("../data/kafka-4.3.1-requests.txt");

/// Bytes that one element may take decoded: the largest struct of the codec, a map node for a tagged field.
const BYTES_PER_DECODED_ELEMENT: usize = 512;

/// Errors carry text, and the codec's a backtrace if asked for.
const SLACK_BYTES: usize = 16 * 1024;

fn rounds(normal: u64) -> u64 {
    let asked = std::env::var("KOP_FUZZ_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok());
    let is_long = std::env::var("KOP_TEST_LONG").is_ok_and(|value| value == "1");
    asked.unwrap_or(if is_long { 20 * normal } else { normal })
}

/// Most memory that a body of this size may ask for.
fn allowed_memory(body: usize) -> u64 {
    let elements = body.min(FREE_ELEMENTS + body / BYTES_PER_ELEMENT);
    (elements * BYTES_PER_DECODED_ELEMENT + SLACK_BYTES) as u64
}

/// Every description that is a request, with each version that Kafka and the codec both have.
fn each_version(mut visit: impl FnMut(&Description, i16)) {
    for description in describe::parse(EXTRACT) {
        if description.key < 0 {
            continue;
        }
        let codec = codec::versions(description.key);
        assert_eq!(
            codec.min, description.min,
            "{} begins elsewhere",
            description.name
        );
        assert!(
            codec.max <= description.max,
            "{}: codec is newer",
            description.name
        );
        for version in codec.min..=codec.max {
            visit(&description, version);
        }
    }
}

#[test]
fn the_table_says_what_kafka_describes() {
    let table: Vec<String> = guard::shapes().map(ToString::to_string).collect();
    let extract = describe::sections(EXTRACT);
    for section in &extract {
        assert!(table.contains(section), "not in the table:\n{section}");
    }
    assert_eq!(table.len(), extract.len());
}

#[test]
fn bodies_made_from_the_descriptions_decode_to_the_last_byte_and_encode_again_identically() {
    let mut checked = 0;
    each_version(|description, version| {
        for seed in 0..rounds(20).min(400) {
            let mut random = Random::new(seed * 7919 + version as u64);
            let body = generate::body(description, version, &mut random);
            let what = format!("{} {version}, seed {seed}: {body:02x?}", description.name);
            let again = codec::round_trip(description.key, version, &body.clone().into())
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(again, body, "{what}");
            checked += 1;
        }
    });
    assert!(checked > 3_000, "only {checked} bodies were checked");
}

#[test]
fn every_cut_of_a_body_is_refused_by_the_guard() {
    each_version(|description, version| {
        let mut random = Random::new(99);
        let body = generate::body(description, version, &mut random);
        for length in 0..body.len() {
            let answer = guard::check(description.key, version, &body[..length]);
            assert!(
                answer.is_err(),
                "{} {version} cut at {length}",
                description.name
            );
        }
        let longer = [&body[..], &[0]].concat();
        assert!(guard::check(description.key, version, &longer).is_err());
    });
}

#[test]
fn hostile_bodies_cost_no_more_memory_than_a_small_multiple_of_their_size() {
    let mut bodies = Vec::new();
    each_version(|description, version| {
        for seed in 0..4 {
            let body = generate::body(description, version, &mut Random::new(seed));
            bodies.push((description.key, version, body));
        }
    });
    let mut random = Random::new(1);
    let (mut decoded, mut refused) = (0u64, 0u64);
    for _ in 0..rounds(60_000) {
        let (key, version, body) = random.pick(&bodies);
        let body = Bytes::from(random.mutated(body));
        let mut outcome = Ok(Vec::new());
        let memory =
            allocation_counter::measure(|| outcome = codec::decode_only(*key, *version, &body));
        assert!(
            memory.bytes_max <= allowed_memory(body.len()),
            "key {key} version {version}: {} bytes of memory for {body:02x?}",
            memory.bytes_max
        );
        match outcome {
            Ok(_) => decoded += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(
        decoded > 1_000 && refused > 1_000,
        "{decoded} decoded, {refused} refused"
    );
}

#[test]
fn the_most_amplifying_bodies_stay_within_the_multiple() {
    // Empty elements: one byte each where the layout is flexible, two to four where it is not.
    each_version(|description, version| {
        for size in [1_000, 300_000] {
            for body in generate::amplifying(description, version, size) {
                let length = body.len();
                let body = Bytes::from(body);
                let memory = allocation_counter::measure(|| {
                    let _ = codec::decode_only(description.key, version, &body);
                });
                assert!(
                    memory.bytes_max <= allowed_memory(length),
                    "{} {version}: {} bytes of memory for {length}",
                    description.name,
                    memory.bytes_max
                );
            }
        }
    });
}

#[test]
fn hostile_heads_never_panic_and_cost_nothing() {
    let mut random = Random::new(5);
    for _ in 0..rounds(100_000) {
        let mut frame = random.bytes(40);
        if random.below(2) == 0 && frame.len() > 2 {
            frame[0] = 0;
            frame[1] = random.below(93) as u8;
        }
        let frame = Bytes::from(frame);
        let memory = allocation_counter::measure(|| {
            let _ = RequestHead::parse(frame.clone());
        });
        assert!(memory.bytes_max < 4096, "{frame:02x?}");
    }
}

#[test]
fn what_consumers_put_into_join_group_is_guarded_too() {
    for name in ["ConsumerProtocolSubscription", "ConsumerProtocolAssignment"] {
        let description = describe::parse(EXTRACT)
            .into_iter()
            .find(|d| d.name == name)
            .unwrap();
        let decode = |bytes: &Bytes| match name {
            "ConsumerProtocolSubscription" => request::decode_subscription(bytes).map(|_| ()),
            _ => request::decode_assignment(bytes).map(|_| ()),
        };
        let mut random = Random::new(3);
        for round in 0..rounds(20_000) {
            let version = (round % 4) as i16;
            let body = generate::body(&description, version, &mut random);
            let whole = [&version.to_be_bytes()[..], &body].concat();
            assert_eq!(decode(&whole.clone().into()), Ok(()), "{name} {version}");
            // A version of the future, with fields that we do not know behind ours.
            let future = [
                &9i16.to_be_bytes()[..],
                &generate::body(&description, 3, &mut random),
                b"more",
            ]
            .concat();
            assert_eq!(decode(&future.into()), Ok(()), "{name} of the future");
            let hostile = Bytes::from(random.mutated(&whole));
            let memory = allocation_counter::measure(|| {
                let _ = decode(&hostile);
            });
            assert!(
                memory.bytes_max <= allowed_memory(hostile.len()),
                "{hostile:02x?}"
            );
        }
    }
}
