//! Counter, gauge and histogram on relaxed atomics, and their lines of text. It must not know names.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Only goes up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(super) const KIND: &'static str = "counter";

    /// Adds.
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(super) fn write(&self, out: &mut String, name: &str, labels: &str) {
        let _ = writeln!(out, "{name}{{{labels}}} {}", self.0.load(Ordering::Relaxed));
    }
}

/// Goes up and down.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicI64);

impl Gauge {
    pub(super) const KIND: &'static str = "gauge";

    /// Adds, or takes away.
    pub(crate) fn add(&self, amount: i64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets what is counted elsewhere.
    pub(crate) fn set(&self, value: usize) {
        self.0
            .store(i64::try_from(value).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    pub(super) fn write(&self, out: &mut String, name: &str, labels: &str) {
        let _ = writeln!(out, "{name}{{{labels}}} {}", self.0.load(Ordering::Relaxed));
    }
}

/// Upper bounds of the buckets in µs, and as their `le` labels say them in ms.
const BOUNDS: [(u64, &str); 17] = [
    (50, "0.05"),
    (100, "0.1"),
    (250, "0.25"),
    (500, "0.5"),
    (1_000, "1"),
    (2_500, "2.5"),
    (5_000, "5"),
    (10_000, "10"),
    (25_000, "25"),
    (50_000, "50"),
    (100_000, "100"),
    (250_000, "250"),
    (500_000, "500"),
    (1_000_000, "1000"),
    (2_500_000, "2500"),
    (5_000_000, "5000"),
    (10_000_000, "10000"),
];

/// Times, sorted into buckets.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    above: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    pub(super) const KIND: &'static str = "histogram";

    /// Counts one time.
    pub(crate) fn observe(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS.partition_point(|(bound, _)| *bound < us);
        self.buckets
            .get(place)
            .unwrap_or(&self.above)
            .fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a sum of µs stays exact for 285 years"
    )]
    pub(super) fn write(&self, out: &mut String, name: &str, labels: &str) {
        let mut count = 0;
        for (bucket, (_, le)) in self.buckets.iter().zip(BOUNDS) {
            count += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{le}\"}} {count}");
        }
        count += self.above.load(Ordering::Relaxed);
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1_000.0;
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(
            out,
            "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}"
        );
    }
}
