//! DeleteTopics and CreatePartitions.

use super::*;

#[tokio::test]
async fn topics_are_deleted_by_name_and_by_id() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("a", 1, 1)).await;
    let id = create(&mut client, new_topic("b", 1, 1)).await.topic_id;
    let by_name = DeleteTopicsRequest::default()
        .with_topic_names(vec![name("a"), name("nope")])
        .with_timeout_ms(9_000);
    let reply = client.call(5, &by_name).await;
    let codes: Vec<i16> = reply
        .responses
        .iter()
        .map(|response| response.error_code)
        .collect();
    assert_eq!(codes, [0, UNKNOWN_TOPIC_OR_PARTITION]);
    let by_id = |id| {
        let topic = DeleteTopicState::default()
            .with_name(None)
            .with_topic_id(id);
        DeleteTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(9_000)
    };
    let reply = client.call(6, &by_id(id)).await.responses.remove(0);
    assert_eq!(
        (reply.error_code, reply.name, reply.topic_id),
        (0, Some(name("b")), id)
    );
    let reply = client.call(6, &by_id(id)).await.responses.remove(0);
    assert_eq!((reply.error_code, reply.name), (100, None));
    assert_eq!(names(&mut client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_delete_request_that_makes_no_sense_deletes_nothing() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let id = create(&mut client, new_topic("a", 1, 1)).await.topic_id;
    let state = |topic: Option<&str>, id| {
        DeleteTopicState::default()
            .with_name(topic.map(name))
            .with_topic_id(id)
    };
    for (topics, codes) in [
        (vec![state(None, Uuid::nil())], vec![INVALID_REQUEST]),
        (vec![state(Some("a"), id)], vec![INVALID_REQUEST]),
        (
            vec![state(Some("a"), Uuid::nil()), state(Some("a"), Uuid::nil())],
            vec![INVALID_REQUEST],
        ),
        (
            vec![state(None, id), state(None, id)],
            vec![INVALID_REQUEST],
        ),
        (
            vec![state(Some("a b"), Uuid::nil())],
            vec![UNKNOWN_TOPIC_OR_PARTITION],
        ),
        (
            vec![state(Some("__consumer_offsets"), Uuid::nil())],
            vec![UNKNOWN_TOPIC_OR_PARTITION],
        ),
    ] {
        let request = DeleteTopicsRequest::default()
            .with_topics(topics)
            .with_timeout_ms(9_000);
        let reply = client.call(6, &request).await;
        let got: Vec<i16> = reply
            .responses
            .iter()
            .map(|response| response.error_code)
            .collect();
        assert_eq!(got, codes);
    }
    assert_eq!(names(&mut client).await, ["a"]);
}

#[tokio::test]
async fn the_offsets_topic_is_shown_as_internal_and_protected() {
    let sim = SimHost::new(1);
    sim.create_topic("persistent://public/__kafka/__consumer_offsets", 50);
    let plugin = Plugin::start_on(sim, &[]).await;
    let mut client = plugin.connect().await;
    let topic = metadata(&mut client, "__consumer_offsets").await;
    assert!(topic.is_internal);
    assert_eq!(topic.partitions.len(), 50);
    assert_eq!(names(&mut client).await, ["__consumer_offsets"]);
    let request = DeleteTopicsRequest::default().with_topic_names(vec![name("__consumer_offsets")]);
    assert_eq!(
        client
            .call(5, &request)
            .await
            .responses
            .remove(0)
            .error_code,
        INVALID_TOPIC
    );
    let grow = CreatePartitionsRequest::default()
        .with_timeout_ms(9_000)
        .with_topics(vec![
            CreatePartitionsTopic::default()
                .with_name(name("__consumer_offsets"))
                .with_count(60)
                .with_assignments(None),
        ]);
    assert_eq!(
        client.call(3, &grow).await.results.remove(0).error_code,
        INVALID_TOPIC
    );
    assert_eq!(
        create(&mut client, new_topic("__consumer_offsets", 1, 1))
            .await
            .error_code,
        TOPIC_EXISTS
    );
    assert_eq!(
        metadata(&mut client, "__consumer_offsets")
            .await
            .partitions
            .len(),
        50
    );
}

#[tokio::test]
async fn partitions_are_added_and_never_taken() {
    let sim = SimHost::new(1);
    sim.create_topic("persistent://public/default/bare", 0);
    let plugin = Plugin::start_on(sim, &[]).await;
    let mut client = plugin.connect().await;
    let own = node_id(&mut client).await;
    create(&mut client, new_topic("t", 2, 1)).await;
    let topic = |topic: &str, count, brokers: Option<Vec<Vec<i32>>>| {
        let assignments = brokers.map(|all| {
            let one = |ids: Vec<i32>| {
                CreatePartitionsAssignment::default()
                    .with_broker_ids(ids.into_iter().map(BrokerId).collect())
            };
            all.into_iter().map(one).collect()
        });
        CreatePartitionsTopic::default()
            .with_name(name(topic))
            .with_count(count)
            .with_assignments(assignments)
    };
    for (asked, code, message) in [
        (
            topic("nope", 3, None),
            UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (
            topic("t", 2, None),
            INVALID_PARTITIONS,
            "Topic already has 2 partition(s).",
        ),
        (
            topic("t", 1, None),
            INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            topic("t", -1, None),
            INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); -1 would not be an increase.",
        ),
        (
            topic("t", 20_000, None),
            POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (
            topic("t", 3, Some(vec![vec![99]])),
            INVALID_ASSIGNMENT,
            "The manual partition assignment includes broker 99",
        ),
        (
            topic("t", 4, Some(vec![vec![own]])),
            INVALID_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s)",
        ),
        (
            topic("t", 3, Some(vec![vec![]])),
            INVALID_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            topic("bare", 2, None),
            INVALID_PARTITIONS,
            "The topic bare is a non-partitioned Pulsar topic",
        ),
    ] {
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![asked])
            .with_timeout_ms(9_000);
        let result = client.call(3, &request).await.results.remove(0);
        let said = result.error_message.unwrap().to_string();
        assert_eq!(result.error_code, code, "{said}");
        assert!(said.starts_with(message), "{said}");
    }
    let grow = |validate| {
        CreatePartitionsRequest::default()
            .with_topics(vec![topic("t", 3, Some(vec![vec![own]]))])
            .with_timeout_ms(9_000)
            .with_validate_only(validate)
    };
    assert_eq!(
        client
            .call(3, &grow(true))
            .await
            .results
            .remove(0)
            .error_code,
        0
    );
    assert_eq!(metadata(&mut client, "t").await.partitions.len(), 2);
    assert_eq!(
        client
            .call(0, &grow(false))
            .await
            .results
            .remove(0)
            .error_code,
        0
    );
    assert_eq!(metadata(&mut client, "t").await.partitions.len(), 3);
}
