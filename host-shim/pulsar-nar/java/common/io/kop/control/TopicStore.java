package io.kop.control;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.metadata.api.GetResult;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Topics as the metadata stores have them, read past the broker's caches: what {@code pulsar-admin} did on another broker
 * shows as soon as this one was notified.
 *
 * <p>A partitioned topic's properties are those of Pulsar's own node, where KoP has them too. Pulsar 2.10.0 drops them when
 * it adds partitions; they are put back from our record.
 */
final class TopicStore {
    private static final Logger LOG = LoggerFactory.getLogger(TopicStore.class);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Context context;
    private final TopicRecords records;

    TopicStore(Context context, TopicRecords records) {
        this.context = context;
        this.records = records;
    }

    /** A topic, partitioned or not; empty if there is none. */
    CompletableFuture<Optional<TopicState>> read(TopicName name) {
        return readPartitioned(name).thenCompose(found -> found.isPresent()
            ? CompletableFuture.completedFuture(found)
            : readSingle(name));
    }

    /** Whether a name is a topic's. */
    CompletableFuture<Boolean> exists(TopicName name) {
        return context.shared().get(Names.partitionedTopic(name)).thenCompose(found -> found.isPresent()
            ? CompletableFuture.completedFuture(true)
            : context.local().get(Names.managedLedger(name)).thenApply(Optional::isPresent));
    }

    CompletableFuture<Optional<TopicState>> readPartitioned(TopicName name) {
        return readPartitioned(name, Limits.MAX_TRIES);
    }

    private CompletableFuture<Optional<TopicState>> readPartitioned(TopicName name, int tries) {
        return context.shared().get(Names.partitionedTopic(name)).thenCompose(found -> {
            if (found.isEmpty()) {
                return CompletableFuture.completedFuture(Optional.empty());
            }
            TopicState topic = parse(name, found.get());
            if (topic == null) {
                return CompletableFuture.completedFuture(Optional.empty());
            }
            if (!topic.properties.isEmpty()) {
                records.keepInBackground(topic);
                return CompletableFuture.completedFuture(Optional.of(topic));
            }
            return Retry.onConflict(restored(topic, found.get()), tries, () -> readPartitioned(name, tries - 1));
        });
    }

    /** Puts back the properties of a topic that has none any more. */
    private CompletableFuture<Optional<TopicState>> restored(TopicState topic, GetResult found) {
        return records.read(topic.name.toString()).thenCompose(stored -> {
            boolean lost = stored.isPresent() && stored.get().record != null && stored.get().record.isOf(topic)
                && !stored.get().record.copied().isEmpty();
            if (!lost) {
                return CompletableFuture.completedFuture(Optional.of(topic));
            }
            LOG.info("{} has lost its properties; they are put back", topic.name);
            return putProperties(topic, found, stored.get().record.copied()).thenApply(Optional::of);
        });
    }

    /** Gives a partitioned topic other properties; fails with a conflict if it was changed since it was read. */
    CompletableFuture<TopicState> change(TopicState topic, Map<String, String> properties) {
        return context.shared().get(Names.partitionedTopic(topic.name)).thenCompose(found -> {
            if (found.isEmpty() || found.get().getStat().getVersion() != topic.version) {
                throw new Refusal(Code.CONFLICT, topic.name + " was changed by others");
            }
            return putProperties(topic, found.get(), properties);
        }).thenCompose(changed -> records.keep(changed).thenApply(done -> changed));
    }

    private CompletableFuture<TopicState> putProperties(TopicState topic, GetResult found, Map<String, String> properties) {
        byte[] bytes;
        try {
            // Fields that are not known here stay as they are.
            ObjectNode root = (ObjectNode) JSON.readTree(found.getValue());
            ObjectNode node = root.putObject("properties");
            properties.forEach(node::put);
            bytes = JSON.writeValueAsBytes(root);
        } catch (IOException | ClassCastException damaged) {
            return CompletableFuture.failedFuture(new Refusal(Code.CORRUPT, "the metadata of " + topic.name + " cannot be read"));
        }
        return context.shared().put(Names.partitionedTopic(topic.name), bytes, Optional.of(topic.version)).thenApply(stat ->
            new TopicState(topic.name, topic.partitions, properties, topic.createdMs, stat.getVersion()));
    }

