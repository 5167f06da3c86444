//! One JVM of a Pulsar cluster as a child process that ends with the test program, however that ends.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use kop_fetch::folder::{find, write};
use kop_fetch::pulsar::{Memory, Release, java};

use crate::process::Service;
use crate::pulsar::jdk;

/// Log4j's settings: everything to standard output, which the service keeps in its log file.
const LOGGING: &str = "\
status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{HH:mm:ss.SSS} %-5p [%t] %c{1} - %m%n%throwable
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
logger.pulsar.name=org.apache.pulsar
logger.pulsar.level=info
logger.kop.name=io.kop
logger.kop.level=info
";

/// What one JVM runs.
pub struct Program<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// The main class.
    pub class: &'a str,
    /// Its arguments.
    pub arguments: &'a [String],
    /// How much it may take.
    pub memory: Memory,
    /// System properties and other flags of the JVM.
    pub flags: &'a [&'a str],
}

/// A command that runs the program in `home`.
pub fn command(release: Release, program: &Program<'_>, home: &Path) -> Result<Command, String> {
    let logging = home.join("log4j2.properties");
    write(&logging, LOGGING)?;
    let jdk = jdk()?;
    // The test harness keeps brokers for later tests in a place that is never dropped.
    let mut command = match find("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command
                .args(["--pdeathsig", "KILL"])
                .arg(jdk.program("java"));
            command
        }
        None => Command::new(jdk.program("java")),
    };
    java(&jdk, release, program.memory, false, &mut command)?;
    command.current_dir(home).args(program.flags);
    command.arg(format!("-Dlog4j.configurationFile={}", logging.display()));
    command.arg(program.class).args(program.arguments);
    Ok(command)
}

/// Starts a command from a thread that lives as long as this program: Linux tells a child of the end of the thread that
/// started it, and tests are threads.
pub fn start(name: &str, command: Command, log: &Path) -> Result<Service, String> {
    type Job = Box<dyn FnOnce() + Send>;
    static STARTER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (jobs, taken) = channel::<Job>();
        std::thread::spawn(move || taken.into_iter().for_each(|job| job()));
        Mutex::new(jobs)
    });
    let (answer, answered) = channel();
    let (name, log) = (name.to_owned(), log.to_owned());
    let job = move || {
        let _ = answer.send(Service::start(&name, command, &log));
    };
    let sent = starter
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send(Box::new(job));
    sent.map_err(|_| "the thread that starts programs is gone".to_owned())?;
    answered
        .recv()
        .map_err(|_| "the thread that starts programs is gone".to_owned())?
}
