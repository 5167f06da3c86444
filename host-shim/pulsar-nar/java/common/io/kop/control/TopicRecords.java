package io.kop.control;

import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.pulsar.common.util.Codec;
import org.apache.pulsar.metadata.api.GetResult;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Our own records of topics in the metadata store; see {@link TopicRecord}. */
final class TopicRecords {
    private static final Logger LOG = LoggerFactory.getLogger(TopicRecords.class);

    /** A record and the version of its node. */
    static final class Stored {
        final TopicRecord record;
        final long version;

        Stored(TopicRecord record, long version) {
            this.record = record;
            this.version = version;
        }
    }

    private final Context context;
    /** Topics whose record is known to say what their properties say. */
    private final Map<String, TopicState> known = new ConcurrentHashMap<>();
    private final AtomicInteger waiting = new AtomicInteger();
    private CompletableFuture<Void> last = CompletableFuture.completedFuture(null);

    TopicRecords(Context context) {
        this.context = context;
    }

    private static String path(String name) {
        return TopicRecord.ROOT + "/" + Codec.encode(name);
    }

    /** The record of a name, of whatever life of it. */
    CompletableFuture<Optional<Stored>> read(String name) {
        return context.local().get(path(name)).thenApply(found -> found.map(TopicRecords::stored));
    }

    private static Stored stored(GetResult found) {
        return new Stored(TopicRecord.parse(found.getValue()), found.getStat().getVersion());
    }

    /** Writes a record over the one that was read, or where there was none; fails if it is another one by now. */
    CompletableFuture<Void> write(String name, TopicRecord record, Optional<Stored> over) {
        long expected = over.map(stored -> stored.version).orElse(-1L);
        return context.local().put(path(name), record.toBytes(), Optional.of(expected)).thenAccept(done -> { });
    }

    /** Makes the record of a partitioned topic say what its properties say. */
    CompletableFuture<Void> keep(TopicState topic) {
        String name = topic.name.toString();
        return keep(topic, name, Limits.MAX_TRIES).thenRun(() -> {
            if (known.size() >= Limits.MAX_KNOWN_RECORDS) {
                known.clear();
            }
            known.put(name, topic);
        });
    }

    private CompletableFuture<Void> keep(TopicState topic, String name, int tries) {
        return read(name).thenCompose(found -> {
            if (found.isPresent() && found.get().record != null && found.get().record.equalsPropertiesOf(topic)) {
                return CompletableFuture.completedFuture(null);
            }
            return Retry.onConflict(write(name, TopicRecord.copyOf(topic), found), tries,
                () -> keep(topic, name, tries - 1));
        });
    }

    /** As {@link #keep}, later, unless it is known to be so. */
    void keepInBackground(TopicState topic) {
        String name = topic.name.toString();
        TopicState before = known.get(name);
        if (before != null && before.createdMs == topic.createdMs && before.properties.equals(topic.properties)) {
            return;
        }
        inBackground(name, () -> keep(topic));
    }

    /** Removes the record of a topic that is gone, unless there is one of that name again. */
    void removeInBackground(String name, Supplier<CompletableFuture<Boolean>> exists) {
        known.remove(name);
        inBackground(name, () -> read(name).thenCompose(found -> {
            if (found.isEmpty()) {
                return CompletableFuture.completedFuture(null);
            }
            return exists.get().thenCompose(there -> there
                ? CompletableFuture.<Void>completedFuture(null)
                : context.local().delete(path(name), Optional.of(found.get().version)));
        }));
    }

    /** Does things one after another; beyond the bound it is left to the next look at the topic. */
    private void inBackground(String name, Supplier<CompletableFuture<Void>> task) {
        if (waiting.incrementAndGet() > Limits.MAX_WAITING_RECORDS) {
            waiting.decrementAndGet();
            return;
        }
        synchronized (this) {
            last = last.handle((done, failure) -> null)
                .thenCompose(ready -> Context.from(task::get))
                .whenComplete((done, failure) -> {
                    waiting.decrementAndGet();
                    if (failure != null) {
                        LOG.debug("the record of {} was not changed", name, failure);
                    }
                });
        }
    }
}
