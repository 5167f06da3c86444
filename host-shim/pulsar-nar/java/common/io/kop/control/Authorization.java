package io.kop.control;

import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.authentication.AuthenticationDataSource;
import org.apache.pulsar.broker.authentication.AuthenticationState;
import org.apache.pulsar.broker.authorization.AuthorizationService;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.policies.data.NamespaceOperation;
import org.apache.pulsar.common.policies.data.PolicyName;
import org.apache.pulsar.common.policies.data.PolicyOperation;
import org.apache.pulsar.common.policies.data.TopicOperation;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What a role may do: asked of the broker's own authorization provider. */
final class Authorization {
    private static final Logger LOG = LoggerFactory.getLogger(Authorization.class);

    /** Numbers of handler-api's {@code Resource}. */
    private static final int CLUSTER = 0;
    private static final int NAMESPACE = 1;
    private static final int TOPIC = 2;
    /** Numbers of handler-api's {@code TopicOperation}. */
    private static final int LOOKUP = 0;
    private static final int PRODUCE = 1;
    private static final int CONSUME = 2;
    private static final int CREATE = 3;
    private static final int DELETE = 4;
    private static final int ALTER = 5;
    private static final int LIST = 6;

    private static final Asker NOBODY = new Asker("", null, null);

    private final Context context;
    private final Sessions sessions;

    Authorization(Context context, Sessions sessions) {
        this.context = context;
        this.sessions = sessions;
    }

    /** Whose question it is. */
    private static final class Asker {
        /** The role that authenticated, and the one that it speaks for, if it is a proxy's: Pulsar wants both to be allowed. */
        final String role;
        final String original;
        final AuthenticationDataSource data;

        Asker(String role, String original, AuthenticationDataSource data) {
            this.role = role;
            this.original = original;
            this.data = data;
        }
    }

    /** One question. */
    private static final class Action {
        final int resource;
        final String name;
        final int operation;
        final String subscription;

        Action(In request) {
            resource = request.i32();
            name = request.text();
            operation = request.i32();
            subscription = request.text();
        }
    }

    /** Role, session, questions: an answer to each. */
    CompletableFuture<Out> authorize(In request) throws Exception {
        String role = request.text();
        long session = request.i64();
        List<Action> actions = request.list(Action::new);
        boolean everything = !context.configuration().isAuthenticationEnabled() || !context.configuration().isAuthorizationEnabled();
        if (everything) {
            return answer(Collections.nCopies(actions.size(), true));
        }
        Asker asker = asker(role == null ? "" : role, session);
        if (asker.role.isEmpty()) {
            return answer(Collections.nCopies(actions.size(), false));
        }
        return Futures.each(actions, action -> allowed(asker, action)).thenCompose(Authorization::answer);
    }

    private static CompletableFuture<Out> answer(List<Boolean> decisions) {
        return CompletableFuture.completedFuture(new Out().list(decisions, Out::bool));
    }

    private Asker asker(String role, long session) throws Exception {
        if (session == 0) {
            String anonymous = context.configuration().getAnonymousUserRole();
            return new Asker(role.isEmpty() && anonymous != null ? anonymous : role, null, new ClientData(null, null));
        }
        AuthenticationState state = sessions.get(session);
        if (state.isExpired()) {
            throw new Refusal(Code.UNAUTHENTICATED, "the credentials have expired: authenticate again");
        }
        String authenticated = state.getAuthRole();
        boolean proxied = !role.isEmpty() && !role.equals(authenticated);
        if (proxied && !context.configuration().getProxyRoles().contains(authenticated)) {
            LOG.warn("{} asks for {}, and is none of proxyRoles: nothing is allowed", authenticated, role);
            return NOBODY;
        }
        return new Asker(authenticated, proxied ? role : null, state.getAuthDataSource());
    }

    /** What cannot be decided is not allowed. */
    private CompletableFuture<Boolean> allowed(Asker asker, Action action) {
        return Context.from(() -> decided(asker, action)).exceptionally(failure -> {
            LOG.warn("Whether {} may do {} to \"{}\" cannot be decided: {}", asker.role, action.operation, action.name,
                Faults.explain(failure).getMessage());
            return false;
        });
    }

    private CompletableFuture<Boolean> decided(Asker asker, Action action) {
        if (action.resource == CLUSTER) {
            return superUser(asker);
        }
        if (action.resource == NAMESPACE) {
            return inNamespace(asker, Names.namespace(action.name), action.operation);
        }
        if (action.resource != TOPIC) {
            throw new Refusal(Code.INVALID_ARGUMENT, "kind of resource " + action.resource + " is not known here");
        }
        TopicName topic = Names.topicOrPartition(action.name);
        switch (action.operation) {
            case LOOKUP:
                return ofTopic(asker, topic, TopicOperation.LOOKUP);
            case PRODUCE:
                return ofTopic(asker, topic, TopicOperation.PRODUCE);
            case CONSUME:
                return ofTopic(subscribed(asker, action.subscription), topic, TopicOperation.CONSUME);
            case ALTER:
                return service().allowTopicPolicyOperationAsync(
                    topic, PolicyName.PARTITION, PolicyOperation.WRITE, asker.original, asker.role, asker.data);
            default:
                return inNamespace(asker, topic.getNamespaceObject(), action.operation);
        }
    }

    private CompletableFuture<Boolean> inNamespace(Asker asker, NamespaceName namespace, int operation) {
        switch (operation) {
            case CREATE:
                return ofNamespace(asker, namespace, NamespaceOperation.CREATE_TOPIC);
            case DELETE:
                return ofNamespace(asker, namespace, NamespaceOperation.DELETE_TOPIC);
            case LOOKUP:
            case LIST:
                return ofNamespace(asker, namespace, NamespaceOperation.GET_TOPICS);
            case PRODUCE:
            case CONSUME:
            case ALTER:
                return service().allowNamespacePolicyOperationAsync(
                    namespace, PolicyName.ALL, PolicyOperation.WRITE, asker.original, asker.role, asker.data);
            default:
                return superUser(asker);
        }
    }

    private AuthorizationService service() {
        return context.pulsar.getBrokerService().getAuthorizationService();
    }

    private CompletableFuture<Boolean> ofTopic(Asker asker, TopicName topic, TopicOperation operation) {
        return service().allowTopicOperationAsync(topic, operation, asker.original, asker.role, asker.data);
    }

    private CompletableFuture<Boolean> ofNamespace(Asker asker, NamespaceName namespace, NamespaceOperation operation) {
        return service().allowNamespaceOperationAsync(namespace, operation, asker.original, asker.role, asker.data);
    }

    /** Both, if a proxy asks for somebody. */
    private CompletableFuture<Boolean> superUser(Asker asker) {
        CompletableFuture<Boolean> own = service().isSuperUser(asker.role, asker.data);
        return asker.original == null
            ? own
            : own.thenCombine(service().isSuperUser(asker.original, asker.data), Boolean::logicalAnd);
    }

    private static Asker subscribed(Asker asker, String subscription) {
        return new Asker(asker.role, asker.original, new ClientData(asker.data, subscription));
    }
}
