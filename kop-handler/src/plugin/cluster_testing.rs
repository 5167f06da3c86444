//! Several brokers over one simulated world, in one thread and on tokio's paused clock: rooms without sockets, and a
//! client that finds its way among them.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use handler_api::{Handle, Host, Position, capability};
use host_shim::events::EventSink;
use host_shim::sim::SimHost;
use kafka_protocol::messages::ResponseHeader;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::{Decodable, HeaderVersion, Request, StrBytes};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{events, rooms};
use crate::api::{self, Call, Connection, Reply, Server};
use crate::config::Config;
use crate::coordinator::engine::testing::{PausedClock, next_random};
use crate::topics::nodes::node_id;

/// Version of Metadata in tests: names, topic ids, epochs.
pub(super) const METADATA: i16 = 12;

/// Numbers out of one seed.
#[derive(Clone)]
pub(super) struct Dice(Arc<Mutex<u64>>);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        next_random(&mut self.0.lock()) % bound.max(1)
    }

    pub(super) fn pick<'a, T>(&self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.below(items.len() as u64)).unwrap()]
    }
}

/// Hands a host's events to the rooms, as the plugin does.
#[derive(Default)]
struct Sink {
    server: OnceLock<Arc<Server>>,
}

impl EventSink for Sink {
    fn event(&self, op: u32, payload: Bytes) {
        if let Some(server) = self.server.get() {
            events::dispatch(server, &tokio::runtime::Handle::current(), op, payload);
        }
    }

    fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        if let Some(server) = self.server.get() {
            server.logs.end_moved(handle, position, index);
        }
    }
}

/// A broker that lives.
struct Broker {
    server: Arc<Server>,
    /// Becomes true when the process dies.
    dead: watch::Sender<bool>,
}

/// All brokers of a test.
pub(super) struct Cluster {
    pub(super) sim: SimHost,
    brokers: Mutex<BTreeMap<u32, Broker>>,
    settings: Vec<(String, String)>,
    seed: u64,
}

/// The id of a broker in the simulated world.
pub(super) fn id(broker: u32) -> String {
    format!("b{broker}:8080")
}

/// The id under which Kafka's clients know a broker.
pub(super) fn node(broker: u32) -> i32 {
    node_id(&format!("b{broker}"), 9092)
}

impl Cluster {
    /// Brokers 1 to `count`, which can do what those of Pulsar can.
    pub(super) async fn start(sim: SimHost, count: u32, settings: &[(&str, &str)]) -> Arc<Self> {
        sim.set_capabilities(capability::HOST_RETENTION);
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let cluster = Arc::new(Self {
            sim,
            brokers: Mutex::default(),
            settings: settings.iter().map(own).collect(),
            seed: 1,
        });
        for broker in 1..=count {
            cluster.start_broker(broker).await;
        }
        cluster
    }

    /// Starts a broker, or starts it again.
    pub(super) async fn start_broker(&self, broker: u32) {
        let listener = format!("PLAINTEXT://b{broker}:9092");
        let mut pairs = HashMap::from([
            ("kafkaListeners".to_owned(), listener.clone()),
            ("clusterName".to_owned(), "sim".to_owned()),
            ("groupInitialRebalanceDelayMs".to_owned(), "0".to_owned()),
            ("entryFormat".to_owned(), "kafka".to_owned()),
        ]);
        pairs.extend(self.settings.iter().cloned());
        let config = Config::parse(&pairs).unwrap();
        let sink = Arc::new(Sink::default());
        let services = self.sim.attach_as(
            &id(broker),
            &listener,
            Some(Arc::clone(&sink) as Arc<dyn EventSink>),
        );
        let clock = PausedClock::new(self.seed.wrapping_mul(1_000) + u64::from(broker));
        let runtime = tokio::runtime::Handle::current();
        let server = rooms::build(config, clock, Host::of(services), &runtime).await;
        assert!(sink.server.set(Arc::clone(&server)).is_ok());
        let alive = Broker {
            server,
            dead: watch::Sender::new(false),
        };
        self.brokers.lock().insert(broker, alive);
    }

    /// Kills a broker: its connections break, the others do not know yet.
    pub(super) fn kill(&self, broker: u32) {
        if let Some(broker) = self.brokers.lock().remove(&broker) {
            broker.dead.send_replace(true);
            broker.server.closing.send_replace(true);
        }
        self.sim.kill(&id(broker));
    }

    /// The brokers that live.
    pub(super) fn alive(&self) -> Vec<u32> {
        self.brokers.lock().keys().copied().collect()
    }

    /// Completes what the simulated world has under way, a little at a time, for as long as the test runs.
    pub(super) fn drive(self: &Arc<Self>, dice: Dice) -> tokio::task::JoinHandle<()> {
        let sim = self.sim.clone();
        tokio::spawn(async move {
            loop {
                for _ in 0..dice.below(8) {
                    sim.step();
                }
                sim.advance_ms(1);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    }

    /// Sends a request to a broker. `None`: it does not live, or died before it answered, or closed the connection.
    pub(super) async fn call<R: Request>(
        &self,
        broker: u32,
        version: i16,
        request: &R,
    ) -> Option<R::Response> {
        let (server, mut dead) = {
            let brokers = self.brokers.lock();
            let broker = brokers.get(&broker)?;
            (Arc::clone(&broker.server), broker.dead.subscribe())
        };
        let mut body = BytesMut::new();
        request.encode(&mut body, version).unwrap();
        let call = Call {
            version,
            client_id: "test".into(),
            peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            listener: "PLAINTEXT".into(),
            connection: Arc::new(Connection::default()),
        };
        let line = api::line(R::KEY).unwrap();
        let work = (line.start)(server, call, 7, body.freeze());
        let reply = tokio::select! {
            biased;
            _ = dead.wait_for(|dead| *dead) => return None,
            reply = work => reply.unwrap(),
        };
        match reply {
            Reply::Bytes(encoded) => {
                let mut bytes = Bytes::from(encoded.segments.concat()).slice(4..);
                ResponseHeader::decode(&mut bytes, R::Response::header_version(version)).unwrap();
                Some(R::Response::decode(&mut bytes, version).unwrap())
            }
            Reply::Silent | Reply::Close => None,
        }
    }

    /// As [`Self::call`], to a broker that is there.
    pub(super) async fn ask<R: Request>(
        &self,
        broker: u32,
        version: i16,
        request: &R,
    ) -> R::Response {
        self.call(broker, version, request).await.expect("a reply")
    }

    /// Metadata of one topic, from one broker.
    pub(super) async fn metadata(&self, broker: u32, topic: &str) -> Option<MetadataResponse> {
        let topic = MetadataRequestTopic::default().with_name(Some(name(topic)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(false);
        self.call(broker, METADATA, &request).await
    }

    /// Whom Metadata names as the leader of a partition; `None` if there is none, or it is none of ours.
    pub(super) async fn leader(&self, asked: u32, topic: &str, partition: usize) -> Option<u32> {
        let reply = self.metadata(asked, topic).await?;
        let partition = reply.topics.first()?.partitions.get(partition)?;
        (1..=9).find(|broker| node(*broker) == partition.leader_id.0)
    }
}

/// A topic's name for the wire.
pub(super) fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}

/// Text for the wire.
pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
