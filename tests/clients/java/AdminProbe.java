import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Asks a broker by Kafka's own AdminClient for a long list of things, sensible and not, and prints one line for each
 * answer: "what was asked -> answer or error". Node ids, addresses and topic ids are replaced by words, so that the
 * answers of two brokers can be compared line by line. Needs a broker without topics.
 */
public class AdminProbe {
    private static Admin admin;
    private static int node;

    public static void main(String[] arguments) throws Exception {
        try (Admin made = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            admin = made;
            node = admin.describeCluster().nodes().get().iterator().next().id();
            names();
            counts();
            assignments();
            existing();
            values();
            alterations();
            otherResources();
            partitions();
            descriptions();
            movements();
            deletions();
        }
    }

    private static void ask(String what, Callable<Object> question) {
        String answer;
        try {
            answer = String.valueOf(question.call());
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            answer = cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
        answer = answer.replaceAll("\\b127\\.0\\.0\\.1:\\d+", "ADDRESS")
            .replaceAll("(\\(id: |broker |name=')" + node + "\\b", "$1NODE");
        System.out.println(what + " -> " + answer.replace("\n", " "));
    }

    private static String create(NewTopic topic, boolean validateOnly) throws Exception {
        var result = admin.createTopics(List.of(topic), new CreateTopicsOptions().validateOnly(validateOnly));
        result.all().get();
        return "partitions " + result.numPartitions(topic.name()).get() + ", replicas "
            + result.replicationFactor(topic.name()).get() + ", configs " + result.config(topic.name()).get().entries().size();
    }

    private static void names() {
        for (String name : List.of("a b", "..", ".", "ü", "ok_1", "ok.1", "x".repeat(249))) {
            ask("name " + (name.length() > 100 ? "of 249" : name), () -> create(new NewTopic(name, 1, (short) 1), true));
        }
        ask("name of 250", () -> create(new NewTopic("x".repeat(250), 1, (short) 1), true).getClass());
    }

    private static void counts() {
        ask("factor 0", () -> create(new NewTopic("p", 1, (short) 0), true));
        ask("factor -2", () -> create(new NewTopic("p", 1, (short) -2), true));
        ask("factor 2", () -> create(new NewTopic("p", 1, (short) 2), true));
        ask("nothing given", () -> create(new NewTopic("p", Optional.empty(), Optional.empty()), true));
        for (int count : new int[] {0, -2, -1, 20000}) {
            ask("partitions " + count, () -> create(new NewTopic("p", count, (short) 1), true));
        }
    }

    private static void assignments() {
        ask("assigned", () -> create(new NewTopic("p", Map.of(0, List.of(node), 1, List.of(node))), true));
        ask("assigned with a hole", () -> create(new NewTopic("p", Map.of(0, List.of(node), 2, List.of(node))), true));
        ask("assigned from 1", () -> create(new NewTopic("p", Map.of(1, List.of(node))), true));
        ask("assigned to nobody known", () -> create(new NewTopic("p", Map.of(0, List.of(99))), true));
        ask("assigned twice", () -> create(new NewTopic("p", Map.of(0, List.of(node, node))), true));
        ask("assigned to none", () -> create(new NewTopic("p", Map.of(0, List.of())), true));
        ask("no assignments", () -> create(new NewTopic("p", Map.of()), true));
    }

    private static void existing() {
        ask("create t", () -> create(new NewTopic("t", 2, (short) 1), false));
        ask("create t again", () -> create(new NewTopic("t", 1, (short) 1), false));
        ask("validate t again", () -> create(new NewTopic("t", 1, (short) 1), true));
        ask("create a.b", () -> create(new NewTopic("a.b", 1, (short) 1), false));
        ask("create a_b", () -> create(new NewTopic("a_b", 1, (short) 1), false));
        ask("validate a_b", () -> create(new NewTopic("a_b", 1, (short) 1), true));
        ask("create __consumer_offsets", () -> create(new NewTopic("__consumer_offsets", 1, (short) 1), true));
    }

    private static void values() {
        String[][] pairs = {
            {"foo", "1"}, {"retention.ms", "-2"}, {"retention.ms", "-1"}, {"retention.ms", "x"}, {"retention.ms", ""},
            {"retention.ms", null}, {"retention.ms", "9223372036854775808"}, {"retention.ms", " 5 "},
            {"retention.bytes", "-5"}, {"segment.bytes", "1024"}, {"segment.bytes", "99999999999"}, {"segment.ms", "0"},
            {"segment.jitter.ms", "-1"}, {"segment.index.bytes", "3"}, {"flush.messages", "0"}, {"flush.ms", "-1"},
            {"max.message.bytes", "-1"}, {"max.message.bytes", "1.5"}, {"index.interval.bytes", "-1"},
            {"delete.retention.ms", "-1"}, {"min.compaction.lag.ms", "-1"}, {"max.compaction.lag.ms", "0"},
            {"file.delete.delay.ms", "-1"}, {"min.cleanable.dirty.ratio", "2"}, {"min.cleanable.dirty.ratio", "-1"},
            {"min.cleanable.dirty.ratio", "x"}, {"min.cleanable.dirty.ratio", "1e-1"}, {"cleanup.policy", "foo"},
            {"cleanup.policy", ""}, {"cleanup.policy", "Compact"}, {"cleanup.policy", "compact, delete"},
            {"cleanup.policy", "delete,"}, {"unclean.leader.election.enable", "yes"},
            {"unclean.leader.election.enable", "TRUE"}, {"min.insync.replicas", "0"}, {"min.insync.replicas", "5"},
            {"compression.type", "foo"}, {"compression.type", "GZIP"}, {"compression.type", "uncompressed"},
            {"compression.gzip.level", "0"}, {"compression.gzip.level", "10"}, {"compression.gzip.level", "-1"},
            {"compression.lz4.level", "0"}, {"compression.lz4.level", "18"}, {"compression.zstd.level", "23"},
            {"compression.zstd.level", "-131073"}, {"preallocate", "1"}, {"message.timestamp.type", "foo"},
            {"message.timestamp.type", "LogAppendTime"}, {"message.timestamp.before.max.ms", "-1"},
            {"message.timestamp.after.max.ms", "-1"}, {"leader.replication.throttled.replicas", "x"},
            {"leader.replication.throttled.replicas", "*"}, {"leader.replication.throttled.replicas", "0:1,1:2"},
            {"follower.replication.throttled.replicas", "none"}, {"remote.storage.enable", "true"},
            {"remote.storage.enable", "x"}, {"local.retention.ms", "-3"}, {"local.retention.bytes", "-3"},
            {"remote.log.copy.disable", "true"}, {"remote.log.delete.on.disable", "true"},
            {"message.format.version", "3.0"}, {"message.downconversion.enable", "true"},
        };
        for (String[] pair : pairs) {
            Map<String, String> configs = Collections.singletonMap(pair[0], pair[1]);
            ask("create with " + pair[0] + "=" + pair[1],
                () -> create(new NewTopic("probe", 1, (short) 1).configs(configs), true));
        }
        Map<String, String> lags = Map.of("min.compaction.lag.ms", "10", "max.compaction.lag.ms", "5");
        ask("create with contradicting lags", () -> create(new NewTopic("probe", 1, (short) 1).configs(lags), true));
    }

    private static AlterConfigOp op(OpType type, String key, String value) {
        return new AlterConfigOp(new ConfigEntry(key, value), type);
    }

    private static void alter(ConfigResource.Type type, String name, boolean validateOnly, AlterConfigOp... operations) {
        String what = Arrays.stream(operations)
            .map(operation -> operation.opType() + " " + operation.configEntry().name() + "=" + operation.configEntry().value())
            .collect(Collectors.joining(", "));
        String who = name.equals(String.valueOf(node)) ? "NODE" : name;
        ask((validateOnly ? "validate " : "alter ") + type + " " + who + " " + what, () -> {
            var changes = Map.<ConfigResource, Collection<AlterConfigOp>>of(new ConfigResource(type, name), List.of(operations));
            admin.incrementalAlterConfigs(changes, new AlterConfigsOptions().validateOnly(validateOnly)).all().get();
            return "done";
        });
    }

    private static void alterations() {
        var topic = ConfigResource.Type.TOPIC;
        alter(topic, "nope", false, op(OpType.SET, "retention.ms", "5"));
        alter(topic, "a b", false, op(OpType.SET, "retention.ms", "5"));
        alter(topic, "", false, op(OpType.SET, "retention.ms", "5"));
        alter(topic, "t", false, op(OpType.SET, "foo", "5"));
        alter(topic, "t", false, op(OpType.DELETE, "foo", ""));
        alter(topic, "t", false, op(OpType.SET, "retention.ms", "x"));
        alter(topic, "t", false, op(OpType.SET, "retention.ms", null));
        alter(topic, "t", false, op(OpType.APPEND, "retention.ms", "5"));
        alter(topic, "t", false, op(OpType.APPEND, "foo", "x"));
        alter(topic, "t", false, op(OpType.APPEND, "cleanup.policy", null));
        alter(topic, "t", false, op(OpType.SET, "retention.ms", "7"), op(OpType.SET, "retention.ms", "8"));
        alter(topic, "t", false);
        alter(topic, "t", false, op(OpType.SET, "min.compaction.lag.ms", "10"), op(OpType.SET, "max.compaction.lag.ms", "5"));
        policies("at first");
        for (String[] step : new String[][] {{"APPEND", "compact"}, {"APPEND", "delete"}, {"SUBTRACT", "delete"},
            {"SUBTRACT", "nope"}, {"SUBTRACT", "compact"}, {"SET", "compact,delete"}, {"DELETE", ""}}) {
            alter(topic, "t", false, op(OpType.valueOf(step[0]), "cleanup.policy", step[1]));
            policies("after " + step[0] + " " + step[1]);
        }
        alter(topic, "t", true, op(OpType.SET, "cleanup.policy", "compact"));
        policies("after validation only");
        alter(topic, "t", false, op(OpType.SET, "segment.ms", " 77 "), op(OpType.SET, "preallocate", "TRUE"));
        own("t");
    }

    private static Map<String, ConfigEntry> describe(ConfigResource.Type type, String name) throws Exception {
        var resource = new ConfigResource(type, name);
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Map<String, ConfigEntry> found = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            found.put(entry.name(), entry);
        }
        return found;
    }

