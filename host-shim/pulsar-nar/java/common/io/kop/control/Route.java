package io.kop.control;

import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;

/** Where a topic or partition belongs: what follows from its name alone, worked out once. */
final class Route {
    final TopicName topic;
    /** Place among the bundles of its namespace. */
    final long hash;

    Route(TopicName topic, long hash) {
        this.topic = topic;
        this.hash = hash;
    }

    NamespaceName namespace() {
        return topic.getNamespaceObject();
    }
}
