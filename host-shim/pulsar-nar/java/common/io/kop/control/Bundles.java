package io.kop.control;

import java.util.Arrays;
import java.util.List;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundles;

/** The bundles of a namespace in order, to be found by hash. */
final class Bundles {
    final NamespaceBundles of;
    private final long[] from;

    Bundles(NamespaceBundles of) {
        this.of = of;
        List<NamespaceBundle> bundles = of.getBundles();
        from = new long[bundles.size()];
        for (int n = 0; n < from.length; n++) {
            from[n] = BundleRange.of(bundles.get(n)).from();
        }
        Arrays.sort(from);
    }

    int size() {
        return from.length;
    }

    /** Number of the bundle that holds a hash. */
    int at(long hash) {
        int found = Arrays.binarySearch(from, hash);
        return found >= 0 ? found : Math.max(0, -found - 2);
    }
}
