package io.kop.control;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;
import java.util.function.BiConsumer;

/** Writes a message for the native half; the format is that of the crate's {@code control::codec}. */
public final class Out {
    private ByteBuffer buffer = ByteBuffer.allocate(64);

    private ByteBuffer room(int bytes) {
        if (buffer.remaining() < bytes) {
            int wanted = Math.max(buffer.capacity() * 2, Math.addExact(buffer.position(), bytes));
            buffer.flip();
            buffer = ByteBuffer.allocate(wanted).put(buffer);
        }
        return buffer;
    }

    public Out bool(boolean value) {
        room(1).put((byte) (value ? 1 : 0));
        return this;
    }

    public Out i32(int value) {
        room(Integer.BYTES).putInt(value);
        return this;
    }

    public Out i64(long value) {
        room(Long.BYTES).putLong(value);
        return this;
    }

    public Out bytes(byte[] bytes) {
        i32(bytes.length);
        room(bytes.length).put(bytes);
        return this;
    }

    /** Text, or null. */
    public Out text(String text) {
        return text == null ? i32(-1) : bytes(text.getBytes(StandardCharsets.UTF_8));
    }

    /** A list of anything, each element written by {@code write}. */
    public <T> Out list(Collection<T> items, BiConsumer<Out, T> write) {
        i32(items.size());
        for (T item : items) {
            write.accept(this, item);
        }
        return this;
    }

    public Out texts(Collection<String> texts) {
        return list(texts, Out::text);
    }

    public Out map(Map<String, String> map) {
        i32(map.size());
        map.forEach((key, value) -> text(key).text(value));
        return this;
    }

    public byte[] toBytes() {
        byte[] bytes = new byte[buffer.position()];
        buffer.flip();
        buffer.get(bytes);
        return bytes;
    }
}
