//! Committed offsets: what they outlive, their order, the topic that holds them.

use super::*;

#[tokio::test]
async fn commits_outlive_the_plugin_and_the_topic_comes_into_being_by_them() {
    let plugin = Plugin::start(&[("offsetsTopicNumPartitions", "7")]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    assert_eq!(offset(&mut client, "t", 0).await, (-1, 0));
    assert_eq!(offset(&mut client, "nowhere", 0).await, (-1, 0), "row 53");
    let metadata = client
        .call(12, &MetadataRequest::default().with_topics(None))
        .await;
    assert!(
        metadata.topics.iter().all(|t| !t.is_internal),
        "reading creates nothing"
    );

    for version in 2..=9 {
        assert_eq!(
            commit(
                &mut client,
                version,
                &[("t", 0, i64::from(version)), ("t", 1, 42)]
            )
            .await,
            [0, 0]
        );
        assert_eq!(offset(&mut client, "t", 0).await, (i64::from(version), 0));
    }
    let metadata = client
        .call(12, &MetadataRequest::default().with_topics(None))
        .await;
    let internal = metadata.topics.iter().find(|t| t.is_internal).unwrap();
    assert_eq!(
        internal.name.as_ref().unwrap().as_str(),
        "__consumer_offsets"
    );
    assert_eq!(internal.partitions.len(), 7);

    plugin.handler.close().await.unwrap();
    let plugin = Plugin::start_on(plugin.sim, &[("offsetsTopicNumPartitions", "50")]).await;
    let mut client = plugin.connect().await;
    assert_eq!(
        offset(&mut client, "t", 0).await,
        (9, 0),
        "row 52; and the topic's own number of partitions counts"
    );
    assert_eq!(offset(&mut client, "t", 1).await, (42, 0));
}

#[tokio::test]
async fn partitions_that_do_not_exist_are_refused_alone() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let codes = commit(
        &mut client,
        9,
        &[("t", 1, 1), ("nowhere", 0, 1), ("t", 0, 5), ("a b", 0, 1)],
    )
    .await;
    assert_eq!(codes, [3, 3, 0, 3]);
    assert_eq!(offset(&mut client, "t", 0).await, (5, 0));
}

#[tokio::test]
async fn pipelined_commits_take_effect_in_their_order() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    for n in 1..=200 {
        client.send(8, &commit_request(&[("t", 0, n)])).await;
    }
    for _ in 1..=200 {
        let (_, reply) = client.receive::<OffsetCommitRequest>(8).await;
        assert_eq!(reply.topics[0].partitions[0].error_code, 0);
    }
    assert_eq!(offset(&mut client, "t", 0).await, (200, 0));
}

#[tokio::test]
async fn many_groups_are_fetched_at_once_and_all_offsets_of_one() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    commit(&mut client, 9, &[("t", 1, 7)]).await;
    let wanted = OffsetFetchRequestTopics::default()
        .with_name(topic("t"))
        .with_partition_indexes(vec![0, 1]);
    let request = OffsetFetchRequest::default()
        .with_require_stable(true)
        .with_groups(vec![
            OffsetFetchRequestGroup::default()
                .with_group_id(group(GROUP))
                .with_topics(Some(vec![wanted.clone()])),
            OffsetFetchRequestGroup::default()
                .with_group_id(group("nobody"))
                .with_topics(Some(vec![wanted])),
            OffsetFetchRequestGroup::default()
                .with_group_id(group(GROUP))
                .with_topics(None),
        ]);
    let reply = client.call(9, &request).await;
    let offsets = |group: usize| -> Vec<(i32, i64)> {
        let topics = reply.groups[group].topics.iter();
        topics
            .flat_map(|t| {
                t.partitions
                    .iter()
                    .map(|p| (p.partition_index, p.committed_offset))
            })
            .collect()
    };
    assert_eq!(offsets(0), [(0, -1), (1, 7)]);
    assert_eq!(offsets(1), [(0, -1), (1, -1)]);
    assert_eq!(offsets(2), [(1, 7)]);
}

/// Row 58: tools read the topic itself.
#[tokio::test]
async fn the_offsets_topic_can_be_read_like_any_other() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    commit(&mut client, 9, &[("t", 0, 1234)]).await;
    let joined = join(&mut client).await;
    client
        .call(5, &sync_request(&joined, &[(&joined.member_id, "x")]))
        .await;

    let shard = i32::try_from(shard_index(GROUP, 50)).unwrap();
    let wanted = FetchPartition::default()
        .with_partition(shard)
        .with_partition_max_bytes(1 << 20);
    let request = FetchRequest::default()
        .with_max_wait_ms(0)
        .with_max_bytes(1 << 20)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(topic("__consumer_offsets"))
                .with_partitions(vec![wanted]),
        ]);
    let reply = client.call(12, &request).await;
    let fetched = &reply.responses[0].partitions[0];
    assert_eq!(fetched.error_code, 0);
    let mut records = Vec::new();
    for batch in Batches::new(fetched.records.clone().unwrap()) {
        let batch = batch.unwrap();
        for record in &batch.records(1 << 20).unwrap() {
            let record = record.unwrap();
            records.push(
                record::decode(record.key.unwrap(), record.value)
                    .unwrap()
                    .unwrap(),
            );
        }
    }
    let Record::Offset {
        group,
        topic,
        value,
        ..
    } = &records[0]
    else {
        panic!("{records:?}");
    };
    assert_eq!(
        (
            group.as_str(),
            topic.as_str(),
            value.as_ref().unwrap().offset
        ),
        (GROUP, "t", 1234)
    );
    assert!(
        !value.as_ref().unwrap().topic_id.is_nil(),
        "row 61: kept with the topic's id"
    );
    let Record::Group {
        value: Some(stable),
        ..
    } = records.last().unwrap()
    else {
        panic!("{records:?}");
    };
    assert_eq!((stable.generation, stable.members.len()), (1, 1));
}

