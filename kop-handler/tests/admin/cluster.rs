//! The cluster, its storage, and what administrators ask of partitions.

use super::*;

#[tokio::test]
async fn the_cluster_is_described_with_operations_only_when_asked() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    for version in 0..=2 {
        let reply = client
            .call(version, &DescribeClusterRequest::default())
            .await;
        assert_eq!((reply.error_code, reply.cluster_id.as_str()), (0, "test"));
        assert_eq!(reply.cluster_authorized_operations, NOT_ASKED);
        let broker = reply.brokers.first().unwrap();
        assert_eq!(
            (broker.broker_id, broker.port),
            (reply.controller_id, i32::from(plugin.address.port()))
        );
    }
    let request =
        DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
    assert_eq!(
        client.call(0, &request).await.cluster_authorized_operations,
        8_096
    );
    let controllers = DescribeClusterRequest::default().with_endpoint_type(2);
    assert_eq!(client.call(1, &controllers).await.error_code, 115);
}

#[tokio::test]
async fn log_dirs_have_the_bytes_of_every_partition_that_exists() {
    let plugin = Plugin::start(&[("entryFormat", "kafka")]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("t", 2, 1)).await;
    assert_eq!(
        produce(&mut client, "t", batch(1_000, &["some bytes"])).await,
        0
    );
    for version in 1..=4 {
        let reply = client
            .call(
                version,
                &DescribeLogDirsRequest::default().with_topics(None),
            )
            .await;
        assert_eq!((reply.error_code, reply.results.len()), (0, 1));
        let directory = reply.results.first().unwrap();
        let topic = directory.topics.first().unwrap();
        assert_eq!((topic.name.as_str(), topic.partitions.len()), ("t", 2));
        let sizes: Vec<i64> = topic
            .partitions
            .iter()
            .map(|partition| partition.partition_size)
            .collect();
        assert!(
            sizes.first().unwrap() > &60 && sizes.get(1) == Some(&0),
            "{sizes:?}"
        );
    }
    let one =
        kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic::default()
            .with_topic(name("t"))
            .with_partitions(vec![1, 5]);
    let reply = client
        .call(
            4,
            &DescribeLogDirsRequest::default().with_topics(Some(vec![one])),
        )
        .await;
    assert_eq!(
        reply
            .results
            .first()
            .unwrap()
            .topics
            .first()
            .unwrap()
            .partitions
            .len(),
        1
    );
}

#[tokio::test]
async fn partitions_are_described_in_pages() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("a", 3, 1)).await;
    create(&mut client, new_topic("b", 2, 1)).await;
    let mut pages = Vec::new();
    let mut cursor: Option<Cursor> = None;
    loop {
        let request = DescribeTopicPartitionsRequest::default()
            .with_response_partition_limit(2)
            .with_cursor(cursor);
        let reply = client.call(0, &request).await;
        let page: Vec<(String, Vec<i32>)> = reply
            .topics
            .iter()
            .map(|topic| {
                let indexes = topic
                    .partitions
                    .iter()
                    .map(|partition| partition.partition_index)
                    .collect();
                (topic.name.as_ref().unwrap().to_string(), indexes)
            })
            .collect();
        pages.push(page);
        let Some(next) = reply.next_cursor else { break };
        cursor = Some(
            Cursor::default()
                .with_topic_name(next.topic_name)
                .with_partition_index(next.partition_index),
        );
    }
    let page = |parts: &[(&str, &[i32])]| -> Vec<(String, Vec<i32>)> {
        parts
            .iter()
            .map(|(topic, indexes)| ((*topic).to_owned(), indexes.to_vec()))
            .collect()
    };
    assert_eq!(
        pages,
        [
            page(&[("a", &[0, 1])]),
            page(&[("a", &[2]), ("b", &[0])]),
            page(&[("b", &[1])])
        ]
    );
    let request = |topics: &[&str], cursor: Option<(&str, i32)>| {
        DescribeTopicPartitionsRequest::default()
            .with_topics(
                topics
                    .iter()
                    .map(|topic| TopicRequest::default().with_name(name(topic)))
                    .collect(),
            )
            .with_cursor(cursor.map(|(topic, index)| {
                Cursor::default()
                    .with_topic_name(name(topic))
                    .with_partition_index(index)
            }))
    };
    let reply = client.call(0, &request(&["b", "nope"], None)).await;
    let codes: Vec<i16> = reply.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, UNKNOWN_TOPIC_OR_PARTITION]);
    for bad in [
        request(&["b"], Some(("a", 0))),
        request(&["b"], Some(("b", -1))),
    ] {
        assert_eq!(
            client
                .call(0, &bad)
                .await
                .topics
                .first()
                .unwrap()
                .error_code,
            INVALID_REQUEST
        );
    }
}

