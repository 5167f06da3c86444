package io.kop.control;

import java.util.regex.Pattern;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.util.Codec;

/** Full names of topics and namespaces, checked, and their paths in the metadata stores. */
final class Names {
    static final String PARTITIONED_TOPICS = "/admin/partitioned-topics";
    static final String MANAGED_LEDGERS = "/managed-ledgers";
    private static final String SCHEME = "persistent://";
    private static final Pattern PARTITION = Pattern.compile(".*-partition-(0|[1-9][0-9]{0,9})");

    private Names() {
    }

    /** Whether a name, full or local, is that of a partition. */
    static boolean isPartition(String name) {
        return PARTITION.matcher(name).matches();
    }

    /** Whether a local name is that of a topic that Pulsar keeps for itself; {@code pulsar-admin} does not list them either. */
    static boolean isPulsarsOwn(String localName) {
        return localName.equals("__change_events") || localName.startsWith("__transaction_buffer_snapshot")
            || localName.endsWith("__transaction_pending_ack") || localName.startsWith("__transaction_log_");
    }

    /** A topic or a partition by its full name. */
    static TopicName topicOrPartition(String name) {
        if (name == null || !name.startsWith(SCHEME) || name.length() > Limits.MAX_NAME_LENGTH) {
            throw noTopic(name);
        }
        TopicName topic;
        try {
            topic = TopicName.get(name);
        } catch (IllegalArgumentException wrong) {
            throw noTopic(name);
        }
        if (!topic.isV2() || !topic.toString().equals(name)) {
            throw noTopic(name);
        }
        return topic;
    }

    /** A topic by its full name, which is not a partition's. */
    static TopicName topic(String name) {
        TopicName topic = topicOrPartition(name);
        if (isPartition(name)) {
            throw new Refusal(Code.INVALID_ARGUMENT, name + " is the name of a partition, not of a topic");
        }
        return topic;
    }

    static NamespaceName namespace(String name) {
        try {
            NamespaceName namespace = NamespaceName.get(name);
            if (namespace.isV2() && namespace.toString().equals(name)) {
                return namespace;
            }
        } catch (RuntimeException wrong) {
            // Said below.
        }
        throw new Refusal(Code.INVALID_ARGUMENT, "\"" + name + "\" is no namespace: it must look like tenant/namespace");
    }

    private static Refusal noTopic(String name) {
        return new Refusal(Code.INVALID_ARGUMENT, "\"" + name
            + "\" is no topic name: it must look like persistent://tenant/namespace/topic");
    }

    /** Where a namespace's partitioned topics lie. */
    static String partitionedTopics(NamespaceName namespace) {
        return PARTITIONED_TOPICS + "/" + namespace + "/persistent";
    }

    static String partitionedTopic(TopicName topic) {
        return partitionedTopics(topic.getNamespaceObject()) + "/" + topic.getEncodedLocalName();
    }

    /** Where the managed ledgers of a namespace lie. */
    static String managedLedgers(NamespaceName namespace) {
        return MANAGED_LEDGERS + "/" + namespace + "/persistent";
    }

    static String managedLedger(TopicName topic) {
        return managedLedgers(topic.getNamespaceObject()) + "/" + topic.getEncodedLocalName();
    }

    static String fullName(NamespaceName namespace, String encodedLocalName) {
        return SCHEME + namespace + "/" + Codec.decode(encodedLocalName);
    }

    /** Full name of the topic that a path directly below {@code root} stands for; null if it stands for none. */
    static String topicAt(String root, String path) {
        if (!path.startsWith(root) || path.length() <= root.length() + 1 || path.charAt(root.length()) != '/') {
            return null;
        }
        String[] parts = path.substring(root.length() + 1).split("/", -1);
        if (parts.length != 4 || !parts[2].equals("persistent")) {
            return null;
        }
        return SCHEME + parts[0] + "/" + parts[1] + "/" + Codec.decode(parts[3]);
    }
}
