package io.kop.control;

/** The numbers of handler-api's {@code ErrorCode}. */
public final class Code {
    public static final int INTERNAL = 1;
    public static final int UNSUPPORTED = 2;
    public static final int INVALID_ARGUMENT = 3;
    public static final int NOT_FOUND = 4;
    public static final int CONFLICT = 5;
    public static final int HANDLE_CLOSED = 6;
    public static final int NOT_OWNER = 7;
    public static final int NOT_READY = 8;
    public static final int REFUSED = 9;
    public static final int NO_SPACE = 10;
    public static final int TOO_LARGE = 11;
    public static final int UNKNOWN_OUTCOME = 12;
    public static final int CORRUPT = 13;
    public static final int UNAUTHENTICATED = 14;
    public static final int UNAUTHORIZED = 15;
    public static final int TIMEOUT = 16;
    public static final int CLOSING = 17;
    public static final int INVALID_CONFIGURATION = 18;

    private Code() {
    }
}
