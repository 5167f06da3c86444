package io.kop.control;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
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
    /** For what may take a while. Not the broker's: what runs there may wait for others that need it. */
    final ThreadPoolExecutor executor = new ThreadPoolExecutor(Limits.THREADS, Limits.THREADS, 1, TimeUnit.MINUTES,
        new LinkedBlockingQueue<>(Limits.MAX_WAITING_OPERATIONS), Context::thread);

    Context(PulsarService pulsar, String protocol, String protocolData, Events events) {
        this.pulsar = pulsar;
        this.protocol = protocol;
        this.protocolData = protocolData;
        this.events = events;
        executor.allowCoreThreadTimeOut(true);
    }

    private static Thread thread(Runnable task) {
        Thread thread = new Thread(task, "kop-control");
        thread.setDaemon(true);
        return thread;
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

    /** Runs a step that may throw, and waits for what it began. */
    static <T> CompletableFuture<T> from(Callable<CompletableFuture<T>> step) {
        try {
            return step.call();
        } catch (Throwable failure) {
            return CompletableFuture.failedFuture(failure);
        }
    }
}
