//! One broker under test in a process of its own: ours, ours inside a real Pulsar, or Apache Kafka as the reference for
//! the same tests.
//!
//! A JVM takes seconds to start. A test that asks for default settings inside Pulsar therefore gets a broker that an
//! earlier test of the same program has left in good order, emptied of that test's topics and groups; one that a test
//! has stopped, killed or failed with is used by no other.

use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kop_fetch::pulsar::Release;

pub use crate::node::Node;
use crate::pulsar;
use crate::rd;

/// `KOP_TEST_REFERENCE=kafka` runs the tests against Apache Kafka itself.
pub const REFERENCE: &str = "KOP_TEST_REFERENCE";
/// Set when the binary and the plugin are known to be built already.
pub const BUILT: &str = "KOP_TEST_BUILT";
/// How long emptying a broker for the next test may take.
const EMPTYING: Duration = Duration::from_secs(20);

/// Brokers inside Pulsar that wait for the next test.
static WAITING: Mutex<Vec<Node>> = Mutex::new(Vec::new());

/// Whether the tests run against Apache Kafka.
pub fn is_reference() -> bool {
    std::env::var(REFERENCE).is_ok_and(|value| value == "kafka")
}

/// Whether the tests run inside a real Pulsar.
pub fn is_pulsar() -> bool {
    std::env::var_os(pulsar::HOST).is_some()
}

/// Why a test of our own host's store does not apply where the tests run; `None` if it does.
pub fn not_embedded(what: &str) -> Option<String> {
    if is_reference() {
        return Some(format!("{what} is ours, not Apache Kafka's"));
    }
    is_pulsar().then(|| format!("{what} is the embedded host's; inside Pulsar BookKeeper stores"))
}

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Ours, standalone.
    Kop,
    /// Ours inside a Pulsar standalone of this release.
    Pulsar(Release),
    /// Apache Kafka.
    Kafka,
}

/// How a broker is to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which broker; what `KOP_TEST_REFERENCE` and `KOP_TEST_HOST` say if not given.
    pub flavour: Option<Flavour>,
    /// Keys of the broker's configuration, after the ones that the test harness sets.
    pub set: Vec<(String, String)>,
    /// Keys of Kafka's `server.properties`, for runs against the reference.
    pub kafka: Vec<(String, String)>,
    /// The `host:port` that a second listener, `EXTERNAL`, advertises; none if not given.
    pub external: Option<String>,
    /// Where the data lives; a temporary directory of its own if not given.
    pub data: Option<PathBuf>,
    /// The directory with the built `kop` and plugin; that of the running test if not given.
    pub build: Option<PathBuf>,
}

impl Options {
    /// Adds one `key=value`.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.set.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds one key of Kafka's, which matters in runs against the reference only.
    #[must_use]
    pub fn kafka(mut self, key: &str, value: &str) -> Self {
        self.kafka.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Which broker is to be started.
    pub fn flavour(&self) -> Result<Flavour, String> {
        if let Some(flavour) = self.flavour {
            return Ok(flavour);
        }
        if is_reference() {
            return Ok(Flavour::Kafka);
        }
        let chosen = pulsar::chosen()?;
        Ok(chosen.map_or(Flavour::Kop, Flavour::Pulsar))
    }

    /// The Pulsar whose broker from another test would do as well; `None` if none would.
    fn shareable(&self) -> Option<Flavour> {
        let usual = self.set.is_empty() && self.data.is_none() && self.build.is_none();
        let flavour = self.flavour().ok()?;
        (usual && matches!(flavour, Flavour::Pulsar(_))).then_some(flavour)
    }
}

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    /// `None` only once it has been dropped.
    node: Option<Node>,
    shared: bool,
}

impl Broker {
    /// Starts a broker with default settings.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// Starts a broker; panics with its log if it does not come up.
    #[track_caller]
    pub fn with(options: Options) -> Self {
        match Self::try_with(options) {
            Ok(broker) => broker,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Starts a broker, or says why it did not come up.
    pub fn try_with(options: Options) -> Result<Self, String> {
        let shareable = options.shareable();
        let node = match shareable.and_then(take_waiting) {
            Some(node) => node,
            None => Node::start(options)?,
        };
        Ok(Self {
            node: Some(node),
            shared: shareable.is_some(),
        })
    }
}

impl Deref for Broker {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node
            .as_ref()
            .expect("it has a node until it is dropped")
    }
}

impl DerefMut for Broker {
    fn deref_mut(&mut self) -> &mut Node {
        self.node
            .as_mut()
            .expect("it has a node until it is dropped")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let Some(mut node) = self.node.take() else {
            return;
        };
        if !self.shared || std::thread::panicking() || !node.is_untouched() {
            return;
        }
        match rd::empty(&node.bootstrap(), EMPTYING) {
            Ok(()) => waiting().push(node),
            Err(problem) => println!("a broker is not used again: {problem}"),
        }
    }
}

fn waiting() -> std::sync::MutexGuard<'static, Vec<Node>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A broker of this kind that waits and is alive.
fn take_waiting(flavour: Flavour) -> Option<Node> {
    loop {
        let mut all = waiting();
        let place = all.iter().position(|node| node.flavour() == flavour)?;
        let mut node = all.swap_remove(place);
        if node.is_untouched() {
            return Some(node);
        }
    }
}

/// Ports that Linux gives to no outgoing connection: what is free here is still free when a JVM gets to it.
const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 22_000;

/// A TCP port that nothing listens on at the moment, and that this program has not given out before.
pub fn free_port() -> u16 {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Programs that run side by side begin far apart.
    let next = NEXT.get_or_init(|| AtomicU16::new((std::process::id().wrapping_mul(7_919)) as u16));
    for _ in 0..PORTS {
        let port = FIRST_PORT + next.fetch_add(1, Ordering::Relaxed) % PORTS;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}
