//! One broker under test in a process of its own: ours, or Apache Kafka as the reference for the same tests.
//!
//! Ours is the built `kop standalone` with the built plugin in a `protocols/` folder of the test's own, its data in a
//! temporary directory, its ports picked free. It can be stopped, killed and started again on the same port and data.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::process::{Service, run};
use crate::reference;
use crate::skip::flag;
use crate::tools;

/// `KOP_TEST_REFERENCE=kafka` runs the tests against Apache Kafka itself.
pub const REFERENCE: &str = "KOP_TEST_REFERENCE";
/// Set when the binary and the plugin are known to be built already.
pub const BUILT: &str = "KOP_TEST_BUILT";
/// How long the broker may take to accept connections, on a machine busy with other tests.
const READY: Duration = Duration::from_secs(60);
/// How long a clean stop may take.
const STOP: Duration = Duration::from_secs(60);

/// Whether the tests run against Apache Kafka.
pub fn is_reference() -> bool {
    std::env::var(REFERENCE).is_ok_and(|value| value == "kafka")
}

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Ours.
    Kop,
    /// Apache Kafka.
    Kafka,
}

/// How a broker is to be started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which broker; what `KOP_TEST_REFERENCE` says if not given.
    pub flavour: Option<Flavour>,
    /// Keys of `standalone.conf`, after the ones that the test harness sets.
    pub set: Vec<(String, String)>,
    /// Where the data lives; a temporary directory of its own if not given.
    pub data: Option<PathBuf>,
    /// The directory with the built `kop` and plugin; that of the running test if not given.
    pub build: Option<PathBuf>,
}

impl Options {
    /// Adds one `--set key=value`.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.set.push((key.to_owned(), value.to_owned()));
        self
    }
}

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    options: Options,
    service: Option<Service>,
    /// Dropped, and so deleted, after the process has ended.
    home: tempfile::TempDir,
    port: u16,
    web_port: u16,
    started_in: Duration,
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
        let scratch = tools::target().join("tmp");
        std::fs::create_dir_all(&scratch)
            .map_err(|error| format!("{}: {error}", scratch.display()))?;
        let home = tempfile::Builder::new()
            .prefix("broker-")
            .tempdir_in(&scratch);
        let home = home.map_err(|error| format!("{}: {error}", scratch.display()))?;
        let mut broker = Self {
            options,
            service: None,
            home,
            port: free_port(),
            web_port: free_port(),
            started_in: Duration::ZERO,
        };
        broker.launch()?;
        Ok(broker)
    }

    /// `host:port` for a client.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The Kafka listener's address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The address of the web port (`/metrics`).
    pub fn web_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.web_port))
    }

    /// Where the data lives.
    pub fn data(&self) -> PathBuf {
        self.options
            .data
            .clone()
            .unwrap_or_else(|| self.home.path().join("data"))
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> u32 {
        self.service.as_ref().map_or(0, Service::pid)
    }

    /// How long the last start took, from the process' creation to its readiness.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    fn is_kafka(&self) -> bool {
        match self.options.flavour {
            Some(flavour) => flavour == Flavour::Kafka,
            None => is_reference(),
        }
    }

    /// Everything that it printed since it was first started.
    pub fn log(&self) -> String {
        self.service
            .as_ref()
            .map(Service::output)
            .unwrap_or_default()
    }

    /// Whether the process lives.
    pub fn is_running(&mut self) -> bool {
        self.service.as_mut().is_some_and(Service::is_running)
    }

    /// Kills it as a power cut would end its process (SIGKILL).
    pub fn kill(&mut self) {
        if let Some(service) = &mut self.service {
            service.kill();
        }
    }

    /// Stops it by SIGTERM and waits for its end.
    pub fn stop(&mut self) -> Result<ExitStatus, String> {
        match &mut self.service {
            Some(service) => service.terminate(STOP),
            None => Err("the broker was never started".to_owned()),
        }
    }

    /// Starts it again on the same port and data.
    #[track_caller]
    pub fn restart(&mut self) {
        self.service = None;
        if let Err(problem) = self.launch() {
            panic!("{problem}");
        }
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: rustix::process::Signal) {
        if let Some(service) = &self.service {
            service.signal(signal);
        }
    }

    fn launch(&mut self) -> Result<(), String> {
        let log = self.home.path().join("broker.log");
        let earlier = std::fs::metadata(&log).map_or(0, |found| found.len()) as usize;
        let command = if self.is_kafka() {
            reference::command(self.home.path(), &self.data(), self.port, self.web_port)?
        } else {
            self.command()?
        };
        let is_kafka = self.is_kafka();
        let start = Instant::now();
        let mut service = Service::start("the broker", command, &log)?;
        let address = self.address();
        let listening = |output: &str| {
            let fresh = output.get(earlier..).unwrap_or_default();
            let ready = if is_kafka {
                fresh.contains("Kafka Server started")
            } else {
                fresh.lines().any(|line| {
                    line.contains("accepting connections") && line.contains(&address.to_string())
                })
            };
            ready.then_some(())
        };
        service.wait_for(READY, listening)?;
        TcpStream::connect_timeout(&address, READY)
            .map_err(|error| format!("said to be ready, but {address}: {error}"))?;
        self.started_in = start.elapsed();
        self.service = Some(service);
        Ok(())
    }

    fn command(&self) -> Result<Command, String> {
        let build = self
            .options
            .build
            .clone()
            .unwrap_or_else(tools::profile_directory);
        if self.options.build.is_none() {
            built()?;
        }
        let protocols = self.home.path().join("protocols");
        std::fs::create_dir_all(&protocols)
            .map_err(|error| format!("{}: {error}", protocols.display()))?;
        let plugin = protocols.join("libkop_handler.so");
        if !plugin.exists() {
            place(&build.join("libkop_handler.so"), &plugin)?;
        }
        let mut command = standalone(
            &build,
            self.home.path(),
            &self.data(),
            self.port,
            self.web_port,
        )?;
        for (key, value) in &self.options.set {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        Ok(command)
    }
}

