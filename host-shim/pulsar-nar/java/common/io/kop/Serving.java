package io.kop;

import io.kop.control.Operation;
import io.kop.control.Services;
import io.netty.util.internal.PlatformDependent;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.PulsarService.State;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** From the broker's start to its end: the plugin begins to serve once the broker is ready, and ends before it. */
final class Serving {
    static final long CLOSE_TIMEOUT_MS = 10_000;

    private static final Logger LOG = LoggerFactory.getLogger("io.kop");
    private static final long LOOK_AGAIN_MS = 20;
    private static final long SWEEP_MS = 1_000;
    private static final long APPEND_TIMEOUT_MS = 60_000;
    /** What a bookie's frame holds beside an entry, and what the broker puts before it. */
    private static final int ENTRY_HEADROOM = 1_024;
    private static final long MIB = 1L << 20;

    private final PulsarService pulsar;
    private final ServiceConfiguration configuration;
    private final Services services;
    private final Partitions partitions;
    private final Control control;
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "kop-timer");
        thread.setDaemon(true);
        return thread;
    });
    private volatile boolean closed;

    Serving(PulsarService pulsar, ServiceConfiguration configuration, String protocol, String advertised) {
        this.pulsar = pulsar;
        this.configuration = configuration;
        services = new Services(pulsar, protocol, advertised, Native::event);
        partitions = new Partitions(pulsar, Version.current());
        Map<Integer, Operation> operations = new HashMap<>(services.operations());
        operations.putAll(new Ledgers(pulsar, partitions).operations());
        control = new Control(operations);
    }

    /** Returns at once: the broker waits for this before it becomes ready. */
    void start() {
        pulsar.addPrometheusRawMetricsProvider(stream -> stream.write(new String(Native.metrics(), java.nio.charset.StandardCharsets.UTF_8)));
        Thread starter = new Thread(this::serve, "kop-start");
        starter.setDaemon(true);
        starter.start();
    }

    private void serve() {
        try {
            while (pulsar.getState() == State.Init) {
                Thread.sleep(LOOK_AGAIN_MS);
            }
            if (closed || pulsar.getState() != State.Started) {
                return;
            }
            if (!partitions.version.onTopicsClosed(pulsar.getBrokerService(), partitions::closed)) {
                LOG.info("This release of Pulsar does not say when a topic is closed: looked for every {} ms", SWEEP_MS);
            }
            services.start();
            timer.scheduleWithFixedDelay(this::sweep, SWEEP_MS, SWEEP_MS, TimeUnit.MILLISECONDS);
            Native.start(control, settings());
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        } catch (Throwable failure) {
            if (!closed) {
                LOG.error("The broker stops, since kafka cannot be served: {}", failure.getMessage());
                System.exit(1);
            }
        }
    }

    private long[] settings() {
        long direct = PlatformDependent.maxDirectMemory();
        long buffer = configuration.getMaxMessagePublishBufferSizeInMB() * MIB;
        return new long[] {
            APPEND_TIMEOUT_MS,
            Math.max(1, configuration.getMaxMessageSize() - ENTRY_HEADROOM),
            buffer > 0 ? buffer : direct / 4,
            direct / 8,
            services.authenticates() ? 1 : 0,
        };
    }

    private void sweep() {
        try {
            partitions.sweep();
            Native.tick();
        } catch (Throwable failure) {
            LOG.warn("Looking after the partitions failed", failure);
        }
    }

    void close() {
        closed = true;
        services.end();
        timer.shutdownNow();
        try {
            Native.close(Math.min(CLOSE_TIMEOUT_MS, Math.max(1, configuration.getBrokerShutdownTimeoutMs() / 2)));
        } catch (RuntimeException failure) {
            LOG.warn("The Kafka handler did not close as it should: {}", failure.getMessage());
        }
    }
}
