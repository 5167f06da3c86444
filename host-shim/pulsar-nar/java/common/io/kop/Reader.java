package io.kop;

import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.Position;

/** A cursor that reads for one partition, one read at a time. */
final class Reader {
    final Partition partition;
    final ManagedCursor cursor;
    /** Where it stands, as far as is known. */
    long ledger;
    long entry;
    /** When it was put aside, by {@link System#nanoTime}. */
    long idleSince;

    Reader(Partition partition, ManagedCursor cursor) {
        this.partition = partition;
        this.cursor = cursor;
    }

    boolean isAt(long wantedLedger, long wantedEntry) {
        return ledger == wantedLedger && entry == wantedEntry;
    }

    /** Takes it to a position. */
    void seek(Position position) {
        if (!isAt(position.getLedgerId(), position.getEntryId())) {
            cursor.seek(position, true);
            ledger = position.getLedgerId();
            entry = position.getEntryId();
        }
    }
}
