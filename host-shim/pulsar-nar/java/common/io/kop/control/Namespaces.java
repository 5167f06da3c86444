package io.kop.control;

import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Tenants and namespaces. */
final class Namespaces {
    private static final Logger LOG = LoggerFactory.getLogger(Namespaces.class);

    private final Context context;

    Namespaces(Context context) {
        this.context = context;
    }

    /** Namespace: nothing. It and its tenant exist then, and this cluster may serve both. */
    CompletableFuture<Out> ensure(In request) {
        NamespaceName namespace = Names.namespace(request.text());
        var namespaces = context.pulsar.getPulsarResources().getNamespaceResources();
        return namespaces.namespaceExistsAsync(namespace).thenCompose(exists -> exists
            ? CompletableFuture.<Void>completedFuture(null)
            : clusterKnown(System.nanoTime(), false)
                .thenCompose(done -> ensureTenant(namespace.getTenant()))
                .thenCompose(done -> create(namespace)))
            .thenApply(done -> new Out());
    }

    /**
     * Waits until the cluster is registered. A standalone broker that is started for the first time does that, and makes
     * {@code public/default}, after it has told that it is ready: it is left to finish.
     */
    private CompletableFuture<Void> clusterKnown(long since, boolean waited) {
        String cluster = context.configuration().getClusterName();
        return context.shared().get("/admin/clusters/" + cluster).thenCompose(found -> {
            if (found.isPresent()) {
                return waited ? later(Limits.CLUSTER_SETTLES_MS) : CompletableFuture.<Void>completedFuture(null);
            }
            if (System.nanoTime() - since > TimeUnit.MILLISECONDS.toNanos(Limits.CLUSTER_TIMEOUT_MS)) {
                throw new Refusal(Code.NOT_READY, "the cluster " + cluster
                    + " (clusterName) is not registered: run pulsar initialize-cluster-metadata");
            }
            return later(Limits.CLUSTER_LOOK_AGAIN_MS).thenCompose(done -> clusterKnown(since, true));
        });
    }

    private static CompletableFuture<Void> later(long ms) {
        return CompletableFuture.runAsync(() -> { }, CompletableFuture.delayedExecutor(ms, TimeUnit.MILLISECONDS));
    }

    private CompletableFuture<Void> ensureTenant(String tenant) {
        String cluster = context.configuration().getClusterName();
        return context.pulsar.getPulsarResources().getTenantResources().getTenantAsync(tenant).thenCompose(found -> {
            if (found.isEmpty()) {
                LOG.info("Creating the tenant {}", tenant);
                TenantInfo info = TenantInfo.builder().allowedClusters(Set.of(cluster)).build();
                return unlessThere(() -> Context.from(() -> admin().tenants().createTenantAsync(tenant, info)));
            }
            Set<String> clusters = found.get().getAllowedClusters();
            if (clusters != null && clusters.contains(cluster)) {
                return CompletableFuture.completedFuture(null);
            }
            LOG.info("Allowing the cluster {} to the tenant {}", cluster, tenant);
            Set<String> allowed = new TreeSet<>(clusters == null ? Set.of() : clusters);
            allowed.add(cluster);
            TenantInfo info = TenantInfo.builder()
                .adminRoles(found.get().getAdminRoles()).allowedClusters(allowed).build();
            return Context.from(() -> admin().tenants().updateTenantAsync(tenant, info));
        });
    }

    private CompletableFuture<Void> create(NamespaceName namespace) {
        LOG.info("Creating the namespace {}", namespace);
        Set<String> clusters = Set.of(context.configuration().getClusterName());
        return unlessThere(() -> Context.from(() ->
            admin().namespaces().createNamespaceAsync(namespace.toString(), clusters)));
    }

    /** Another broker may do the same at the same time. */
    private static CompletableFuture<Void> unlessThere(Supplier<CompletableFuture<Void>> creation) {
        return creation.get().handle((done, failure) -> {
            if (failure == null || Faults.explain(failure).code() == Code.CONFLICT) {
                return CompletableFuture.<Void>completedFuture(null);
            }
            return CompletableFuture.<Void>failedFuture(failure);
        }).thenCompose(next -> next);
    }

    private PulsarAdmin admin() throws Exception {
        return context.admin();
    }

    /** Tenant: its namespaces by name. */
    CompletableFuture<Out> list(In request) {
        String tenant = request.text();
        if (tenant == null || tenant.isEmpty() || tenant.contains("/")) {
            throw new Refusal(Code.INVALID_ARGUMENT, "\"" + tenant + "\" is no tenant");
        }
        // Asked here first: the admin interface logs an error for a tenant that is not there.
        return context.pulsar.getPulsarResources().getTenantResources().getTenantAsync(tenant).thenCompose(found -> {
            if (found.isEmpty()) {
                throw new Refusal(Code.NOT_FOUND, "there is no tenant " + tenant);
            }
            return Context.from(() -> admin().namespaces().getNamespacesAsync(tenant));
        }).thenApply(found -> {
            TreeSet<String> names = new TreeSet<>();
            for (String name : found) {
                // Names of three parts are of Pulsar 1.x.
                if (name.indexOf('/') == name.lastIndexOf('/')) {
                    names.add(name);
                }
            }
            return new Out().texts(names);
        });
    }
}
