// The interop scenario with Kafka's own Java client: every step prints `ok STEP`; anything unexpected throws.
// Steps are named alike in the programs of all languages (see tests/tests/clients.rs).

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

public class InteropClient {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static final int PER_CODEC = 200;
    static final int PARTITIONS = 4;
    static final Duration POLL = Duration.ofMillis(200);
    static final long LIMIT_MS = 60_000;

    static String bootstrap;
    static String topic;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            create(admin);
            for (String codec : CODECS) produce(codec);
            group(admin, "");
            headersAndNulls();
            idempotentOrder();
            staticMember(admin);
            group(admin, "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            administration(admin);
        }
    }

    static void ok(String step) {
        System.out.println("ok " + step);
        System.out.flush();
    }

    static void check(boolean condition, Object what) {
        if (!condition) throw new AssertionError(String.valueOf(what));
    }

    static void create(Admin admin) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        long limit = System.currentTimeMillis() + LIMIT_MS;
        while (true) {
            try {
                TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                check(found.partitions().size() == PARTITIONS, found);
                check(!found.topicId().equals(Uuid.ZERO_UUID), found);
                break;
            } catch (ExecutionException retry) {
                check(System.currentTimeMillis() < limit, retry);
                Thread.sleep(50);
            }
        }
        try {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
            check(false, "a topic was created twice");
        } catch (ExecutionException expected) {
            check(expected.getCause() instanceof org.apache.kafka.common.errors.TopicExistsException, expected);
        }
        ok("create");
    }

    static Properties producerSettings(String codec) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("linger.ms", "20");
        return settings;
    }

    static String value(String codec, int number) {
        return codec + "-" + number + "-" + "padding ".repeat(8);
    }

    static void produce(String codec) throws Exception {
        try (Producer<String, String> producer = new KafkaProducer<>(producerSettings(codec))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < PER_CODEC; number++) {
                ProducerRecord<String, String> record =
                    new ProducerRecord<>(topic, number % PARTITIONS, "k" + number, value(codec, number));
                record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> one : sent) check(one.get().offset() >= 0, "an offset");
        }
        ok("produce." + codec);
    }

    static Properties consumerSettings(String group, String assignor) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("heartbeat.interval.ms", "500");
        settings.put("session.timeout.ms", "10000");
        if (!assignor.isEmpty()) settings.put("partition.assignment.strategy", assignor);
        return settings;
    }

    /** Polls into `values` (which must not see a value twice) until `done` or the limit. */
    static void pollUntil(List<Consumer<String, String>> members, Set<String> values, BooleanSupplierX done, String what)
        throws Exception {
        long limit = System.currentTimeMillis() + LIMIT_MS;
        while (!done.get()) {
            check(System.currentTimeMillis() < limit, what + ": only " + values.size() + " values");
            for (Consumer<String, String> member : members) {
                for (ConsumerRecord<String, String> record : member.poll(POLL)) {
                    check(values.add(record.value()), "seen twice: " + record);
                }
            }
        }
    }

    interface BooleanSupplierX { boolean get() throws Exception; }

    static void group(Admin admin, String assignor) throws Exception {
        String suffix = assignor.isEmpty() ? "" : ".cooperative";
        String group = topic + "-group" + suffix;
        Set<String> expected = new HashSet<>();
        for (String codec : CODECS) for (int number = 0; number < PER_CODEC; number++) expected.add(value(codec, number));
        long before = endOffsets(admin);
        Set<String> values = new HashSet<>();
        Consumer<String, String> first = new KafkaConsumer<>(consumerSettings(group, assignor));
        Consumer<String, String> second = new KafkaConsumer<>(consumerSettings(group, assignor));
        first.subscribe(List.of(topic));
        pollUntil(List.of(first), values, () -> committableEnd(first) >= before, "the first member");
        check(values.containsAll(expected), "some values are missing");
        first.commitSync();
        ok("consume" + suffix);

        second.subscribe(List.of(topic));
        pollUntil(List.of(first, second), values,
            () -> first.assignment().size() == 2 && second.assignment().size() == 2, "the rebalance");
        Set<TopicPartition> both = new HashSet<>(first.assignment());
        both.addAll(second.assignment());
        check(both.size() == PARTITIONS, both);
        String mark = "second" + suffix;
        int known = values.size();
        for (int number = 0; number < PER_CODEC; number++) expected.add(value(mark, number));
        produceMarked(mark);
        pollUntil(List.of(first, second), values, () -> values.size() == known + PER_CODEC, "both members");
        first.commitSync();
        second.commitSync();
        ok("rebalance" + suffix);

        ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        check(described.members().size() == 2, described);
        check(described.groupState() == GroupState.STABLE, described);
        second.close();
        pollUntil(List.of(first), values, () -> first.assignment().size() == PARTITIONS, "taking over");
        first.close();
        ok("takeover" + suffix);

        long committed = 0;
        for (OffsetAndMetadata offset : admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values())
            committed += offset.offset();
        check(committed == before + PER_CODEC, committed + " committed of " + (before + PER_CODEC));
        ok("commit" + suffix);

        String third = "third" + suffix;
        produceMarked(third);
        Set<String> rest = new HashSet<>();
        try (Consumer<String, String> restarted = new KafkaConsumer<>(consumerSettings(group, assignor))) {
            restarted.subscribe(List.of(topic));
            pollUntil(List.of(restarted), rest, () -> rest.size() >= PER_CODEC, "after the restart");
            restarted.commitSync();
        }
        for (int number = 0; number < PER_CODEC; number++) check(rest.contains(value(third, number)), "not from the commit");
        check(rest.size() == PER_CODEC, "more than what followed the commit");
        ok("restart" + suffix);
    }

    static long endOffsets(Admin admin) throws Exception {
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        for (int partition = 0; partition < PARTITIONS; partition++) wanted.put(new TopicPartition(topic, partition), OffsetSpec.latest());
        long sum = 0;
        for (var found : admin.listOffsets(wanted).all().get().values()) sum += found.offset();
        return sum;
    }

    static long committableEnd(Consumer<String, String> consumer) {
        long sum = 0;
        for (TopicPartition partition : consumer.assignment()) sum += consumer.position(partition);
        return sum;
    }

    static void produceMarked(String mark) throws Exception {
        try (Producer<String, String> producer = new KafkaProducer<>(producerSettings("lz4"))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < PER_CODEC; number++)
                sent.add(producer.send(new ProducerRecord<>(topic, number % PARTITIONS, "k" + number, value(mark, number))));
            for (Future<RecordMetadata> one : sent) one.get();
        }
    }

    static void headersAndNulls() throws Exception {
        String name = topic + "-headers";
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
        }
        try (Producer<String, String> producer = new KafkaProducer<>(producerSettings("none"))) {
            List<Header> headers = List.of(new RecordHeader("a", bytes("1")), new RecordHeader("b", (byte[]) null),
                new RecordHeader("a", bytes("2")), new RecordHeader("empty", new byte[0]), new RecordHeader("a", bytes("1")));
            producer.send(new ProducerRecord<>(name, 0, "k", "v", headers)).get();
            producer.send(new ProducerRecord<>(name, 0, "k", null)).get();
            producer.send(new ProducerRecord<>(name, 0, null, "no key")).get();
            producer.send(new ProducerRecord<>(name, 0, "", "")).get();
        }
        Properties settings = consumerSettings(name + "-group", "");
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(new TopicPartition(name, 0)));
            long limit = System.currentTimeMillis() + LIMIT_MS;
            while (found.size() < 4) {
                check(System.currentTimeMillis() < limit, found);
                consumer.poll(POLL).forEach(found::add);
            }
        }
        StringBuilder seen = new StringBuilder();
        for (Header header : found.get(0).headers())
            seen.append(header.key()).append('=').append(header.value() == null ? "null" : new String(header.value())).append(';');
        check(seen.toString().equals("a=1;b=null;a=2;empty=;a=1;"), seen);
        ok("headers");
        check(found.get(1).value() == null && "k".equals(found.get(1).key()), found.get(1));
        check(found.get(2).key() == null && found.get(2).headers().toArray().length == 0, found.get(2));
        check("".equals(found.get(3).key()) && "".equals(found.get(3).value()), found.get(3));
        ok("nulls");
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** The default producer is idempotent with five requests in flight: order and count must hold. */
    static void idempotentOrder() throws Exception {
        String name = topic + "-ordered";
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
        }
        Properties settings = producerSettings("none");
        settings.put("enable.idempotence", "true");
        settings.put("max.in.flight.requests.per.connection", "5");
        settings.put("batch.size", "500");
        settings.put("linger.ms", "0");
        int count = 5_000;
        try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++)
                sent.add(producer.send(new ProducerRecord<>(name, 0, null, "v" + number)));
            for (int number = 0; number < count; number++) check(sent.get(number).get().offset() == number, "offset of " + number);
        }
        try (Consumer<String, String> consumer = new KafkaConsumer<>(consumerSettings(name + "-group", ""))) {
            consumer.assign(List.of(new TopicPartition(name, 0)));
            int next = 0;
            long limit = System.currentTimeMillis() + LIMIT_MS;
            while (next < count) {
                check(System.currentTimeMillis() < limit, next);
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    check(record.value().equals("v" + next) && record.offset() == next, record);
                    next++;
                }
            }
        }
        ok("idempotent");
    }

    /** A static member that comes back within its session keeps its assignment and causes no rebalance. */
    static void staticMember(Admin admin) throws Exception {
        String group = topic + "-static";
        int[] rebalances = {0};
        ConsumerRebalanceListener counting = new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { rebalances[0]++; }
        };
        Properties one = consumerSettings(group, "");
        one.put("group.instance.id", "one");
        one.put("session.timeout.ms", "30000");
        Properties two = consumerSettings(group, "");
        two.put("group.instance.id", "two");
        two.put("session.timeout.ms", "30000");
        Set<String> ignored = new HashSet<>();
        Consumer<String, String> stays = new KafkaConsumer<>(one);
        stays.subscribe(List.of(topic), counting);
        Consumer<String, String> leaves = new KafkaConsumer<>(two);
        leaves.subscribe(List.of(topic));
        List<Consumer<String, String>> members = List.of(stays, leaves);
        pollFor(members, () -> stays.assignment().size() == 2 && leaves.assignment().size() == 2);
        Set<TopicPartition> mine = leaves.assignment();
        Set<TopicPartition> kept = new HashSet<>(mine);
        int before = rebalances[0];
        leaves.close();
        long quiet = System.currentTimeMillis() + 2_000;
        pollFor(List.of(stays), () -> System.currentTimeMillis() > quiet);
        try (Consumer<String, String> back = new KafkaConsumer<>(two)) {
            back.subscribe(List.of(topic));
            pollFor(List.of(stays, back), () -> back.assignment().equals(kept));
            check(rebalances[0] == before, "the static member's return caused a rebalance");
            ok("static");
            // A second instance under the same name fences the first.
            try (Consumer<String, String> rival = new KafkaConsumer<>(two)) {
                rival.subscribe(List.of(topic));
                boolean[] fenced = {false};
                pollFor(List.of(stays, rival), () -> {
                    try {
                        back.poll(Duration.ofMillis(100));
                    } catch (org.apache.kafka.common.errors.FencedInstanceIdException expected) {
                        fenced[0] = true;
                    }
                    return fenced[0];
                });
            }
            ok("fenced");
        }
        stays.close();
        admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions(
            List.of(new MemberToRemove("one"), new MemberToRemove("two")))).all().get();
        ok("remove");
    }

    static void pollFor(List<Consumer<String, String>> members, BooleanSupplierX done) throws Exception {
        long limit = System.currentTimeMillis() + LIMIT_MS;
        while (!done.get()) {
            check(System.currentTimeMillis() < limit, "the group did not settle");
            for (Consumer<String, String> member : members) member.poll(Duration.ofMillis(100));
        }
    }

    static void administration(Admin admin) throws Exception {
        check(admin.describeCluster().nodes().get().size() == 1, "one node");
        check(admin.describeCluster().clusterId().get() != null, "a cluster id");
        check(admin.listTopics().names().get().contains(topic), "the topic is listed");
        ok("admin.cluster");

        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp compact = new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND);
        AlterConfigOp retain = new AlterConfigOp(new ConfigEntry("retention.ms", "86400000"), AlterConfigOp.OpType.SET);
        List<AlterConfigOp> changes = new ArrayList<>(List.of(retain, compact));
        Set<String> policies = Set.of("delete", "compact");
        if (System.getenv("KOP_TEST_HOST") != null) {
            // Inside Pulsar nothing can compact a topic and keep its offsets: that is refused, and changes nothing.
            try {
                admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
                throw new IllegalStateException("compaction was promised");
            } catch (ExecutionException refused) {
                check(refused.getCause() instanceof InvalidConfigurationException, refused);
            }
            changes.remove(compact);
            policies = Set.of("delete");
        }
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        long limit = System.currentTimeMillis() + LIMIT_MS;
        while (true) {
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            ConfigEntry retention = config.get("retention.ms");
            if (retention.value().equals("86400000")) {
                check(retention.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, retention);
                check(Set.of(config.get("cleanup.policy").value().split(",")).equals(policies), config.get("cleanup.policy"));
                check(config.get("segment.bytes").isDefault(), config.get("segment.bytes"));
                break;
            }
            check(System.currentTimeMillis() < limit, config);
            Thread.sleep(50);
        }
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("cleanup.policy", ""), AlterConfigOp.OpType.DELETE)))).all().get();
        ok("admin.configs");

        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(PARTITIONS + 2))).all().get();
        while (admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() != PARTITIONS + 2) {
            check(System.currentTimeMillis() < limit, "the added partitions are not shown");
            Thread.sleep(50);
        }
        ok("admin.partitions");

        String group = topic + "-group";
        check(admin.listGroups().all().get().stream().anyMatch(found -> found.groupId().equals(group)), "the group is listed");
        TopicPartition zero = new TopicPartition(topic, 0);
        admin.alterConsumerGroupOffsets(group, Map.of(zero, new OffsetAndMetadata(7, "by hand"))).all().get();
        OffsetAndMetadata set = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(zero);
        check(set.offset() == 7 && set.metadata().equals("by hand"), set);
        admin.deleteConsumerGroupOffsets(group, Set.of(zero)).all().get();
        check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(zero) == null, "the offset is gone");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        check(admin.listGroups().all().get().stream().noneMatch(found -> found.groupId().equals(group)), "the group is gone");
        ok("admin.groups");

        admin.deleteTopics(List.of(topic + "-headers")).all().get();
        while (admin.listTopics().names().get().contains(topic + "-headers")) {
            check(System.currentTimeMillis() < limit, "the deleted topic is still listed");
            Thread.sleep(50);
        }
        ok("admin.delete");
    }
}
