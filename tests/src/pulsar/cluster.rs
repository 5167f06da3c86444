//! A Pulsar cluster on loopback: a ZooKeeper, bookies, and brokers with our NAR, each a JVM of its own.
//!
//! Load is not shed and bundles are not split under a test: partitions move when the test moves them. Sessions with the
//! metadata store are short, so that a killed broker's partitions find another owner within seconds.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use kop_fetch::folder::write;
use kop_fetch::pulsar::{Memory, Release};

use crate::broker::free_port;
use crate::node::{answers, home};
use crate::process::{Service, eventually, run};
use crate::pulsar::admin::Admin;
use crate::pulsar::jvm::{self, Program};
use crate::pulsar::standalone::SMALL;
use crate::pulsar::{Settings, place_nar};

/// How long one process may take to be ready, on a machine where the others start beside it.
const READY: Duration = Duration::from_secs(150);
/// How long a clean stop of a broker may take.
const STOP: Duration = Duration::from_secs(60);
/// Time after which the metadata store gives a silent broker up.
const SESSION: Duration = Duration::from_secs(6);
/// The cluster's name.
const NAME: &str = "c1";

/// What the brokers are given beside the guide's settings.
const TOGETHER: &str = "\
clusterName=c1
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
managedLedgerDefaultEnsembleSize=2
managedLedgerDefaultWriteQuorum=2
managedLedgerDefaultAckQuorum=2
bookkeeperClientTimeoutInSeconds=5
defaultNumberOfNamespaceBundles=16
loadBalancerEnabled=true
loadBalancerSheddingEnabled=false
loadBalancerAutoBundleSplitEnabled=false
loadBalancerReportUpdateMinIntervalMillis=1000
systemTopicEnabled=true
topicLevelPoliciesEnabled=true
narExtractionDirectory=./nar
";

/// How a cluster is to be started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Pulsar's release.
    pub release: Release,
    /// How many brokers; at least one.
    pub brokers: usize,
    /// How many bookies; at least two, for every entry is kept twice.
    pub bookies: usize,
    /// Keys that all brokers get after those of the harness.
    pub set: Vec<(String, String)>,
}

impl Plan {
    /// Two brokers and two bookies.
    pub fn small(release: Release) -> Self {
        Self {
            release,
            brokers: 2,
            bookies: 2,
            set: Vec::new(),
        }
    }
}

/// One broker of a cluster.
#[derive(Debug)]
pub struct Member {
    name: String,
    kafka: u16,
    web: u16,
    pulsar: u16,
    service: Option<Service>,
}

impl Member {
    /// The Kafka listener's address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.kafka))
    }

    /// The `host:port` by which Pulsar names this broker.
    pub fn id(&self) -> String {
        format!("127.0.0.1:{}", self.web)
    }

    /// Its admin interface.
    pub fn admin(&self) -> Admin {
        Admin::at(SocketAddr::from(([127, 0, 0, 1], self.web)))
    }

    /// Whether its process lives.
    pub fn is_running(&mut self) -> bool {
        self.service.as_mut().is_some_and(Service::is_running)
    }

    /// Everything that it printed.
    pub fn log(&self) -> String {
        self.service
            .as_ref()
            .map(Service::output)
            .unwrap_or_default()
    }
}

