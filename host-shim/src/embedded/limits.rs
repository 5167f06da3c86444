//! Every bound of the embedded store, by name.

/// Bytes that an entry may have beyond `maxMessageSize`: its metadata header, and a batch that the limit was checked
/// before.
pub const ENTRY_HEADROOM_BYTES: u32 = 64 * 1024;

/// Most partitions of one topic.
pub const MAX_PARTITIONS: u32 = 100_000;

/// Longest full name of a topic, in bytes.
pub const MAX_NAME_BYTES: usize = 1024;

/// Most bytes of all properties of a topic or a managed ledger, keys included.
pub const MAX_PROPERTIES_BYTES: usize = 256 * 1024;

/// Largest value of the metadata store.
pub const MAX_VALUE_BYTES: usize = 4 * 1024 * 1024;

/// Most durable cursors of one managed ledger.
pub const MAX_CURSORS: usize = 10_000;

/// Most paths that one plugin watches.
pub const MAX_WATCHED_PATHS: usize = 1_024;

/// Catalog writes that may wait; more are answered `NotReady`.
pub const MAX_CATALOG_JOBS: usize = 4_096;

/// Tasks for the disk's threads that may wait; more are answered `NotReady`.
pub const MAX_DISK_TASKS: usize = 8_192;

/// Threads for cold reads and everything else that waits for the disk.
pub const DISK_THREADS: usize = 2;

/// Appends that may wait for the syncing thread; more are answered `NotReady`, and nothing of them is written.
pub const MAX_UNSYNCED_APPENDS: usize = 65_536;

/// Bytes of entries that one call of `read` returns at most, whatever was asked (a single larger entry excepted).
pub const MAX_READ_BYTES: u64 = 256 * 1024 * 1024;

/// Bytes that are read from a ledger in one system call.
pub const READ_RUN_BYTES: u64 = 4 * 1024 * 1024;

/// Distance in bytes between two marks of the sparse index.
pub const MARK_INTERVAL_BYTES: u64 = 64 * 1024;

/// Read positions remembered per written partition, so that a sequential reader needs no search.
pub const REMEMBERED_READS: usize = 8;

/// Slices per write call (Linux: `IOV_MAX`).
pub const MAX_IO_SLICES: usize = 1_024;

/// Smallest and largest step of preallocation; ledgers smaller than the smallest are not preallocated.
pub const PREALLOCATE_BYTES: (u64, u64) = (1024 * 1024, 32 * 1024 * 1024);

/// Bytes appended between two looks at the volume's free space.
pub const SPACE_CHECK_BYTES: u64 = 16 * 1024 * 1024;

/// How far behind an invalid record the next valid one is looked for.
pub const RESYNC_BYTES: u64 = 64 * 1024 * 1024;

/// Damaged places of one open file that the log names, each once.
pub const MAX_TOLD_DAMAGES: usize = 64;

/// Memory that the catalog's page cache may take.
pub const CATALOG_CACHE_BYTES: usize = 8 * 1024 * 1024;

/// Ledger ids that one start reserves; a clean stop gives the rest back.
pub const LEDGER_ID_BLOCK: i64 = 1 << 20;

/// Read buffers kept for reuse, and the largest that is kept.
pub const KEPT_BUFFERS: (usize, usize) = (16, 2 * 1024 * 1024);
