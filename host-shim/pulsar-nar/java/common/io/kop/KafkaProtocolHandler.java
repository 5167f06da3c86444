package io.kop;

import io.netty.channel.ChannelInitializer;
import io.netty.channel.socket.SocketChannel;
import java.net.InetSocketAddress;
import java.util.Collections;
import java.util.Map;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.protocol.ProtocolHandler;
import org.apache.pulsar.broker.service.BrokerService;

/** What a Pulsar broker loads for {@code messagingProtocols=kafka}: hands everything to the plugin behind it. */
public final class KafkaProtocolHandler implements ProtocolHandler {
    private static final String PROTOCOL = "kafka";

    private static final String INDEX = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor";

    private ServiceConfiguration configuration;
    private String advertised;
    private Serving serving;

    @Override
    public String protocolName() {
        return PROTOCOL;
    }

    @Override
    public boolean accept(String protocol) {
        return PROTOCOL.equalsIgnoreCase(protocol);
    }

    @Override
    public void initialize(ServiceConfiguration broker) {
        configuration = broker;
        if (!broker.getBrokerEntryMetadataInterceptors().contains(INDEX)) {
            throw new IllegalArgumentException("brokerEntryMetadataInterceptors=" + String.join(",", broker.getBrokerEntryMetadataInterceptors())
                + ": Kafka's offsets are the indexes that " + INDEX + " gives to entries: add it");
        }
        Libraries libraries = new Libraries();
        libraries.load();
        Class<?>[] classes = {Partition.class, ReadBatch.class, Control.class, Log.class};
        String plugin = libraries.plugin(broker.getProtocolHandlerDirectory()).toString();
        Native.initialize(classes, plugin, PROTOCOL, Configuration.of(broker));
        advertised = Native.advertised();
    }

    @Override
    public String getProtocolDataToAdvertise() {
        return advertised;
    }

    @Override
    public void start(BrokerService broker) {
        serving = new Serving(broker.pulsar(), configuration, PROTOCOL, advertised);
        serving.start();
    }

    /** None: the plugin has sockets of its own. */
    @Override
    public Map<InetSocketAddress, ChannelInitializer<SocketChannel>> newChannelInitializers() {
        return Collections.emptyMap();
    }

    @Override
    public void close() {
        if (serving != null) {
            serving.close();
        } else if (advertised != null) {
            Native.close(Serving.CLOSE_TIMEOUT_MS);
        }
    }
}
