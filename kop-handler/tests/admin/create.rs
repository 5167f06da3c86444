//! CreateTopics.

use super::*;

#[tokio::test]
async fn a_created_topic_is_told_in_full_and_there_at_once() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let topic = with_configs(
        new_topic("t", 3, -1),
        &[
            ("retention.ms", Some(" 60000 ")),
            ("cleanup.policy", Some("compact, delete")),
        ],
    );
    let created = create(&mut client, topic).await;
    assert_eq!((created.error_code, created.error_message), (0, None));
    assert_eq!((created.num_partitions, created.replication_factor), (3, 1));
    let configs = created.configs.unwrap();
    assert_eq!(configs.len(), 33);
    let config = |key: &str| {
        configs
            .iter()
            .find(|config| config.name.as_str() == key)
            .unwrap()
    };
    let retention = config("retention.ms");
    assert_eq!(
        (retention.value.as_deref(), retention.config_source),
        (Some("60000"), 1)
    );
    assert_eq!(
        config("cleanup.policy").value.as_deref(),
        Some("compact,delete")
    );
    assert_eq!(
        (
            config("segment.ms").value.as_deref(),
            config("segment.ms").config_source
        ),
        (Some("604800000"), 5)
    );
    let seen = metadata(&mut client, "t").await;
    assert_eq!(
        (seen.error_code, seen.topic_id, seen.partitions.len()),
        (0, created.topic_id, 3)
    );
    assert_ne!(created.topic_id, Uuid::nil());
    // Older versions carry less.
    for (version, topic) in [(2, "v2"), (4, "v4"), (5, "v5"), (6, "v6")] {
        let request = CreateTopicsRequest::default()
            .with_topics(vec![new_topic(topic, 1, 1)])
            .with_timeout_ms(9_000);
        let reply = client.call(version, &request).await.topics.remove(0);
        assert_eq!(reply.error_code, 0, "v{version}");
        assert_eq!(reply.num_partitions, if version >= 5 { 1 } else { -1 });
    }
}

#[tokio::test]
async fn validate_only_validates_and_creates_nothing() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let good = create_all(&mut client, true, vec![new_topic("t", 2, 1)])
        .await
        .remove(0);
    assert_eq!((good.error_code, good.num_partitions), (0, 2));
    let bad = create_all(
        &mut client,
        true,
        vec![with_configs(new_topic("u", 1, 1), &[("foo", Some("1"))])],
    )
    .await;
    assert_eq!(bad.first().unwrap().error_code, INVALID_CONFIG);
    assert_eq!(names(&mut client).await, Vec::<String>::new());
    create(&mut client, new_topic("t", 1, 1)).await;
    let there = create_all(&mut client, true, vec![new_topic("t", 2, 1)])
        .await
        .remove(0);
    assert_eq!(there.error_code, TOPIC_EXISTS);
}