/// `kop standalone` of that build with its files in `home`.
fn standalone(
    build: &Path,
    home: &Path,
    data: &Path,
    port: u16,
    web_port: u16,
) -> Result<Command, String> {
    let config = home.join("standalone.conf");
    let keys = "messagingProtocols=kafka\nclusterName=test\nadvertisedAddress=127.0.0.1\nallowAutoTopicCreation=true\n\
                brokerDeleteInactiveTopicsEnabled=false\n";
    std::fs::write(&config, keys).map_err(|error| format!("{}: {error}", config.display()))?;
    let mut command = Command::new(build.join("kop"));
    command
        .current_dir(home)
        .arg("standalone")
        .arg("--config")
        .arg(&config)
        .arg("--data-dir")
        .arg(data);
    command
        .arg("--set")
        .arg(format!("kafkaListeners=PLAINTEXT://127.0.0.1:{port}"));
    command
        .arg("--set")
        .arg(format!("webServicePort={web_port}"));
    command.arg("--set").arg(format!(
        "protocolHandlerDirectory={}",
        home.join("protocols").display()
    ));
    Ok(command)
}

/// Puts the plugin into a `protocols/` folder; a hard link where it can, so that a rebuild does not change it under us.
fn place(from: &Path, to: &Path) -> Result<(), String> {
    let linked = std::fs::hard_link(from, to).or_else(|_| std::fs::copy(from, to).map(|_| ()));
    linked.map_err(|error| format!("the plugin {}: {error}", from.display()))
}

/// Builds the binary and the plugin in the profile of the running test, once per process, unless they are known to be built.
fn built() -> Result<(), String> {
    static BUILD: OnceLock<Result<(), String>> = OnceLock::new();
    let build = || {
        if flag(BUILT) {
            return Ok(());
        }
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(tools::repository()).args([
            "build",
            "-q",
            "-p",
            "kop-handler",
            "-p",
            "host-shim",
            "-p",
            "kop-tests",
        ]);
        if tools::profile_directory().ends_with("release") {
            command.arg("--release");
        }
        let finished = run(command, None, Duration::from_secs(1_800));
        if finished.success() {
            Ok(())
        } else {
            Err(format!("the broker does not build:\n{}", finished.stderr))
        }
    };
    BUILD.get_or_init(build).clone()
}

/// A TCP port that nothing listens on at the moment.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    match listener {
        Ok(address) => address.port(),
        Err(error) => panic!("no free port: {error}"),
    }
}