#[tokio::test]
async fn configurable_resources_are_listed_by_kind() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let own = node_id(&mut client).await.to_string();
    create(&mut client, new_topic("t", 1, 1)).await;
    let list = |types: Vec<i8>| ListConfigResourcesRequest::default().with_resource_types(types);
    let shown = |reply: ListConfigResourcesResponse| -> Vec<(i8, String)> {
        reply
            .config_resources
            .iter()
            .map(|resource| (resource.resource_type, resource.resource_name.to_string()))
            .collect()
    };
    let all = shown(client.call(1, &list(Vec::new())).await);
    assert_eq!(
        all,
        [
            (BROKER_LOGGER, own.clone()),
            (BROKER, own),
            (TOPIC, "t".to_owned())
        ]
    );
    assert_eq!(
        shown(client.call(1, &list(vec![TOPIC])).await),
        [(TOPIC, "t".to_owned())]
    );
    assert_eq!(shown(client.call(0, &list(Vec::new())).await), []);
    assert_eq!(client.call(1, &list(vec![3])).await.error_code, 35);
}

#[tokio::test]
async fn records_are_deleted_up_to_any_offset() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("t", 1, 1)).await;
    for _ in 0..3 {
        assert_eq!(
            produce(&mut client, "t", batch(1_000, &["a", "b"])).await,
            0
        );
    }
    let request = |topic: &str, partition, offset| {
        DeleteRecordsRequest::default()
            .with_timeout_ms(9_000)
            .with_topics(vec![
                DeleteRecordsTopic::default()
                    .with_name(name(topic))
                    .with_partitions(vec![
                        DeleteRecordsPartition::default()
                            .with_partition_index(partition)
                            .with_offset(offset),
                    ]),
            ])
    };
    for (topic, partition, offset, low, code) in [
        ("t", 0, 3, 3, 0),
        ("t", 0, 1, 3, 0),
        ("t", 0, 7, -1, 1),
        ("t", 0, -2, -1, 1),
        ("t", 1, 0, -1, UNKNOWN_TOPIC_OR_PARTITION),
        ("nope", 0, 0, -1, UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, -1, 6, 0),
    ] {
        let reply = client.call(2, &request(topic, partition, offset)).await;
        let result = reply
            .topics
            .first()
            .unwrap()
            .partitions
            .first()
            .unwrap()
            .clone();
        assert_eq!(
            (result.low_watermark, result.error_code),
            (low, code),
            "{topic}-{partition} at {offset}"
        );
    }
}

#[tokio::test]
async fn elections_and_reassignments_change_nothing_and_say_so() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let own = BrokerId(node_id(&mut client).await);
    create(&mut client, new_topic("t", 1, 1)).await;
    let elect = ElectLeadersRequest::default().with_topic_partitions(Some(vec![
        elect_leaders_request::TopicPartitions::default()
            .with_topic(name("t"))
            .with_partitions(vec![0, 9]),
        elect_leaders_request::TopicPartitions::default()
            .with_topic(name("nope"))
            .with_partitions(vec![0]),
    ]));
    let reply = client.call(2, &elect).await;
    let codes: Vec<i16> = reply
        .replica_election_results
        .iter()
        .flat_map(|topic| {
            topic
                .partition_result
                .iter()
                .map(|partition| partition.error_code)
        })
        .collect();
    assert_eq!(
        codes,
        [84, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION]
    );
    let all = client
        .call(
            2,
            &ElectLeadersRequest::default().with_topic_partitions(None),
        )
        .await;
    assert!(all.replica_election_results.is_empty());
    let list = client
        .call(
            0,
            &ListPartitionReassignmentsRequest::default().with_topics(None),
        )
        .await;
    assert!(list.topics.is_empty());
    for (replicas, code) in [
        (Some(vec![own]), 0),
        (None, 85),
        (Some(vec![BrokerId(99)]), INVALID_ASSIGNMENT),
    ] {
        let partition = alter_partition_reassignments_request::ReassignablePartition::default()
            .with_replicas(replicas);
        let topic = alter_partition_reassignments_request::ReassignableTopic::default()
            .with_name(name("t"))
            .with_partitions(vec![partition]);
        let reply = client
            .call(
                1,
                &AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]),
            )
            .await;
        assert_eq!(
            reply
                .responses
                .first()
                .unwrap()
                .partitions
                .first()
                .unwrap()
                .error_code,
            code
        );
    }
}

#[tokio::test]
async fn a_topic_of_pulsar_is_served_like_any_other() {
    let sim = SimHost::new(1);
    let plugin = Plugin::start_on(sim.clone(), &[]).await;
    let mut client = plugin.connect().await;
    let made = Topic {
        name: "persistent://public/default/p".into(),
        partitions: 2,
        ..Topic::default()
    };
    sim.host().control::<CreateTopic>(&made).await.unwrap();
    let topic = metadata(&mut client, "p").await;
    assert_eq!((topic.error_code, topic.partitions.len()), (0, 2));
    assert_ne!(topic.topic_id, Uuid::nil());
    assert_eq!(metadata(&mut client, "p").await.topic_id, topic.topic_id);
    assert_eq!(produce(&mut client, "p", batch(1_000, &["x"])).await, 0);
}
