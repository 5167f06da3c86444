//! Settings of the embedded broker, typed, and why it would not open.
//!
//! It must not know configuration files: the reader of `broker.conf` fills this struct in.

use std::io;
use std::path::PathBuf;

use handler_api::{ApiError, ErrorCode};

/// Settings of an [`super::EmbeddedBroker`]. The keys are Pulsar's.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Where everything lies; created if it is missing.
    pub data_dir: PathBuf,
    /// `clusterName`.
    pub cluster_name: String,
    /// This broker's id, `host:port` of its lookup service.
    pub broker_id: String,
    /// `journalSyncData`: answer an append after fdatasync (group commit). Otherwise after the write, so that only a
    /// crash of the *machine* can lose it, for at most [`Self::checkpoint_interval_ms`].
    pub sync_data: bool,
    /// `maxMessageSize` in bytes. An entry may be larger by [`super::limits::ENTRY_HEADROOM_BYTES`].
    pub max_message_size: u32,
    /// `managedLedgerMaxSizePerLedgerMbytes` in bytes: a larger ledger is sealed by the next append. Pulsar's default is 2048 MB;
    /// here 256 MB, because a ledger is the unit of compaction and of the scan after a crash.
    pub max_ledger_bytes: u64,
    /// `managedLedgerMaxEntriesPerLedger`: likewise by number of entries. Pulsar's default is 50,000, which suits
    /// ledgers kept in memory by a bookie; here 1,000,000.
    pub max_ledger_entries: u32,
    /// `managedLedgerMinLedgerRolloverTimeMinutes` in ms: a ledger younger than this is not sealed for its size or
    /// count. Pulsar's default is 10 minutes, to spare ZooKeeper; here 0.
    pub min_rollover_ms: u64,
    /// `managedLedgerMaxLedgerRolloverTimeMinutes` in ms: a ledger that holds entries and is older is sealed, written to
    /// or not. Pulsar's default, 240 minutes, holds here too; 0 turns it off.
    pub max_rollover_ms: u64,
    /// Most ledger files open at once; 0: a quarter of the process's limit on open files, at most 4,096.
    pub max_open_files: usize,
    /// Free space in bytes that appends leave on the volume, so that deletions and trims can still be recorded when
    /// it is full.
    pub reserve_bytes: u64,
    /// How often, in ms, written ledgers are synced and noted in the catalog: bounds the scan after a crash.
    pub checkpoint_interval_ms: u64,
}

impl EmbeddedConfig {
    /// The defaults for a directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            cluster_name: "standalone".into(),
            broker_id: "localhost:8080".into(),
            sync_data: true,
            max_message_size: 5 * 1024 * 1024,
            max_ledger_bytes: 256 * 1024 * 1024,
            max_ledger_entries: 1_000_000,
            min_rollover_ms: 0,
            max_rollover_ms: 240 * 60 * 1000,
            max_open_files: 0,
            reserve_bytes: 32 * 1024 * 1024,
            checkpoint_interval_ms: 60_000,
        }
    }
}

/// Why a data directory could not be opened. Each is one line for an operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds it.
    #[error(
        "data directory {dir} is in use by process {pid}: stop it, or choose another directory with --data-dir"
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// Process id that the lock file names, or `unknown`.
        pid: String,
    },
    /// It was written by a newer release.
    #[error(
        "data directory {dir} has format {found}, this release reads up to {supported}: start a newer release, or choose another directory"
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// The format found.
        found: u32,
        /// The newest one known here.
        supported: u32,
    },
    /// It holds other things than a broker's data.
    #[error("{dir} is not a data directory of this broker: {reason}")]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is none where one is needed.
    #[error("there is no data directory at {dir}")]
    Missing {
        /// The directory.
        dir: PathBuf,
    },
    /// The catalog cannot be read.
    #[error("the catalog {path} cannot be opened: {reason}")]
    Catalog {
        /// Its file.
        path: PathBuf,
        /// What the database says.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

impl From<OpenError> for ApiError {
    fn from(error: OpenError) -> Self {
        Self::new(ErrorCode::InvalidConfiguration, error.to_string())
    }
}
