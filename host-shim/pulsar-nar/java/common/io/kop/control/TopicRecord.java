package io.kop.control;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;

/**
 * What we keep about a topic beside Pulsar, at {@code /kop/topics/<name>}: of a partitioned topic a second copy of its
 * properties, of another one what was set over its managed ledger's properties.
 *
 * <p>JSON: {@code {"version":1,"created":ms,"node":version,"set":{key:{"value":text|null,"over":text|null}}}}. {@code over}
 * is what Pulsar had when we set the value: if Pulsar has something else now, somebody changed it there, and that holds.
 */
final class TopicRecord {
    static final String ROOT = "/kop/topics";
    private static final int FORMAT = 1;
    private static final ObjectMapper JSON = new ObjectMapper();

    /** A value of ours, null if the property was removed, over Pulsar's, null if it had none. */
    private static final class Entry {
        final String value;
        final String over;

        Entry(String value, String over) {
            this.value = value;
            this.over = over;
        }
    }

    private final long createdMs;
    private final long nodeVersion;
    private final Map<String, Entry> entries;

    private TopicRecord(long createdMs, long nodeVersion, Map<String, Entry> entries) {
        this.createdMs = createdMs;
        this.nodeVersion = nodeVersion;
        this.entries = entries;
    }

    /** The record of a partitioned topic: what its properties are. */
    static TopicRecord copyOf(TopicState topic) {
        Map<String, Entry> entries = new HashMap<>();
        topic.properties.forEach((key, value) -> entries.put(key, new Entry(value, null)));
        return new TopicRecord(topic.createdMs, topic.version, entries);
    }

    /** The record of a topic that is not partitioned: what has to be laid over its own properties to get others. */
    static TopicRecord over(TopicState own, Map<String, String> wanted) {
        Map<String, Entry> entries = new HashMap<>();
        wanted.forEach((key, value) -> {
            String under = own.properties.get(key);
            if (!value.equals(under)) {
                entries.put(key, new Entry(value, under));
            }
        });
        own.properties.forEach((key, value) -> {
            if (!wanted.containsKey(key)) {
                entries.put(key, new Entry(null, value));
            }
        });
        return new TopicRecord(own.createdMs, own.version, entries);
    }

    /** Whether this is about the same life of the topic's name: its node was created then, and only written since. */
    boolean isOf(TopicState topic) {
        return createdMs == topic.createdMs && nodeVersion <= topic.version;
    }

    /** Whether a partitioned topic has just the properties that are written here. */
    boolean equalsPropertiesOf(TopicState topic) {
        return isOf(topic) && copied().equals(topic.properties);
    }

    /** The properties of a partitioned topic. */
    Map<String, String> copied() {
        Map<String, String> properties = new HashMap<>();
        entries.forEach((key, entry) -> {
            if (entry.value != null) {
                properties.put(key, entry.value);
            }
        });
        return properties;
    }

    /** The properties of a topic that is not partitioned, given its own. */
    Map<String, String> laidOver(Map<String, String> own) {
        Map<String, String> properties = new HashMap<>(own);
        entries.forEach((key, entry) -> {
            if (!Objects.equals(own.get(key), entry.over)) {
                return;
            }
            if (entry.value == null) {
                properties.remove(key);
            } else {
                properties.put(key, entry.value);
            }
        });
        return properties;
    }

    byte[] toBytes() {
        ObjectNode root = JSON.createObjectNode();
        root.put("version", FORMAT).put("created", createdMs).put("node", nodeVersion);
        ObjectNode set = root.putObject("set");
        entries.forEach((key, entry) -> set.putObject(key).put("value", entry.value).put("over", entry.over));
        try {
            return JSON.writeValueAsBytes(root);
        } catch (IOException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** Reads a record; null if it is of a format that is not known here, or damaged. */
    static TopicRecord parse(byte[] bytes) {
        JsonNode root;
        try {
            root = JSON.readTree(bytes);
        } catch (IOException damaged) {
            return null;
        }
        if (root == null || root.path("version").asInt(0) != FORMAT) {
            return null;
        }
        Map<String, Entry> entries = new HashMap<>();
        root.path("set").fields().forEachRemaining(field -> {
            JsonNode entry = field.getValue();
            entries.put(field.getKey(), new Entry(text(entry.path("value")), text(entry.path("over"))));
        });
        return new TopicRecord(root.path("created").asLong(), root.path("node").asLong(), entries);
    }

    private static String text(JsonNode node) {
        return node.isTextual() ? node.asText() : null;
    }
}
