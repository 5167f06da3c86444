package io.kop.control;

import org.apache.pulsar.common.naming.NamespaceBundle;

/** The hashes of names that a bundle holds, from its own name: {@code 0x40000000_0x80000000}. */
final class BundleRange {
    private static final long LAST = 0xffffffffL;

    private final long from;
    private final long until;

    private BundleRange(long from, long until) {
        this.from = from;
        this.until = until;
    }

    static BundleRange of(NamespaceBundle bundle) {
        String[] ends = bundle.getBundleRange().split("_");
        return new BundleRange(Long.decode(ends[0]), Long.decode(ends[1]));
    }

    long from() {
        return from;
    }

    /** The upper end is the next bundle's, except for the last one. */
    boolean contains(long hash) {
        return from <= hash && (hash < until || until == LAST && hash == LAST);
    }
}
