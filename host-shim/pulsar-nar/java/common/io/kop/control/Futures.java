package io.kop.control;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** Many things at once, but not too many. */
final class Futures {
    private Futures() {
    }

    /** Results in the order of the futures; fails with the first failure, once all have ended. */
    static <T> CompletableFuture<List<T>> all(List<CompletableFuture<T>> futures) {
        return CompletableFuture.allOf(futures.toArray(new CompletableFuture<?>[0])).thenApply(done -> {
            List<T> results = new ArrayList<>(futures.size());
            for (CompletableFuture<T> future : futures) {
                results.add(future.join());
            }
            return results;
        });
    }

    /** Does something with every item, a bounded number of them at a time; results in the order of the items. */
    static <T, R> CompletableFuture<List<R>> each(List<T> items, Function<T, CompletableFuture<R>> task) {
        return fromOn(items, 0, task, new ArrayList<>(items.size()));
    }

    private static <T, R> CompletableFuture<List<R>> fromOn(
        List<T> items, int from, Function<T, CompletableFuture<R>> task, List<R> results) {
        if (from >= items.size()) {
            return CompletableFuture.completedFuture(results);
        }
        int until = Math.min(items.size(), from + Limits.MAX_READS_AT_ONCE);
        List<CompletableFuture<R>> begun = new ArrayList<>(until - from);
        for (T item : items.subList(from, until)) {
            begun.add(Context.from(() -> task.apply(item)));
        }
        return all(begun).thenCompose(done -> {
            results.addAll(done);
            return fromOn(items, until, task, results);
        });
    }
}
