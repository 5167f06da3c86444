package io.kop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.ServiceConfigurationUtils;

/** The broker's configuration as the plugin gets it: every key of its file, and what holds where the file says nothing. */
final class Configuration {
    private Configuration() {
    }

    /** Keys and values, alternating. */
    static String[] of(ServiceConfiguration broker) {
        Map<String, String> all = new TreeMap<>();
        broker.getProperties().forEach((key, value) -> all.put(String.valueOf(key), String.valueOf(value)));
        put(all, "advertisedAddress", ServiceConfigurationUtils.getDefaultOrConfiguredAddress(broker.getAdvertisedAddress()));
        put(all, "allowAutoTopicCreation", broker.isAllowAutoTopicCreation());
        put(all, "authenticationEnabled", broker.isAuthenticationEnabled());
        put(all, "authorizationEnabled", broker.isAuthorizationEnabled());
        put(all, "bindAddress", broker.getBindAddress());
        put(all, "brokerDeleteInactiveTopicsEnabled", broker.isBrokerDeleteInactiveTopicsEnabled());
        put(all, "brokerEntryMetadataInterceptors", String.join(",", broker.getBrokerEntryMetadataInterceptors()));
        put(all, "brokerShutdownTimeoutMs", broker.getBrokerShutdownTimeoutMs());
        put(all, "clusterName", broker.getClusterName());
        put(all, "defaultNumPartitions", broker.getDefaultNumPartitions());
        put(all, "maxMessageSize", broker.getMaxMessageSize());
        List<String> pairs = new ArrayList<>();
        all.forEach((key, value) -> {
            pairs.add(key);
            pairs.add(value);
        });
        return pairs.toArray(new String[0]);
    }

    private static void put(Map<String, String> all, String key, Object value) {
        String known = all.get(key);
        if (value != null && (known == null || known.isBlank())) {
            all.put(key, String.valueOf(value));
        }
    }
}
