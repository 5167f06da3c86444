//! Toolchains of other languages, and the clients fetched with them by package name and exact version.
//!
//! Everything lands under `target/tools` and is kept: a second run fetches nothing. A missing toolchain is an ordinary
//! answer that names itself; a fetch that fails is one too, with the client's own words.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::process::{Finished, run};

/// The Apache Kafka whose tools, clients and broker are used.
pub const KAFKA: &str = "4.3.1";
/// The Python client (it bundles its own librdkafka).
const CONFLUENT_KAFKA: &str = "confluent-kafka==2.12.2";
/// How long fetching one client may take.
const FETCH: Duration = Duration::from_secs(900);

/// Fetches within one process wait for each other here, and across processes at a lock file.
static FETCHING: Mutex<()> = Mutex::new(());

/// The repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Cargo's target directory, found from the running program.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let found = program
        .ancestors()
        .find(|path| path.join("CACHEDIR.TAG").is_file());
    found.map_or_else(|| repository().join("target"), Path::to_owned)
}

/// The directory of cargo's profile that built the running program (`target/debug`, `target/release`).
pub fn profile_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = target();
    program
        .ancestors()
        .find(|path| path.parent() == Some(&target))
        .map_or_else(|| target.join("debug"), Path::to_owned)
}

/// Finds a program, by `PATH`.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The program, or a sentence that says which toolchain is missing.
fn need(program: &str, toolchain: &str) -> Result<PathBuf, String> {
    find(program)
        .ok_or_else(|| format!("{toolchain} is not installed (no `{program}` on the PATH)"))
}

/// The lock that keeps two processes from fetching into the same directory; released when dropped.
struct Fetching(#[expect(dead_code, reason = "holds the lock")] File);

fn lock() -> Result<Fetching, String> {
    let folder = target().join("tools");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let path = folder.join(".lock");
    let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    file.lock()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Fetching(file))
}

/// Runs `fetch` unless `folder` is complete for `recipe` (the pinned versions).
fn fetched(
    name: &str,
    recipe: &str,
    fetch: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let _here = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let _there = lock()?;
    let folder = target().join("tools").join(name);
    let done = folder.join(".fetched");
    if std::fs::read_to_string(&done).is_ok_and(|found| found == recipe) {
        return Ok(folder);
    }
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    fetch(&folder)?;
    std::fs::write(&done, recipe).map_err(|error| format!("{}: {error}", done.display()))?;
    Ok(folder)
}

fn checked(what: &str, finished: Finished) -> Result<(), String> {
    if finished.success() {
        return Ok(());
    }
    Err(format!(
        "{what} failed ({:?}): {}{}",
        finished.status, finished.stdout, finished.stderr
    ))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
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
    let java = need("java", "a JDK")?;
    need("javac", "a JDK")?;
    let maven = need("mvn", "Maven")?;
    let pom = include_str!("../clients/java/pom.xml");
    let folder = fetched("kafka", pom, |folder| {
        write(&folder.join("pom.xml"), pom)?;
        // Some POMs name repositories of their own; only the central one is to be asked.
        let empty = folder.join("empty");
        std::fs::create_dir_all(&empty).map_err(|error| format!("{}: {error}", empty.display()))?;
        let mirror = format!(
            "<settings><mirrors><mirror><id>none</id><mirrorOf>*,!central</mirrorOf><url>file://{}</url></mirror></mirrors></settings>",
            empty.display()
        );
        write(&folder.join("settings.xml"), &mirror)?;
        let mut command = Command::new(&maven);
        command.current_dir(folder).args([
            "-B",
            "-q",
            "-s",
            "settings.xml",
            "dependency:copy-dependencies",
        ]);
        command.arg("-DoutputDirectory=lib");
        checked(
            "fetching Apache Kafka with Maven",
            run(command, None, FETCH),
        )
    })?;
    Ok(Kafka {
        java,
        jars: folder.join("lib"),
    })
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
    let python = need("python3", "Python")?;
    let folder = fetched("python", CONFLUENT_KAFKA, |folder| {
        let mut create = Command::new(&python);
        create.args(["-m", "venv"]).arg(folder);
        checked("creating a Python environment", run(create, None, FETCH))?;
        let mut install = Command::new(folder.join("bin/python"));
        install.args([
            "-m",
            "pip",
            "install",
            "-q",
            "--only-binary",
            ":all:",
            CONFLUENT_KAFKA,
        ]);
        checked(
            "installing confluent-kafka with pip",
            run(install, None, FETCH),
        )
    })?;
    let mut command = Command::new(folder.join("bin/python"));
    command.arg(repository().join("tests/clients/python/client.py"));
    Ok(command)
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
