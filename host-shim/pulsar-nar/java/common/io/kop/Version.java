package io.kop;

import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntriesCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.broker.service.BrokerService;

/** What Pulsar's versions do differently on the hot path. One class for each, compiled against it. */
interface Version {
    Position position(long ledger, long entry);

    /** Reads up to so many confirmed entries from the cursor's position on. */
    void read(ManagedCursor cursor, int entries, ReadEntriesCallback callback);

    /** The first entry for which {@code isBefore} does not hold; it must hold for all before it. */
    CompletableFuture<Position> find(ManagedLedger ledger, Predicate<Entry> isBefore);

    /** Tells of each topic that is unloaded or deleted; false if this version does not say so. */
    boolean onTopicsClosed(BrokerService broker, Consumer<String> closed);

    /** The one that fits the broker that runs this. */
    static Version current() {
        String name = has("org.apache.bookkeeper.mledger.PositionFactory") ? "V4_0" : findsByJavaPredicate() ? "V3_3" : "V2_10";
        try {
            return (Version) Class.forName(Version.class.getPackageName() + "." + name).getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException | LinkageError failure) {
            throw new IllegalStateException("this release of Pulsar is not supported: " + failure, failure);
        }
    }

    private static boolean has(String type) {
        try {
            Class.forName(type, false, Version.class.getClassLoader());
            return true;
        } catch (ClassNotFoundException lacking) {
            return false;
        }
    }

    private static boolean findsByJavaPredicate() {
        try {
            ManagedLedger.class.getMethod("asyncFindPosition", Predicate.class);
            return true;
        } catch (NoSuchMethodException lacking) {
            return false;
        }
    }
}
