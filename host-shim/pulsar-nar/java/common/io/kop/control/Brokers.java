package io.kop.control;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.pulsar.metadata.api.GetResult;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The brokers that are alive, and what the same protocol's handler advertises on each: read from where every load manager
 * registers its broker.
 */
final class Brokers {
    static final String ROOT = "/loadbalance/brokers";
    private static final String[] URLS = {"webServiceUrl", "webServiceUrlTls", "pulsarServiceUrl", "pulsarServiceUrlTls"};
    private static final Logger LOG = LoggerFactory.getLogger(Brokers.class);
    private static final ObjectMapper JSON = new ObjectMapper();

    /** A broker. */
    static final class Broker {
        final String id;
        final String protocolData;
        final List<String> urls;

        Broker(String id, String protocolData, List<String> urls) {
            this.id = id;
            this.protocolData = protocolData;
            this.urls = urls;
        }
    }

    /** All brokers, by id and by each of their addresses. */
    private static final class View {
        final Map<String, Broker> byId = new TreeMap<>();
        final Map<String, Broker> byUrl = new HashMap<>();

        View(Collection<Broker> brokers) {
            for (Broker broker : brokers) {
                byId.put(broker.id, broker);
                broker.urls.forEach(url -> byUrl.put(url, broker));
            }
        }

        /** What brokers advertise, to see changes that matter: load reports change all the time. */
        Map<String, String> advertised() {
            Map<String, String> advertised = new HashMap<>();
            byId.values().forEach(broker -> advertised.put(broker.id, broker.protocolData));
            return advertised;
        }
    }

    private final Context context;
    private final String localId;
    private final AtomicBoolean refreshing = new AtomicBoolean();
    private volatile boolean stale;
    private volatile View view;

    Brokers(Context context, String localId) {
        this.context = context;
        this.localId = localId;
    }

    String localId() {
        return localId;
    }

    /** Nothing: name of the cluster, id of this broker, all brokers. */
    CompletableFuture<Out> list(In request) {
        return read().thenApply(this::write);
    }

    private Out write(View now) {
        return new Out().text(context.configuration().getClusterName()).text(localId)
            .list(now.byId.values(), (out, broker) -> out.text(broker.id).text(broker.protocolData));
    }

    /** The broker with one of these addresses; looked for once more if it is not known yet. */
    CompletableFuture<Optional<Broker>> at(Collection<String> urls) {
        Optional<Broker> known = view == null ? Optional.empty() : at(view, urls);
        return known.isPresent()
            ? CompletableFuture.completedFuture(known)
            : read().thenApply(now -> at(now, urls));
    }

    private static Optional<Broker> at(View now, Collection<String> urls) {
        return urls.stream().map(now.byUrl::get).filter(broker -> broker != null).findFirst();
    }

    private CompletableFuture<View> read() {
        return context.local().getChildren(ROOT)
            .thenCompose(ids -> Futures.each(ids, this::read))
            .thenApply(found -> {
                List<Broker> brokers = new ArrayList<>();
                found.forEach(broker -> broker.ifPresent(brokers::add));
                if (brokers.stream().noneMatch(broker -> broker.id.equals(localId))) {
                    // Not registered yet, or by a load manager that registers nobody.
                    brokers.add(new Broker(localId, context.protocolData, localUrls()));
                }
                View now = new View(brokers);
                view = now;
                return now;
            });
    }

    private CompletableFuture<Optional<Broker>> read(String id) {
        return context.local().get(ROOT + "/" + id).thenApply(found -> found.map(result -> parse(id, result)));
    }

    private Broker parse(String id, GetResult found) {
        JsonNode root;
        try {
            root = JSON.readTree(found.getValue());
        } catch (IOException damaged) {
            LOG.warn("What the broker {} has registered cannot be read: {}", id, damaged.getMessage());
            root = JSON.createObjectNode();
        }
        List<String> urls = new ArrayList<>();
        for (String url : URLS) {
            if (root.path(url).isTextual()) {
                urls.add(root.path(url).asText());
            }
        }
        return new Broker(id, root.path("protocols").path(context.protocol).asText(""), urls);
    }

    private List<String> localUrls() {
        List<String> urls = new ArrayList<>();
        for (String url : new String[] {
            context.pulsar.getWebServiceAddress(), context.pulsar.getWebServiceAddressTls(),
            context.pulsar.getBrokerServiceUrl(), context.pulsar.getBrokerServiceUrlTls()}) {
            if (url != null) {
                urls.add(url);
            }
        }
        return urls;
    }

    /** Something below {@link #ROOT} changed: reads it, and tells the plugin if that matters to it. */
    void changed() {
        stale = true;
        if (!refreshing.compareAndSet(false, true)) {
            return;
        }
        stale = false;
        Map<String, String> before = view == null ? null : view.advertised();
        read().whenComplete((now, failure) -> {
            if (failure != null) {
                LOG.warn("The brokers cannot be listed: {}", Faults.explain(failure).getMessage());
            } else if (!now.advertised().equals(before)) {
                context.events.send(Events.BROKERS_CHANGED, write(now).toBytes());
            }
            refreshing.set(false);
            if (stale) {
                changed();
            }
        });
    }
}
