package io.kop.control;

import java.lang.reflect.Method;
import org.apache.pulsar.broker.PulsarService;

/** The name under which a broker is registered. */
final class BrokerId {
    /** Since Pulsar 3.1 a broker has an id; before, it is the address of its lookup service. */
    private static final Method ID = Reflection.find(PulsarService.class, "getBrokerId");

    private BrokerId() {
    }

    static String of(PulsarService pulsar) {
        try {
            return ID != null
                ? (String) ID.invoke(pulsar)
                : pulsar.getSafeWebServiceAddress().replaceFirst("^https?://", "");
        } catch (ReflectiveOperationException failure) {
            throw new Refusal(Code.INTERNAL, "the broker's id cannot be asked for: " + failure);
        }
    }
}
