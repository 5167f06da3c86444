package io.kop.control;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.util.Codec;

/** Topics, partitioned or not: described, listed, created, changed and deleted as {@code pulsar-admin} does. */
final class Topics {
    private final Context context;
    private final TopicStore store;
    private final TopicRecords records;

    Topics(Context context, TopicStore store, TopicRecords records) {
        this.context = context;
        this.store = store;
        this.records = records;
    }

    /** Names: topics in their order. */
    CompletableFuture<Out> describe(In request) {
        List<String> names = request.texts();
        return Futures.each(names, this::find).thenApply(topics -> {
            Out out = new Out().i32(names.size());
            for (int n = 0; n < names.size(); n++) {
                if (topics.get(n).isPresent()) {
                    topics.get(n).get().write(out);
                } else {
                    TopicState.writeAbsent(out, names.get(n));
                }
            }
            return out;
        });
    }

    /** A name that cannot be a topic's is nobody's. */
    private CompletableFuture<Optional<TopicState>> find(String name) {
        TopicName topic;
        try {
            topic = Names.topic(name);
        } catch (Refusal wrong) {
            return CompletableFuture.completedFuture(Optional.empty());
        }
        return store.read(topic);
    }

    /** Namespace: its topics by name, without those that Pulsar keeps for itself. */
    CompletableFuture<Out> list(In request) {
        NamespaceName namespace = Names.namespace(request.text());
        CompletableFuture<List<String>> partitioned = context.shared().getChildren(Names.partitionedTopics(namespace));
        CompletableFuture<List<String>> ledgers = context.local().getChildren(Names.managedLedgers(namespace));
        return partitioned.thenCombine(ledgers, (many, all) -> {
            Set<String> names = new HashSet<>(many);
            all.stream().filter(name -> !Names.isPartition(Codec.decode(name))).forEach(names::add);
            names.removeIf(name -> Names.isPulsarsOwn(Codec.decode(name)));
            List<TopicName> topics = new ArrayList<>(names.size());
            names.forEach(name -> topics.add(TopicName.get(Names.fullName(namespace, name))));
            return topics;
        }).thenCompose(topics -> Futures.each(topics, store::read)).thenApply(found -> {
            TreeMap<String, TopicState> sorted = new TreeMap<>();
            // One that is missing was deleted meanwhile.
            found.forEach(topic -> topic.ifPresent(state -> sorted.put(state.name.toString(), state)));
            return new Out().list(sorted.values(), (out, topic) -> topic.write(out));
        });
    }

    /** Name, partitions (0: none), properties: the topic as it was made. */
    CompletableFuture<Out> create(In request) throws Exception {
        TopicName name = Names.topic(request.text());
        int partitions = request.i32();
        Map<String, String> properties = request.map();
        if (partitions < 0) {
            throw new Refusal(Code.INVALID_ARGUMENT, partitions + " is no number of partitions");
        }
        var topics = context.admin().topics();
        CompletableFuture<Void> created = partitions > 0
            ? topics.createPartitionedTopicAsync(name.toString(), partitions, properties)
            : topics.createNonPartitionedTopicAsync(name.toString(), properties);
        return created.thenCompose(done -> store.read(name)).thenCompose(found -> {
            TopicState topic = found.orElseThrow(() -> gone(name));
            CompletableFuture<Void> kept = topic.isPartitioned() && !properties.isEmpty()
                ? records.keep(topic)
                : CompletableFuture.completedFuture(null);
            return kept.thenApply(ready -> answer(topic));
        });
    }

    /** Name, partitions (0: as they are), set, remove, expect: the topic as it is then. */
    CompletableFuture<Out> update(In request) {
        TopicName name = Names.topic(request.text());
        int partitions = request.i32();
        Map<String, String> set = request.map();
        List<String> remove = request.texts();
        Map<String, String> expect = request.map();
        TopicStore.Decision decide = now -> {
            checkPartitions(now, partitions);
            checkExpected(now, expect);
            Map<String, String> wanted = new HashMap<>(now.properties);
            wanted.putAll(set);
            remove.forEach(wanted::remove);
            return wanted;
        };
        return change(name, decide, Limits.MAX_TRIES)
            .thenCompose(topic -> grow(topic, partitions))
            .thenApply(Topics::answer);
    }

    private CompletableFuture<TopicState> change(TopicName name, TopicStore.Decision decide, int tries) {
        return store.readPartitioned(name).thenCompose(found -> {
            if (found.isEmpty()) {
                return store.changeSingle(name, decide);
            }
            TopicState topic = found.get();
            Map<String, String> wanted = decide.properties(topic);
            if (wanted.equals(topic.properties)) {
                return CompletableFuture.completedFuture(topic);
            }
            // Tried again from the start: what was decided may not hold for what somebody else wrote.
            return Retry.onConflict(store.change(topic, wanted), tries, () -> change(name, decide, tries - 1));
        });
    }

    private CompletableFuture<TopicState> grow(TopicState topic, int partitions) {
        if (partitions == 0 || partitions == topic.partitions) {
            return CompletableFuture.completedFuture(topic);
        }
        // What is written must also be in our record by now: Pulsar 2.10.0 drops properties here.
        CompletableFuture<Void> kept = topic.properties.isEmpty()
            ? CompletableFuture.completedFuture(null)
            : records.keep(topic);
        return kept
            .thenCompose(done -> Context.from(() ->
                context.admin().topics().updatePartitionedTopicAsync(topic.name.toString(), partitions)))
            .thenCompose(done -> store.readPartitioned(topic.name))
            .thenApply(found -> found.orElseThrow(() -> gone(topic.name)));
    }

    private static void checkPartitions(TopicState now, int partitions) {
        if (partitions < 0 || partitions > 0 && partitions < Math.max(now.partitions, 1) || partitions > 0 && !now.isPartitioned()) {
            throw new Refusal(Code.INVALID_ARGUMENT,
                now.name + " has " + now.partitions + " partitions and cannot be given " + partitions);
        }
    }

    private static void checkExpected(TopicState now, Map<String, String> expect) {
        expect.forEach((key, expected) -> {
            String found = now.properties.getOrDefault(key, "");
            if (!found.equals(expected)) {
                throw new Refusal(Code.CONFLICT, "property " + key + " of " + now.name + " is \"" + found + "\", not \"" + expected + "\"");
            }
        });
    }

    /** Name: nothing. */
    CompletableFuture<Out> delete(In request) {
        TopicName name = Names.topic(request.text());
        return store.read(name).thenCompose(found -> {
            TopicState topic = found.orElseThrow(() -> gone(name));
            return Context.from(() -> topic.isPartitioned()
                ? context.admin().topics().deletePartitionedTopicAsync(name.toString(), true)
                : context.admin().topics().deleteAsync(name.toString(), true));
        }).thenApply(done -> {
            records.removeInBackground(name.toString(), () -> store.exists(name));
            return new Out();
        });
    }

    private static Out answer(TopicState topic) {
        Out out = new Out();
        topic.write(out);
        return out;
    }

    private static Refusal gone(TopicName name) {
        return new Refusal(Code.NOT_FOUND, "there is no topic " + name);
    }
}
