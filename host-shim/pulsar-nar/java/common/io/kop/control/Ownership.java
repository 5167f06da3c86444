package io.kop.control;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.pulsar.broker.namespace.NamespaceBundleOwnershipListener;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleFactory;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;

/**
 * Lookups that the plugin may keep, and the bundles that this broker loses.
 *
 * <p>Names are noted before they are looked up, so that a bundle that goes while a lookup is under way is told too. They are
 * kept by their hash, not by bundle: bundles are split.
 */
final class Ownership implements NamespaceBundleOwnershipListener {
    private final Context context;
    private final Map<NamespaceName, Map<String, Long>> kept = new HashMap<>();
    private int count;
    private volatile boolean ended;

    Ownership(Context context) {
        this.context = context;
    }

    private NamespaceService namespaces() {
        return context.pulsar.getNamespaceService();
    }

    void start() {
        namespaces().addNamespaceBundleOwnershipListener(this);
    }

    /** Tells nothing any more: the broker has no way to take a listener back. */
    void end() {
        ended = true;
    }

    /** Notes names that are about to be looked up. */
    void note(NamespaceName namespace, Collection<TopicName> topics) {
        if (!noted(namespace, topics)) {
            forgetAll();
            noted(namespace, topics);
        }
    }

    /** False: too many are noted already. */
    private synchronized boolean noted(NamespaceName namespace, Collection<TopicName> topics) {
        if (count >= Limits.MAX_KEPT_LOOKUPS) {
            return false;
        }
        NamespaceBundleFactory factory = namespaces().getNamespaceBundleFactory();
        Map<String, Long> names = kept.computeIfAbsent(namespace, key -> new HashMap<>());
        int before = names.size();
        for (TopicName topic : topics) {
            names.computeIfAbsent(topic.toString(), factory::getLongHashCode);
        }
        count += names.size() - before;
        return true;
    }

    /** Everything that was kept is stale. */
    void forgetAll() {
        synchronized (this) {
            kept.clear();
            count = 0;
        }
        tell(List.of());
    }

    @Override
    public boolean test(NamespaceBundle bundle) {
        return true;
    }

    @Override
    public void onLoad(NamespaceBundle bundle) {
        // Nothing that is kept becomes wrong.
    }

    @Override
    public void unLoad(NamespaceBundle bundle) {
        List<String> lost = lost(bundle.getNamespaceObject(), BundleRange.of(bundle));
        for (int from = 0; from < lost.size(); from += Limits.MAX_NAMES_PER_EVENT) {
            tell(lost.subList(from, Math.min(lost.size(), from + Limits.MAX_NAMES_PER_EVENT)));
        }
    }

    private synchronized List<String> lost(NamespaceName namespace, BundleRange range) {
        Map<String, Long> names = kept.getOrDefault(namespace, Map.of());
        List<String> lost = new ArrayList<>();
        names.forEach((name, hash) -> {
            if (range.contains(hash)) {
                lost.add(name);
            }
        });
        lost.forEach(names::remove);
        count -= lost.size();
        return lost;
    }

    private void tell(List<String> topics) {
        if (ended) {
            return;
        }
        context.events.send(Events.OWNERSHIP_CHANGED, new Out().texts(topics).bool(false).toBytes());
    }
}