    /** Null if the node stands for no topic (any more). */
    private static TopicState parse(TopicName name, GetResult found) {
        JsonNode root;
        try {
            root = JSON.readTree(found.getValue());
        } catch (IOException damaged) {
            throw new Refusal(Code.CORRUPT, "the metadata of " + name + " cannot be read");
        }
        if (root == null || root.path("deleted").asBoolean(false) || root.path("partitions").asInt(0) <= 0) {
            return null;
        }
        Map<String, String> properties = new HashMap<>();
        root.path("properties").fields().forEachRemaining(field -> properties.put(field.getKey(), field.getValue().asText()));
        return new TopicState(name, root.path("partitions").asInt(), properties,
            found.getStat().getCreationTimestamp(), found.getStat().getVersion());
    }

    /** A topic that is not partitioned, with its own properties and ours over them. */
    CompletableFuture<Optional<TopicState>> readSingle(TopicName name) {
        return readOwn(name).thenCompose(own -> own.isEmpty()
            ? CompletableFuture.completedFuture(own)
            : records.read(name.toString()).thenApply(stored -> Optional.of(laidOver(own.get(), stored))));
    }

    private static TopicState laidOver(TopicState own, Optional<TopicRecords.Stored> stored) {
        boolean ours = stored.isPresent() && stored.get().record != null && stored.get().record.isOf(own);
        return ours ? own.with(stored.get().record.laidOver(own.properties)) : own;
    }

    /** A topic that is not partitioned, as Pulsar has it. */
    private CompletableFuture<Optional<TopicState>> readOwn(TopicName name) {
        if (Names.isPartition(name.toString())) {
            return CompletableFuture.completedFuture(Optional.empty());
        }
        return context.local().get(Names.managedLedger(name)).thenCompose(found -> {
            if (found.isEmpty()) {
                return CompletableFuture.completedFuture(Optional.empty());
            }
            return ownProperties(name).thenApply(properties -> Optional.of(new TopicState(name, 0, properties,
                found.get().getStat().getCreationTimestamp(), found.get().getStat().getVersion())));
        });
    }

    private CompletableFuture<Map<String, String>> ownProperties(TopicName name) {
        return LedgerProperties.read(context.pulsar, name.getPersistenceNamingEncoding());
    }

    /** Lays other properties over those of a topic that is not partitioned, if {@code decide} still wants to. */
    CompletableFuture<TopicState> changeSingle(TopicName name, Decision decide) {
        return changeSingle(name, decide, Limits.MAX_TRIES);
    }

    private CompletableFuture<TopicState> changeSingle(TopicName name, Decision decide, int tries) {
        return readOwn(name).thenCompose(own -> {
            if (own.isEmpty()) {
                throw new Refusal(Code.NOT_FOUND, "there is no topic " + name);
            }
            return records.read(name.toString()).thenCompose(stored -> {
                TopicState now = laidOver(own.get(), stored);
                Map<String, String> wanted = decide.properties(now);
                if (wanted.equals(now.properties)) {
                    return CompletableFuture.completedFuture(now);
                }
                CompletableFuture<TopicState> written = records
                    .write(name.toString(), TopicRecord.over(own.get(), wanted), stored)
                    .thenApply(done -> now.with(wanted));
                return Retry.onConflict(written, tries, () -> changeSingle(name, decide, tries - 1));
            });
        });
    }

    /** What a topic's properties shall be, given the topic as it is; refuses what does not fit. */
    @FunctionalInterface
    interface Decision {
        Map<String, String> properties(TopicState now);
    }
}
