package io.kop.control;

import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.metadata.api.NotificationType;

/** Paths of the metadata store that the plugin watches. */
final class Watches {
    private static final String FENCES = "/kop/fences/";

    private final Context context;
    private final String fence;
    private final Set<String> paths = ConcurrentHashMap.newKeySet();
    private CompletableFuture<Void> last = CompletableFuture.completedFuture(null);
    private volatile CompletableFuture<Void> raised = new CompletableFuture<>();

    Watches(Context context, String brokerId) {
        this.context = context;
        fence = FENCES + brokerId;
    }

    /** Watches a path, and hears only of what is written from now on. */
    synchronized CompletableFuture<Void> add(String path) {
        if (paths.contains(path)) {
            return CompletableFuture.completedFuture(null);
        }
        if (paths.size() >= Limits.MAX_WATCHED_PATHS) {
            throw new Refusal(Code.REFUSED, "more than " + Limits.MAX_WATCHED_PATHS + " paths are watched");
        }
        // One fence at a time: the notification does not say whose it is.
        CompletableFuture<Void> added = last.thenCompose(ready -> passFence()).thenRun(() -> paths.add(path));
        last = added.handle((done, failure) -> null);
        return added;
    }

    /** Waits until what was written before has been told: stores notify later than they answer, but in order. */
    private CompletableFuture<Void> passFence() {
        CompletableFuture<Void> passed = new CompletableFuture<>();
        raised = passed;
        return context.local().put(fence, new byte[0], Optional.empty())
            .thenCompose(stat -> passed.completeOnTimeout(null, Limits.FENCE_TIMEOUT_MS, TimeUnit.MILLISECONDS));
    }

    /** On the store's thread: something was written or deleted. */
    void notified(String path, NotificationType type) {
        if (path.equals(fence)) {
            raised.complete(null);
        } else if (isWatched(path)) {
            boolean deleted = type == NotificationType.Deleted;
            context.events.send(Events.VALUE_CHANGED, new Out().text(path).bool(deleted).toBytes());
        }
    }

    private boolean isWatched(String path) {
        for (String watched : paths) {
            boolean below = path.startsWith(watched)
                && (path.length() == watched.length() || watched.equals("/") || path.charAt(watched.length()) == '/');
            if (below) {
                return true;
            }
        }
        return false;
    }
}
