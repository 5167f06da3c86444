package io.kop.control;

import java.util.concurrent.CompletableFuture;

/**
 * One control operation: it reads its request at once and answers later. A failure is a {@link Refusal}, or any exception
 * that {@link Faults} can explain. It must not block.
 */
@FunctionalInterface
public interface Operation {
    CompletableFuture<Out> call(In request) throws Exception;
}
