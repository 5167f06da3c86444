//! Toolchains of other languages, and the clients fetched with them by package name and exact version.
//!
//! Everything lands under `target/tools` and is kept: a second run fetches nothing. A missing toolchain is an ordinary
//! answer that names itself; a fetch that fails is one too, with the client's own words.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kop_fetch::folder::{FETCH, checked, fetched, need, python_environment, write};
pub use kop_fetch::folder::{repository, target};
use kop_fetch::java::{Jdk, jars};

use crate::process::{Finished, run};

/// The Apache Kafka whose tools, clients and broker are used.
pub const KAFKA: &str = "4.3.1";
/// The Python client (it bundles its own librdkafka).
const CONFLUENT_KAFKA: &str = "confluent-kafka==2.12.2";
/// Pulsar's own Python client.
const PULSAR_CLIENT: &str = "pulsar-client==3.13.0";
/// What the `pulsar` crate is built with.
const PROTOX: &str = "0.10.0";

/// The directory of cargo's profile that built the running program (`target/debug`, `target/release`).
pub fn profile_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = target();
    program
        .ancestors()
        .find(|path| path.parent() == Some(&target))
        .map_or_else(|| target.join("debug"), Path::to_owned)
}

/// Apache Kafka from Maven: its jars, and the Java to run them.
#[derive(Clone, Debug)]
pub struct Kafka {
    java: PathBuf,
    jars: PathBuf,
}

impl Kafka {
    /// The jar of an artifact, for instance `kafka-clients`.
    pub fn jar(&self, artifact: &str) -> Result<PathBuf, String> {
        let wanted = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let version = name
                .strip_prefix(artifact)
                .and_then(|rest| rest.strip_prefix('-'));
            version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
        };
        let folder = std::fs::read_dir(&self.jars)
            .map_err(|error| format!("{}: {error}", self.jars.display()))?;
        let mut paths = folder.flatten().map(|entry| entry.path());
        paths
            .find(wanted)
            .ok_or_else(|| format!("no jar of {artifact} in {}", self.jars.display()))
    }
}

/// Fetches Apache Kafka (broker, tools, clients and what they need).
pub fn kafka() -> Result<Kafka, String> {
    // The one that it is measured with too; a JDK that is too old is none.
    let java = Jdk::of(17)?.program("java");
    let jars = jars("kafka", include_str!("../clients/java/pom.xml"), &[])?;
    Ok(Kafka { java, jars })
}

impl Kafka {
    /// A `java` command with Kafka's jars on its class path.
    pub fn java(&self) -> Command {
        let mut command = Command::new(&self.java);
        command.arg("-cp").arg(self.jars.join("*"));
        command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
        // Short-lived programs: spend nothing on optimizing them.
        command
            .arg("-XX:+UseSerialGC")
            .arg("-XX:TieredStopAtLevel=1")
            .arg("-Xmx256m");
        command
    }

    /// The broker's own command: the heap and the collector that Kafka's start script gives it.
    pub fn broker(&self) -> Command {
        let mut command = Command::new(&self.java);
        command.args([
            "-Xmx1G",
            "-Xms1G",
            "-server",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
        ]);
        command.args([
            "-XX:InitiatingHeapOccupancyPercent=35",
            "-XX:+ExplicitGCInvokesConcurrent",
        ]);
        command.args(["-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"]);
        command
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=info")
            .arg("-cp")
            .arg(self.jars.join("*"));
        command
    }

    /// The same for tests, which start many of them to do little: a small heap, and nothing spent on optimizing.
    pub fn small_broker(&self) -> Command {
        let mut command = self.java();
        command.args(["-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"]);
        command
    }

    /// Runs one of the console tools by its class with these arguments.
    pub fn tool<S: AsRef<OsStr>>(
        &self,
        class: &str,
        arguments: &[S],
        input: Option<&str>,
        limit: Duration,
    ) -> Finished {
        let mut command = self.java();
        command.arg(class).args(arguments);
        run(command, input, limit)
    }

    /// A command that runs one of our Java programs (`tests/clients/java/NAME.java`) from its source.
    pub fn program(&self, name: &str) -> Command {
        let mut command = self.java();
        command.arg(
            repository()
                .join("tests/clients/java")
                .join(format!("{name}.java")),
        );
        command
    }

