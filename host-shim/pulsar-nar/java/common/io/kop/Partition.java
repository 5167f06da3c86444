package io.kop;

import io.kop.control.Code;
import io.netty.buffer.ByteBuf;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntriesCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerImpl;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo.LedgerInfo;
import org.apache.pulsar.broker.intercept.ManagedLedgerInterceptorImpl;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.apache.pulsar.common.allocator.PulsarByteBufAllocator;
import org.apache.pulsar.common.api.proto.BrokerEntryMetadata;
import org.apache.pulsar.common.protocol.Commands;

/** An open partition: the hot path. Its methods are called by the native half, from any thread, and never block. */
final class Partition {
    final String name;
    final PersistentTopic topic;
    final ManagedLedgerImpl ledger;
    final Version version;
    private final Partitions partitions;
    private volatile long id;
    private volatile boolean forgotten;
    /** The first ledger when it was last looked at. */
    private long firstLedger;

    Partition(String name, PersistentTopic topic, Partitions partitions) {
        this.name = name;
        this.topic = topic;
        this.ledger = (ManagedLedgerImpl) topic.getManagedLedger();
        this.partitions = partitions;
        this.version = partitions.version;
        this.firstLedger = firstLedger();
    }

    /** Makes it known to the native half. */
    void register() {
        id = Native.opened(this, name);
    }

    long id() {
        return id;
    }

    boolean isForgotten() {
        return forgotten;
    }

    /** Appends the entry that the native half gives for {@code ctx}. */
    void append(long ctx, int length, int messages, boolean isMarker) {
        ByteBuf entry = PulsarByteBufAllocator.DEFAULT.directBuffer(Math.max(1, length));
        try {
            if (!Native.fill(ctx, ReadBatch.address(entry), length)) {
                return;
            }
            entry.writerIndex(length);
            publish(ctx, entry, messages, isMarker);
        } finally {
            // The topic holds it as long as it needs it.
            entry.release();
        }
    }

    /** One after the other, so that the numbers which the broker's deduplication looks at rise. */
    private synchronized void publish(long ctx, ByteBuf entry, int messages, boolean isMarker) {
        Append append = new Append(ctx, partitions.producer, partitions.sequence.incrementAndGet(), messages, entry.readableBytes(), isMarker);
        try {
            topic.publishMessage(entry, append);
            append.handedOver();
        } catch (Throwable failure) {
            append.handedOver();
            append.completed(new IllegalStateException(failure), -1, -1);
        }
    }

    /** Reads up to so many entries from a position on. */
    void read(long ctx, long fromLedger, long fromEntry, int entries) {
        Reader reader;
        try {
            reader = partitions.readers.take(this, fromLedger, fromEntry);
        } catch (Throwable failure) {
            Control.failed(ctx, failure);
            return;
        }
        try {
            reader.seek(version.position(fromLedger, fromEntry));
            version.read(reader.cursor, entries, new Reading(ctx, reader));
        } catch (Throwable failure) {
            partitions.readers.drop(reader);
            Control.failed(ctx, failure);
        }
    }

    private final class Reading implements ReadEntriesCallback {
        private final long ctx;
        private final Reader reader;

        Reading(long ctx, Reader reader) {
            this.ctx = ctx;
            this.reader = reader;
        }

        @Override
        public void readEntriesComplete(List<Entry> entries, Object ignored) {
            if (!entries.isEmpty()) {
                Entry last = entries.get(entries.size() - 1);
                reader.ledger = last.getLedgerId();
                reader.entry = last.getEntryId() + 1;
            }
            partitions.readers.give(reader);
            try {
                new ReadBatch(entries).deliver(ctx);
            } catch (Throwable failure) {
                Control.failed(ctx, failure);
            }
        }

