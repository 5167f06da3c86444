package io.kop.control;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.broker.namespace.NamespaceBundleOwnershipListener;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;

/**
 * The names that were looked up, some of whose answers the plugin keeps, and the bundles that this broker loses.
 *
 * <p>A name is noted before it is looked up, so that a bundle that goes while a lookup is under way is told of too. Names
 * are found by their hash and not by bundle: bundles are split.
 */
final class Ownership implements NamespaceBundleOwnershipListener {
    private final Context context;
    private final Map<String, Route> routes = new ConcurrentHashMap<>();
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

    /** Notes a name that is about to be looked up. */
    Route route(String name) {
        Route known = routes.get(name);
        if (known != null) {
            return known;
        }
        TopicName topic = Names.topicOrPartition(name);
        Route route = new Route(topic, namespaces().getNamespaceBundleFactory().getLongHashCode(name));
        if (routes.size() >= Limits.MAX_KEPT_LOOKUPS) {
            forgetAll();
        }
        routes.put(name, route);
        return route;
    }

    /** Everything that was kept is stale. A lookup that is under way meanwhile is not kept, for an event came. */
    void forgetAll() {
        routes.clear();
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
        NamespaceName namespace = bundle.getNamespaceObject();
        BundleRange range = BundleRange.of(bundle);
        List<String> lost = new ArrayList<>();
        routes.forEach((name, route) -> {
            if (range.contains(route.hash) && route.namespace().equals(namespace)) {
                lost.add(name);
            }
        });
        for (int from = 0; from < lost.size(); from += Limits.MAX_NAMES_PER_EVENT) {
            tell(lost.subList(from, Math.min(lost.size(), from + Limits.MAX_NAMES_PER_EVENT)));
        }
    }

    private void tell(List<String> topics) {
        if (!ended) {
            context.events.send(Events.OWNERSHIP_CHANGED, new Out().texts(topics).bool(false).toBytes());
        }
    }
}