    /// The same with the server compiler and room to breathe: for measuring.
    pub fn measuring_program(&self, name: &str) -> Command {
        let mut command = Command::new(&self.java);
        command
            .args([
                "-Xmx1G",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp",
            ])
            .arg(self.jars.join("*"));
        command.arg(
            repository()
                .join("tests/clients/java")
                .join(format!("{name}.java")),
        );
        command
    }
}

/// Our Python client program with its interpreter in a virtual environment that has confluent-kafka.
pub fn python() -> Result<Command, String> {
    let folder = python_environment("python", &[CONFLUENT_KAFKA])?;
    let mut command = Command::new(folder.join("bin/python"));
    command.arg(repository().join("tests/clients/python/client.py"));
    Ok(command)
}

/// Our Python program of a Pulsar client, with its interpreter in a virtual environment that has Pulsar's client.
pub fn pulsar_python() -> Result<Command, String> {
    let folder = python_environment("python-pulsar", &[PULSAR_CLIENT])?;
    let mut command = Command::new(folder.join("bin/python"));
    command.arg(repository().join("tests/clients/python/pulsar_client.py"));
    Ok(command)
}

/// Our program with the `pulsar` crate, built. The crate needs protoc; protox, from the same registry, takes its place.
pub fn pulsar_rust() -> Result<Command, String> {
    let source = repository().join("tests/clients/rust");
    let recipe = concat!(
        include_str!("../clients/rust/src/main.rs"),
        include_str!("../clients/rust/Cargo.toml"),
        include_str!("../clients/rust/Cargo.lock")
    );
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let protox = fetched("protox", PROTOX, |folder| {
        let mut install = Command::new(&cargo);
        install.args(["install", "-q", "--locked", "--debug", "--features", "bin"]);
        install.arg("--root").arg(folder);
        install.args(["--version", PROTOX, "protox"]);
        // Beside the target directory of this repository, which another cargo may hold.
        install.env("CARGO_TARGET_DIR", folder.join("build"));
        let installed = checked("installing protox", run(install, None, FETCH));
        let _ = std::fs::remove_dir_all(folder.join("build"));
        installed
    })?;
    let folder = fetched("pulsar-rust", recipe, |folder| {
        let mut build = Command::new(&cargo);
        build.args(["build", "-q", "--locked", "--manifest-path"]);
        build.arg(source.join("Cargo.toml"));
        build.env("PROTOC", protox.join("bin/protox"));
        build.env("CARGO_TARGET_DIR", folder.join("build"));
        checked("building the pulsar crate", run(build, None, FETCH))
    })?;
    Ok(Command::new(
        folder.join("build/debug/pulsar-client-program"),
    ))
}

/// Our Node program with kafkajs and the codecs beside it.
pub fn node() -> Result<Command, String> {
    let node = need("node", "Node.js")?;
    let npm = need("npm", "npm")?;
    let manifest = include_str!("../clients/node/package.json");
    let locked = include_str!("../clients/node/package-lock.json");
    let folder = fetched("node", locked, |folder| {
        write(&folder.join("package.json"), manifest)?;
        write(&folder.join("package-lock.json"), locked)?;
        let mut command = Command::new(&npm);
        command
            .current_dir(folder)
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
        checked("installing kafkajs with npm", run(command, None, FETCH))
    })?;
    let mut command = Command::new(node);
    command.env("NODE_PATH", folder.join("node_modules"));
    command.arg(repository().join("tests/clients/node/client.js"));
    Ok(command)
}

/// Our Go program with franz-go, built.
pub fn go() -> Result<Command, String> {
    let go = need("go", "Go")?;
    let source = include_str!("../clients/go/main.go");
    let recipe = concat!(
        include_str!("../clients/go/main.go"),
        include_str!("../clients/go/go.mod")
    );
    let folder = fetched("go", recipe, |folder| {
        write(&folder.join("main.go"), source)?;
        write(&folder.join("go.mod"), include_str!("../clients/go/go.mod"))?;
        write(&folder.join("go.sum"), include_str!("../clients/go/go.sum"))?;
        let mut command = Command::new(&go);
        command
            .current_dir(folder)
            .args(["build", "-mod=readonly", "-o", "client", "."]);
        checked("building the franz-go program", run(command, None, FETCH))
    })?;
    Ok(Command::new(folder.join("client")))
}
