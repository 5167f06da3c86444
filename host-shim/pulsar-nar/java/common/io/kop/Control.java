package io.kop;

import io.kop.control.Code;
import io.kop.control.Faults;
import io.kop.control.In;
import io.kop.control.Operation;
import io.kop.control.Out;
import io.kop.control.Refusal;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Everything that is not on the hot path: finds the operation of a number and answers the native half exactly once. */
final class Control {
    private final Map<Integer, Operation> operations;

    Control(Map<Integer, Operation> operations) {
        this.operations = Map.copyOf(operations);
    }

    /** Called by the native half. */
    void call(long ctx, int op, byte[] request) {
        Operation operation = operations.get(op);
        if (operation == null) {
            Native.failed(ctx, Code.UNSUPPORTED, "operation " + op + " is not offered by this broker");
            return;
        }
        CompletableFuture<Out> answer;
        try {
            answer = operation.call(new In(request));
        } catch (Throwable failure) {
            answer = CompletableFuture.failedFuture(failure);
        }
        answer.whenComplete((out, failure) -> {
            if (failure == null) {
                Native.answered(ctx, out.toBytes());
            } else {
                failed(ctx, failure);
            }
        });
    }

    /** Answers a call with a failure, in handler-api's terms. */
    static void failed(long ctx, Throwable failure) {
        Refusal refusal = Faults.explain(failure);
        Native.failed(ctx, refusal.code(), refusal.getMessage());
    }
}
