//! Producer ids, what is known of producers, repeats and gaps.

use super::*;

#[tokio::test]
async fn an_idempotent_producers_repeat_is_answered_with_its_first_offset_and_a_gap_is_refused() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let ids = client
        .call(
            4,
            &InitProducerIdRequest::default()
                .with_transactional_id(None)
                .with_transaction_timeout_ms(-1)
                .with_producer_id((-1).into())
                .with_producer_epoch(-1),
        )
        .await;
    assert_eq!((ids.error_code, ids.producer_epoch), (0, 0));
    let id = ids.producer_id.0;
    assert_eq!(
        produce(&mut client, "t", 0, producer_batch(id, 0, 0, &["a", "b"]))
            .await
            .base_offset,
        0
    );
    assert_eq!(
        produce(&mut client, "t", 0, producer_batch(id, 0, 2, &["c"]))
            .await
            .base_offset,
        2
    );
    let again = produce(&mut client, "t", 0, producer_batch(id, 0, 0, &["a", "b"])).await;
    assert_eq!((again.error_code, again.base_offset), (0, 0));
    assert_eq!(
        produce(&mut client, "t", 0, producer_batch(id, 0, 9, &["z"]))
            .await
            .error_code,
        45
    );
}

#[tokio::test]
async fn producers_of_a_partition_are_described() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    for (id, sequence) in [(9, 0), (4, 0), (9, 2)] {
        let done = produce(
            &mut client,
            "t",
            0,
            producer_batch(id, 3, sequence, &["a", "b"]),
        )
        .await;
        assert_eq!(done.error_code, 0);
    }
    let asked = TopicRequest::default()
        .with_name(name("t"))
        .with_partition_indexes(vec![0, 1]);
    let unknown = TopicRequest::default()
        .with_name(name("nope"))
        .with_partition_indexes(vec![0]);
    let request = DescribeProducersRequest::default().with_topics(vec![asked, unknown]);
    let reply = client.call(0, &request).await;
    let described = &reply.topics[0].partitions;
    let seen: Vec<(i64, i32, i32, i64, i64)> = described[0]
        .active_producers
        .iter()
        .map(|p| {
            (
                p.producer_id.0,
                p.producer_epoch,
                p.last_sequence,
                p.last_timestamp,
                p.current_txn_start_offset,
            )
        })
        .collect();
    assert_eq!(seen, [(4, 3, 1, 1_001, -1), (9, 3, 3, 1_001, -1)]);
    assert_eq!((described[0].error_code, described[1].error_code), (0, 3));
    assert_eq!(reply.topics[1].partitions[0].error_code, 3);
}

#[tokio::test]
async fn producer_ids_are_fresh_and_transactional_ones_are_refused_for_good() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let plain = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(-1)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let mut seen = std::collections::HashSet::new();
    for version in 0..=5 {
        let reply = client.call(version, &plain).await;
        assert_eq!((reply.error_code, reply.producer_epoch), (0, 0));
        assert!(seen.insert(reply.producer_id.0), "an id is given out once");
    }
    let transactional = |id: &str| {
        plain
            .clone()
            .with_transactional_id(Some(TransactionalId(StrBytes::from_string(id.to_owned()))))
    };
    let refused = client.call(4, &transactional("x")).await;
    assert_eq!(
        (
            refused.error_code,
            refused.producer_id.0,
            refused.producer_epoch
        ),
        (53, -1, -1)
    );
    assert_eq!(client.call(4, &transactional("")).await.error_code, 42);
    assert_eq!(
        client
            .call(4, &plain.clone().with_producer_id(5.into()))
            .await
            .error_code,
        42
    );
}
