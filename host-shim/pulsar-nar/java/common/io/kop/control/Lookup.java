package io.kop.control;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.broker.lookup.LookupResult;
import org.apache.pulsar.broker.namespace.LookupOptions;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.lookup.data.LookupData;
import org.apache.pulsar.common.naming.NamespaceBundles;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;

/**
 * Who serves topics. Ownership is a matter of bundles, and which bundle a topic is in follows from its name: however many
 * topics are asked for, each bundle is looked up once.
 */
final class Lookup {
    private static final LookupOptions OPTIONS = LookupOptions.builder()
        .authoritative(false).readOnly(false).requestHttps(false).loadTopicsInBundle(false).build();

    private final Context context;
    private final Brokers brokers;
    private final Ownership ownership;
    private final Map<NamespaceName, Bundles> sorted = new ConcurrentHashMap<>();

    Lookup(Context context, Brokers brokers, Ownership ownership) {
        this.context = context;
        this.brokers = brokers;
        this.ownership = ownership;
    }

    private NamespaceService namespaces() {
        return context.pulsar.getNamespaceService();
    }

    /** An owner, or why there is none: shared by all topics of a bundle. */
    private static final class Found {
        final Brokers.Broker owner;
        final Refusal fault;
        /** Its place in the answer. */
        int number = -1;

        Found(Brokers.Broker owner, Refusal fault) {
            this.owner = owner;
            this.fault = fault;
        }
    }

    /** Topics of one namespace and their places in the request. */
    private static final class Asked {
        final List<Route> routes = new ArrayList<>();
        int[] places = new int[16];

        void add(Route route, int place) {
            if (routes.size() == places.length) {
                places = Arrays.copyOf(places, 2 * places.length);
            }
            places[routes.size()] = place;
            routes.add(route);
        }
    }

    /** Names: the different answers, and for each name the number of its answer. */
    CompletableFuture<Out> call(In request) {
        List<String> names = request.texts();
        Found[] found = new Found[names.size()];
        Map<NamespaceName, Asked> byNamespace = new HashMap<>();
        for (int place = 0; place < found.length; place++) {
            try {
                Route route = ownership.route(names.get(place));
                byNamespace.computeIfAbsent(route.namespace(), key -> new Asked()).add(route, place);
            } catch (Refusal wrong) {
                found[place] = new Found(null, wrong);
            }
        }
        List<CompletableFuture<?>> lookups = new ArrayList<>();
        byNamespace.forEach((namespace, asked) -> lookups.add(inNamespace(namespace, asked, found)));
        return CompletableFuture.allOf(lookups.toArray(new CompletableFuture<?>[0])).thenApply(done -> write(found));
    }

    private CompletableFuture<?> inNamespace(NamespaceName namespace, Asked asked, Found[] found) {
        return context.pulsar.getPulsarResources().getNamespaceResources().getPoliciesAsync(namespace).thenCompose(policies -> {
            if (policies.isEmpty()) {
                throw new Refusal(Code.NOT_FOUND, "there is no namespace " + namespace);
            }
            return namespaces().getNamespaceBundleFactory().getBundlesAsync(namespace);
        }).thenCompose(bundles -> inBundles(sorted(namespace, bundles), asked, found)).exceptionally(failure -> {
            Found none = new Found(null, Faults.explain(failure));
            for (int n = 0; n < asked.routes.size(); n++) {
                found[asked.places[n]] = none;
            }
            return null;
        });
    }

    /** The bundles to be found by hash; they change only when one is split. */
    private Bundles sorted(NamespaceName namespace, NamespaceBundles bundles) {
        Bundles known = sorted.get(namespace);
        if (known != null && known.of == bundles) {
            return known;
        }
        if (sorted.size() >= Limits.MAX_KEPT_NAMESPACES) {
            sorted.clear();
        }
        Bundles now = new Bundles(bundles);
        sorted.put(namespace, now);
        return now;
    }

