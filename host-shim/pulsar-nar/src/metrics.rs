//! What the bridge counts, and its text in Prometheus' format.
//!
//! It must not know how it is served.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bridge::Bridge;

/// Counters of the bridge.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    appends: AtomicU64,
    append_bytes: AtomicU64,
    append_failures: AtomicU64,
    entries: AtomicU64,
    entry_bytes: AtomicU64,
    searches: AtomicU64,
    copies: AtomicU64,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Metrics {
    pub(crate) fn appended(&self, bytes: u64) {
        add(&self.appends, 1);
        add(&self.append_bytes, bytes);
    }

    pub(crate) fn append_failed(&self) {
        add(&self.append_failures, 1);
    }

    pub(crate) fn read(&self, entries: usize, bytes: u64) {
        add(&self.entries, entries as u64);
        add(&self.entry_bytes, bytes);
    }

    pub(crate) fn searched(&self) {
        add(&self.searches, 1);
    }

    pub(crate) fn copied(&self) {
        add(&self.copies, 1);
    }

    /// The text, with the gauges of a bridge.
    pub(crate) fn text(&self, bridge: &Bridge) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let lines = [
            (
                "appends_total",
                "counter",
                "Entries written.",
                of(&self.appends),
            ),
            (
                "append_bytes_total",
                "counter",
                "Bytes of entries written.",
                of(&self.append_bytes),
            ),
            (
                "append_failures_total",
                "counter",
                "Entries that were not written, or perhaps not.",
                of(&self.append_failures),
            ),
            (
                "entries_read_total",
                "counter",
                "Entries read.",
                of(&self.entries),
            ),
            (
                "read_bytes_total",
                "counter",
                "Bytes of entries read.",
                of(&self.entry_bytes),
            ),
            (
                "index_searches_total",
                "counter",
                "Reads whose position had to be searched for.",
                of(&self.searches),
            ),
            (
                "read_copies_total",
                "counter",
                "Reads copied because too much of the broker's memory was held.",
                of(&self.copies),
            ),
            (
                "open_partitions",
                "gauge",
                "Managed ledgers that are open for the plugin.",
                bridge.table.len() as u64,
            ),
            (
                "calls_waiting",
                "gauge",
                "Calls that the broker has not answered yet.",
                bridge.calls.len() as u64,
            ),
            (
                "append_bytes_waiting",
                "gauge",
                "Bytes of entries on their way to the storage.",
                of(&bridge.append_bytes),
            ),
            (
                "held_bytes",
                "gauge",
                "Bytes of the broker's memory held by entries that were read.",
                of(&bridge.held_bytes),
            ),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in lines {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "# HELP kop_bridge_{name} {help}\n# TYPE kop_bridge_{name} {kind}\nkop_bridge_{name} {value}"
            );
        }
        text
    }
}
