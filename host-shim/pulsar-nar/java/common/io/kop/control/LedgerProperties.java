package io.kop.control;

import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ManagedLedgerInfoCallback;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerFactory;
import org.apache.bookkeeper.mledger.ManagedLedgerInfo;
import org.apache.pulsar.broker.PulsarService;

/** A topic's properties from its managed ledger, which need not be open here; how they are asked for differs between versions. */
final class LedgerProperties {
    /** Since Pulsar 4.0 a broker may have several factories. */
    private static final Method FACTORY =
        Reflection.first(PulsarService.class, "getDefaultManagedLedgerFactory", "getManagedLedgerFactory");
    /** Since Pulsar 2.11; before, there is only everything about a managed ledger at once. */
    private static final Method PROPERTIES =
        Reflection.find(ManagedLedgerFactory.class, "getManagedLedgerPropertiesAsync", String.class);

    private LedgerProperties() {
    }

    @SuppressWarnings("unchecked")
    static CompletableFuture<Map<String, String>> read(PulsarService pulsar, String managedLedger) {
        return Context.from(() -> {
            ManagedLedgerFactory factory = (ManagedLedgerFactory) FACTORY.invoke(pulsar);
            return PROPERTIES == null
                ? ofInfo(factory, managedLedger)
                : (CompletableFuture<Map<String, String>>) PROPERTIES.invoke(factory, managedLedger);
        }).thenApply(LedgerProperties::ofTopic);
    }

    /** Without those that tell of the ledger and not of the topic: Pulsar's own, and what the plugin keeps with the data. */
    private static Map<String, String> ofTopic(Map<String, String> properties) {
        Map<String, String> kept = new HashMap<>();
        if (properties != null) {
            properties.forEach((key, value) -> {
                if (!key.equals("index") && !key.startsWith("PULSAR.") && !key.startsWith("kop.")) {
                    kept.put(key, value);
                }
            });
        }
        return kept;
    }

    private static CompletableFuture<Map<String, String>> ofInfo(ManagedLedgerFactory factory, String managedLedger) {
        CompletableFuture<Map<String, String>> properties = new CompletableFuture<>();
        factory.asyncGetManagedLedgerInfo(managedLedger, new ManagedLedgerInfoCallback() {
            @Override
            public void getInfoComplete(ManagedLedgerInfo info, Object ctx) {
                properties.complete(info.properties);
            }

            @Override
            public void getInfoFailed(ManagedLedgerException failure, Object ctx) {
                properties.completeExceptionally(failure);
            }
        }, null);
        return properties;
    }
}
