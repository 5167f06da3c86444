//! A view of topics over a simulated host, for tests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use handler_api::control::{Event, decode};
use handler_api::topics::{OwnershipChanged, TopicsChanged};
use handler_api::{Handle, Position};
use host_shim::events::EventSink;
use host_shim::sim::SimHost;

use super::Topics;
use crate::clock::ManualClock;
use crate::config::Config;

/// Where the fixture's broker listens.
pub(crate) const LISTENERS: &str = "PLAINTEXT://localhost:9092,OUTSIDE://broker.example.com:19092";

/// Brokers draw different random numbers, in the same order in every run of one test.
static SEED: AtomicU64 = AtomicU64::new(1);

/// Hands a host's events to the view, as the plugin does.
#[derive(Default)]
struct Sink {
    topics: OnceLock<Arc<Topics>>,
}

impl EventSink for Sink {
    fn event(&self, op: u32, payload: Bytes) {
        let Some(topics) = self.topics.get() else {
            return;
        };
        if op == TopicsChanged::OP {
            topics.topics_changed(&decode(payload).unwrap());
        } else if op == OwnershipChanged::OP {
            topics.ownership_changed(&decode(payload).unwrap());
        }
    }

    fn end_moved(&self, _handle: Handle, _position: Position, _index: i64) {}
}

/// The configuration of a test, with these settings over the defaults.
pub(crate) fn config(settings: &[(&str, &str)]) -> Config {
    let mut pairs = HashMap::from([
        ("kafkaListeners".to_owned(), LISTENERS.to_owned()),
        (
            "kafkaProtocolMap".to_owned(),
            "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT".to_owned(),
        ),
    ]);
    pairs.extend(
        settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    Config::parse(&pairs).unwrap()
}

/// A view of a simulated broker's topics.
pub(crate) fn topics(sim: &SimHost, settings: &[(&str, &str)]) -> Arc<Topics> {
    let sink = Arc::new(Sink::default());
    let host = sim.host_for(Arc::clone(&sink) as Arc<dyn EventSink>);
    let clock = ManualClock::new(1_000, SEED.fetch_add(1, Ordering::Relaxed));
    let topics = Topics::new(host, Arc::new(clock), &config(settings));
    assert!(sink.topics.set(Arc::clone(&topics)).is_ok());
    topics
}
