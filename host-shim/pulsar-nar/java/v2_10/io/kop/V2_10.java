package io.kop;

import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntriesCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.impl.PositionImpl;
import org.apache.pulsar.broker.service.BrokerService;

/** Pulsar 2.10: Guava's predicates, and no word when a topic is closed. */
final class V2_10 implements Version {
    @Override
    public Position position(long ledger, long entry) {
        return PositionImpl.get(ledger, entry);
    }

    @Override
    public void read(ManagedCursor cursor, int entries, ReadEntriesCallback callback) {
        cursor.asyncReadEntries(entries, callback, null, PositionImpl.LATEST);
    }

    @Override
    public CompletableFuture<Position> find(ManagedLedger ledger, Predicate<Entry> isBefore) {
        return ledger.asyncFindPosition(isBefore::test);
    }

    @Override
    public boolean onTopicsClosed(BrokerService broker, Consumer<String> closed) {
        return false;
    }
}