        @Override
        public void readEntriesFailed(ManagedLedgerException failure, Object ignored) {
            partitions.readers.drop(reader);
            if (failure instanceof ManagedLedgerException.NoMoreEntriesToReadException) {
                new ReadBatch(List.of()).deliver(ctx);
            } else if (failure instanceof ManagedLedgerException.ManagedLedgerAlreadyClosedException) {
                Native.failed(ctx, Code.HANDLE_CLOSED, failure.getMessage());
            } else {
                Native.failed(ctx, Code.NOT_READY, String.valueOf(failure.getMessage()));
            }
        }
    }

    /** Finds the first entry whose index is not below one. */
    void find(long ctx, long index) {
        version.find(ledger, entry -> {
            try {
                return indexOf(entry) < index;
            } finally {
                entry.release();
            }
        }).whenComplete((position, failure) -> {
            if (failure != null) {
                Control.failed(ctx, failure);
            } else if (position == null) {
                Native.failed(ctx, Code.NOT_READY, name + " has no ledger yet");
            } else {
                Native.found(ctx, position.getLedgerId(), position.getEntryId());
            }
        });
    }

    /** Index of an entry; −1 if it was written before the broker gave any. */
    private static long indexOf(Entry entry) {
        BrokerEntryMetadata metadata = Commands.peekBrokerEntryMetadataIfExist(entry.getDataBuffer());
        return metadata != null && metadata.hasIndex() ? metadata.getIndex() : -1;
    }

    /** Whether the last confirmed entry and the first ledger are still these. */
    boolean isAt(long confirmedLedger, long confirmedEntry, long first) {
        Position confirmed = ledger.getLastConfirmedEntry();
        return confirmed.getEntryId() == confirmedEntry && confirmed.getLedgerId() == confirmedLedger && firstLedger() == first;
    }

    private long firstLedger() {
        Map.Entry<Long, LedgerInfo> first = ledger.getLedgersInfo().firstEntry();
        return first == null ? ledger.getLastConfirmedEntry().getLedgerId() : first.getKey();
    }

    /** Last confirmed entry, last and first entry that exist, first ledger, index given out last, entries under way. */
    long[] layout() {
        Position confirmed = ledger.getLastConfirmedEntry();
        NavigableMap<Long, LedgerInfo> ledgers = ledger.getLedgersInfo();
        long[] layout = {confirmed.getLedgerId(), confirmed.getEntryId(), -1, -1, -1, -1, firstLedger(), -1, 0};
        for (Map.Entry<Long, LedgerInfo> one : ledgers.descendingMap().entrySet()) {
            long entries = entries(one.getKey(), one.getValue(), confirmed);
            if (entries > 0) {
                layout[2] = one.getKey();
                layout[3] = entries - 1;
                break;
            }
        }
        for (Map.Entry<Long, LedgerInfo> one : ledgers.entrySet()) {
            if (entries(one.getKey(), one.getValue(), confirmed) > 0) {
                layout[4] = one.getKey();
                layout[5] = 0;
                break;
            }
        }
        if (ledger.getManagedLedgerInterceptor() instanceof ManagedLedgerInterceptorImpl) {
            layout[7] = ((ManagedLedgerInterceptorImpl) ledger.getManagedLedgerInterceptor()).getIndex();
        }
        layout[8] = ledger.getPendingAddEntriesCount();
        return layout;
    }

    /** Confirmed entries of a ledger. */
    static long entries(long ledger, LedgerInfo info, Position confirmed) {
        if (ledger == confirmed.getLedgerId()) {
            return confirmed.getEntryId() + 1;
        }
        return ledger < confirmed.getLedgerId() ? info.getEntries() : 0;
    }

    /** Asks for one call when an entry is confirmed. */
    void awaitEntries() {
        ledger.addWaitingEntryCallBack(() -> Native.entriesAvailable(id));
    }

    /** Tells the native half if the first ledger has changed. */
    void look() {
        long now = firstLedger();
        if (now != firstLedger) {
            firstLedger = now;
            Native.startMoved(id);
        }
    }

    /** Nothing is asked of it any more. */
    void forget() {
        forgotten = true;
        partitions.forget(this);
    }
}
