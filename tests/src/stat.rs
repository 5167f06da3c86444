//! What Linux tells about another process: processor time and memory.

use std::time::Duration;

/// Memory of a process in bytes, as `/proc/PID/status` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident now (`VmRSS`).
    pub resident: u64,
    /// Resident and not backed by files, now (`RssAnon`).
    pub anonymous: u64,
    /// The most that was ever resident (`VmHWM`).
    pub peak: u64,
}

/// The memory of a process; `None` if it is gone.
pub fn memory(pid: u32) -> Option<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kilobytes * 1_024)
    };
    Some(Memory {
        resident: field("VmRSS:")?,
        anonymous: field("RssAnon:")?,
        peak: field("VmHWM:")?,
    })
}

/// User and system time that a process has used in all its threads; `None` if it is gone.
pub fn processor_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in parentheses and may hold anything, spaces too.
    let after = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// How many file descriptors a process has open; `None` if it is gone.
pub fn open_files(pid: u32) -> Option<usize> {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()
        .map(Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_its_own_work_and_memory() {
        let pid = std::process::id();
        let mut filled = vec![1_u8; 64 << 20];
        let before = processor_time(pid).expect("time");
        let mut sum = 0_u64;
        while processor_time(pid).expect("time") < before + Duration::from_millis(50) {
            sum += filled.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            filled[0] ^= 1;
        }
        assert!(sum > 0);
        let memory = memory(pid).expect("memory");
        assert!(
            memory.anonymous >= 64 << 20 && memory.peak >= memory.resident,
            "{memory:?}"
        );
        assert!(open_files(pid).expect("files") > 2);
    }

    #[test]
    fn a_process_that_is_gone_has_no_figures() {
        assert_eq!(memory(u32::MAX), None);
        assert_eq!(processor_time(u32::MAX), None);
    }
}
