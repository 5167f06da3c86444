//! The process of one broker with its files and ports: how each kind is started, when it is ready, how it ends.
//!
//! Ours is the built `kop standalone` with the built plugin in a `protocols/` folder of its own, or a Pulsar standalone
//! with the built NAR in such a folder; its data is in a temporary directory, its ports are picked free. It can be
//! stopped, killed and started again on the same ports and data.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::broker::{BUILT, Flavour, Options, free_port};
use crate::process::{Service, run};
use crate::pulsar::admin::Admin;
use crate::pulsar::standalone::Ports;
use crate::pulsar::{jvm, standalone};
use crate::reference;
use crate::skip::flag;
use crate::tools;

/// How long the broker may take to accept connections, on a machine busy with other tests.
const READY: Duration = Duration::from_secs(60);
/// The same for a JVM with a whole broker in it.
const JVM_READY: Duration = Duration::from_secs(150);
/// How long an answer is waited for before it is asked again, and how long after a refusal.
const ANSWER: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(50);
/// How long a clean stop may take.
const STOP: Duration = Duration::from_secs(60);

/// One broker's process with its files and ports.
#[derive(Debug)]
pub struct Node {
    flavour: Flavour,
    options: Options,
    service: Option<Service>,
    /// Dropped, and so deleted, after the process has ended.
    home: tempfile::TempDir,
    ports: Ports,
    /// Of the second listener, where one is asked for.
    external: u16,
    started_in: Duration,
    /// A test has stopped or killed it, or sent it a signal.
    touched: bool,
}

impl Node {
    /// Starts a broker, or says why it did not come up.
    pub(crate) fn start(options: Options) -> Result<Self, String> {
        let mut node = Self {
            flavour: options.flavour()?,
            options,
            service: None,
            home: home("broker-")?,
            ports: Ports {
                kafka: free_port(),
                web: free_port(),
                pulsar: free_port(),
                bookie: free_port(),
                zookeeper: free_port(),
            },
            external: free_port(),
            started_in: Duration::ZERO,
            touched: false,
        };
        node.launch()?;
        Ok(node)
    }

    /// Which broker it is.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// `host:port` for a client.
    pub fn bootstrap(&self) -> String {
        self.address().to_string()
    }