#[tokio::test]
async fn what_kafka_refuses_is_refused_with_its_code_and_nothing_is_created() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let own = BrokerId(node_id(&mut client).await);
    create(&mut client, new_topic("a.b", 1, 1)).await;
    let assigned = |partitions: &[(i32, &[BrokerId])]| {
        let assignments = partitions.iter().map(|(index, brokers)| {
            CreatableReplicaAssignment::default()
                .with_partition_index(*index)
                .with_broker_ids(brokers.to_vec())
        });
        new_topic("t", -1, -1).with_assignments(assignments.collect())
    };
    let stranger = BrokerId(99);
    let both = assigned(&[(0, &[own])]);
    for (topic, code, message) in [
        (
            new_topic("a b", 1, 1),
            INVALID_TOPIC,
            "Topic name is invalid: 'a b' contains",
        ),
        (
            new_topic("", 1, 1),
            INVALID_TOPIC,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            new_topic("t-partition-0", 1, 1),
            INVALID_TOPIC,
            "Topic name is invalid: 't-partition-0' ends like",
        ),
        (
            new_topic("a.b", 1, 1),
            TOPIC_EXISTS,
            "Topic 'a.b' already exists.",
        ),
        (
            new_topic("a_b", 1, 1),
            INVALID_TOPIC,
            "Topic 'a_b' collides with existing topic: a.b",
        ),
        (
            new_topic("__consumer_offsets", 1, 1),
            INVALID_TOPIC,
            "The topic '__consumer_offsets' is internal",
        ),
        (
            new_topic("t", 0, 1),
            INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            new_topic("t", -2, 1),
            INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            new_topic("t", 1, 0),
            INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1",
        ),
        (
            new_topic("t", 1, -2),
            INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1",
        ),
        (
            new_topic("t", 1, 2),
            INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s)",
        ),
        (
            new_topic("t", 10_001, 1),
            POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (
            with_configs(new_topic("t", 1, 1), &[("retention.ms", Some("x"))]),
            INVALID_CONFIG,
            "Invalid value x for configuration retention.ms",
        ),
        (
            with_configs(new_topic("t", 1, 1), &[("foo", Some("x"))]),
            INVALID_CONFIG,
            "Unknown topic config name: foo",
        ),
        (
            with_configs(new_topic("t", 1, 1), &[("retention.ms", None)]),
            INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            with_configs(
                new_topic("t", 1, 1),
                &[
                    ("min.compaction.lag.ms", Some("9")),
                    ("max.compaction.lag.ms", Some("5")),
                ],
            ),
            INVALID_CONFIG,
            "conflict topic config setting",
        ),
        (
            assigned(&[(0, &[own]), (2, &[own])]),
            INVALID_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            assigned(&[(1, &[own])]),
            INVALID_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            assigned(&[(0, &[own]), (0, &[own])]),
            INVALID_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            assigned(&[(0, &[stranger])]),
            INVALID_ASSIGNMENT,
            "The manual partition assignment includes broker 99",
        ),
        (
            assigned(&[(0, &[own, own])]),
            INVALID_ASSIGNMENT,
            "The manual partition assignment includes the broker",
        ),
        (
            assigned(&[(0, &[])]),
            INVALID_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            both.clone().with_num_partitions(1),
            INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions",
        ),
        (
            both.clone().with_replication_factor(1),
            INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor",
        ),
    ] {
        let result = create(&mut client, topic).await;
        let said = result.error_message.unwrap().to_string();
        assert_eq!(result.error_code, code, "{said}");
        assert!(said.starts_with(message), "{said}");
        assert_eq!(
            (
                result.num_partitions,
                result.replication_factor,
                result.topic_id
            ),
            (-1, -1, Uuid::nil())
        );
    }
    assert_eq!(names(&mut client).await, ["a.b"]);
    assert_eq!(
        create(&mut client, assigned(&[(1, &[own]), (0, &[own])]))
            .await
            .num_partitions,
        2
    );
}

#[tokio::test]
async fn one_request_can_succeed_in_part_and_a_name_given_twice_is_refused_once() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let topics = vec![
        new_topic("a", 1, 1),
        new_topic("b", 0, 1),
        new_topic("c", 1, 1),
        new_topic("c", 2, 1),
        new_topic("d.e", 1, 1),
        new_topic("d_e", 1, 1),
    ];
    let results = create_all(&mut client, false, topics).await;
    let codes: Vec<(String, i16)> = results
        .iter()
        .map(|result| (result.name.to_string(), result.error_code))
        .collect();
    let expected = [
        ("a", 0),
        ("b", INVALID_PARTITIONS),
        ("c", INVALID_REQUEST),
        ("d.e", 0),
        ("d_e", INVALID_TOPIC),
    ];
    assert_eq!(codes, expected.map(|(name, code)| (name.to_owned(), code)));
    assert_eq!(names(&mut client).await, ["a", "d.e"]);
}
