//! What the store counts of itself, and its text for `/metrics`.
//!
//! Every metric is one line of [`metrics!`](self): a counter that is added to where the thing happens, or a gauge that is
//! asked when the text is made. It must not know what is counted.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::services::Core;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares the counters, `field: "name", "help"`, and the gauges, `"name", "help", |core| value`.
macro_rules! metrics {
    (counters { $($field:ident: $name:literal, $help:literal;)+ } gauges { $($gauge:literal, $about:literal, $ask:expr;)+ }) => {
        /// The counters.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(pub(crate) $field: Counter,)+
            /// Time spent in syncing, in µs.
            pub(crate) sync_us: Counter,
        }

        /// Prometheus text.
        pub(crate) fn render(core: &Core) -> String {
            let mut text = String::new();
            $(line(&mut text, $name, "counter", $help, core.metrics.$field.get() as f64);)+
            let seconds = Duration::from_micros(core.metrics.sync_us.get()).as_secs_f64();
            line(&mut text, "kop_store_sync_seconds_total", "counter", "Time spent in syncing ledger files, in seconds.", seconds);
            $(
                let ask: fn(&Core) -> u64 = $ask;
                line(&mut text, $gauge, "gauge", $about, ask(core) as f64);
            )+
            text
        }
    };
}

metrics! {
    counters {
    appended_entries: "kop_store_appended_entries_total", "Entries written to ledgers.";
    appended_bytes: "kop_store_appended_bytes_total", "Bytes of those entries, without the headers of their records.";
    append_failures: "kop_store_append_failures_total", "Entries whose append was answered with an error.";
    syncs: "kop_store_syncs_total", "Ledger files made durable for waiting appends (journalSyncData).";
    read_entries: "kop_store_read_entries_total", "Entries that readers were given.";
    read_bytes: "kop_store_read_bytes_total", "Bytes of those entries.";
    cold_reads: "kop_store_cold_reads_total", "Reads that had to wait for the disk because the page cache lacked their bytes.";
    corrupt_reads: "kop_store_corrupt_reads_total", "Reads that met a damaged or unreadable record.";
    created_files: "kop_store_ledger_files_created_total", "Ledger files created, replacements by compaction among them.";
    removed_files: "kop_store_ledger_files_removed_total", "Ledger files removed after trims, deletions and replacements.";
    }
    gauges {
    "kop_store_open_managed_ledgers", "Managed ledgers (partitions) that are open.", |core| core.handles.count() as u64;
    "kop_store_open_files", "Ledger files that are open.", |core| core.files.open_count() as u64;
    "kop_store_unsynced_appends", "Appends that wait to be synced.", |core| core.sync.waiting() as u64;
    "kop_store_disk_tasks", "Tasks that wait for a thread of the disk.", |core| core.disk.waiting() as u64;
    "kop_store_usable_bytes", "Bytes that the volume of the data directory has left, the reserve among them.", |core| core.space.volume().1;
    }
}

fn line(text: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    let _ = write!(
        text,
        "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
    );
}
