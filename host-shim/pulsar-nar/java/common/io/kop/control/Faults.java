package io.kop.control;

import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.client.admin.PulsarAdminException;

/** Says what a failure of the broker means in handler-api's terms. Classes go by name, since they move between versions. */
public final class Faults {
    private Faults() {
    }

    /** The failure behind those that only carry another. */
    public static Throwable cause(Throwable failure) {
        Throwable cause = failure;
        while ((cause instanceof CompletionException || cause instanceof ExecutionException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause;
    }

    /** Code and text of a failure. */
    public static Refusal explain(Throwable failure) {
        Throwable cause = cause(failure);
        if (cause instanceof Refusal) {
            return (Refusal) cause;
        }
        String message = cause.getMessage() == null || cause.getMessage().isEmpty() ? cause.toString() : cause.getMessage();
        if (cause instanceof PulsarAdminException) {
            return ofAdmin((PulsarAdminException) cause, message);
        }
        return new Refusal(code(cause), message);
    }

    /**
     * The same for the opening of a topic. While a bundle changes hands the broker has no names for what comes of it (plain
     * illegal states, lost races for locks and versions): all of that passes, and is to be tried again.
     */
    public static Refusal explainOpening(Throwable failure) {
        Refusal plain = explain(failure);
        boolean passes = plain.code() == Code.INTERNAL || plain.code() == Code.CONFLICT;
        return passes ? new Refusal(Code.NOT_READY, plain.getMessage()) : plain;
    }

    /** What the broker's own admin client was answered. */
    private static Refusal ofAdmin(PulsarAdminException failure, String message) {
        switch (failure.getStatusCode()) {
            case 401:
            case 403:
                return new Refusal(Code.UNAUTHORIZED, message + " (brokerClientAuthenticationPlugin and"
                    + " brokerClientAuthenticationParameters must name a role that may administer the cluster)");
            case 404:
                return new Refusal(Code.NOT_FOUND, message);
            case 409:
                return new Refusal(Code.CONFLICT, message);
            case 400:
            case 405:
            case 406:
            case 412:
                return new Refusal(Code.INVALID_ARGUMENT, message);
            case 503:
                return new Refusal(Code.NOT_READY, message);
            case 408:
            case 504:
                return new Refusal(Code.TIMEOUT, message);
            default:
                return new Refusal(code(failure), message);
        }
    }

    private static int code(Throwable cause) {
        if (cause instanceof TimeoutException) {
            return Code.TIMEOUT;
        }
        if (cause instanceof RejectedExecutionException) {
            return Code.NOT_READY;
        }
        if (cause instanceof IllegalArgumentException) {
            return Code.INVALID_ARGUMENT;
        }
        switch (cause.getClass().getSimpleName()) {
            case "NotFoundException":
            case "TopicNotFoundException":
            case "CursorNotFoundException":
            case "MetadataNotFoundException":
                return Code.NOT_FOUND;
            case "ConflictException":
            case "BadVersionException":
            case "AlreadyExistsException":
                return Code.CONFLICT;
            case "ServiceUnitNotReadyException":
            case "TooManyRequestsException":
            case "ConnectException":
            case "MetaStoreException":
            case "LockBusyException":
                return Code.NOT_READY;
            case "NotAuthorizedException":
                return Code.UNAUTHORIZED;
            case "PreconditionFailedException":
            case "NamingException":
                return Code.INVALID_ARGUMENT;
            case "ManagedLedgerAlreadyClosedException":
            case "ManagedLedgerFencedException":
            case "ManagedLedgerFactoryClosedException":
            case "CursorAlreadyClosedException":
            case "TopicClosedException":
            case "TopicFencedException":
            case "TopicMigratedException":
                return Code.HANDLE_CLOSED;
            case "TimeoutException":
                return Code.TIMEOUT;
            case "ManagedLedgerException":
                // What a cursor of a ledger that was closed meanwhile is told has no class of its own.
                return String.valueOf(cause.getMessage()).contains("already been closed") ? Code.HANDLE_CLOSED : Code.INTERNAL;
            default:
                return Code.INTERNAL;
        }
    }
}
