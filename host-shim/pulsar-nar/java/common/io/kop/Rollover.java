package io.kop;

import io.kop.control.Code;
import io.kop.control.Refusal;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerImpl;

/** Seals the ledger that is written to. Pulsar only rolls over one that is full, so for a moment any counts as full. */
final class Rollover {
    private static final long LOOK_AGAIN_MS = 10;
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(30);

    private final ScheduledExecutorService executor;

    Rollover(ScheduledExecutorService executor) {
        this.executor = executor;
    }

    /** Done when another ledger is open. */
    CompletableFuture<Void> now(Partition partition) {
        ManagedLedgerImpl ledger = partition.ledger;
        long before = last(ledger);
        if (ledger.getCurrentLedgerEntries() == 0 && ledger.getPendingAddEntriesCount() == 0) {
            return CompletableFuture.completedFuture(null);
        }
        ManagedLedgerConfig config = ledger.getConfig();
        synchronized (config) {
            int minimum = config.getMinimumRolloverTimeMs();
            long maximum = config.getMaximumRolloverTimeMs();
            config.setMinimumRolloverTime(0, TimeUnit.MILLISECONDS);
            config.setMaximumRolloverTime(1, TimeUnit.MILLISECONDS);
            try {
                ledger.rollCurrentLedgerIfFull();
            } finally {
                config.setMaximumRolloverTime((int) Math.min(maximum / 1_000, Integer.MAX_VALUE), TimeUnit.SECONDS);
                config.setMinimumRolloverTime(minimum, TimeUnit.MILLISECONDS);
            }
        }
        CompletableFuture<Void> done = new CompletableFuture<>();
        look(ledger, before, System.nanoTime() + PATIENCE_NANOS, done);
        return done;
    }

    private static long last(ManagedLedgerImpl ledger) {
        return ledger.getLedgersInfo().isEmpty() ? -1 : ledger.getLedgersInfo().lastKey();
    }

    private void look(ManagedLedgerImpl ledger, long before, long until, CompletableFuture<Void> done) {
        if (last(ledger) > before) {
            done.complete(null);
        } else if (System.nanoTime() - until > 0) {
            done.completeExceptionally(new Refusal(Code.NOT_READY, "no new ledger was opened in time"));
        } else {
            executor.schedule(() -> look(ledger, before, until, done), LOOK_AGAIN_MS, TimeUnit.MILLISECONDS);
        }
    }
}
