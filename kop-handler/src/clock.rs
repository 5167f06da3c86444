//! The only door to time and randomness, so that a test or a simulation can hold both.
//!
//! It must not know who asks.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// Time and randomness. Timers themselves are tokio's, which a simulation pauses; what is *compared* comes from here.
pub trait Clock: Send + Sync + std::fmt::Debug + 'static {
    /// Wall time in ms since the epoch: what is written into records.
    fn now_ms(&self) -> i64;
    /// Ms that never go back, from an arbitrary start: what timeouts are measured by.
    fn monotonic_ms(&self) -> u64;
    /// 64 random bits.
    fn random(&self) -> u64;
    /// A random (version 4) UUID.
    fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(
            ((u128::from(self.random()) << 64) | u128::from(self.random())).to_be_bytes(),
        )
        .into_uuid()
    }
}

/// The machine's clock and entropy.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .and_then(|since| i64::try_from(since.as_millis()).ok())
            .unwrap_or(0)
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u64 {
        // Six bits of a version 4 UUID are fixed, all in different places of its halves.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        high ^ low.rotate_left(32)
    }

    fn uuid(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// A clock that stands still until it is told to move, with seeded randomness.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    monotonic_ms: AtomicU64,
    seed: AtomicU64,
}

impl ManualClock {
    /// A clock at a wall time in ms since the epoch.
    #[must_use]
    pub fn new(wall_ms: i64, seed: u64) -> Self {
        Self {
            wall_ms: AtomicI64::new(wall_ms),
            monotonic_ms: AtomicU64::new(0),
            seed: AtomicU64::new(seed),
        }
    }

    /// Moves both times on.
    pub fn advance_ms(&self, ms: u64) {
        self.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
        self.wall_ms
            .fetch_add(i64::try_from(ms).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall time alone, as an operator or NTP does.
    pub fn set_wall_ms(&self, wall_ms: i64) {
        self.wall_ms.store(wall_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ms.load(Ordering::SeqCst)
    }

    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        let mut z = self
            .seed
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst)
            .wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_repeats_itself_by_seed_and_moves_only_when_told() {
        let (a, b, c) = (
            ManualClock::new(5, 1),
            ManualClock::new(5, 1),
            ManualClock::new(5, 2),
        );
        let draws = |clock: &ManualClock| [clock.random(), clock.random(), clock.random()];
        assert_eq!(draws(&a), draws(&b));
        assert_ne!(draws(&a), draws(&c));
        assert_eq!(a.uuid().get_version_num(), 4);
        a.advance_ms(7);
        assert_eq!((a.now_ms(), a.monotonic_ms()), (12, 7));
        a.set_wall_ms(1);
        assert_eq!((a.now_ms(), a.monotonic_ms()), (1, 7));
    }

    #[test]
    fn the_system_clock_draws_different_numbers() {
        let clock = SystemClock::new();
        assert_ne!(clock.random(), clock.random());
        assert_ne!(clock.uuid(), clock.uuid());
        assert!(clock.now_ms() > 1_600_000_000_000);
    }
}
