package io.kop.control;

import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;

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
        return new Refusal(code(cause), message);
    }

    private static int code(Throwable cause) {
        if (cause instanceof TimeoutException) {
            return Code.TIMEOUT;
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
            case "MetaStoreException":
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
            default:
                return Code.INTERNAL;
        }
    }
}
