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
import org.apache.pulsar.broker.service.TopicEventsListener.EventStage;
import org.apache.pulsar.broker.service.TopicEventsListener.TopicEvent;

/** Pulsar 3: positions are a class. */
final class V3_3 implements Version {
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
        return ledger.asyncFindPosition(isBefore);
    }

    @Override
    public boolean onTopicsClosed(BrokerService broker, Consumer<String> closed) {
        broker.addTopicEventListener((topic, event, stage, failure) -> {
            if (stage == EventStage.SUCCESS && (event == TopicEvent.UNLOAD || event == TopicEvent.DELETE)) {
                closed.accept(topic);
            }
        });
        return true;
    }
}
