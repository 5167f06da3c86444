// The Java side of the benchmark. It says `ready` when everything is set up, waits for a line on its standard input,
// works, and prints one line of JSON.
//
//   produce BOOTSTRAP TOPIC RECORDS ROWS_FILE KEY=VALUE…
//   consume BOOTSTRAP TOPIC RECORDS KEY=VALUE…
//   rate    BOOTSTRAP TOPIC RECORDS ROWS_FILE PER_SECOND KEY=VALUE…

import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class BenchClient {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1], topic = arguments[2];
        long records = Long.parseLong(arguments[3]);
        switch (arguments[0]) {
            case "produce" -> produce(settings(bootstrap, arguments, 5), topic, records, rows(arguments[4]));
            case "rate" -> rate(settings(bootstrap, arguments, 6), topic, records, rows(arguments[4]), Long.parseLong(arguments[5]));
            case "consume" -> consume(settings(bootstrap, arguments, 4), topic, records);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    static Properties settings(String bootstrap, String[] arguments, int from) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int next = from; next < arguments.length; next++) {
            String[] pair = arguments[next].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        return settings;
    }

    static List<byte[]> rows(String file) throws Exception {
        List<byte[]> rows = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(file))) rows.add(line.getBytes());
        return rows;
    }

    static void waitForStart() throws Exception {
        System.out.println("ready");
        System.out.flush();
        if (System.in.read() < 0) throw new IllegalStateException("no start");
    }

    static KafkaProducer<byte[], byte[]> producer(Properties settings, String topic) {
        settings.put("acks", "all");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.partitionsFor(topic);
        return producer;
    }

    static void produce(Properties settings, String topic, long records, List<byte[]> rows) throws Exception {
        AtomicLong failed = new AtomicLong();
        Callback callback = (metadata, error) -> { if (error != null) failed.incrementAndGet(); };
        try (KafkaProducer<byte[], byte[]> producer = producer(settings, topic)) {
            waitForStart();
            long start = System.nanoTime();
            for (long sent = 0; sent < records; sent++)
                producer.send(new ProducerRecord<>(topic, rows.get((int) (sent % rows.size()))), callback);
            producer.flush();
            finish(records, System.nanoTime() - start, failed.get(), 0, 0);
        }
    }

    static void rate(Properties settings, String topic, long records, List<byte[]> rows, long perSecond) throws Exception {
        AtomicLong failed = new AtomicLong();
        long[] latencies = new long[(int) records];
        try (KafkaProducer<byte[], byte[]> producer = producer(settings, topic)) {
            waitForStart();
            long start = System.nanoTime();
            for (long sent = 0; sent < records; sent++) {
                long due = start + sent * 1_000_000_000L / perSecond;
                while (System.nanoTime() < due) LockSupport.parkNanos(500_000);
                int number = (int) sent;
                long began = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, rows.get((int) (sent % rows.size()))), (metadata, error) -> {
                    latencies[number] = System.nanoTime() - began;
                    if (error != null) failed.incrementAndGet();
                });
            }
            producer.flush();
            long took = System.nanoTime() - start;
            Arrays.sort(latencies);
            finish(records, took, failed.get(), latencies[(int) (records / 2)] / 1_000, latencies[(int) (records * 99 / 100)] / 1_000);
        }
    }

    static void consume(Properties settings, String topic, long records) throws Exception {
        settings.put("group.id", topic + "-java");
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            waitForStart();
            consumer.subscribe(List.of(topic));
            long seen = 0, start = 0, limit = System.nanoTime() + 600_000_000_000L;
            while (seen < records && System.nanoTime() < limit) {
                int count = consumer.poll(Duration.ofMillis(500)).count();
                if (start == 0 && count > 0) start = System.nanoTime();
                seen += count;
            }
            finish(seen, System.nanoTime() - start, records - seen, 0, 0);
        }
    }

    static void finish(long records, long nanos, long failed, long p50, long p99) {
        System.out.printf(Locale.ROOT, "{\"records\":%d,\"seconds\":%.6f,\"failed\":%d,\"p50_us\":%d,\"p99_us\":%d}%n",
            records, nanos / 1e9, failed, p50, p99);
    }
}
