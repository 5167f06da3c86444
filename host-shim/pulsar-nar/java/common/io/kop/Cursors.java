package io.kop;

import io.kop.control.In;
import io.kop.control.Operation;
import io.kop.control.Out;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCursorCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.OpenCursorCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.common.api.proto.CommandSubscribe.InitialPosition;

/** The control operations on durable cursors, by position. */
final class Cursors {
    private final Partitions partitions;

    Cursors(Partitions partitions) {
        this.partitions = partitions;
    }

    Map<Integer, Operation> operations() {
        return Map.of(0x0301, this::move, 0x0302, this::move, 0x0303, this::remove, 0x0304, this::list);
    }

    /** Opens a cursor, and moves it to a position that is done with. */
    private CompletableFuture<Out> move(In request) {
        Partition partition = partitions.get(request.i64());
        String name = request.text();
        Position to = partition.version.position(request.i64(), request.i64());
        return open(partition, name)
            .thenCompose(cursor -> to.getEntryId() < 0 ? CompletableFuture.completedFuture(cursor) : markDelete(cursor, to))
            .thenApply(cursor -> at(new Out(), cursor));
    }

    private static Out at(Out out, ManagedCursor cursor) {
        Position done = cursor.getMarkDeletedPosition();
        return out.i64(done.getLedgerId()).i64(done.getEntryId());
    }

    private CompletableFuture<Out> remove(In request) {
        Partition partition = partitions.get(request.i64());
        return delete(partition, request.text()).thenApply(done -> new Out());
    }

    private CompletableFuture<Out> list(In request) {
        Partition partition = partitions.get(request.i64());
        List<ManagedCursor> cursors = new ArrayList<>();
        for (ManagedCursor cursor : partition.ledger.getCursors()) {
            if (cursor.isDurable()) {
                cursors.add(cursor);
            }
        }
        cursors.sort(Comparator.comparing(ManagedCursor::getName));
        return CompletableFuture.completedFuture(new Out().list(cursors, (out, cursor) -> at(out.text(cursor.getName()), cursor)));
    }

    /** Opens a durable cursor; a new one stands before the first entry. */
    static CompletableFuture<ManagedCursor> open(Partition partition, String name) {
        CompletableFuture<ManagedCursor> opened = new CompletableFuture<>();
        partition.ledger.asyncOpenCursor(name, InitialPosition.Earliest, new OpenCursorCallback() {
            @Override
            public void openCursorComplete(ManagedCursor cursor, Object ctx) {
                opened.complete(cursor);
            }

            @Override
            public void openCursorFailed(ManagedLedgerException failure, Object ctx) {
                opened.completeExceptionally(failure);
            }
        }, null);
        return opened;
    }

    static CompletableFuture<ManagedCursor> markDelete(ManagedCursor cursor, Position done) {
        CompletableFuture<ManagedCursor> moved = new CompletableFuture<>();
        cursor.asyncMarkDelete(done, new MarkDeleteCallback() {
            @Override
            public void markDeleteComplete(Object ctx) {
                moved.complete(cursor);
            }

            @Override
            public void markDeleteFailed(ManagedLedgerException failure, Object ctx) {
                moved.completeExceptionally(failure);
            }
        }, null);
        return moved;
    }

    static CompletableFuture<Void> delete(Partition partition, String name) {
        CompletableFuture<Void> deleted = new CompletableFuture<>();
        partition.ledger.asyncDeleteCursor(name, new DeleteCursorCallback() {
            @Override
            public void deleteCursorComplete(Object ctx) {
                deleted.complete(null);
            }

            @Override
            public void deleteCursorFailed(ManagedLedgerException failure, Object ctx) {
                deleted.completeExceptionally(failure);
            }
        }, null);
        return deleted;
    }
}
