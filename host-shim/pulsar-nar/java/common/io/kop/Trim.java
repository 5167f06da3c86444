package io.kop;

import io.kop.control.Code;
import io.kop.control.Refusal;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo.LedgerInfo;

/**
 * Gives up full ledgers from the front. Pulsar deletes those before its slowest cursor, so a cursor of our own stands
 * behind the last one meanwhile: what is written and sealed at the same time is not touched.
 */
final class Trim {
    /** Name of the cursor; one that is left over from a broker that was killed is removed by the next trim. */
    private static final String CURSOR = "kop.trim";

    private final Partition partition;
    private final long through;

    Trim(Partition partition, long through) {
        this.partition = partition;
        this.through = through;
    }

    CompletableFuture<Void> run() {
        LedgerInfo info = partition.ledger.getLedgersInfo().get(through);
        if (info == null || info.getEntries() == 0) {
            return CompletableFuture.failedFuture(new Refusal(Code.NOT_READY, "ledger " + through + " is not sealed"));
        }
        CompletableFuture<Void> trimmed = Cursors.open(partition, CURSOR)
            .thenCompose(cursor -> Cursors.markDelete(cursor, partition.version.position(through, info.getEntries() - 1)))
            .thenCompose(marked -> {
                // Older versions count a cursor at a ledger's very end as one that still needs the ledger.
                partition.ledger.maybeUpdateCursorBeforeTrimmingConsumedLedger();
                CompletableFuture<Void> done = new CompletableFuture<>();
                partition.ledger.trimConsumedLedgersInBackground(true, done);
                return done;
            });
        return trimmed.handle((done, failure) -> Cursors.delete(partition, CURSOR).thenAccept(removed -> {
            if (failure != null) {
                throw new java.util.concurrent.CompletionException(failure);
            }
        })).thenCompose(done -> done);
    }
}
