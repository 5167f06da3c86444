//! Every bound of the plugin, by name. It must not know what is bounded.

use super::Config;

/// Bounds on queues, buffers and batches. Sizes are in bytes, times in ms, unless a name says otherwise.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest frame of a Produce request: its batches, and room for names.
    pub max_produce_frame: usize,
    /// Largest frame of any other request. Empty elements of one or two bytes become structs of a hundred, so that a
    /// decoded request may be a hundred times its frame.
    pub max_frame: usize,
    /// Size of a connection's front buffer: frames that fit are read together, larger ones into buffers of their own.
    pub front_buffer: usize,
    /// Time after which a silent connection gives its front buffer back.
    pub front_buffer_rest_ms: u64,
    /// Requests in flight per connection.
    pub max_in_flight_per_connection: usize,
    /// Bytes of requests in flight per connection.
    pub max_bytes_in_flight_per_connection: usize,
    /// Bytes of requests that are being read or are in flight, over all connections. One frame may be read beyond it.
    pub max_bytes_in_flight: usize,
    /// Connections served at once.
    pub max_connections: usize,
    /// Time that a started frame may take to arrive.
    pub frame_timeout_ms: u64,
    /// The same for the one frame that is read beyond `max_bytes_in_flight`: others wait for it.
    pub overdraft_timeout_ms: u64,
    /// Time in which a peer must take some bytes of its replies.
    pub write_timeout_ms: u64,
    /// Slices in one vectored write (`IOV_MAX` is 1024).
    pub max_write_slices: usize,
    /// Finished replies that a connection holds while its peer does not read, in bytes: above it, no request is dispatched.
    pub max_reply_bytes_per_connection: usize,
    /// Fetch sessions kept (Kafka: `max.incremental.fetch.session.cache.slots`).
    pub max_fetch_sessions: usize,
    /// Partitions over all fetch sessions.
    pub max_fetch_session_partitions: usize,
    /// Time after which an unused fetch session may be evicted for another.
    pub fetch_session_min_eviction_ms: u64,
    /// Most bytes in one Fetch reply, whatever the client asks (Kafka: `fetch.max.bytes`).
    pub max_fetch_bytes: usize,
    /// Longest wait of a Fetch.
    pub max_fetch_wait_ms: u64,
    /// Log lines about refused requests and connections, per minute.
    pub refusal_log_lines_per_minute: u32,
    /// Topics that have metric series of their own; further ones share one series.
    pub max_metric_topics: usize,
    /// Topics that the view keeps; one more and it starts anew. One takes about half a kilobyte.
    pub max_cached_topics: usize,
    /// Partitions whose remote owner is remembered; one more and it starts anew.
    pub max_cached_owners: usize,
    /// Topics that Metadata requests create at the same time; a further one is not started, and its client asks again.
    pub max_auto_creations: usize,
    /// Changes of topics that one request, or one listing, makes at the same time.
    pub max_topic_changes_at_once: usize,
    /// Partitions that one request may create, as in Kafka's controller.
    pub max_created_partitions: u32,
    /// Partitions in one page of DescribeTopicPartitions (Kafka: `max.request.partition.size.limit`).
    pub max_partitions_per_page: u32,
    /// Groups in one partition of the offsets topic.
    pub max_groups_per_shard: usize,
    /// Protocols that one member of a group may offer; clients offer one for each of their assignors.
    pub max_member_protocols: usize,
    /// Records that one decision of a coordinator may make; longer work is done in several.
    pub max_decision_records: usize,
    /// Bytes of those records, unless there is only one.
    pub max_decision_bytes: usize,
    /// Commands that wait for one shard of a coordinator to load.
    pub max_waiting_for_load: usize,
    /// Decisions of one shard that wait for the append before them.
    pub max_gathered_decisions: usize,
    /// Bytes of those decisions' records.
    pub max_gathered_bytes: usize,
    /// Bytes of records in one append of a coordinator.
    pub max_coordinator_append: usize,
    /// Bytes that a shard reads at once while it loads.
    pub load_chunk: usize,
    /// Shards that load at the same time.
    pub max_concurrent_loads: usize,
}

impl Limits {
    /// The bounds under a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let budget = config.max_message_publish_buffer_mb * MIB;
        // A frame of several partitions holds a batch for each; twice the largest batch is what clients' own
        // `max.request.size` amounts to, and 16 MiB lets small batches of many partitions through.
        let max_produce_frame = (2 * config.max_message_size + MIB).clamp(16 * MIB, MAX_FRAME);
        Self {
            max_produce_frame,
            max_frame: 2 * MIB,
            front_buffer: 16 * 1024,
            front_buffer_rest_ms: 5_000,
            max_in_flight_per_connection: config.max_queued_requests,
            max_bytes_in_flight_per_connection: budget.min(2 * max_produce_frame),
            // The largest frame must fit, whatever the operator allows.
            max_bytes_in_flight: budget.max(max_produce_frame),
            max_connections: config.max_connections,
            frame_timeout_ms: 60_000,
            overdraft_timeout_ms: 5_000,
            write_timeout_ms: 60_000,
            max_write_slices: 1_024,
            max_reply_bytes_per_connection: 4 * MIB,
            max_fetch_sessions: 1_000,
            max_fetch_session_partitions: 1_000_000,
            fetch_session_min_eviction_ms: 120_000,
            max_fetch_bytes: 55 * MIB,
            max_fetch_wait_ms: 300_000,
            refusal_log_lines_per_minute: 60,
            max_metric_topics: 1_000,
            max_cached_topics: 200_000,
            max_cached_owners: 200_000,
            max_auto_creations: 1_000,
            max_topic_changes_at_once: 16,
            max_created_partitions: 10_000,
            max_partitions_per_page: 2_000,
            max_groups_per_shard: 100_000,
            max_member_protocols: 32,
            max_decision_records: 5_000,
            // Half an append: what is left of it holds the batch's header, and a group's record that goes along.
            max_decision_bytes: config.max_message_size.min(4 * MIB) / 2,
            max_waiting_for_load: 10_000,
            max_gathered_decisions: 20_000,
            max_gathered_bytes: 32 * MIB,
            max_coordinator_append: config.max_message_size.min(4 * MIB),
            load_chunk: MIB,
            max_concurrent_loads: 4,
        }
    }
}

const MIB: usize = 1024 * 1024;
/// KoP's and Kafka's bound on a frame (`socket.request.max.bytes`).
const MAX_FRAME: usize = 100 * MIB;