    private CompletableFuture<Void> inBundles(Bundles bundles, Asked asked, Found[] found) {
        List<CompletableFuture<Found>> owners = new ArrayList<>(Collections.nCopies(bundles.size(), null));
        int[] bundle = new int[asked.routes.size()];
        for (int n = 0; n < bundle.length; n++) {
            Route route = asked.routes.get(n);
            bundle[n] = bundles.at(route.hash);
            if (owners.get(bundle[n]) == null) {
                owners.set(bundle[n], owner(route.topic)
                    .orTimeout(Limits.LOOKUP_TIMEOUT_MS, TimeUnit.MILLISECONDS)
                    .handle((owner, failure) -> failure == null ? new Found(owner, null) : new Found(null, fault(failure))));
            }
        }
        CompletableFuture<?>[] begun = owners.stream().filter(owner -> owner != null).toArray(CompletableFuture<?>[]::new);
        return CompletableFuture.allOf(begun).thenRun(() -> {
            for (int n = 0; n < bundle.length; n++) {
                found[asked.places[n]] = owners.get(bundle[n]).join();
            }
        });
    }

    /** A bundle that is being unloaded, or for which no broker is found yet, has an owner in a moment. */
    private static Refusal fault(Throwable failure) {
        Refusal explained = Faults.explain(failure);
        return explained.code() == Code.INTERNAL ? new Refusal(Code.NOT_READY, explained.getMessage()) : explained;
    }

    /** The owner of a topic's bundle, which becomes owned by asking. */
    private CompletableFuture<Brokers.Broker> owner(TopicName topic) {
        return look(topic).thenCompose(result -> {
            if (result.isPresent() && !result.get().isRedirect()) {
                return brokerOf(result.get());
            }
            // Nobody owns it, and another broker decides who shall: it is asked as a client would ask it.
            return Context.from(() -> context.admin().lookups().lookupTopicAsync(topic.toString()))
                .thenCompose(url -> look(topic).thenCompose(again -> again.isPresent() && !again.get().isRedirect()
                    ? brokerOf(again.get())
                    : elsewhere(topic, url)));
        });
    }

    private CompletableFuture<Optional<LookupResult>> look(TopicName topic) {
        return namespaces().getBrokerServiceUrlAsync(topic, OPTIONS);
    }

    private CompletableFuture<Brokers.Broker> brokerOf(LookupResult result) {
        LookupData data = result.getLookupData();
        List<String> urls = new ArrayList<>();
        for (String url : new String[] {data.getBrokerUrl(), data.getBrokerUrlTls(), data.getHttpUrl(), data.getHttpUrlTls()}) {
            if (url != null && !url.isEmpty()) {
                urls.add(url);
            }
        }
        return registered(urls);
    }

    /** What another broker said, if it named another one: that this one owns it, it knows better itself. */
    private CompletableFuture<Brokers.Broker> elsewhere(TopicName topic, String url) {
        return registered(List.of(url)).thenApply(broker -> {
            if (broker.id.equals(brokers.localId())) {
                throw new Refusal(Code.NOT_READY, "the bundle of " + topic + " is being assigned");
            }
            return broker;
        });
    }

    private CompletableFuture<Brokers.Broker> registered(Collection<String> urls) {
        return brokers.at(urls).thenApply(broker -> broker.orElseThrow(() ->
            new Refusal(Code.NOT_READY, "the owner " + urls + " is not among the brokers that are alive")));
    }

    private Out write(Found[] found) {
        List<Found> answers = new ArrayList<>();
        for (Found answer : found) {
            if (answer.number < 0) {
                answer.number = answers.size();
                answers.add(answer);
            }
        }
        Out out = new Out().list(answers, (to, answer) -> {
            if (answer.fault == null) {
                to.i32(0).bool(answer.owner.id.equals(brokers.localId())).text(answer.owner.id).text(answer.owner.protocolData);
            } else {
                to.i32(answer.fault.code()).text(answer.fault.getMessage());
            }
        });
        out.i32(found.length);
        for (Found answer : found) {
            out.i32(answer.number);
        }
        return out;
    }
}
