//! The settings and the command of a Pulsar standalone: broker, bookie and metadata in one JVM.

use std::path::Path;
use std::process::Command;

use kop_fetch::folder::write;
use kop_fetch::pulsar::{Memory, Release};

use crate::pulsar::jvm::{self, Program};
use crate::pulsar::{Settings, place_nar};

/// What one standalone broker may take.
const MEMORY: Memory = Memory {
    heap: 512,
    direct: 512,
};

/// What a broker on a small machine is given beside the guide's settings: few threads, small caches, no wait for the
/// disk (a killed process leaves what it wrote to the kernel).
pub const SMALL: &str = "\
managedLedgerCacheSizeMB=64
numHttpServerThreads=8
numIOThreads=2
numOrderedExecutorThreads=2
numExecutorThreadPoolSize=2
bookkeeperClientNumWorkerThreads=2
bookkeeperClientNumIoThreads=2
bookkeeperNumberOfChannelsPerBookie=4
journalSyncData=false
journalMaxGroupWaitMSec=1
journalPreAllocSizeMB=4
journalMaxSizeMB=64
logSizeLimit=67108864
entryLogFilePreallocationEnabled=false
nettyMaxFrameSizeBytes=5253120
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
diskUsageLwmThreshold=0.98
minUsableSizeForIndexFileCreation=0
minUsableSizeForEntryLogCreation=0
minUsableSizeForHighPriorityWrites=0
dbStorage_writeCacheMaxSizeMb=32
dbStorage_readAheadCacheMaxSizeMb=16
dbStorage_rocksDB_blockCacheSize=8388608
numAddWorkerThreads=1
numReadWorkerThreads=2
serverNumIOThreads=2
";

/// What makes a standalone of it, on loopback only.
const ALONE: &str = "\
clusterName=standalone
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
allowLoopback=true
listeningInterface=lo
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
loadBalancerEnabled=false
webSocketServiceEnabled=false
";

/// The ports of a standalone broker.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Our listener.
    pub kafka: u16,
    /// Pulsar's admin interface and `/metrics`.
    pub web: u16,
    /// Pulsar's own protocol.
    pub pulsar: u16,
    /// The bookie.
    pub bookie: u16,
    /// The metadata store, where the release starts ZooKeeper for it.
    pub zookeeper: u16,
}

/// `KOP_TEST_ENTRY_FORMAT` is the format that brokers write in where a test does not say; `kafka` if it is not set, which
/// Kafka's own brokers and clients can be compared with byte by byte.
pub const ENTRY_FORMAT: &str = "KOP_TEST_ENTRY_FORMAT";

/// The settings of a standalone broker of this release.
pub fn settings(release: Release, ports: Ports) -> Settings {
    let mut settings = Settings::of_the_guide(ports.kafka);
    let format = std::env::var(ENTRY_FORMAT);
    settings.set("entryFormat", format.as_deref().unwrap_or("kafka"));
    settings.set_all(SMALL);
    settings.set_all(ALONE);
    settings.set("brokerServicePort", &ports.pulsar.to_string());
    settings.set("webServicePort", &ports.web.to_string());
    settings.set("narExtractionDirectory", "./nar");
    if release == Release::V2_10 {
        // What later releases have by default, and transactions need.
        settings.set("systemTopicEnabled", "true");
        settings.set("topicLevelPoliciesEnabled", "true");
    }
    settings
}

/// The command that runs a standalone broker with these settings in `home` and its data in `data`.
pub fn command(
    release: Release,
    settings: &Settings,
    ports: Ports,
    home: &Path,
    data: &Path,
) -> Result<Command, String> {
    place_nar(home)?;
    let file = home.join("standalone.conf");
    write(&file, &settings.text())?;
    let inside = |name: &str| data.join(name).display().to_string();
    let mut arguments = vec![
        "--config".to_owned(),
        file.display().to_string(),
        "--no-functions-worker".to_owned(),
        "--no-stream-storage".to_owned(),
        "--bookkeeper-dir".to_owned(),
        inside("bookkeeper"),
        "--bookkeeper-port".to_owned(),
        ports.bookie.to_string(),
    ];
    if release == Release::V2_10 {
        // Later releases keep metadata in files of their own.
        let port = ports.zookeeper.to_string();
        arguments.extend(["--zookeeper-dir".to_owned(), inside("zookeeper")]);
        arguments.extend(["--zookeeper-port".to_owned(), port]);
    } else {
        arguments.extend(["--metadata-dir".to_owned(), inside("metadata")]);
    }
    let program = Program {
        name: "Pulsar",
        class: "org.apache.pulsar.PulsarStandaloneStarter",
        arguments: &arguments,
        memory: MEMORY,
        flags: &[],
    };
    jvm::command(release, &program, home)
}
