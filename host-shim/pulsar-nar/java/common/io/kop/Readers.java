package io.kop;

import io.kop.control.Code;
import io.kop.control.Refusal;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCursorCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;

/** The cursors of all partitions: a bounded number, kept while they are used, the longest unused closed first. */
final class Readers {
    /** Cursors of this broker, in use or put aside. */
    private static final int MAX_READERS = 1_000;
    /** Cursors that are kept for one partition: about one per consumer. */
    private static final int MAX_IDLE_PER_PARTITION = 8;
    private static final long MAX_IDLE_NANOS = TimeUnit.SECONDS.toNanos(60);

    private final Map<Partition, Deque<Reader>> idleOf = new HashMap<>();
    /** Longest unused first. */
    private final LinkedHashSet<Reader> idle = new LinkedHashSet<>();
    private final AtomicLong names = new AtomicLong();
    private int open;

    /** A reader of a partition, one that stands at the position if there is one. */
    Reader take(Partition partition, long ledger, long entry) throws ManagedLedgerException {
        List<Reader> excess = new ArrayList<>(0);
        synchronized (this) {
            Reader found = takeIdle(partition, ledger, entry);
            if (found != null) {
                return found;
            }
            if (open >= MAX_READERS) {
                Iterator<Reader> oldest = idle.iterator();
                if (!oldest.hasNext()) {
                    throw new Refusal(Code.NOT_READY, MAX_READERS + " reads are under way");
                }
                excess.add(forget(oldest.next()));
            }
            open++;
        }
        excess.forEach(Readers::close);
        try {
            return new Reader(partition, open(partition));
        } catch (Throwable failure) {
            synchronized (this) {
                open--;
            }
            throw failure;
        }
    }

    private Reader takeIdle(Partition partition, long ledger, long entry) {
        Deque<Reader> mine = idleOf.get(partition);
        if (mine == null) {
            return null;
        }
        Reader chosen = mine.peekFirst();
        for (Reader reader : mine) {
            if (reader.isAt(ledger, entry)) {
                chosen = reader;
                break;
            }
        }
        // Another consumer's place is left alone while there is room for one's own.
        if (!chosen.isAt(ledger, entry) && mine.size() < MAX_IDLE_PER_PARTITION && open < MAX_READERS) {
            return null;
        }
        remove(chosen);
        return chosen;
    }

    private void remove(Reader reader) {
        idle.remove(reader);
        Deque<Reader> mine = idleOf.get(reader.partition);
        mine.remove(reader);
        if (mine.isEmpty()) {
            idleOf.remove(reader.partition);
        }
    }

    private Reader forget(Reader reader) {
        remove(reader);
        open--;
        return reader;
    }

    /** Begins before the first entry, so that it can be taken anywhere. */
    private ManagedCursor open(Partition partition) throws ManagedLedgerException {
        return partition.ledger.newNonDurableCursor(partition.version.position(-1, -1), "kop-read-" + names.incrementAndGet());
    }

    /** Puts a reader aside after a read. */
    void give(Reader reader) {
        synchronized (this) {
            Deque<Reader> mine = idleOf.get(reader.partition);
            if (!reader.partition.isForgotten() && (mine == null || mine.size() < MAX_IDLE_PER_PARTITION)) {
                reader.idleSince = System.nanoTime();
                idleOf.computeIfAbsent(reader.partition, key -> new ArrayDeque<>(2)).addLast(reader);
                idle.add(reader);
                return;
            }
            open--;
        }
        close(reader);
    }

    /** Closes a reader after a read that failed. */
    void drop(Reader reader) {
        synchronized (this) {
            open--;
        }
        close(reader);
    }

    /** Closes the readers of a partition that is not open any more. */
    void forget(Partition partition) {
        List<Reader> mine = new ArrayList<>();
        synchronized (this) {
            Deque<Reader> kept = idleOf.get(partition);
            while (kept != null && !kept.isEmpty()) {
                mine.add(forget(kept.peekFirst()));
            }
        }
        mine.forEach(Readers::close);
    }

    /** Closes what was not used for a while. */
    void sweep() {
        List<Reader> old = new ArrayList<>();
        synchronized (this) {
            long now = System.nanoTime();
            Iterator<Reader> oldest = idle.iterator();
            while (oldest.hasNext()) {
                Reader reader = oldest.next();
                if (now - reader.idleSince < MAX_IDLE_NANOS) {
                    break;
                }
                old.add(reader);
            }
            old.forEach(this::forget);
        }
        old.forEach(Readers::close);
    }

    private static void close(Reader reader) {
        reader.partition.ledger.asyncDeleteCursor(reader.cursor.getName(), new DeleteCursorCallback() {
            @Override
            public void deleteCursorComplete(Object ctx) {
            }

            @Override
            public void deleteCursorFailed(ManagedLedgerException failure, Object ctx) {
                // It is gone with its managed ledger.
            }
        }, null);
    }
}
