package io.kop.control;

/** A failure that the native half is told of: a code of {@link Code} and a sentence for people. */
public final class Refusal extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private final int code;

    public Refusal(int code, String message) {
        super(message, null, false, false);
        this.code = code;
    }

    public int code() {
        return code;
    }
}
