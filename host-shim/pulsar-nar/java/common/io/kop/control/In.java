package io.kop.control;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** Reads a message of the native half; the format is that of the crate's {@code control::codec}. */
public final class In {
    private final ByteBuffer buffer;

    public In(byte[] message) {
        buffer = ByteBuffer.wrap(message);
    }

    public boolean bool() {
        return buffer.get() != 0;
    }

    public int i32() {
        return buffer.getInt();
    }

    public long i64() {
        return buffer.getLong();
    }

    public byte[] bytes() {
        byte[] bytes = new byte[buffer.getInt()];
        buffer.get(bytes);
        return bytes;
    }

    /** Text, or null. */
    public String text() {
        int length = buffer.getInt();
        if (length < 0) {
            return null;
        }
        byte[] bytes = new byte[length];
        buffer.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** A list of anything, each element made by {@code read}. */
    public <T> List<T> list(Function<In, T> read) {
        int count = buffer.getInt();
        List<T> list = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            list.add(read.apply(this));
        }
        return list;
    }

    public List<String> texts() {
        return list(In::text);
    }

    public Map<String, String> map() {
        int count = buffer.getInt();
        Map<String, String> map = new HashMap<>();
        for (int n = 0; n < count; n++) {
            map.put(text(), text());
        }
        return map;
    }
}
