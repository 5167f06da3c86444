package io.kop;

import java.nio.ByteBuffer;

/**
 * The native half. Each {@code ctx} was given out by it with a call and comes back exactly once; one that is not known any
 * more is ignored there.
 */
final class Native {
    private Native() {
    }

    /** Loads the plugin of a file and gives it the configuration (keys and values, alternating). Throws what it says. */
    static native void initialize(Class<?>[] classes, String pluginFile, String protocol, String[] configuration);

    /** What the plugin advertises to other brokers. */
    static native String advertised();

    /** Starts the plugin on the broker's services; returns when it serves. Throws what it says. */
    static native void start(Control control, long[] settings);

    /** Ends the plugin, within a time; throws what went wrong. */
    static native void close(long timeoutMs);

    /** Metrics of the plugin and of the bridge. */
    static native byte[] metrics();

    /** Lets calls end that were not answered in time. Called every second. */
    static native void tick();

    /** Address of a direct buffer's first byte. */
    static native long address(ByteBuffer buffer);

    /** Takes in a partition that was opened; answers its number. */
    static native long opened(Partition partition, String name);

    /** Copies the entry of an append to an address. False: it is not known any more, and must not be appended. */
    static native boolean fill(long ctx, long address, int length);

    static native void appended(long ctx, long ledger, long entry, long index);

    /**
     * Entries: per entry ledger, entry, number of segments, and address and length of each. True: the batch was taken over,
     * and will be released.
     */
    static native boolean entriesRead(long ctx, ReadBatch batch, long[] table);

    static native void found(long ctx, long ledger, long entry);

    /** The answer to {@link Control#call}. */
    static native void answered(long ctx, byte[] answer);

    /** A call of any kind has failed, for a reason of {@link io.kop.control.Code}. */
    static native void failed(long ctx, int code, String message);

    /** Something happened that the plugin may want to know. */
    static native void event(int op, byte[] payload);

    /** An entry was confirmed in a partition that had asked for it. */
    static native void entriesAvailable(long id);

    /** A partition is not served here any more. */
    static native void closed(long id, String reason);

    /** The first ledger of a partition is another one than before. */
    static native void startMoved(long id);
}
