package io.kop;

import io.kop.control.Code;
import io.kop.control.Faults;
import io.kop.control.In;
import io.kop.control.Operation;
import io.kop.control.Out;
import io.kop.control.Refusal;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.AsyncCallbacks.UpdatePropertiesCallback;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo.LedgerInfo;
import org.apache.pulsar.broker.PulsarService;

/** The control operations on managed ledgers. Indexes are the native half's matter; here are ledgers and positions. */
final class Ledgers {
    private final PulsarService pulsar;
    private final Partitions partitions;
    private final Rollover rollover;

    Ledgers(PulsarService pulsar, Partitions partitions) {
        this.pulsar = pulsar;
        this.partitions = partitions;
        this.rollover = new Rollover(pulsar.getExecutor());
    }

    /** The operations by handler-api's numbers. */
    Map<Integer, Operation> operations() {
        Map<Integer, Operation> operations = new HashMap<>();
        operations.put(0x0201, this::open);
        operations.put(0x0202, this::describe);
        operations.put(0x0203, request -> rollover.now(partitions.get(request.i64())).thenApply(done -> new Out()));
        operations.put(0x0204, this::trim);
        operations.put(0x0205, this::updateProperties);
        operations.put(0x0207, this::storageUse);
        operations.putAll(new Cursors(partitions).operations());
        return operations;
    }

    private static final class Opened {
        Partition partition;
        Refusal refusal;
    }

    private CompletableFuture<Out> open(In request) {
        List<CompletableFuture<Opened>> all = new ArrayList<>();
        for (String name : request.texts()) {
            all.add(partitions.open(name).handle((partition, failure) -> {
                Opened opened = new Opened();
                opened.partition = partition;
                opened.refusal = failure == null ? null : Faults.explainOpening(failure);
                return opened;
            }));
        }
        return CompletableFuture.allOf(all.toArray(new CompletableFuture<?>[0])).thenApply(done -> new Out().list(all, (out, one) -> {
            Opened opened = one.join();
            if (opened.refusal == null) {
                out.i32(0).i64(opened.partition.id()).map(properties(opened.partition));
            } else {
                out.i32(opened.refusal.code()).text(opened.refusal.getMessage());
            }
        }));
    }

    /** Properties that the plugin has set: not those which Pulsar itself keeps there. */
    private static Map<String, String> properties(Partition partition) {
        return visible(partition.ledger.getProperties());
    }

    private static Map<String, String> visible(Map<String, String> properties) {
        Map<String, String> visible = new HashMap<>(properties);
        visible.keySet().removeIf(key -> key.equals("index") || key.startsWith("PULSAR."));
        return visible;
    }

    private CompletableFuture<Out> describe(In request) {
        Partition partition = partitions.get(request.i64());
        Position confirmed = partition.ledger.getLastConfirmedEntry();
        Map<Long, LedgerInfo> ledgers = new java.util.TreeMap<>(partition.ledger.getLedgersInfo());
        long open = ledgers.keySet().stream().max(Long::compare).orElse(-1L);
        return CompletableFuture.completedFuture(new Out().list(ledgers.entrySet(), (out, one) -> {
            LedgerInfo info = one.getValue();
            boolean isSealed = one.getKey() != open;
            out.i64(one.getKey()).i64(Partition.entries(one.getKey(), info, confirmed));
            out.i64(isSealed ? info.getSize() : partition.ledger.getCurrentLedgerSize());
            out.i64(isSealed ? info.getTimestamp() : 0).bool(isSealed);
        }));
    }

    /** Gives up every ledger up to one that is full, as far as no subscription still needs them. */
    private CompletableFuture<Out> trim(In request) {
        Partition partition = partitions.get(request.i64());
        return new Trim(partition, request.i64()).run().thenApply(done -> {
            partition.look();
            return new Out();
        });
    }

    private CompletableFuture<Out> updateProperties(In request) {
        Partition partition = partitions.get(request.i64());
        Map<String, String> set = request.map();
        List<String> remove = request.texts();
        for (String key : set.keySet()) {
            if (visible(Map.of(key, "")).isEmpty()) {
                throw new Refusal(Code.INVALID_ARGUMENT, key + " is Pulsar's own");
            }
        }
        CompletableFuture<?> done = set.isEmpty() ? CompletableFuture.completedFuture(null) : changed(
            callback -> partition.ledger.asyncSetProperties(set, callback, null));
        for (String key : remove) {
            done = done.thenCompose(before -> partition.ledger.getProperties().containsKey(key)
                ? changed(callback -> partition.ledger.asyncDeleteProperty(key, callback, null))
                : CompletableFuture.completedFuture(null));
        }
        return done.thenApply(all -> new Out().map(properties(partition)));
    }

    private static CompletableFuture<Void> changed(java.util.function.Consumer<UpdatePropertiesCallback> change) {
        CompletableFuture<Void> done = new CompletableFuture<>();
        change.accept(new UpdatePropertiesCallback() {
            @Override
            public void updatePropertiesComplete(Map<String, String> properties, Object ctx) {
                done.complete(null);
            }

            @Override
            public void updatePropertiesFailed(ManagedLedgerException failure, Object ctx) {
                done.completeExceptionally(failure);
            }
        });
        return done;
    }

    /** Bytes of the topics that are served here; others are another broker's to tell. */
    private CompletableFuture<Out> storageUse(In request) {
        Out out = new Out().list(request.texts(), (to, name) -> to.i64(pulsar.getBrokerService().getTopicReference(name)
            .filter(topic -> topic instanceof org.apache.pulsar.broker.service.persistent.PersistentTopic)
            .map(topic -> ((org.apache.pulsar.broker.service.persistent.PersistentTopic) topic)
                .getManagedLedger().getTotalSize())
            .orElse(0L)));
        return CompletableFuture.completedFuture(out.text("BookKeeper"));
    }
}