    /// The Kafka listener's address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.kafka))
    }

    /// The address of the second listener, where [`Options::external`] asks for one.
    pub fn external_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.external))
    }

    /// The address of the web port (`/metrics`).
    pub fn web_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.web))
    }

    /// The URL for clients of Pulsar's own protocol, where it is spoken.
    pub fn pulsar_url(&self) -> String {
        format!("pulsar://127.0.0.1:{}", self.ports.pulsar)
    }

    /// Pulsar's admin interface, where there is one.
    pub fn admin(&self) -> Admin {
        Admin::at(self.web_address())
    }

    /// Where its files lie, other than the data.
    pub fn home(&self) -> &Path {
        self.home.path()
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

    /// Whether it runs and no test has ever stopped it.
    pub(crate) fn is_untouched(&mut self) -> bool {
        !self.touched && self.is_running()
    }

    /// Kills it as a power cut would end its process (SIGKILL).
    pub fn kill(&mut self) {
        self.touched = true;
        if let Some(service) = &mut self.service {
            service.kill();
        }
    }

    /// Stops it by SIGTERM and waits for its end.
    pub fn stop(&mut self) -> Result<ExitStatus, String> {
        self.touched = true;
        match &mut self.service {
            Some(service) => service.terminate(STOP),
            None => Err("the broker was never started".to_owned()),
        }
    }

    /// Starts it again on the same port and data.
    #[track_caller]
    pub fn restart(&mut self) {
        self.touched = true;
        self.service = None;
        if let Err(problem) = self.launch() {
            panic!("{problem}");
        }
    }

    /// Sends a signal to the process.
    pub fn signal(&mut self, signal: rustix::process::Signal) {
        self.touched = true;
        if let Some(service) = &self.service {
            service.signal(signal);
        }
    }

    fn launch(&mut self) -> Result<(), String> {
        let log = self.home.path().join("broker.log");
        let earlier = std::fs::metadata(&log).map_or(0, |found| found.len()) as usize;
        let command = self.command()?;
        let start = Instant::now();
        let (mut service, limit) = match self.flavour {
            Flavour::Pulsar(_) => (jvm::start("Pulsar", command, &log)?, JVM_READY),
            Flavour::Kafka => (Service::start("Kafka", command, &log)?, JVM_READY),
            Flavour::Kop => (Service::start("the broker", command, &log)?, READY),
        };
        let address = self.address();
        let flavour = self.flavour;
        let listening = |output: &str| {
            let fresh = output.get(earlier..).unwrap_or_default();
            let ready = match flavour {
                Flavour::Kafka => fresh.contains("Kafka Server started"),
                Flavour::Kop => {
                    let (said, at) = ("accepting connections", address.to_string());
                    let mut lines = fresh.lines();
                    lines.any(|line| line.contains(said) && line.contains(&at))
                }
                Flavour::Pulsar(_) => answers(address),
            };
            ready.then_some(())
        };
        service.wait_for(limit, listening)?;
        TcpStream::connect_timeout(&address, limit)
            .map_err(|error| format!("said to be ready, but {address}: {error}"))?;
        self.started_in = start.elapsed();
        self.service = Some(service);
        Ok(())
    }

    fn command(&self) -> Result<Command, String> {
        let (home, data) = (self.home.path(), self.data());
        match self.flavour {
            Flavour::Kafka => {
                let ports = reference::Ports {
                    clients: self.ports.kafka,
                    controller: self.ports.web,
                    external: self.external,
                };
                reference::command(home, &data, ports, &self.options)
            }
            Flavour::Kop => self.standalone(),
            Flavour::Pulsar(release) => {
                let mut settings = standalone::settings(release, self.ports);
                for (key, value) in self.asked() {
                    settings.set(&key, &value);
                }
                standalone::command(release, &settings, self.ports, home, &data)
            }
        }
    }

    /// `kop standalone` of the build with its files in `home`.
    fn standalone(&self) -> Result<Command, String> {
        let build = match &self.options.build {
            Some(build) => build.clone(),
            None => {
                built()?;
                tools::profile_directory()
            }
        };
        let home = self.home.path();
        let protocols = home.join("protocols");
        std::fs::create_dir_all(&protocols)
            .map_err(|error| format!("{}: {error}", protocols.display()))?;
        let plugin = protocols.join("libkop_handler.so");
        if !plugin.exists() {
            place(&build.join("libkop_handler.so"), &plugin)?;
        }
        let config = home.join("standalone.conf");
        let keys = "messagingProtocols=kafka\nclusterName=test\nadvertisedAddress=127.0.0.1\nallowAutoTopicCreation=true\n\
                    brokerDeleteInactiveTopicsEnabled=false\nentryFormat=kafka\n";
        std::fs::write(&config, keys).map_err(|error| format!("{}: {error}", config.display()))?;
        let mut command = Command::new(build.join("kop"));
        command.current_dir(home).arg("standalone");
        command.arg("--config").arg(&config);
        command.arg("--data-dir").arg(self.data());
        let listener = format!("PLAINTEXT://{}", self.address());
        let own = [
            ("kafkaListeners", listener),
            ("webServicePort", self.ports.web.to_string()),
            ("protocolHandlerDirectory", protocols.display().to_string()),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value));
        for (key, value) in own.into_iter().chain(self.asked()) {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        Ok(command)
    }

    /// What the test asks for in our own keys: the second listener, then its settings.
    fn asked(&self) -> Vec<(String, String)> {
        let (own, external) = (self.address(), self.external_address());
        let listeners = self.options.external.iter().flat_map(|advertised| {
            [
                (
                    "kafkaListeners",
                    format!("PLAINTEXT://{own},EXTERNAL://{external}"),
                ),
                (
                    "kafkaAdvertisedListeners",
                    format!("PLAINTEXT://{own},EXTERNAL://{advertised}"),
                ),
                (
                    "kafkaProtocolMap",
                    "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT".to_owned(),
                ),
            ]
        });
        let listeners = listeners.map(|(key, value)| (key.to_owned(), value));
        listeners.chain(self.options.set.clone()).collect()
    }
}

/// Whether a Kafka broker answers at this address; waits a moment if it does not.
///
/// Inside Pulsar the port is bound long before it is served, and the log is Pulsar's.
pub(crate) fn answers(address: SocketAddr) -> bool {
    const API_VERSIONS: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(&API_VERSIONS)?;
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        std::io::Result::Ok(head.ends_with(&[0, 0, 0, 7]))
    };
    let good = ask().unwrap_or(false);
    if !good {
        std::thread::sleep(LOOK);
    }
    good
}

/// A directory for a broker's files, below the build's.
pub(crate) fn home(prefix: &str) -> Result<tempfile::TempDir, String> {
    let scratch = tools::target().join("tmp");
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let home = tempfile::Builder::new().prefix(prefix).tempdir_in(&scratch);
    home.map_err(|error| format!("{}: {error}", scratch.display()))
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
