package io.kop;

import io.kop.control.Code;
import io.kop.control.Faults;
import io.kop.control.Refusal;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.namespace.LookupOptions;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.broker.service.Topic;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.apache.pulsar.common.naming.TopicDomain;
import org.apache.pulsar.common.naming.TopicName;

/** The partitions that are open for the plugin: each once, as long as its topic is served here. */
final class Partitions {
    private static final LookupOptions LOOKUP = LookupOptions.builder()
        .authoritative(false).readOnly(false).requestHttps(false).loadTopicsInBundle(false).build();

    final Version version;
    final Readers readers = new Readers();
    /** What the broker's deduplication sees as the producer of our entries, and their numbers. */
    final String producer = "kop-" + System.currentTimeMillis();
    final AtomicLong sequence = new AtomicLong();

    private final PulsarService pulsar;
    private final Map<String, Partition> open = new ConcurrentHashMap<>();
    private final Map<String, CompletableFuture<Partition>> opening = new ConcurrentHashMap<>();
    private final Map<Long, Partition> byId = new ConcurrentHashMap<>();

    Partitions(PulsarService pulsar, Version version) {
        this.pulsar = pulsar;
        this.version = version;
    }

    private BrokerService broker() {
        return pulsar.getBrokerService();
    }

    /** The open partition of a number. */
    Partition get(long id) {
        Partition partition = byId.get(id);
        if (partition == null) {
            throw new Refusal(Code.HANDLE_CLOSED, "the managed ledger is not open any more");
        }
        return partition;
    }

    /** Opens a partition that this broker serves; one that is open already is given again. */
    CompletableFuture<Partition> open(String name) {
        TopicName topic;
        try {
            topic = TopicName.get(name);
        } catch (RuntimeException wrong) {
            return CompletableFuture.failedFuture(new Refusal(Code.INVALID_ARGUMENT, name + " is no topic: " + wrong.getMessage()));
        }
        if (topic.getDomain() != TopicDomain.persistent) {
            return CompletableFuture.failedFuture(new Refusal(Code.UNSUPPORTED, name + " is not persistent"));
        }
        Partition known = open.get(name);
        if (known != null && isServed(known)) {
            return CompletableFuture.completedFuture(known);
        }
        CompletableFuture<Partition> mine = new CompletableFuture<>();
        CompletableFuture<Partition> other = opening.putIfAbsent(name, mine);
        if (other != null) {
            return other;
        }
        owned(topic).thenCompose(owned -> load(topic)).thenApply(loaded -> register(name, loaded))
            .whenComplete((partition, failure) -> {
                opening.remove(name, mine);
                if (failure == null) {
                    mine.complete(partition);
                } else {
                    mine.completeExceptionally(Faults.cause(failure));
                }
            });
        return mine;
    }

    /** Makes this broker the owner of the topic's bundle if nobody is. */
    private CompletableFuture<Void> owned(TopicName topic) {
        return pulsar.getNamespaceService().getBrokerServiceUrlAsync(topic, LOOKUP)
            .thenCompose(found -> pulsar.getNamespaceService().isServiceUnitOwnedAsync(topic).thenAccept(isOurs -> {
                if (!isOurs) {
                    throw found.isPresent()
                        ? new Refusal(Code.NOT_OWNER, topic + " is served by another broker")
                        : new Refusal(Code.NOT_READY, "no broker serves " + topic + " at this moment");
                }
            }));
    }

    /** Loads the topic, which must exist: as a partition of a partitioned topic, or by itself. */
    private CompletableFuture<PersistentTopic> load(TopicName topic) {
        if (!topic.isPartitioned()) {
            return load(topic, false);
        }
        TopicName whole = TopicName.get(topic.getPartitionedTopicName());
        return broker().fetchPartitionedTopicMetadataAsync(whole)
            .thenCompose(metadata -> load(topic, topic.getPartitionIndex() < metadata.partitions));
    }

    private CompletableFuture<PersistentTopic> load(TopicName topic, boolean create) {
        return broker().getTopic(topic.toString(), create).thenApply(found -> persistent(topic, found));
    }

    private static PersistentTopic persistent(TopicName name, Optional<Topic> found) {
        Topic topic = found.orElseThrow(() -> new Refusal(Code.NOT_FOUND, "there is no topic " + name));
        if (!(topic instanceof PersistentTopic)) {
            throw new Refusal(Code.UNSUPPORTED, name + " is not persistent");
        }
        return (PersistentTopic) topic;
    }

    private Partition register(String name, PersistentTopic topic) {
        Partition known = open.get(name);
        if (known != null && known.topic == topic && !known.isForgotten()) {
            return known;
        }
        if (known != null) {
            check(known);
        }
        Partition partition = new Partition(name, topic, this);
        partition.register();
        byId.put(partition.id(), partition);
        open.put(name, partition);
        // What was closed while it was opened would not be told of any more.
        check(partition);
        return partition;
    }

    private boolean isServed(Partition partition) {
        if (partition.isForgotten()) {
            return false;
        }
        Optional<Topic> served = broker().getTopicReference(partition.name);
        return served.isPresent() && served.get() == partition.topic;
    }

    /** Tells the native half if a partition is not served any more. */
    private void check(Partition partition) {
        if (!isServed(partition)) {
            Native.closed(partition.id(), "the topic was unloaded or deleted");
            partition.forget();
        }
    }

    /** A topic was closed, says the broker. */
    void closed(String topic) {
        Partition partition = open.get(topic);
        if (partition != null) {
            check(partition);
        }
    }

    /** Forgets a partition that died. */
    void forget(Partition partition) {
        open.remove(partition.name, partition);
        byId.remove(partition.id(), partition);
        readers.forget(partition);
    }

    /** Looks after all: topics that went without a word, first ledgers that went, cursors that are not used. */
    void sweep() {
        for (Partition partition : open.values()) {
            check(partition);
            if (!partition.isForgotten()) {
                partition.look();
            }
        }
        readers.sweep();
    }
}
