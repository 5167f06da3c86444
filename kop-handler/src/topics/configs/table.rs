//! Kafka 4.3.1's topic configurations: one row each.
//!
//! Names, types, defaults, bounds and the broker-wide names are Kafka's (seen with `DescribeConfigs` of a 4.3.1 broker);
//! the documentation is ours and says what a configuration does *here*. It must not know a topic.

use super::definition::Kind::{Boolean, Double, Int, List, Long, Text};
use super::definition::Rule::{
    AtLeast, Between, Gzip, ItemsOf, NoTieredStorage, OneOf, Ratio, Replicas, Unbounded,
};
use super::definition::{Definition, Effect};

use Effect::{Built, HostDecides, NotBuilt, OneReplica};

const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];
const MAX_LONG: &str = "9223372036854775807";

macro_rules! rows {
    ($($name:literal $kind:ident $default:tt $rule:expr, $synonym:expr, $effect:expr, $doc:literal;)+) => {
        /// All of them, by name.
        pub static DEFINITIONS: &[Definition] = &[
            $(Definition { name: $name, kind: $kind, default: $default, rule: $rule, synonym: $synonym, effect: $effect, doc: $doc },)+
        ];
    };
}

rows! {
    "cleanup.policy" List "delete" ItemsOf(&["compact", "delete"]), Some("log.cleanup.policy"), Built,
        "What happens to old records. \"delete\" drops them by retention.ms and retention.bytes, \"compact\" keeps the last record of every key, \"compact,delete\" does both, an empty list keeps everything.";
    "compression.gzip.level" Int "-1" Gzip, Some("compression.gzip.level"), NotBuilt("the codec's default level is used"),
        "Level of gzip where the broker compresses by compression.type=gzip.";
    "compression.lz4.level" Int "9" Between(1, 17), Some("compression.lz4.level"), NotBuilt("the codec's default level is used"),
        "Level of lz4 where the broker compresses by compression.type=lz4.";
    "compression.type" Text "producer" OneOf(CODECS), Some("compression.type"), Built,
        "Codec in which batches are stored; \"producer\" keeps each as it came, \"uncompressed\" stores it without compression.";
    "compression.zstd.level" Int "3" Between(-131_072, 22), Some("compression.zstd.level"), NotBuilt("the codec's default level is used"),
        "Level of zstd where the broker compresses by compression.type=zstd.";
    "delete.retention.ms" Long "86400000" AtLeast(0), Some("log.cleaner.delete.retention.ms"), Built,
        "How long in ms a compacted topic keeps a delete marker (a record without a value), and so how long a reader from the start may take to see it.";
    "file.delete.delay.ms" Long "60000" AtLeast(0), Some("log.segment.delete.delay.ms"), HostDecides("deletes files"),
        "Time in ms between giving up a file and deleting it.";
    "flush.messages" Long MAX_LONG AtLeast(1), Some("log.flush.interval.messages"), HostDecides("decides by journalSyncData when an acknowledged record is synced to disk"),
        "Number of records after which the log is synced to disk.";
    "flush.ms" Long MAX_LONG AtLeast(0), None, HostDecides("decides by journalSyncData when an acknowledged record is synced to disk"),
        "Time in ms after which the log is synced to disk.";
    "follower.replication.throttled.replicas" List "" Replicas, None, OneReplica,
        "Replicas whose followers copy with a throttle: partition:broker pairs, or * for all.";
    "index.interval.bytes" Int "4096" AtLeast(0), Some("log.index.interval.bytes"), HostDecides("keeps the index of positions"),
        "Bytes of records between two entries of the index from offsets to positions.";
    "leader.replication.throttled.replicas" List "" Replicas, None, OneReplica,
        "Replicas whose leaders are copied from with a throttle: partition:broker pairs, or * for all.";
    "local.retention.bytes" Long "-2" AtLeast(-2), Some("log.local.retention.bytes"), NotBuilt("there is no tiered storage, so that all data is local"),
        "Bytes of a partition that stay on local disks once they are in tiered storage; -2 stands for retention.bytes.";
    "local.retention.ms" Long "-2" AtLeast(-2), Some("log.local.retention.ms"), NotBuilt("there is no tiered storage, so that all data is local"),
        "Time in ms for which records stay on local disks once they are in tiered storage; -2 stands for retention.ms.";
    "max.compaction.lag.ms" Long MAX_LONG AtLeast(1), Some("log.cleaner.max.compaction.lag.ms"), Built,
        "Longest time in ms that a record of a compacted topic may wait for compaction.";
    "max.message.bytes" Int "1048588" AtLeast(0), Some("message.max.bytes"), Built,
        "Largest record batch in bytes that a producer may send, as compressed. The broker's maxMessageSize bounds it from above.";
    "message.timestamp.after.max.ms" Long "3600000" AtLeast(0), Some("log.message.timestamp.after.max.ms"), Built,
        "How far in ms a record's timestamp may lie in the future before its batch is refused; not looked at with message.timestamp.type=LogAppendTime.";
    "message.timestamp.before.max.ms" Long MAX_LONG AtLeast(0), Some("log.message.timestamp.before.max.ms"), Built,
        "How far in ms a record's timestamp may lie in the past before its batch is refused; not looked at with message.timestamp.type=LogAppendTime.";
    "message.timestamp.type" Text "CreateTime" OneOf(&["CreateTime", "LogAppendTime"]), Some("log.message.timestamp.type"), Built,
        "Whether a record's timestamp is the producer's, or the time at which the broker appended it.";
    "min.cleanable.dirty.ratio" Double "0.5" Ratio, Some("log.cleaner.min.cleanable.ratio"), Built,
        "Share of a compacted log that must be new before it is compacted again, 0 to 1. Smaller means less wasted space and more work.";
    "min.compaction.lag.ms" Long "0" AtLeast(0), Some("log.cleaner.min.compaction.lag.ms"), Built,
        "Shortest time in ms that a record of a compacted topic stays as it was written.";
    "min.insync.replicas" Int "1" AtLeast(1), Some("min.insync.replicas"), OneReplica,
        "Replicas that must have a record before a producer with acks=all hears of it.";
    "preallocate" Boolean "false" Unbounded, Some("log.preallocate"), HostDecides("lays out its files"),
        "Whether a segment's file takes up its full size at once.";
    "remote.log.copy.disable" Boolean "false" Unbounded, None, NotBuilt("there is no tiered storage"),
        "Whether a topic in tiered storage stops to copy new data there.";
    "remote.log.delete.on.disable" Boolean "false" Unbounded, None, NotBuilt("there is no tiered storage"),
        "Whether a topic's data in tiered storage goes when tiered storage is switched off for it.";
    "remote.storage.enable" Boolean "false" NoTieredStorage, None, NotBuilt("there is no tiered storage, so that only false is accepted"),
        "Whether the topic uses tiered storage.";
    "retention.bytes" Long "-1" Unbounded, Some("log.retention.bytes"), Built,
        "Bytes that each partition keeps at most with cleanup.policy=delete; whole ledgers go once the rest is still that large. -1 sets no limit.";
    "retention.ms" Long "604800000" AtLeast(-1), None, Built,
        "Time in ms for which records are kept with cleanup.policy=delete, by the newest timestamp in their ledger. -1 sets no limit.";
    "segment.bytes" Int "1073741824" AtLeast(1_048_576), Some("log.segment.bytes"), Built,
        "Size in bytes at which a partition starts another ledger. Retention and compaction work on whole ledgers that are closed.";
    "segment.index.bytes" Int "10485760" AtLeast(4), Some("log.index.size.max.bytes"), HostDecides("keeps the index of positions"),
        "Size in bytes of the index from offsets to positions.";
    "segment.jitter.ms" Long "0" AtLeast(0), None, NotBuilt("ledgers of different partitions are not rolled over together anyway"),
        "Most that is randomly taken off segment.ms, so that not all partitions roll over at once.";
    "segment.ms" Long "604800000" AtLeast(1), None, Built,
        "Time in ms after which a partition starts another ledger even if the last is small, so that retention and compaction can work.";
    "unclean.leader.election.enable" Boolean "false" Unbounded, Some("unclean.leader.election.enable"), OneReplica,
        "Whether a replica that may lack records can become the leader.";
}
