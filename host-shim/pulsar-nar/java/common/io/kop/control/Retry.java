package io.kop.control;

import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/** Once more, where somebody else was faster. */
final class Retry {
    private Retry() {
    }

    /** The result of {@code attempt}, or of {@code again} if others changed the same thing and tries are left. */
    static <T> CompletableFuture<T> onConflict(CompletableFuture<T> attempt, int tries, Supplier<CompletableFuture<T>> again) {
        return attempt.handle((result, failure) -> {
            if (failure == null) {
                return CompletableFuture.completedFuture(result);
            }
            boolean conflict = Faults.explain(failure).code() == Code.CONFLICT;
            return conflict && tries > 0 ? again.get() : CompletableFuture.<T>failedFuture(failure);
        }).thenCompose(next -> next);
    }
}