    private static void policies(String when) {
        ask("cleanup.policy " + when, () -> {
            ConfigEntry entry = describe(ConfigResource.Type.TOPIC, "t").get("cleanup.policy");
            return entry.value() + " " + entry.source();
        });
    }

    private static void own(String topic) {
        ask("configurations of " + topic + " itself", () -> describe(ConfigResource.Type.TOPIC, topic).values().stream()
            .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
            .map(entry -> entry.name() + "=" + entry.value())
            .toList());
    }

    private static void otherResources() {
        String self = String.valueOf(node);
        alter(ConfigResource.Type.BROKER, self, false, op(OpType.SET, "node.id", "5"));
        ask("describe topic nope", () -> describe(ConfigResource.Type.TOPIC, "nope"));
        ask("describe topic a b", () -> describe(ConfigResource.Type.TOPIC, "a b"));
        ask("describe topic without a name", () -> describe(ConfigResource.Type.TOPIC, ""));
        ask("describe group without a name", () -> describe(ConfigResource.Type.GROUP, ""));
        ask("describe client metrics without a name", () -> describe(ConfigResource.Type.CLIENT_METRICS, ""));
        ask("root logger is shown", () -> describe(ConfigResource.Type.BROKER_LOGGER, self).containsKey("root"));
        for (ConfigEntry entry : quiet(() -> describe(ConfigResource.Type.TOPIC, "a.b")).values()) {
            ask("topic configuration " + entry.name(), () -> {
                boolean documented = entry.documentation() != null && !entry.documentation().isEmpty();
                List<String> synonyms = new ArrayList<>();
                for (ConfigEntry.ConfigSynonym synonym : entry.synonyms()) {
                    synonyms.add(synonym.source() + ":" + synonym.name() + "=" + synonym.value());
                }
                return entry.type() + " " + entry.value() + " " + entry.source() + " " + synonyms + " documented " + documented
                    + " sensitive " + entry.isSensitive() + " read-only " + entry.isReadOnly();
            });
        }
        Map<String, ConfigEntry> broker = quiet(() -> describe(ConfigResource.Type.BROKER, self));
        for (String key : List.of("broker.id", "node.id")) {
            ask(key + " is the node's id", () -> broker.get(key).value().equals(self));
        }
        for (String key : List.of("auto.create.topics.enable", "default.replication.factor", "delete.topic.enable",
            "log.cleanup.policy", "log.retention.bytes", "log.segment.bytes", "num.partitions",
            "offset.metadata.max.bytes", "offsets.topic.num.partitions", "ssl.keystore.password")) {
            ask("broker configuration " + key, () -> {
                ConfigEntry entry = broker.get(key);
                return entry.type() + " " + entry.value() + " sensitive " + entry.isSensitive();
            });
        }
    }

