//! Metadata: what clients learn of brokers, topics and leaders.

use super::*;

#[tokio::test]
async fn metadata_in_every_version_names_the_broker_and_the_leaders() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let id = create(&mut client, new_topic("t", 2, 1)).await.topic_id;
    for version in 0..=13 {
        let mut request = MetadataRequest::default().with_topics(Some(vec![
            MetadataRequestTopic::default().with_name(Some(name("t"))),
        ]));
        if version >= 4 {
            request.allow_auto_topic_creation = false;
        }
        let reply = client.call(version, &request).await;
        let broker = reply.brokers.first().unwrap();
        assert_eq!(reply.brokers.len(), 1);
        assert_eq!(broker.host.as_str(), "127.0.0.1");
        assert_eq!(broker.port, i32::from(plugin.address.port()));
        assert!(broker.node_id.0 > 0);
        if version >= 1 {
            assert_eq!(reply.controller_id, broker.node_id);
        }
        if version >= 2 {
            assert_eq!(reply.cluster_id.as_deref(), Some("test"));
        }
        let topic = reply.topics.first().unwrap();
        assert_eq!(
            (topic.error_code, topic.partitions.len()),
            (0, 2),
            "v{version}"
        );
        assert!(!topic.is_internal);
        assert_eq!(topic.topic_id, if version >= 10 { id } else { Uuid::nil() });
        assert_eq!(topic.topic_authorized_operations, NOT_ASKED);
        assert_eq!(reply.cluster_authorized_operations, NOT_ASKED);
        for (index, partition) in (0..).zip(&topic.partitions) {
            assert_eq!(partition.partition_index, index);
            assert_eq!(
                (partition.error_code, partition.leader_id),
                (0, broker.node_id)
            );
            assert_eq!(partition.replica_nodes, [broker.node_id]);
            assert_eq!(partition.isr_nodes, [broker.node_id]);
            assert!(partition.offline_replicas.is_empty());
            assert_eq!(partition.leader_epoch, if version >= 7 { 0 } else { -1 });
        }
    }
}

#[tokio::test]
async fn authorized_operations_come_when_they_are_asked_for() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("t", 1, 1)).await;
    let request = asked(&["t"])
        .with_include_topic_authorized_operations(true)
        .with_include_cluster_authorized_operations(true);
    let reply = client.call(9, &request).await;
    assert_eq!(reply.cluster_authorized_operations, 8_096);
    assert_eq!(
        reply.topics.first().unwrap().topic_authorized_operations,
        3_576
    );
}

#[tokio::test]
async fn no_topics_and_all_topics_are_told_apart_by_version() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("a", 1, 1)).await;
    create(&mut client, new_topic("b", 1, 1)).await;
    let none = MetadataRequest::default().with_topics(Some(Vec::new()));
    assert_eq!(client.call(0, &none).await.topics.len(), 2);
    assert_eq!(client.call(1, &none).await.topics.len(), 0);
    assert_eq!(
        client
            .call(1, &MetadataRequest::default().with_topics(None))
            .await
            .topics
            .len(),
        2
    );
    // A topic named twice is answered once.
    assert_eq!(
        client.call(12, &asked(&["a", "a", "b"])).await.topics.len(),
        2
    );
}

#[tokio::test]
async fn a_topic_is_found_by_its_id_and_an_unknown_id_is_an_error_of_its_own() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let id = create(&mut client, new_topic("t", 1, 1)).await.topic_id;
    let request = |id| {
        let topic = MetadataRequestTopic::default()
            .with_topic_id(id)
            .with_name(None);
        MetadataRequest::default().with_topics(Some(vec![topic]))
    };
    // Java's AdminClient leaves the name empty, not null.
    for empty in [None, Some(name(""))] {
        let mut request = request(id);
        for topic in request.topics.iter_mut().flatten() {
            topic.name = empty.clone();
        }
        let topic = client.call(13, &request).await.topics.remove(0);
        assert_eq!(
            (topic.error_code, topic.name, topic.topic_id),
            (0, Some(name("t")), id)
        );
    }
    let topic = client.call(12, &request(id)).await.topics.remove(0);
    assert_eq!((topic.error_code, topic.name), (0, Some(name("t"))));
    let stranger = Uuid::from_u128(7);
    let topic = client.call(12, &request(stranger)).await.topics.remove(0);
    assert_eq!(
        (topic.error_code, topic.name, topic.topic_id),
        (100, None, stranger)
    );
}

