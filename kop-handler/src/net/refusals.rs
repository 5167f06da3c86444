//! Keeps the log readable while somebody throws garbage at the port. It must not know what is refused.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lets a number of lines per minute through, and counts the others.
#[derive(Debug)]
pub(super) struct RefusalLog {
    per_minute: u32,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    start: Option<Instant>,
    lines: u32,
    dropped: u64,
}

impl RefusalLog {
    pub(super) const fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            window: Mutex::new(Window {
                start: None,
                lines: 0,
                dropped: 0,
            }),
        }
    }

    /// Whether a line may be written now, and how many were dropped before it.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.window.lock();
        if window
            .start
            .is_none_or(|start| now.duration_since(start).as_secs() >= 60)
        {
            window.start = Some(now);
            window.lines = 0;
        }
        if window.lines < self.per_minute {
            window.lines += 1;
            Some(std::mem::take(&mut window.dropped))
        } else {
            window.dropped += 1;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_beyond_the_bound_are_counted_and_reported_with_the_next() {
        let log = RefusalLog::new(2);
        let now = Instant::now();
        assert_eq!(
            [
                log.admit(now),
                log.admit(now),
                log.admit(now),
                log.admit(now)
            ],
            [Some(0), Some(0), None, None]
        );
        assert_eq!(log.admit(now + Duration::from_secs(60)), Some(2));
        assert_eq!(log.admit(now + Duration::from_secs(60)), Some(0));
    }
}
