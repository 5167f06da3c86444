//! Produce: versions, names and ids, errors per partition, acknowledgements, order, a full disk, a move.

use super::*;

#[tokio::test]
async fn what_is_produced_is_fetched_with_its_offsets_in_every_version() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    let mut base = 0;
    for version in 3..=12 {
        let done = produce_as(&mut client, version, "t", 1, batch(1_000, &["a", "b", "c"])).await;
        assert_eq!(
            (done.error_code, done.base_offset),
            (0, base),
            "version {version}"
        );
        if version >= 5 {
            assert_eq!(done.log_start_offset, 0);
        }
        base += 3;
    }
    for version in 4..=12 {
        let reply = client.call(version, &fetch_request("t", &[(1, 3)])).await;
        let found = partitions(&reply);
        let data = found.first().unwrap();
        assert_eq!(
            (
                data.error_code,
                data.high_watermark,
                data.last_stable_offset
            ),
            (0, base, base)
        );
        let expected: Vec<(i64, i32)> = (1..10).map(|n| (n * 3, 3)).collect();
        assert_eq!(
            batches(data.records.as_ref()),
            expected,
            "version {version}"
        );
        if version >= 5 {
            assert_eq!(data.log_start_offset, 0);
        }
    }
    for (name, number) in [("MESSAGE_OUT", 9.0 * 27.0), ("ENTRIES_OUT", 9.0 * 9.0)] {
        let line = format!("kop_server_{name}{{cluster=\"test\",topic=\"t\",partition=\"1\"}}");
        assert_eq!(plugin.metric(&line), number, "{name}");
    }
    assert_eq!(
        plugin.metric("kop_server_MESSAGE_IN{cluster=\"test\",topic=\"t\",partition=\"1\"}"),
        30.0
    );
}

#[tokio::test]
async fn topics_are_named_by_id_from_version_13_on() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let id = topic_id(&mut client, "t").await;
    assert!(!id.is_nil());

    let by_id = |id: Uuid| {
        let mut request = produce_request(-1, "", &[(0, Some(batch(5, &["x"])))]);
        for topic in &mut request.topic_data {
            topic.topic_id = id;
        }
        request
    };
    let done = client.call(13, &by_id(id)).await;
    let response = done.responses.first().unwrap();
    assert_eq!(
        (
            response.topic_id,
            response.partition_responses.first().unwrap().error_code
        ),
        (id, 0)
    );
    let unknown = client.call(13, &by_id(Uuid::from_u128(7))).await;
    assert_eq!(
        unknown
            .responses
            .first()
            .unwrap()
            .partition_responses
            .first()
            .unwrap()
            .error_code,
        100
    );

    for version in 13..=18 {
        let fetch = |id: Uuid| {
            let mut request = fetch_request("", &[(0, 0)]);
            for topic in &mut request.topics {
                topic.topic_id = id;
            }
            request
        };
        let reply = client.call(version, &fetch(id)).await;
        assert_eq!(reply.responses.first().unwrap().topic_id, id);
        assert_eq!(
            batches(partitions(&reply).first().unwrap().records.as_ref()),
            [(0, 1)],
            "version {version}"
        );
        let reply = client.call(version, &fetch(Uuid::from_u128(7))).await;
        assert_eq!(
            (
                reply.error_code,
                partitions(&reply).first().unwrap().error_code
            ),
            (0, 100)
        );
    }
}

#[tokio::test]
async fn what_is_wrong_with_one_partition_does_not_touch_the_others() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 2).await;
    let good = || Some(batch(1, &["x"]));
    let request = produce_request(-1, "t", &[(0, good()), (7, good()), (1, None), (1, good())]);
    let reply = client.call(9, &request).await;
    let answers: Vec<(i32, i16, i64)> = reply
        .responses
        .first()
        .unwrap()
        .partition_responses
        .iter()
        .map(|p| (p.index, p.error_code, p.base_offset))
        .collect();
    assert_eq!(answers, [(0, 0, 0), (7, 3, -1), (1, 87, -1), (1, 0, 0)]);
    let unknown = produce(&mut client, "nope", 0, batch(1, &["x"])).await;
    assert_eq!(
        (
            unknown.error_code,
            unknown.base_offset,
            unknown.log_append_time_ms
        ),
        (3, -1, -1)
    );
    assert!(unknown.error_message.is_some());
}

