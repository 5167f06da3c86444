//! Metrics of this process, from `/proc/self`, under the names that Prometheus' own client libraries use.
//!
//! It must not know what the process does.

use std::fmt::Write;
use std::fs;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of the kernel's clock rate in the auxiliary vector (`AT_CLKTCK`).
const AUXV_CLOCK_TICKS: u64 = 17;
const DEFAULT_TICKS_PER_SECOND: f64 = 100.0;
/// Places in `/proc/self/stat`, counted after the command's closing bracket.
const STAT_USER_TICKS: usize = 11;
const STAT_SYSTEM_TICKS: usize = 12;
const STAT_THREADS: usize = 17;

static STARTED: OnceLock<f64> = OnceLock::new();

/// Remembers now as the time at which the process started; the first call counts.
pub(crate) fn mark_start() {
    STARTED.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0.0, |time| time.as_secs_f64())
    });
}

/// Prometheus text. What the system does not tell is left out.
pub(crate) fn metrics() -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            let _ = write!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            );
        }
    };
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    metric(
        "process_cpu_seconds_total",
        "counter",
        "CPU time spent, user and system, in seconds.",
        cpu_seconds(&stat),
    );
    metric(
        "process_resident_memory_bytes",
        "gauge",
        "Memory in RAM.",
        status_bytes(&status, "VmRSS:"),
    );
    metric(
        "process_resident_anonymous_memory_bytes",
        "gauge",
        "Memory in RAM that no file backs.",
        status_bytes(&status, "RssAnon:"),
    );
    metric(
        "process_virtual_memory_bytes",
        "gauge",
        "Address space.",
        status_bytes(&status, "VmSize:"),
    );
    metric(
        "process_threads",
        "gauge",
        "Threads.",
        field(&stat, STAT_THREADS),
    );
    let files = fs::read_dir("/proc/self/fd").ok();
    metric(
        "process_open_fds",
        "gauge",
        "Open file descriptors.",
        // The one that lists them is among them.
        files.map(|files| files.count().saturating_sub(1) as f64),
    );
    metric(
        "process_start_time_seconds",
        "gauge",
        "When the process started, in seconds since the epoch.",
        STARTED.get().copied(),
    );
    text
}

fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    let ticks = field(stat, STAT_USER_TICKS)? + field(stat, STAT_SYSTEM_TICKS)?;
    Some(ticks / ticks_per_second())
}

fn ticks_per_second() -> f64 {
    let vector = fs::read("/proc/self/auxv").unwrap_or_default();
    let mut numbers = vector.chunks_exact(8).filter_map(|chunk| {
        let bytes: [u8; 8] = chunk.try_into().ok()?;
        Some(u64::from_ne_bytes(bytes))
    });
    while let (Some(kind), Some(value)) = (numbers.next(), numbers.next()) {
        if kind == AUXV_CLOCK_TICKS && value > 0 {
            return value as f64;
        }
    }
    DEFAULT_TICKS_PER_SECOND
}

/// A line such as `VmRSS:    1234 kB`, in bytes.
fn status_bytes(status: &str, key: &str) -> Option<f64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(key))?;
    let number: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, name: &str) -> f64 {
        let start = format!("{name} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
            .parse()
            .unwrap()
    }

    #[test]
    fn the_system_tells_of_this_process() {
        mark_start();
        let text = metrics();
        assert!(value(&text, "process_resident_memory_bytes") > 1e5);
        assert!(value(&text, "process_open_fds") >= 3.0);
        assert!(value(&text, "process_threads") >= 1.0);
        assert!(value(&text, "process_start_time_seconds") > 1.6e9);
        assert!(value(&text, "process_cpu_seconds_total") >= 0.0);
    }

    #[test]
    fn a_command_with_brackets_and_blanks_is_no_trouble() {
        let stat = "7 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 250 150 0 0 20 0 9 0 5";
        assert_eq!(field(stat, STAT_THREADS), Some(9.0));
        assert_eq!(cpu_seconds(stat), Some(400.0 / ticks_per_second()));
    }
}
