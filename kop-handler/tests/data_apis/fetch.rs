//! Fetch: waiting, limits, errors, isolation, sessions.

use super::*;

#[tokio::test]
async fn a_fetch_waits_for_records_and_is_woken_by_an_append() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let started = std::time::Instant::now();
    let reply = client
        .call(12, &fetch_request("t", &[(0, 0)]).with_max_wait_ms(200))
        .await;
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(195), "waited {waited:?}");
    assert_eq!(
        partitions(&reply)
            .first()
            .unwrap()
            .records
            .as_ref()
            .map(Bytes::len),
        Some(0),
        "records are never null"
    );

    client
        .send(12, &fetch_request("t", &[(0, 0)]).with_max_wait_ms(30_000))
        .await;
    assert!(client.is_silent(Duration::from_millis(50)).await);
    let mut other = plugin.connect().await;
    let started = std::time::Instant::now();
    append(&mut other, "t", 0, batch(1, &["x"])).await;
    let (_, reply) = client.receive::<FetchRequest>(12).await;
    assert_eq!(
        batches(partitions(&reply).first().unwrap().records.as_ref()),
        [(0, 1)]
    );
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(plugin.metric("kop_server_WAITING_FETCHES_TRIGGERED"), 1.0);
}

#[tokio::test]
async fn a_fetch_waits_until_min_bytes_are_there() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let mut other = plugin.connect().await;
    client
        .send(
            12,
            &fetch_request("t", &[(0, 0)])
                .with_max_wait_ms(30_000)
                .with_min_bytes(200),
        )
        .await;
    append(&mut other, "t", 0, batch(1, &["x"])).await;
    assert!(
        client.is_silent(Duration::from_millis(100)).await,
        "one small batch is not enough"
    );
    for _ in 0..3 {
        append(&mut other, "t", 0, batch(1, &["x"])).await;
    }
    let (_, reply) = client.receive::<FetchRequest>(12).await;
    assert!(
        partitions(&reply)
            .first()
            .unwrap()
            .records
            .as_ref()
            .unwrap()
            .len()
            >= 200
    );
}

#[tokio::test]
async fn a_fetch_counts_the_bytes_that_it_waits_for_and_does_not_read_them_each_time() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    let mut other = plugin.connect().await;
    let reads = || plugin.metric("kop_server_MESSAGE_READ_count");
    let before = reads();
    let asked = fetch_request("t", &[(0, 0), (1, 0)])
        .with_max_wait_ms(30_000)
        .with_min_bytes(20_000);
    client.send(12, &asked).await;
    // 200 batches of a hundred and some bytes each, on both partitions by turns: more than pauses gather.
    let value = "x".repeat(60);
    let mut sent = 0;
    for turn in 0.. {
        let records = batch(1, &[&value]);
        sent += records.len();
        let answer = produce(&mut other, "t", turn % 2, records).await;
        assert_eq!(answer.error_code, 0);
        if sent >= 20_000 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let (_, reply) = client.receive::<FetchRequest>(12).await;
    let found: usize = partitions(&reply)
        .iter()
        .map(|partition| partition.records.as_ref().unwrap().len())
        .sum();
    assert_eq!(found, sent);
    let read = reads() - before;
    assert!(read <= 10.0, "{read} reads");
}

#[tokio::test]
async fn limits_of_a_fetch_hold_and_the_first_batch_comes_whatever_its_size() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    let long = "v".repeat(1_000);
    for partition in [0, 1] {
        for _ in 0..10 {
            append(&mut client, "t", partition, batch(1, &[&long])).await;
        }
    }
    let sizes = |reply: &FetchResponse| -> Vec<usize> {
        partitions(reply)
            .iter()
            .map(|p| batches(p.records.as_ref()).len())
            .collect()
    };
    let both = fetch_request("t", &[(0, 0), (1, 0)]);
    assert_eq!(
        sizes(&client.call(12, &both.clone().with_max_bytes(1)).await),
        [1, 0]
    );
    assert_eq!(
        sizes(&client.call(12, &both.clone().with_max_bytes(3_500)).await),
        [3, 0]
    );
    let mut per_partition = both.clone();
    for partition in per_partition
        .topics
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions)
    {
        partition.partition_max_bytes = 2_500;
    }
    assert_eq!(sizes(&client.call(12, &per_partition).await), [2, 2]);
    assert_eq!(sizes(&client.call(12, &both).await), [10, 10]);
}

