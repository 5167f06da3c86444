//! Child processes of the tests: their output in a file, a bound on their time, and no child left behind.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long one look at a child's state or output waits before the next.
const LOOK: Duration = Duration::from_millis(2);
/// How much of a log is shown when a test fails, in bytes.
const SHOWN_TAIL: usize = 16 * 1024;

/// A long-lived child (a broker) whose standard output and error go to one log file.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts `command` and appends what it prints to `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self, String> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.map_err(|error| format!("log {}: {error}", log.display()))?;
        let twin = file
            .try_clone()
            .map_err(|error| format!("log {}: {error}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(twin);
        let child = command
            .spawn()
            .map_err(|error| format!("{name} does not start: {command:?}: {error}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything that it printed so far.
    pub fn output(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits until `found` gives something for the output, the child ends, or `limit` passes.
    pub fn wait_for<T>(
        &mut self,
        limit: Duration,
        found: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        let start = Instant::now();
        loop {
            let output = self.output();
            if let Some(value) = found(&output) {
                return Ok(value);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!(
                    "{} ended with {status}:\n{}",
                    self.name,
                    tail(&output)
                ));
            }
            if start.elapsed() > limit {
                return Err(format!(
                    "{} was not ready after {limit:?}:\n{}",
                    self.name,
                    tail(&output)
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Kills it without warning and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and waits; after `limit` it is killed and the answer is an error.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus, String> {
        self.signal(Signal::TERM);
        self.wait(limit)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for its end; after `limit` it is killed and the answer is an error.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, String> {
        let status = wait_at_most(&mut self.child, limit);
        status.ok_or_else(|| {
            format!(
                "{} did not end within {limit:?}:\n{}",
                self.name,
                tail(&self.output())
            )
        })
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!(
                "---- last output of {} ({}) ----\n{}",
                self.name,
                self.log.display(),
                tail(&self.output())
            );
        }
    }
}

/// What a program that ran to its end left behind.
#[derive(Debug)]
pub struct Finished {
    /// How it ended; `None` if it had to be killed for taking too long.
    pub status: Option<ExitStatus>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Whether it ended by itself with code 0.
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Panics with everything that it printed unless it succeeded.
    #[track_caller]
    pub fn expect_success(self, what: &str) -> Self {
        assert!(
            self.success(),
            "{what}: {:?}\n---- stdout\n{}\n---- stderr\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }
}

/// Runs a program to its end with `input` on its standard input, or kills it after `limit`.
pub fn run(mut command: Command, input: Option<&str>, limit: Duration) -> Finished {
    command.stdin(if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return Finished {
                status: None,
                stdout: String::new(),
                stderr: format!("{command:?}: {error}"),
            };
        }
    };
    let reader = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                let _ = stream.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = reader(
        child
            .stdout
            .take()
            .map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    );
    let stderr = reader(
        child
            .stderr
            .take()
            .map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    );
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        let input = input.to_owned();
        std::thread::spawn(move || {
            let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
        });
    }
    let status = wait_at_most(&mut child, limit);
    Finished {
        status,
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    }
}

/// Waits for a child; kills it and answers `None` when `limit` passes first.
fn wait_at_most(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < limit => std::thread::sleep(LOOK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// The end of a log.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(SHOWN_TAIL);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Retries `probe` until it gives something or `limit` passes; `what` names it in the panic.
#[track_caller]
pub fn eventually<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