    private static <T> T quiet(Callable<T> question) {
        try {
            return question.call();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void grow(String what, String topic, NewPartitions partitions) {
        ask(what, () -> {
            admin.createPartitions(Map.of(topic, partitions)).all().get();
            return "done";
        });
    }

    private static void partitions() {
        grow("grow nope", "nope", NewPartitions.increaseTo(3));
        grow("grow a b", "a b", NewPartitions.increaseTo(3));
        for (int count : new int[] {2, 1, 0, -1}) {
            grow("grow t to " + count, "t", NewPartitions.increaseTo(count));
        }
        grow("grow to an unknown broker", "t", NewPartitions.increaseTo(3, List.of(List.of(99))));
        grow("grow with too few assignments", "t", NewPartitions.increaseTo(4, List.of(List.of(node))));
        grow("grow with two replicas", "t", NewPartitions.increaseTo(3, List.of(List.of(node, 99))));
        grow("grow with no replica", "t", NewPartitions.increaseTo(3, List.of(List.of())));
        grow("grow with a replica twice", "t", NewPartitions.increaseTo(3, List.of(List.of(node, node))));
        grow("grow as assigned", "t", NewPartitions.increaseTo(3, List.of(List.of(node))));
    }

    private static void descriptions() {
        ask("cluster", () -> {
            var result = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return result.nodes().get() + " " + new java.util.TreeSet<>(result.authorizedOperations().get());
        });
        ask("cluster without operations", () -> admin.describeCluster().authorizedOperations().get());
        ask("topic t", () -> {
            var options = new DescribeTopicsOptions().includeAuthorizedOperations(true);
            var topic = admin.describeTopics(List.of("t"), options).allTopicNames().get().get("t");
            return topic.partitions() + " " + new java.util.TreeSet<>(topic.authorizedOperations());
        });
        ask("topic nope", () -> admin.describeTopics(List.of("nope")).allTopicNames().get());
        ask("topic a b", () -> admin.describeTopics(List.of("a b")).allTopicNames().get());
        ask("topic by unknown id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(1, 2)))).allTopicIds().get());
        ask("topic by its id", () -> {
            Uuid id = admin.describeTopics(List.of("t")).allTopicNames().get().get("t").topicId();
            return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name();
        });
        ask("names", () -> new java.util.TreeSet<>(admin.listTopics().names().get()));
        ask("log directories", () -> admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().stream()
            .map(directory -> new java.util.TreeSet<>(directory.replicaInfos().keySet().stream().map(Object::toString).toList())
                + " " + directory.totalBytes().isPresent() + " " + directory.error())
            .toList());
        ask("resources", () -> new java.util.TreeSet<>(admin.listConfigResources().all().get().stream().map(Object::toString).toList()));
    }

    private static void movements() {
        var t0 = new TopicPartition("t", 0);
        ask("elections", () -> new TreeMap<>(admin.electLeaders(ElectionType.PREFERRED,
            Set.of(t0, new TopicPartition("t", 77), new TopicPartition("nope", 0))).partitions().get().entrySet().stream()
            .collect(Collectors.toMap(entry -> entry.getKey().toString(), entry -> entry.getValue().map(Throwable::getMessage)))));
        ask("all elections", () -> admin.electLeaders(ElectionType.PREFERRED, null).partitions().get());
        ask("reassignments", () -> admin.listPartitionReassignments().reassignments().get());
        ask("reassign to where it is", () -> admin.alterPartitionReassignments(
            Map.of(t0, Optional.of(new NewPartitionReassignment(List.of(node))))).all().get());
        ask("cancel a reassignment", () -> admin.alterPartitionReassignments(Map.of(t0, Optional.empty())).all().get());
        ask("reassign to nobody known", () -> admin.alterPartitionReassignments(
            Map.of(t0, Optional.of(new NewPartitionReassignment(List.of(99))))).all().get());
        for (long offset : new long[] {0, -1, 5, -2}) {
            ask("delete records before " + offset, () -> admin.deleteRecords(Map.of(t0, RecordsToDelete.beforeOffset(offset)))
                .lowWatermarks().get(t0).get().lowWatermark());
        }
    }

    private static void delete(String what, TopicCollection topics) {
        ask(what, () -> {
            admin.deleteTopics(topics).all().get();
            return "done";
        });
    }

    private static void deletions() {
        delete("delete nope", TopicCollection.ofTopicNames(List.of("nope")));
        delete("delete a b", TopicCollection.ofTopicNames(List.of("a b")));
        delete("delete an unknown id", TopicCollection.ofTopicIds(List.of(new Uuid(1, 2))));
        delete("delete a.b", TopicCollection.ofTopicNames(List.of("a.b")));
        ask("delete t by its id", () -> {
            Uuid id = admin.describeTopics(List.of("t")).allTopicNames().get().get("t").topicId();
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            return "done";
        });
        ask("names in the end", () -> {
            Set<String> names = admin.listTopics().names().get();
            for (int tries = 0; tries < 100 && !names.isEmpty(); tries++) {
                Thread.sleep(100);
                names = admin.listTopics().names().get();
            }
            return names;
        });
    }
}
