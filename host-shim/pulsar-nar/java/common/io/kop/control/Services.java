package io.kop.control;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.PulsarService;

/** The control services, put together: their operations by handler-api's numbers, and the events that they send. */
public final class Services {
    /** Who serves topics; a number of the bridge's own. */
    static final int LOOKUP = 0x8001;

    private final Context context;
    private final Notices notices;
    private final Ownership ownership;
    private final Map<Integer, Operation> operations = new HashMap<>();

    /** Services of a broker that has started, for the handler of a protocol that advertises this. */
    public Services(PulsarService pulsar, String protocol, String protocolData, Events events) {
        context = new Context(pulsar, protocol, protocolData, events);
        String brokerId = BrokerId.of(pulsar);
        TopicRecords records = new TopicRecords(context);
        TopicStore store = new TopicStore(context, records);
        Brokers brokers = new Brokers(context, brokerId);
        Watches watches = new Watches(context, brokerId);
        ownership = new Ownership(context);
        notices = new Notices(context, store, records, brokers, ownership, watches);
        topics(new Topics(context, store, records), new Policies(context, store));
        namespaces(new Namespaces(context));
        values(new Values(context, watches));
        auth(new Sessions());
        operations.put(0x0108, brokers::list);
        operations.put(LOOKUP, new Lookup(context, brokers, ownership)::call);
    }

    private void topics(Topics topics, Policies policies) {
        operations.put(0x0101, topics::describe);
        operations.put(0x0102, topics::list);
        operations.put(0x0103, topics::create);
        operations.put(0x0104, topics::update);
        operations.put(0x0105, topics::delete);
        operations.put(0x0109, policies::setOfTopic);
        operations.put(0x010a, policies::setOfNamespace);
    }

    private void namespaces(Namespaces namespaces) {
        operations.put(0x0106, namespaces::ensure);
        operations.put(0x0107, namespaces::list);
    }

    private void values(Values values) {
        operations.put(0x0401, values::get);
        operations.put(0x0402, values::put);
        operations.put(0x0403, values::delete);
        operations.put(0x0404, values::children);
        operations.put(0x0405, values::watch);
    }

    private void auth(Sessions sessions) {
        Authentication authentication = new Authentication(context, sessions);
        operations.put(0x0501, authentication::authenticate);
        operations.put(0x0502, new Authorization(context, sessions)::authorize);
        operations.put(0x0503, authentication::end);
    }

    /** The operations by number. Each begins on threads of ours: even that may take a while. */
    public Map<Integer, Operation> operations() {
        Map<Integer, Operation> elsewhere = new HashMap<>();
        operations.forEach((number, operation) -> elsewhere.put(number, request -> CompletableFuture
            .supplyAsync(() -> Context.from(() -> operation.call(request)), context.executor)
            .thenCompose(answer -> answer)));
        return elsewhere;
    }

    /** Whether clients must authenticate. */
    public boolean authenticates() {
        return context.configuration().isAuthenticationEnabled();
    }

    /** Sends events from now on. */
    public void start() {
        notices.start();
        ownership.start();
    }

    /** Sends no more events. Operations go on: the plugin has not ended yet, and idle threads end by themselves. */
    public void end() {
        notices.end();
        ownership.end();
    }
}