#[tokio::test]
async fn bad_batches_are_refused_as_kafka_refuses_them_and_nothing_is_appended() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let good = batch(1, &["x", "y"]);
    let change = |at: usize, byte: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        Bytes::from(bytes)
    };
    let twice = Bytes::from([good.clone(), good.clone()].concat());
    for (what, bytes, code) in [
        ("a flipped byte", change(good.len() - 1, 0x55), 2),
        ("magic 1", change(16, 1), 87),
        ("two batches", twice, 87),
        (
            "a transactional batch",
            {
                let mut builder = BatchBuilder::new(1).producer(4, 0, 0).transactional();
                builder
                    .push(kop_handler::wire::batch::NewRecord::new(
                        1,
                        None,
                        Some(b"x"),
                    ))
                    .unwrap();
                builder.build().unwrap()
            },
            87,
        ),
    ] {
        let answer = produce(&mut client, "t", 0, bytes).await;
        assert_eq!(
            answer.error_code, code,
            "{what}: {:?}",
            answer.error_message
        );
    }
    let reply = client.call(12, &fetch_request("t", &[(0, 0)])).await;
    assert_eq!(partitions(&reply).first().unwrap().high_watermark, 0);
}

#[tokio::test]
async fn acks_decide_whether_there_is_a_reply() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    let silent = produce_request(0, "t", &[(0, Some(batch(1, &["x"])))]);
    client.send(9, &silent).await;
    // The next reply is that of the next request.
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["y"]))
            .await
            .base_offset,
        1
    );
    let wrong = client
        .call(9, &produce_request(2, "t", &[(0, Some(batch(1, &["x"])))]))
        .await;
    assert_eq!(
        wrong
            .responses
            .first()
            .unwrap()
            .partition_responses
            .first()
            .unwrap()
            .error_code,
        21
    );

    client
        .send(
            9,
            &produce_request(0, "nope", &[(0, Some(batch(1, &["x"])))]),
        )
        .await;
    client.expect_close().await;
}

#[tokio::test]
async fn batches_of_one_connection_keep_their_order_though_the_partition_opens_slowly() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    plugin.sim.set_faults(host_shim::sim::Faults::slow());
    let sim = plugin.sim.clone();
    let driver = tokio::spawn(async move {
        loop {
            sim.settle();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    for n in 0..50_i64 {
        client
            .send(9, &produce_request(-1, "t", &[(0, Some(batch(n, &["x"])))]))
            .await;
    }
    for n in 0..50_i64 {
        let (_, reply) = client.receive::<ProduceRequest>(9).await;
        let answer = reply
            .responses
            .first()
            .unwrap()
            .partition_responses
            .first()
            .unwrap()
            .clone();
        assert_eq!((answer.error_code, answer.base_offset), (0, n));
    }
    driver.abort();
}

#[tokio::test]
async fn a_full_disk_is_a_storage_error_and_reads_go_on() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    append(&mut client, "t", 0, batch(1, &["x"])).await;
    plugin.sim.set_disk_full(true);
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["y"]))
            .await
            .error_code,
        56
    );
    let reply = client.call(12, &fetch_request("t", &[(0, 0)])).await;
    assert_eq!(batches(partitions(&reply)[0].records.as_ref()), [(0, 1)]);
    plugin.sim.set_disk_full(false);
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["y"]))
            .await
            .base_offset,
        1
    );
}

#[tokio::test]
async fn a_partition_that_moved_away_and_back_is_opened_again() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    append(&mut client, "t", 0, batch(1, &["x"])).await;
    assert!(
        plugin
            .sim
            .unload("persistent://public/default/t-partition-0")
    );
    assert_eq!(
        produce(&mut client, "t", 0, batch(1, &["y"]))
            .await
            .base_offset,
        1
    );
    let reply = client.call(12, &fetch_request("t", &[(0, 0)])).await;
    assert_eq!(
        batches(partitions(&reply)[0].records.as_ref()),
        [(0, 1), (1, 1)]
    );
}
