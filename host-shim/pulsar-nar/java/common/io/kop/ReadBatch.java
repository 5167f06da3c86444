package io.kop;

import io.netty.buffer.ByteBuf;
import io.netty.util.ReferenceCounted;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.pulsar.common.allocator.PulsarByteBufAllocator;

/** Entries that were read, whose memory stays where it is until the native half releases them. */
final class ReadBatch {
    private final List<Entry> entries;
    /** Copies of what did not lie in direct memory. */
    private final List<ByteBuf> copies = new ArrayList<>(0);
    private final AtomicBoolean released = new AtomicBoolean();
    private long[] table = new long[0];
    private int used;

    ReadBatch(List<Entry> entries) {
        this.entries = entries;
    }

    /** Hands the entries to the native half, which releases them when it needs them no more. */
    void deliver(long ctx) {
        try {
            table = new long[entries.size() * 5];
            for (Entry entry : entries) {
                put(entry.getLedgerId());
                put(entry.getEntryId());
                segments(entry.getDataBuffer());
            }
            long[] whole = used == table.length ? table : Arrays.copyOf(table, used);
            table = null;
            if (!Native.entriesRead(ctx, this, whole)) {
                throw new IllegalStateException("the entries cannot be handed over");
            }
        } catch (Throwable failure) {
            release();
            throw failure;
        }
    }

    private void put(long number) {
        if (used == table.length) {
            table = Arrays.copyOf(table, used * 2 + 8);
        }
        table[used++] = number;
    }

    private void segments(ByteBuf data) {
        if (data.hasMemoryAddress()) {
            put(1);
            segment(data.memoryAddress() + data.readerIndex(), data.readableBytes());
            return;
        }
        ByteBuffer[] buffers = data.nioBuffers();
        for (ByteBuffer buffer : buffers) {
            if (!buffer.isDirect()) {
                copy(data);
                return;
            }
        }
        put(buffers.length);
        for (ByteBuffer buffer : buffers) {
            segment(Native.address(buffer) + buffer.position(), buffer.remaining());
        }
    }

    private void segment(long address, int length) {
        put(address);
        put(length);
    }

    private void copy(ByteBuf data) {
        ByteBuf copy = PulsarByteBufAllocator.DEFAULT.directBuffer(Math.max(1, data.readableBytes()));
        copies.add(copy);
        copy.writeBytes(data, data.readerIndex(), data.readableBytes());
        put(1);
        segment(address(copy), copy.readableBytes());
    }

    /** Where a direct buffer's memory begins. */
    static long address(ByteBuf direct) {
        return direct.hasMemoryAddress() ? direct.memoryAddress() : Native.address(direct.nioBuffer(0, direct.capacity()));
    }

    /** Gives the memory back. Called by the native half, from any thread. */
    void release() {
        if (released.compareAndSet(false, true)) {
            entries.forEach(Entry::release);
            copies.forEach(ReferenceCounted::release);
        }
    }
}
