package io.kop.control;

/** Where events for the plugin go: numbers and payloads of handler-api's events. It must not block. */
@FunctionalInterface
public interface Events {
    int OWNERSHIP_CHANGED = 0x0101;
    int TOPICS_CHANGED = 0x0102;
    int BROKERS_CHANGED = 0x0103;
    int VALUE_CHANGED = 0x0401;

    void send(int op, byte[] payload);
}