#[tokio::test]
async fn errors_of_a_fetch_are_answered_at_once_and_per_partition() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    append(&mut client, "t", 0, batch(1, &["x"])).await;
    let codes = |reply: &FetchResponse| -> Vec<i16> {
        partitions(reply).iter().map(|p| p.error_code).collect()
    };
    let slow = |request: FetchRequest| request.with_max_wait_ms(30_000);
    assert_eq!(
        codes(
            &client
                .call(12, &slow(fetch_request("t", &[(0, 2), (1, 0)])))
                .await
        ),
        [1, 0]
    );
    assert_eq!(
        codes(&client.call(12, &slow(fetch_request("t", &[(0, -1)]))).await),
        [1]
    );
    assert_eq!(
        codes(&client.call(12, &slow(fetch_request("t", &[(5, 0)]))).await),
        [3]
    );
    assert_eq!(
        codes(
            &client
                .call(12, &slow(fetch_request("nope", &[(0, 0)])))
                .await
        ),
        [3]
    );
    let with_epoch = |epoch: i32| {
        let mut request = slow(fetch_request("t", &[(0, 0)]));
        for partition in request
            .topics
            .iter_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            partition.current_leader_epoch = epoch;
        }
        request
    };
    assert_eq!(codes(&client.call(12, &with_epoch(0)).await), [0]);
    assert_eq!(codes(&client.call(12, &with_epoch(1)).await), [75]);
    assert_eq!(
        codes(
            &client
                .call(
                    12,
                    &slow(fetch_request("t", &[(0, 0)]).with_replica_id(3.into()))
                )
                .await
        ),
        [6]
    );
}

#[tokio::test]
async fn committed_readers_get_an_aborted_list_and_others_null() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    append(&mut client, "t", 0, batch(1, &["x"])).await;
    let committed = client
        .call(12, &fetch_request("t", &[(0, 0)]).with_isolation_level(1))
        .await;
    let data = partitions(&committed)[0].clone();
    assert_eq!(
        (data.aborted_transactions, data.last_stable_offset),
        (Some(Vec::new()), 1)
    );
    assert_eq!(batches(data.records.as_ref()), [(0, 1)]);
    let uncommitted = client.call(12, &fetch_request("t", &[(0, 0)])).await;
    assert_eq!(partitions(&uncommitted)[0].aborted_transactions, None);
}

#[tokio::test]
async fn an_incremental_session_answers_only_what_is_new() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 3).await;
    let full = client
        .call(
            12,
            &fetch_request("t", &[(0, 0), (1, 0), (2, 0)]).with_session_epoch(0),
        )
        .await;
    let id = full.session_id;
    assert_ne!(id, 0);
    assert_eq!(partitions(&full).len(), 3);
    let next = |epoch: i32| {
        FetchRequest::default()
            .with_max_wait_ms(0)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_session_id(id)
            .with_session_epoch(epoch)
    };
    assert_eq!(partitions(&client.call(12, &next(1)).await).len(), 0);
    append(&mut client, "t", 1, batch(1, &["x"])).await;
    let reply = client.call(12, &next(2)).await;
    assert_eq!(
        partitions(&reply)
            .iter()
            .map(|p| p.partition_index)
            .collect::<Vec<_>>(),
        [1]
    );

    let forget = next(3).with_forgotten_topics_data(vec![
        ForgottenTopic::default()
            .with_topic(name("t"))
            .with_partitions(vec![1]),
    ]);
    assert_eq!(partitions(&client.call(12, &forget).await).len(), 0);
    assert_eq!(client.call(12, &next(3)).await.error_code, 71);
    assert_eq!(
        client
            .call(12, &next(4).with_session_id(id ^ 1))
            .await
            .error_code,
        70
    );
    let ended = client
        .call(
            12,
            &fetch_request("t", &[(0, 0)])
                .with_session_id(id)
                .with_session_epoch(-1),
        )
        .await;
    assert_eq!((ended.session_id, partitions(&ended).len()), (0, 1));
    assert_eq!(client.call(12, &next(4)).await.error_code, 70);
    assert_eq!(plugin.metric("kop_server_FETCH_SESSION_COUNT"), 0.0);
}
