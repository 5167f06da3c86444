package io.kop.control;

import java.util.Map;
import org.apache.pulsar.common.naming.TopicName;

/** A topic as the metadata stores have it. */
final class TopicState {
    final TopicName name;
    /** 0 for a topic that is not partitioned. */
    final int partitions;
    final Map<String, String> properties;
    /** When its node was created; with {@link #version} it tells one life of a name from the next. */
    final long createdMs;
    /** Version of the node that the properties were read from. */
    final long version;

    TopicState(TopicName name, int partitions, Map<String, String> properties, long createdMs, long version) {
        this.name = name;
        this.partitions = partitions;
        this.properties = Map.copyOf(properties);
        this.createdMs = createdMs;
        this.version = version;
    }

    TopicState with(Map<String, String> other) {
        return new TopicState(name, partitions, other, createdMs, version);
    }

    boolean isPartitioned() {
        return partitions > 0;
    }

    void write(Out out) {
        out.text(name.toString()).bool(true).i32(partitions).map(properties).i64(createdMs);
    }

    static void writeAbsent(Out out, String name) {
        out.text(name).bool(false).i32(0).map(Map.of()).i64(0);
    }
}