#[tokio::test]
async fn a_topic_that_is_made_again_begins_without_offsets() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    create(&mut client, "u", 1).await;
    commit(&mut client, 9, &[("t", 0, 5), ("u", 0, 6)]).await;
    let request = DeleteTopicsRequest::default()
        .with_timeout_ms(10_000)
        .with_topics(vec![
            DeleteTopicState::default().with_name(Some(topic("t"))),
        ]);
    assert_eq!(client.call(6, &request).await.responses[0].error_code, 0);
    create(&mut client, "t", 1).await;
    assert_eq!(offset(&mut client, "t", 0).await, (-1, 0));
    assert_eq!(offset(&mut client, "u", 0).await, (6, 0));
}

#[tokio::test]
async fn a_full_disk_refuses_commits_and_reads_go_on() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    commit(&mut client, 9, &[("t", 0, 5)]).await;
    plugin.sim.set_disk_full(true);
    assert_eq!(
        commit(&mut client, 9, &[("t", 0, 6)]).await,
        [15],
        "COORDINATOR_NOT_AVAILABLE"
    );
    assert_eq!(offset(&mut client, "t", 0).await, (5, 0));
    plugin.sim.set_disk_full(false);
    assert_eq!(commit(&mut client, 9, &[("t", 0, 7)]).await, [0]);
    assert_eq!(offset(&mut client, "t", 0).await, (7, 0));
}

/// The partition of the offsets topic is unloaded, as when a broker gives it up and takes it again.
#[tokio::test]
async fn a_shard_that_is_unloaded_comes_back_with_everything() {
    let plugin = Plugin::start(&[]).await;
    let (mut client, mut waiting) = (plugin.connect().await, plugin.connect().await);
    create(&mut client, "t", 1).await;
    commit(&mut client, 9, &[("t", 0, 5)]).await;
    let joined = join(&mut client).await;
    client
        .call(5, &sync_request(&joined, &[(&joined.member_id, "x")]))
        .await;
    let given = waiting.call(9, &join_request("")).await;
    waiting.send(9, &join_request(&given.member_id)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;

    let shard = shard_index(GROUP, 50);
    let name = format!("persistent://public/__kafka/__consumer_offsets-partition-{shard}");
    assert!(plugin.sim.unload(&name));
    let (_, told) = waiting.receive::<JoinGroupRequest>(9).await;
    assert_eq!(told.error_code, 16, "NOT_COORDINATOR: look for it again");

    let mut tries = 0;
    while heartbeat(&mut client, &joined).await != 0 {
        tries += 1;
        assert!(tries < 100, "it does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(offset(&mut client, "t", 0).await, (5, 0));
    assert_eq!(state(&mut client).await, "Stable");
}

#[tokio::test]
async fn offsets_beyond_one_entry_are_committed_and_deleted_in_several() {
    const PARTITIONS: i32 = 60;
    // An entry holds half a KiB of records.
    let plugin = Plugin::start(&[("maxMessageSize", "1024")]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "wide", PARTITIONS).await;
    create(&mut client, "other", 1).await;
    let numbers: Vec<i32> = (0..PARTITIONS).collect();
    let mut commit = commit_request(&[("wide", 0, 0), ("other", 0, 7)]);
    commit.topics[0].partitions = numbers
        .iter()
        .map(|number| {
            OffsetCommitRequestPartition::default()
                .with_partition_index(*number)
                .with_committed_offset(i64::from(*number))
        })
        .collect();
    let reply = client.call(8, &commit).await;
    let told: Vec<(i32, i16)> = reply.topics[0]
        .partitions
        .iter()
        .map(|p| (p.partition_index, p.error_code))
        .collect();
    let all: Vec<(i32, i16)> = numbers.iter().map(|number| (*number, 0)).collect();
    assert_eq!(told, all);
    assert_eq!(reply.topics[1].partitions[0].error_code, 0);
    assert_eq!(offset(&mut client, "wide", 59).await, (59, 0));

    let topics = [("wide", PARTITIONS), ("other", 1)].map(|(name, count)| {
        let partition =
            |number| OffsetDeleteRequestPartition::default().with_partition_index(number);
        OffsetDeleteRequestTopic::default()
            .with_name(topic(name))
            .with_partitions((0..count).map(partition).collect())
    });
    let delete = OffsetDeleteRequest::default()
        .with_group_id(group(GROUP))
        .with_topics(topics.into());
    let reply = client.call(0, &delete).await;
    assert_eq!(reply.error_code, 0);
    let told: Vec<(i32, i16)> = reply.topics[0]
        .partitions
        .iter()
        .map(|p| (p.partition_index, p.error_code))
        .collect();
    assert_eq!(told, all);
    for number in [0, 1, 30, 59] {
        assert_eq!(
            offset(&mut client, "wide", number).await,
            (-1, 0),
            "{number}"
        );
    }
    assert_eq!(offset(&mut client, "other", 0).await, (-1, 0));
}