#[tokio::test]
async fn a_name_is_answered_as_it_was_asked() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("t", 1, 1)).await;
    for form in ["t", "public/default/t", "persistent://public/default/t"] {
        let topic = metadata(&mut client, form).await;
        assert_eq!((topic.error_code, topic.name), (0, Some(name(form))));
    }
    assert_eq!(names(&mut client).await, ["t"]);
}

#[tokio::test]
async fn a_missing_topic_is_created_by_metadata_that_allows_it() {
    let plugin = Plugin::start(&[("defaultNumPartitions", "3")]).await;
    let mut client = plugin.connect().await;
    assert_eq!(
        metadata(&mut client, "t").await.error_code,
        UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(names(&mut client).await, Vec::<String>::new());
    let request = asked(&["t"]).with_allow_auto_topic_creation(true);
    let first = client.call(12, &request).await.topics.remove(0);
    // The error is one that clients retry at once, and the topic has no partitions yet.
    assert_eq!(
        (first.error_code, first.partitions.len()),
        (UNKNOWN_TOPIC_OR_PARTITION, 0)
    );
    let deadline = Instant::now() + PATIENCE;
    loop {
        let topic = client.call(12, &request).await.topics.remove(0);
        if topic.error_code == 0 {
            assert_eq!(topic.partitions.len(), 3);
            break;
        }
        assert!(Instant::now() < deadline, "it does not appear");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Versions before 4 always allow it.
    client
        .call(
            1,
            &MetadataRequest::default().with_topics(asked(&["u"]).topics),
        )
        .await;
    let deadline = Instant::now() + PATIENCE;
    while metadata(&mut client, "u").await.error_code != 0 {
        assert!(Instant::now() < deadline, "it does not appear");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn auto_creation_can_be_switched_off_and_never_makes_an_illegal_topic() {
    let plugin = Plugin::start(&[("allowAutoTopicCreation", "false")]).await;
    let mut client = plugin.connect().await;
    let request = asked(&["t", "a b"]).with_allow_auto_topic_creation(true);
    for _ in 0..3 {
        let reply = client.call(12, &request).await;
        let codes: Vec<i16> = reply.topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC]);
    }
    assert_eq!(names(&mut client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_partition_whose_leader_is_elsewhere_names_it() {
    let plugin = Plugin::start_on(SimHost::new(1), &[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("t", 2, 1)).await;
    plugin.sim.set_owner(
        "persistent://public/default/t-partition-1",
        Some(handler_api::Owner {
            local: false,
            broker: "other:8080".into(),
            protocol_data: "PLAINTEXT://localhost:9092".into(),
        }),
    );
    let topic = metadata(&mut client, "t").await;
    let own = node_id(&mut client).await;
    let leaders: Vec<i32> = topic
        .partitions
        .iter()
        .map(|partition| partition.leader_id.0)
        .collect();
    // KoP's number for localhost:9092.
    assert_eq!(leaders, [own, 1_490_328_723]);
}

#[tokio::test]
async fn ten_thousand_partitions_come_in_one_quick_answer() {
    let sim = SimHost::new(1);
    for index in 0..1_000 {
        sim.create_topic(&format!("persistent://public/default/t{index}"), 10);
    }
    let plugin = Plugin::start_on(sim, &[]).await;
    let mut client = plugin.connect().await;
    let all = MetadataRequest::default().with_topics(None);
    client.call(12, &all).await; // Gives ids to topics that have none, and fills the cache.
    let start = Instant::now();
    let reply = client.call(12, &all).await;
    let partitions: usize = reply
        .topics
        .iter()
        .map(|topic| topic.partitions.len())
        .sum();
    assert_eq!(partitions, 10_000);
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
}
