package io.kop.control;

import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** How long topics and namespaces keep data. */
final class Policies {
    private static final Logger LOG = LoggerFactory.getLogger(Policies.class);

    private final Context context;
    private final TopicStore store;
    private final Set<String> warned = ConcurrentHashMap.newKeySet();

    Policies(Context context, TopicStore store) {
        this.context = context;
        this.store = store;
    }

    /** Name, retention in ms and bytes: whether it holds, and advice if not. */
    CompletableFuture<Out> setOfTopic(In request) {
        TopicName name = Names.topic(request.text());
        Long retentionMs = Retention.checked(optional(request), "retention time");
        Long retentionBytes = Retention.checked(optional(request), "retention size");
        return store.exists(name).thenCompose(exists -> {
            if (!exists) {
                throw new Refusal(Code.NOT_FOUND, "there is no topic " + name);
            }
            return hasTopicPolicies()
                ? applied(name, retentionMs, retentionBytes)
                : covered(name, Retention.over(null, retentionMs, retentionBytes));
        });
    }

    private boolean hasTopicPolicies() {
        return context.configuration().isTopicLevelPoliciesEnabled() && context.configuration().isSystemTopicEnabled();
    }

    private CompletableFuture<Out> applied(TopicName name, Long retentionMs, Long retentionBytes) {
        return Context.from(() -> context.admin().topicPolicies().getRetentionAsync(name.toString())).thenCompose(now -> {
            RetentionPolicies wanted = Retention.over(now, retentionMs, retentionBytes);
            if (Retention.equal(now, wanted)) {
                return CompletableFuture.completedFuture(null);
            }
            return Context.from(() -> context.admin().topicPolicies().setRetentionAsync(name.toString(), wanted));
        }).thenApply(done -> new Out().bool(true).text(""));
    }

    /** Without policies of topics, that of the namespace holds: enough, or a warning. */
    private CompletableFuture<Out> covered(TopicName name, RetentionPolicies asked) {
        String namespace = name.getNamespace();
        return Context.from(() -> context.admin().namespaces().getRetentionAsync(namespace)).thenApply(found -> {
            RetentionPolicies kept = found != null ? found : Retention.of(
                context.configuration().getDefaultRetentionTimeInMinutes(),
                context.configuration().getDefaultRetentionSizeInMB());
            if (Retention.covers(kept, asked)) {
                return new Out().bool(true).text("");
            }
            String advice = "Topics of " + namespace + " lose data sooner than their retention says: this broker has"
                + " no policies of topics (topicLevelPoliciesEnabled, systemTopicEnabled), and the namespace keeps \""
                + Retention.options(kept) + "\". Run: pulsar-admin namespaces set-retention " + namespace + " "
                + Retention.options(asked);
            if (warned.size() < Limits.MAX_WARNED_NAMESPACES && warned.add(namespace)) {
                LOG.warn(advice);
            }
            return new Out().bool(false).text(advice);
        });
    }

    /** Namespace, retention in ms and bytes, TTL in ms, compaction threshold: true. */
    CompletableFuture<Out> setOfNamespace(In request) throws Exception {
        String namespace = Names.namespace(request.text()).toString();
        Long retentionMs = Retention.checked(optional(request), "retention time");
        Long retentionBytes = Retention.checked(optional(request), "retention size");
        Long ttlMs = Retention.checked(optional(request), "time to live");
        Long threshold = Retention.checked(optional(request), "compaction threshold");
        Namespaces admin = context.admin().namespaces();
        CompletableFuture<Void> retention = retentionMs == null && retentionBytes == null
            ? CompletableFuture.completedFuture(null)
            : admin.getRetentionAsync(namespace).thenCompose(now -> {
                RetentionPolicies wanted = Retention.over(now, retentionMs, retentionBytes);
                return changed(namespace, "retention", now == null ? "none" : Retention.options(now),
                    Retention.options(wanted), () -> admin.setRetentionAsync(namespace, wanted));
            });
        return retention.thenCompose(done -> {
            if (ttlMs == null) {
                return CompletableFuture.completedFuture(null);
            }
            Integer seconds = ttlMs <= 0 ? 0 : (int) Math.min(Integer.MAX_VALUE, Math.max(1, TimeUnit.MILLISECONDS.toSeconds(ttlMs)));
            return admin.getNamespaceMessageTTLAsync(namespace).thenCompose(now -> changed(namespace, "message TTL",
                now == null ? 0 : now, seconds, () -> admin.setNamespaceMessageTTLAsync(namespace, seconds)));
        }).thenCompose(done -> {
            if (threshold == null) {
                return CompletableFuture.completedFuture(null);
            }
            Long bytes = Math.max(0, threshold);
            return admin.getCompactionThresholdAsync(namespace).thenCompose(now -> changed(namespace, "compaction threshold",
                now == null ? 0L : now, bytes, () -> admin.setCompactionThresholdAsync(namespace, bytes)));
        }).thenApply(done -> new Out().bool(true).text(""));
    }

    /** Changes what is not as wanted, and says so in the log. */
    private static CompletableFuture<Void> changed(
        String namespace, String what, Object now, Object wanted, Callable<CompletableFuture<Void>> change) {
        if (Objects.equals(now, wanted)) {
            return CompletableFuture.completedFuture(null);
        }
        return Context.from(change).thenRun(() ->
            LOG.info("Set the {} of namespace {}: {} (was {})", what, namespace, wanted, now));
    }

    private static Long optional(In request) {
        return request.bool() ? request.i64() : null;
    }
}
