package io.kop.control;

import java.lang.reflect.Method;

/** Methods that not every version of Pulsar has. */
final class Reflection {
    private Reflection() {
    }

    /** A public method; null if this version lacks it. */
    static Method find(Class<?> type, String name, Class<?>... parameters) {
        try {
            return type.getMethod(name, parameters);
        } catch (NoSuchMethodException lacking) {
            return null;
        }
    }

    /** The first of these methods without parameters that this version has. */
    static Method first(Class<?> type, String... names) {
        for (String name : names) {
            Method found = find(type, name);
            if (found != null) {
                return found;
            }
        }
        throw new Refusal(Code.UNSUPPORTED, type.getName() + " has none of " + String.join(", ", names)
            + " in this version of Pulsar");
    }
}
