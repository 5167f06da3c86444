package io.kop.control;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.pulsar.broker.authentication.AuthenticationState;

/** Clients that authenticated, by a number; a bounded number of them, the one unused for longest being forgotten first. */
final class Sessions {
    private final Map<Long, AuthenticationState> states = new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Long, AuthenticationState> eldest) {
            return size() > Limits.MAX_SESSIONS;
        }
    };

    /** Keeps a state; gives its number, which is never 0. */
    synchronized long open(AuthenticationState state) {
        while (true) {
            long session = ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE);
            if (states.putIfAbsent(session, state) == null) {
                return session;
            }
        }
    }

    /** The state behind a number; refuses one that is not known (any more). */
    synchronized AuthenticationState get(long session) {
        AuthenticationState state = states.get(session);
        if (state == null) {
            throw new Refusal(Code.UNAUTHENTICATED, "the session has ended: authenticate again");
        }
        return state;
    }

    synchronized void close(long session) {
        states.remove(session);
    }
}
