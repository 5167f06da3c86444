//! One step of a check: a command with a bound on its time, in a process group of its own so that nothing outlives it.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How often a running step is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a command with its output in `log`; `None` if it took longer than `limit` and was killed.
pub(crate) fn run(
    mut command: Command,
    log: &Path,
    limit: Duration,
) -> Result<Option<ExitStatus>, String> {
    let broken = |error: std::io::Error| format!("{}: {error}", log.display());
    let file = File::create(log).map_err(broken)?;
    let twin = file.try_clone().map_err(broken)?;
    command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(twin)
        .process_group(0);
    let child = command
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    wait(Group(child), limit)
}

/// A child that leads a process group; the whole group ends with the value.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // What the step left running (a broker of a test that was killed) goes with it.
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

fn wait(mut group: Group, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let start = Instant::now();
    loop {
        match group.0.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) if start.elapsed() > limit => return Ok(None),
            Ok(None) => std::thread::sleep(LOOK),
            Err(error) => return Err(error.to_string()),
        }
    }
}
