package io.kop.control;

import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.metadata.api.MetadataStoreException;

/** The broker's metadata store: small values under paths, changed by compare-and-set. */
final class Values {
    private final Context context;
    private final Watches watches;

    Values(Context context, Watches watches) {
        this.context = context;
        this.watches = watches;
    }

    /** Path: value and version. */
    CompletableFuture<Out> get(In request) {
        String path = checked(request.text());
        return context.local().get(path).thenApply(found -> {
            if (found.isEmpty()) {
                throw missing(path);
            }
            byte[] value = found.get().getValue();
            return new Out().bytes(value == null ? new byte[0] : value).i64(found.get().getStat().getVersion());
        });
    }

    /** Path, value, expected version: the new version. */
    CompletableFuture<Out> put(In request) {
        String path = checked(request.text());
        byte[] value = request.bytes();
        Optional<Long> expected = version(request);
        if (value.length > Limits.MAX_VALUE_BYTES) {
            throw new Refusal(Code.TOO_LARGE,
                "a value of " + value.length + " bytes is larger than " + Limits.MAX_VALUE_BYTES);
        }
        return put(path, value, expected, Limits.MAX_TRIES).thenApply(version -> new Out().i64(version));
    }

    private CompletableFuture<Long> put(String path, byte[] value, Optional<Long> expected, int tries) {
        CompletableFuture<Long> written = context.local().put(path, value, expected).handle((stat, failure) -> {
            if (failure == null) {
                return stat.getVersion();
            }
            // A version was expected and there is nothing: that is not what was expected.
            boolean nothing = Faults.cause(failure) instanceof MetadataStoreException.NotFoundException;
            throw nothing ? new Refusal(Code.CONFLICT, path + " does not exist") : Faults.explain(failure);
        });
        // Without an expectation nothing can conflict, but some stores let two first writers collide.
        return expected.isPresent() ? written : Retry.onConflict(written, tries, () -> put(path, value, expected, tries - 1));
    }

    /** Path, expected version: nothing. */
    CompletableFuture<Out> delete(In request) {
        String path = checked(request.text());
        return context.local().delete(path, version(request)).thenApply(done -> new Out());
    }

    /** Path: the paths directly below it. */
    CompletableFuture<Out> children(In request) {
        String text = request.text();
        String path = "/".equals(text) ? text : checked(text);
        String prefix = "/".equals(path) ? path : path + "/";
        return context.local().getChildren(path).thenApply(names -> {
            TreeSet<String> paths = new TreeSet<>();
            names.forEach(name -> paths.add(prefix + name));
            return new Out().texts(paths);
        });
    }

    /** Path: nothing; from then on the plugin hears of it and of all below. */
    CompletableFuture<Out> watch(In request) {
        String text = request.text();
        return watches.add("/".equals(text) ? text : checked(text)).thenApply(done -> new Out());
    }

    private static Optional<Long> version(In request) {
        return request.bool() ? Optional.of(request.i64()) : Optional.empty();
    }

    private static String checked(String path) {
        boolean wellFormed = path != null && path.length() <= Limits.MAX_NAME_LENGTH
            && path.startsWith("/") && !path.endsWith("/") && !path.contains("//");
        if (!wellFormed) {
            throw new Refusal(Code.INVALID_ARGUMENT,
                "\"" + path + "\" is no path of the metadata store: it must look like /a/b");
        }
        return path;
    }

    private static Refusal missing(String path) {
        return new Refusal(Code.NOT_FOUND, "the metadata store has nothing at " + path);
    }
}
