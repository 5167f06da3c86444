//! Apache Kafka as one node with its default settings: the reference for the interop tests and the rival of the benchmark.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::broker::Options;
use crate::process::run;
use crate::tools;

/// Any valid cluster id will do: the node is alone.
const CLUSTER_ID: &str = "a29wLXRlc3RzLWNsdXN0ZQ";

/// Where a node listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// For clients.
    pub(crate) clients: u16,
    /// Its own controller.
    pub(crate) controller: u16,
    /// The second listener for clients, where one is asked for.
    pub(crate) external: u16,
}

/// The command that starts a node on `port` with its files in `home`; formats `data` on first use.
///
/// Only what one node needs differs from Kafka's defaults: the ports, the replication of its internal topics, and no
/// wait for more members before a group's first assignment.
pub(crate) fn command(
    home: &Path,
    data: &Path,
    ports: Ports,
    options: &Options,
) -> Result<Command, String> {
    let kafka = tools::kafka()?;
    let properties = home.join("server.properties");
    let Ports {
        clients: port,
        controller: controller_port,
        external,
    } = ports;
    let (second, advertised) = match &options.external {
        Some(advertised) => (
            format!(",EXTERNAL://127.0.0.1:{external}"),
            format!(",EXTERNAL://{advertised}"),
        ),
        None => (String::new(), String::new()),
    };
    let mut text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller_port}\n\
         listeners=PLAINTEXT://127.0.0.1:{port}{second},CONTROLLER://127.0.0.1:{controller_port}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}{advertised}\ncontroller.listener.names=CONTROLLER\n\
         inter.broker.listener.name=PLAINTEXT\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT\nlog.dirs={}\n\
         offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\nshare.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n",
        data.display()
    );
    let more = options.kafka.iter();
    text.extend(more.map(|(key, value)| format!("{key}={value}\n")));
    std::fs::write(&properties, text)
        .map_err(|error| format!("{}: {error}", properties.display()))?;
    if !data.join("meta.properties").exists() {
        let mut format = kafka.java();
        format
            .args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"])
            .arg(&properties);
        let finished = run(format, None, Duration::from_secs(120));
        if !finished.success() {
            return Err(format!(
                "Kafka's storage cannot be formatted: {}{}",
                finished.stdout, finished.stderr
            ));
        }
    }
    // Who asks for Kafka by name measures it.
    let mut command = match options.flavour {
        Some(_) => kafka.broker(),
        None => kafka.small_broker(),
    };
    command.arg("kafka.Kafka").arg(&properties);
    Ok(command)
}