/// A running cluster. Its processes are killed when it is dropped, brokers first.
#[derive(Debug)]
pub struct Cluster {
    plan: Plan,
    /// The brokers.
    pub brokers: Vec<Member>,
    #[expect(dead_code, reason = "ends the bookies when dropped")]
    bookies: Vec<Service>,
    #[expect(dead_code, reason = "ends the metadata store when dropped")]
    zookeeper: Service,
    zookeeper_port: u16,
    /// Dropped, and so deleted, after the processes have ended.
    home: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster and waits until every broker takes Kafka connections; panics with a log if one does not.
    #[track_caller]
    pub fn start(plan: Plan) -> Self {
        match Self::try_start(plan) {
            Ok(cluster) => cluster,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Starts a cluster, or says why it did not come up.
    pub fn try_start(plan: Plan) -> Result<Self, String> {
        let home = home("cluster-")?;
        let zookeeper_port = free_port();
        let brokers: Vec<Member> = (0..plan.brokers)
            .map(|number| Member {
                name: format!("broker{number}"),
                kafka: free_port(),
                web: free_port(),
                pulsar: free_port(),
                service: None,
            })
            .collect();
        let zookeeper = zookeeper(&plan, zookeeper_port, &folder(home.path(), "zk")?)?;
        set_up(&plan, zookeeper_port, &brokers, home.path())?;
        let mut bookies = Vec::new();
        for number in 0..plan.bookies {
            let folder = folder(home.path(), &format!("bookie{number}"))?;
            bookies.push(bookie(&plan, zookeeper_port, &folder)?);
        }
        let mut cluster = Self {
            plan,
            brokers,
            bookies,
            zookeeper,
            zookeeper_port,
            home,
        };
        // Side by side: most of a start is waiting, and the rest two processors share well.
        for number in 0..cluster.brokers.len() {
            cluster.launch(number)?;
        }
        for number in 0..cluster.brokers.len() {
            cluster.wait_ready(number)?;
        }
        Ok(cluster)
    }

    /// Addresses of all brokers for a client.
    pub fn bootstrap(&self) -> String {
        let addresses = self.brokers.iter().map(|it| it.address().to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Addresses of the brokers that run, for a client that takes none that is dead.
    pub fn living(&mut self) -> String {
        let brokers = self.brokers.iter_mut().filter_map(|broker| {
            let runs = broker.is_running();
            runs.then(|| broker.address().to_string())
        });
        brokers.collect::<Vec<_>>().join(",")
    }

    /// The admin interface of a broker that runs.
    #[track_caller]
    pub fn admin(&mut self) -> Admin {
        let running = self.brokers.iter_mut().find_map(|broker| {
            let runs = broker.is_running();
            runs.then(|| broker.admin())
        });
        running.expect("a broker runs")
    }

    /// Kills a broker without warning.
    pub fn kill(&mut self, number: usize) {
        if let Some(service) = &mut self.brokers[number].service {
            service.kill();
        }
    }

    /// Stops a broker by SIGTERM and waits for its end.
    pub fn stop(&mut self, number: usize) -> Result<ExitStatus, String> {
        match &mut self.brokers[number].service {
            Some(service) => service.terminate(STOP),
            None => Err(format!("broker {number} was never started")),
        }
    }

    /// Starts a broker again that was stopped or killed, on the same ports.
    #[track_caller]
    pub fn restart(&mut self, number: usize) {
        self.brokers[number].service = None;
        let ready = self.launch(number).and_then(|()| self.wait_ready(number));
        if let Err(problem) = ready {
            panic!("{problem}");
        }
    }

    /// The number of the broker that owns a topic (`public/default/orders-partition-0`) and lives.
    #[track_caller]
    pub fn owner(&mut self, topic: &str) -> usize {
        // Until a dead broker's session has ended the others still name it.
        eventually(&format!("a living owner of {topic}"), READY, || {
            let owner = self.admin().owner(topic).ok()?;
            let mut brokers = self.brokers.iter_mut().enumerate();
            let (number, broker) = brokers.find(|(_, broker)| broker.id() == owner)?;
            broker.is_running().then_some(number)
        })
    }

    /// Moves the bundle of a topic to a broker and waits until it is the owner.
    #[track_caller]
    pub fn move_to(&mut self, topic: &str, number: usize) {
        let target = self.brokers[number].id();
        let namespace = topic
            .rsplit_once('/')
            .map_or(topic, |(namespace, _)| namespace);
        eventually(&format!("{topic} on broker {number}"), READY, || {
            if self.owner(topic) == number {
                return Some(());
            }
            let admin = self.admin();
            let bundle = admin.bundle(topic).ok()?;
            // Releases before 3 go anywhere; then it is tried again.
            let _ = admin.unload(namespace, &bundle, Some(&target));
            None
        });
    }

    fn launch(&mut self, number: usize) -> Result<(), String> {
        let broker = &self.brokers[number];
        let home = folder(self.home.path(), &broker.name)?;
        place_nar(&home)?;
        let mut settings = Settings::of_the_guide(broker.kafka);
        settings.set_all(SMALL);
        settings.set_all(TOGETHER);
        let store = format!("zk:127.0.0.1:{}", self.zookeeper_port);
        let session = SESSION.as_millis().to_string();
        for (key, value) in [
            ("brokerServicePort", broker.pulsar.to_string()),
            ("webServicePort", broker.web.to_string()),
            ("metadataStoreUrl", store.clone()),
            ("configurationMetadataStoreUrl", store),
            ("metadataStoreSessionTimeoutMillis", session.clone()),
            ("zooKeeperSessionTimeoutMillis", session),
        ] {
            settings.set(key, &value);
        }
        for (key, value) in &self.plan.set {
            settings.set(key, value);
        }
        let file = home.join("broker.conf");
        write(&file, &settings.text())?;
        let program = Program {
            name: &broker.name,
            class: "org.apache.pulsar.PulsarBrokerStarter",
            arguments: &["-c".to_owned(), file.display().to_string()],
            memory: Memory {
                heap: 384,
                direct: 384,
            },
            flags: &[],
        };
        let command = jvm::command(self.plan.release, &program, &home)?;
        let service = jvm::start(&broker.name, command, &home.join("broker.log"))?;
        self.brokers[number].service = Some(service);
        Ok(())
    }

    /// Waits until a broker takes Kafka connections and all others that run know it.
    fn wait_ready(&mut self, number: usize) -> Result<(), String> {
        let broker = &mut self.brokers[number];
        let (address, admin, id) = (broker.address(), broker.admin(), broker.id());
        let Some(service) = &mut broker.service else {
            return Err(format!("broker {number} was never started"));
        };
        service.wait_for(READY, |_| answers(address).then_some(()))?;
        let start = Instant::now();
        loop {
            let listed = admin.json(&format!("/admin/v2/brokers/{NAME}"));
            let known = listed.as_ref().ok().and_then(|list| list.as_array());
            if known.is_some_and(|all| all.iter().any(|it| it.as_str() == Some(&id))) {
                return Ok(());
            }
            if start.elapsed() > READY {
                return Err(format!("broker {number} is not listed: {listed:?}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn folder(home: &Path, name: &str) -> Result<std::path::PathBuf, String> {
    let folder = home.join(name);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Starts the metadata store and waits until it accepts connections.
fn zookeeper(plan: &Plan, port: u16, home: &Path) -> Result<Service, String> {
    let file = home.join("zoo.cfg");
    let text = format!(
        "tickTime=1000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n",
        home.join("data").display()
    );
    write(&file, &text)?;
    let program = Program {
        name: "zookeeper",
        class: "org.apache.zookeeper.server.ZooKeeperServerMain",
        arguments: &[file.display().to_string()],
        memory: Memory {
            heap: 128,
            direct: 32,
        },
        flags: &[
            "-XX:+UseSerialGC",
            // Else its admin server takes a port that is not ours to give.
            "-Dzookeeper.admin.enableServer=false",
            "-Dzookeeper.forceSync=no",
        ],
    };
    let command = jvm::command(plan.release, &program, home)?;
    let mut service = jvm::start("zookeeper", command, &home.join("zookeeper.log"))?;
    wait_for_port(&mut service, port)?;
    Ok(service)
}

/// Writes the cluster's first metadata; once, before anything else uses the store.
fn set_up(plan: &Plan, zookeeper: u16, brokers: &[Member], home: &Path) -> Result<(), String> {
    let all = |port: &dyn Fn(&Member) -> u16| {
        let addresses = brokers.iter().map(|it| format!("127.0.0.1:{}", port(it)));
        addresses.collect::<Vec<_>>().join(",")
    };
    let store = format!("zk:127.0.0.1:{zookeeper}");
    let arguments = [
        "--cluster".to_owned(),
        NAME.to_owned(),
        "--metadata-store".to_owned(),
        store.clone(),
        "--configuration-metadata-store".to_owned(),
        store,
        "--web-service-url".to_owned(),
        format!("http://{}", all(&|broker| broker.web)),
        "--broker-service-url".to_owned(),
        format!("pulsar://{}", all(&|broker| broker.pulsar)),
    ];
    let program = Program {
        name: "setup",
        class: "org.apache.pulsar.PulsarClusterMetadataSetup",
        arguments: &arguments,
        memory: Memory {
            heap: 128,
            direct: 64,
        },
        flags: &["-XX:+UseSerialGC"],
    };
    let finished = run(jvm::command(plan.release, &program, home)?, None, READY);
    if finished.success() {
        return Ok(());
    }
    Err(format!(
        "the cluster's metadata cannot be set up: {}{}",
        finished.stdout, finished.stderr
    ))
}

/// Starts one bookie and waits until it accepts connections.
fn bookie(plan: &Plan, zookeeper: u16, home: &Path) -> Result<Service, String> {
    let port = free_port();
    let mut settings = Settings::default();
    settings.set_all(SMALL);
    settings.set_all(
        "advertisedAddress=127.0.0.1\nallowLoopback=true\nlisteningInterface=lo\nzkTimeout=5000\n\
         ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage\n\
         httpServerEnabled=false\nautoRecoveryDaemonEnabled=false\n",
    );
    let inside = |name: &str| home.join(name).display().to_string();
    for (key, value) in [
        ("bookiePort", port.to_string()),
        (
            "metadataServiceUri",
            format!("zk+null://127.0.0.1:{zookeeper}/ledgers"),
        ),
        ("journalDirectories", inside("journal")),
        ("ledgerDirectories", inside("ledgers")),
        ("indexDirectories", inside("ledgers")),
    ] {
        settings.set(key, &value);
    }
    let file = home.join("bookie.conf");
    write(&file, &settings.text())?;
    let program = Program {
        name: "bookie",
        class: "org.apache.bookkeeper.server.Main",
        arguments: &["--conf".to_owned(), file.display().to_string()],
        memory: Memory {
            heap: 256,
            direct: 256,
        },
        flags: &["-XX:+UseSerialGC"],
    };
    let command = jvm::command(plan.release, &program, home)?;
    let mut service = jvm::start("bookie", command, &home.join("bookie.log"))?;
    wait_for_port(&mut service, port)?;
    Ok(service)
}

fn wait_for_port(service: &mut Service, port: u16) -> Result<(), String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let open = |_: &str| TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
    service.wait_for(READY, open).map(drop)
}
