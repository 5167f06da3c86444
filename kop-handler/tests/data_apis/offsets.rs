//! ListOffsets and OffsetForLeaderEpoch.

use super::*;

async fn list(client: &mut Client, version: i16, targets: &[(i32, i64)]) -> Vec<(i16, i64, i64)> {
    let asked = targets
        .iter()
        .map(|(partition, timestamp)| {
            ListOffsetsPartition::default()
                .with_partition_index(*partition)
                .with_timestamp(*timestamp)
        })
        .collect();
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![
            ListOffsetsTopic::default()
                .with_name(name("t"))
                .with_partitions(asked),
        ]);
    let reply = client.call(version, &request).await;
    reply.topics[0]
        .partitions
        .iter()
        .map(|p| (p.error_code, p.offset, p.timestamp))
        .collect()
}

#[tokio::test]
async fn offsets_are_found_by_time_to_the_record() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    for start in [100, 200] {
        append(&mut client, "t", 0, batch(start, &["a", "b", "c"])).await;
    }
    for version in 1..=10 {
        let mut at = async |target| list(&mut client, version, &[(0, target)]).await[0];
        assert_eq!(at(-1).await, (0, 6, -1));
        assert_eq!(at(-2).await, (0, 0, -1));
        assert_eq!(at(0).await, (0, 0, 100));
        assert_eq!(at(102).await, (0, 2, 102), "a record inside of a batch");
        assert_eq!(at(103).await, (0, 3, 200), "between two batches");
        assert_eq!(at(202).await, (0, 5, 202));
        assert_eq!(at(203).await, (0, -1, -1), "none is no error");
        assert_eq!(
            at(-3).await,
            if version >= 7 {
                (0, 5, 202)
            } else {
                (35, -1, -1)
            }
        );
        assert_eq!(
            at(-4).await,
            if version >= 8 {
                (0, 0, -1)
            } else {
                (35, -1, -1)
            }
        );
        assert_eq!(
            at(-5).await,
            if version >= 9 {
                (0, -1, -1)
            } else {
                (35, -1, -1)
            }
        );
        assert_eq!(at(-6).await, (35, -1, -1));
    }
    assert_eq!(
        list(&mut client, 7, &[(0, -1), (0, -2), (4, -1)]).await,
        [(42, -1, -1), (42, -1, -1), (3, -1, -1)]
    );
}

#[tokio::test]
async fn the_only_leader_epoch_ends_at_the_high_watermark() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    append(&mut client, "t", 0, batch(1, &["a", "b"])).await;
    for version in 2..=4 {
        let mut ask = async |topic: &str, current: i32, epoch: i32| {
            let partition = OffsetForLeaderPartition::default()
                .with_partition(0)
                .with_current_leader_epoch(current)
                .with_leader_epoch(epoch);
            let request = OffsetForLeaderEpochRequest::default().with_topics(vec![
                OffsetForLeaderTopic::default()
                    .with_topic(name(topic))
                    .with_partitions(vec![partition]),
            ]);
            let reply = client.call(version, &request).await;
            let end = &reply.topics[0].partitions[0];
            (end.error_code, end.leader_epoch, end.end_offset)
        };
        assert_eq!(ask("t", -1, 0).await, (0, 0, 2));
        assert_eq!(ask("t", 0, 1).await, (0, -1, -1));
        assert_eq!(ask("t", 5, 0).await, (75, -1, -1));
        assert_eq!(ask("nope", -1, 0).await, (3, -1, -1));
    }
}
