package io.kop.control;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.broker.authentication.AuthenticationProvider;
import org.apache.pulsar.broker.authentication.AuthenticationState;
import org.apache.pulsar.common.api.AuthData;

/** Who a client is: asked of the broker's own authentication providers. */
final class Authentication {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Since Pulsar 2.12 providers may answer later. */
    private static final Method AUTHENTICATE_ASYNC =
        Reflection.find(AuthenticationState.class, "authenticateAsync", AuthData.class);

    private final Context context;
    private final Sessions sessions;

    Authentication(Context context, Sessions sessions) {
        this.context = context;
        this.sessions = sessions;
    }

    /** Method, credentials, address of the client: role, session, end of it in ms since the epoch (0: none). */
    CompletableFuture<Out> authenticate(In request) {
        String method = request.text();
        byte[] credentials = request.bytes();
        String address = request.text();
        if (!context.configuration().isAuthenticationEnabled()) {
            throw new Refusal(Code.UNSUPPORTED, "this broker authenticates nobody (authenticationEnabled=false)");
        }
        AuthenticationProvider provider = context.pulsar.getBrokerService().getAuthenticationService()
            .getAuthenticationProvider(method);
        if (provider == null) {
            throw new Refusal(Code.UNAUTHENTICATED,
                "no provider of authenticationProviders answers for the method \"" + method + "\"");
        }
        AuthData data = AuthData.of(credentials);
        // Providers may block: they read keys and ask servers.
        return CompletableFuture.supplyAsync(() -> begun(provider, data, address), context.executor)
            .thenCompose(state -> stepped(state, data).thenApply(done -> state))
            .handle((state, failure) -> {
                if (failure != null) {
                    throw new Refusal(Code.UNAUTHENTICATED, Faults.explain(failure).getMessage());
                }
                return answer(state, credentials);
            });
    }

    private static AuthenticationState begun(AuthenticationProvider provider, AuthData data, String address) {
        try {
            return provider.newAuthState(data, parse(address), null);
        } catch (Exception failure) {
            throw new Refusal(Code.UNAUTHENTICATED, Faults.explain(failure).getMessage());
        }
    }

    private static CompletableFuture<?> stepped(AuthenticationState state, AuthData data) {
        return Context.<Object>from(() -> {
            if (AUTHENTICATE_ASYNC != null) {
                @SuppressWarnings("unchecked")
                CompletableFuture<Object> later = (CompletableFuture<Object>) AUTHENTICATE_ASYNC.invoke(state, data);
                return later;
            }
            return CompletableFuture.completedFuture(state.authenticate(data));
        });
    }

    private Out answer(AuthenticationState state, byte[] credentials) {
        try {
            if (!state.isComplete() || state.getAuthRole() == null) {
                throw new Refusal(Code.UNAUTHENTICATED, "these credentials name nobody");
            }
            return new Out().text(state.getAuthRole()).i64(sessions.open(state)).i64(expiry(credentials));
        } catch (javax.naming.AuthenticationException failure) {
            throw new Refusal(Code.UNAUTHENTICATED, failure.getMessage());
        }
    }

    /** Session: nothing. */
    CompletableFuture<Out> end(In request) {
        sessions.close(request.i64());
        return CompletableFuture.completedFuture(new Out());
    }

    /** When credentials that the provider has accepted end: what a JSON web token says of itself. */
    static long expiry(byte[] credentials) {
        String[] parts = new String(credentials, StandardCharsets.UTF_8).split("\\.", -1);
        if (parts.length != 3) {
            return 0;
        }
        try {
            JsonNode claims = JSON.readTree(Base64.getUrlDecoder().decode(parts[1]));
            return claims == null ? 0 : TimeUnit.SECONDS.toMillis(Math.max(0, claims.path("exp").asLong(0)));
        } catch (IOException | IllegalArgumentException otherThings) {
            return 0;
        }
    }

    /** An address {@code ip:port}, never looked up by name. */
    private static InetSocketAddress parse(String address) {
        int colon = address == null ? -1 : address.lastIndexOf(':');
        if (colon < 0) {
            return InetSocketAddress.createUnresolved("unknown", 0);
        }
        String host = address.substring(0, colon).replace("[", "").replace("]", "");
        try {
            int port = Integer.parseInt(address.substring(colon + 1));
            boolean numeric = host.matches("[0-9.]+|[0-9a-fA-F:.%]*:[0-9a-zA-Z:.%]*");
            return numeric ? new InetSocketAddress(host, port) : InetSocketAddress.createUnresolved(host, port);
        } catch (IllegalArgumentException wrong) {
            return InetSocketAddress.createUnresolved("unknown", 0);
        }
    }
}
