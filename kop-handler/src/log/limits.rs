//! Every bound of the log, by name. It must not know what is bounded.

/// Waiters over all partitions; beyond it, nobody waits but is told so.
pub const MAX_WAITERS: usize = 200_000;

/// Places kept per partition; a reader that finds none lets the host search.
pub const POSITIONS_KEPT: usize = 32;

/// Most entries of one partition in one read.
pub const MAX_ENTRIES: u32 = 16_384;

/// Bytes of entries that one chunk of a scan reads.
pub const CHUNK_BYTES: u64 = 1024 * 1024;

/// Entries that one chunk of a scan reads.
pub const CHUNK_ENTRIES: u32 = 4096;

/// Partitions that one request loads at the same time.
pub const LOADS_AT_ONCE: usize = 64;

/// Bytes at the end of a log without a snapshot that are read for producer state.
pub const UNKNOWN_LOG_BYTES: u64 = 256 * 1024 * 1024;

/// A snapshot is due when so many bytes would have to be read again.
pub const SNAPSHOT_BYTES: u64 = 16 * 1024 * 1024;

/// A snapshot is due as well when something is in none for so long.
pub const SNAPSHOT_AGE_MS: u64 = 60_000;

/// The same two where the host itself looks after ledgers: a snapshot is then a write to a metadata store that a whole
/// cluster shares.
pub const SHARED_SNAPSHOT_BYTES: u64 = 64 * 1024 * 1024;
/// See [`SHARED_SNAPSHOT_BYTES`].
pub const SHARED_SNAPSHOT_AGE_MS: u64 = 300_000;

/// With so many bytes that are in no snapshot, upkeep does not wait for its next round.
pub const URGENT_BYTES: u64 = 256 * 1024 * 1024;

/// Producers known per partition; the longest unseen go first.
pub const MAX_PRODUCERS: usize = 10_000;

/// Partitions that are checked before others get their turn.
pub const SLICE: usize = 64;

/// Producers in a snapshot: those seen last. Hosts bound the size of properties.
pub const PRODUCERS_SAVED: usize = 1_000;

/// Batches kept per producer: Kafka's clients have at most five requests in flight.
pub const BATCHES_KEPT: usize = 5;

/// Points of time of the ledger that is written to.
pub const POINTS_KEPT: usize = 256;

/// Points of any other ledger: they are kept in memory and stored with it, and there may be hundreds.
pub const POINTS_OF_SEALED: usize = 32;

/// Ledgers with times; of older ones nothing is kept, and a search reads them.
pub const LEDGERS_KEPT: usize = 600;

/// Ledgers with points; of older ones only the largest timestamp is kept.
pub const LEDGERS_WITH_POINTS: usize = 200;

/// Keys in one pass of the cleaner, 24 bytes each and the table's slack; what has more takes more passes.
pub const MAX_KEYS: usize = 500_000;

/// A ledger of a compacted topic is sealed at this size, whatever `segment.bytes` says: its new content must fit into
/// memory.
pub const MAX_COMPACTED_LEDGER: u64 = 32 * 1024 * 1024;

/// New content of a ledger larger than this is not built; the ledger stays as it is.
pub const MAX_CONTENT: usize = 128 * 1024 * 1024;

/// Entries of a partition that are reported as not readable while it is open; a topic may be full of them.
pub const MAX_REPORTED: usize = 100;
