package io.kop.control;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.metadata.api.MetadataStore;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/** What the services use of the broker that they run in. */
final class Context {
    final PulsarService pulsar;
    /** Name of the protocol, and what its handler here advertises. */
    final String protocol;
    final String protocolData;
    final Events events;

    Context(PulsarService pulsar, String protocol, String protocolData, Events events) {
        this.pulsar = pulsar;
        this.protocol = protocol;
        this.protocolData = protocolData;
        this.events = events;
    }

    ServiceConfiguration configuration() {
        return pulsar.getConfiguration();
    }

    /** The cluster's own metadata store. */
    MetadataStoreExtended local() {
        return pulsar.getLocalMetadataStore();
    }

    /** The store of tenants, namespaces and partitioned topics, which clusters may share. */
    MetadataStore shared() {
        return pulsar.getConfigurationMetadataStore();
    }

    /** The broker's admin client: it does what {@code pulsar-admin} does, on whichever broker it has to be done. */
    PulsarAdmin admin() throws Exception {
        return pulsar.getAdminClient();
    }

    /** For what may block: a thread of the broker's. */
    Executor executor() {
        return pulsar.getExecutor();
    }

    /** Runs a step that may throw, and waits for what it began. */
    static <T> CompletableFuture<T> from(Callable<CompletableFuture<T>> step) {
        try {
            return step.call();
        } catch (Throwable failure) {
            return CompletableFuture.failedFuture(failure);
        }
    }
}
