//! Fetch: sizes, long polls, layouts, sessions, deletion.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::ForgottenTopic;
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteTopicsRequest, FetchRequest};
use kop_handler::wire::batch::{Compression, NewRecord};
use kop_tests::raw::Raw;
use uuid::Uuid;

use crate::kit::{
    FETCH, advertised, append, batch, batch_of, batches, create, describe, fetch, fetch_in,
    fetch_request, now_ms, start, topic_name, values,
};

/// A batch of about `size` bytes that does not compress.
fn sized(size: usize) -> Bytes {
    let value = vec![b's'; size];
    batch_of(
        Compression::None,
        &[NewRecord::new(now_ms(), None, Some(&value))],
    )
}

/// Row 39.
#[test]
fn replies_keep_to_the_limits_of_the_request_and_of_each_partition() {
    let (_broker, mut raw) = start();
    create(&mut raw, "limits", 4, &[]);
    for partition in 0..4 {
        for _ in 0..10 {
            append(&mut raw, "limits", partition, sized(10_000));
        }
    }
    let all: Vec<_> = (0..4).map(|partition| (partition, 0, 35_000)).collect();
    for version in [4, 7, 11, 12] {
        let reply = raw.call(
            version,
            &fetch_request(version, "limits", Uuid::nil(), &all),
        );
        let sizes: Vec<_> = reply.responses[0]
            .partitions
            .iter()
            .map(|p| p.records.as_ref().expect("never null").len())
            .collect();
        assert_eq!(sizes.len(), 4);
        assert!(
            sizes.iter().all(|size| (10_000..=35_000).contains(size)),
            "per partition: {sizes:?}"
        );
        let tight = fetch_request(version, "limits", Uuid::nil(), &all).with_max_bytes(50_000);
        let reply = raw.call(version, &tight);
        let total: usize = reply.responses[0]
            .partitions
            .iter()
            .map(|p| p.records.as_ref().expect("never null").len())
            .sum();
        assert!((10_000..=50_000).contains(&total), "in all: {total}");
    }
}

/// Row 40.
#[test]
fn a_first_batch_above_the_limits_is_delivered_all_the_same() {
    let (_broker, mut raw) = start();
    create(&mut raw, "large", 2, &[]);
    append(&mut raw, "large", 0, sized(100_000));
    append(&mut raw, "large", 1, sized(100_000));
    for version in [4, 11, 12] {
        let request = fetch_request(version, "large", Uuid::nil(), &[(0, 0, 1000), (1, 0, 1000)])
            .with_max_bytes(1000);
        let reply = raw.call(version, &request);
        let partitions = &reply.responses[0].partitions;
        let whole = partitions.iter().filter(|p| batches(p).len() == 1).count();
        assert_eq!(
            whole, 1,
            "one whole batch of the first partition that has any, version {version}"
        );
    }
}

/// Row 42.
#[test]
fn a_long_poll_wakes_when_records_arrive() {
    let (broker, mut raw) = start();
    create(&mut raw, "polled", 1, &[]);
    let mut reader = Raw::connect(broker.address());
    let request =
        fetch_request(FETCH, "polled", Uuid::nil(), &[(0, 0, 1 << 20)]).with_max_wait_ms(30_000);
    let correlation_id = reader.send(FETCH, &request);
    assert!(reader.is_silent_for(Duration::from_millis(700)), "it waits");
    let begun = Instant::now();
    append(&mut raw, "polled", 0, batch(&["woken"]));
    let reply = reader.receive::<FetchRequest>(FETCH, correlation_id);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "took {:?}",
        begun.elapsed()
    );
    assert_eq!(
        values(&reply.responses[0].partitions[0], 0),
        [(0, "woken".to_owned())]
    );
}

#[test]
fn a_long_poll_waits_for_as_many_bytes_as_were_asked_for() {
    let (broker, mut raw) = start();
    create(&mut raw, "enough", 1, &[]);
    let mut reader = Raw::connect(broker.address());
    let request = fetch_request(FETCH, "enough", Uuid::nil(), &[(0, 0, 1 << 20)])
        .with_max_wait_ms(30_000)
        .with_min_bytes(15_000);
    let correlation_id = reader.send(FETCH, &request);
    append(&mut raw, "enough", 0, sized(10_000));
    assert!(
        reader.is_silent_for(Duration::from_millis(500)),
        "10,000 bytes are not enough"
    );
    append(&mut raw, "enough", 0, sized(10_000));
    let reply = reader.receive::<FetchRequest>(FETCH, correlation_id);
    assert_eq!(batches(&reply.responses[0].partitions[0]).len(), 2);
}

#[test]
fn a_long_poll_ends_at_its_time_and_with_nothing() {
    let (_broker, mut raw) = start();
    create(&mut raw, "quiet", 1, &[]);
    let request =
        fetch_request(FETCH, "quiet", Uuid::nil(), &[(0, 0, 1 << 20)]).with_max_wait_ms(800);
    let begun = Instant::now();
    let reply = raw.call(FETCH, &request);
    let took = begun.elapsed();
    assert!((700..10_000).contains(&took.as_millis()), "took {took:?}");
    let data = &reply.responses[0].partitions[0];
    assert_eq!((data.error_code, data.high_watermark), (0, 0));
    assert_eq!(
        data.records.as_ref().map(Bytes::len),
        Some(0),
        "empty, never null"
    );
}

#[test]
fn an_error_ends_a_long_poll_at_once() {
    let (_broker, mut raw) = start();
    create(&mut raw, "short", 1, &[]);
    let begun = Instant::now();
    for (offset, partition, error) in [(1, 0, 1), (-1, 0, 1), (0, 7, 3)] {
        let request = fetch_request(FETCH, "short", Uuid::nil(), &[(partition, offset, 1 << 20)])
            .with_max_wait_ms(30_000);
        assert_eq!(
            raw.call(FETCH, &request).responses[0].partitions[0].error_code,
            error
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// Row 43.
#[test]
fn a_topic_that_was_made_again_has_another_id_and_no_old_offsets() {
    let (_broker, mut raw) = start();
    let old = create(&mut raw, "again", 1, &[]);
    for _ in 0..5 {
        append(&mut raw, "again", 0, batch(&["old"]));
    }
    let state = DeleteTopicState::default().with_name(Some(topic_name("again")));
    let request = DeleteTopicsRequest::default()
        .with_topics(vec![state])
        .with_timeout_ms(30_000);
    assert_eq!(raw.call(6, &request).responses[0].error_code, 0);
    kop_tests::process::eventually("the topic goes", Duration::from_secs(20), || {
        (describe(&mut raw, "again", false).error_code == 3).then_some(())
    });
    let new = create(&mut raw, "again", 1, &[]);
    assert_ne!(new, old);
    for version in 13..=18 {
        assert_eq!(
            fetch_in(&mut raw, version, "", old, 0, 3).error_code,
            100,
            "version {version}"
        );
        assert_eq!(
            fetch_in(&mut raw, version, "", new, 0, 3).error_code,
            1,
            "version {version}"
        );
    }
    assert_eq!(
        fetch_in(&mut raw, 12, "again", Uuid::nil(), 0, 3).error_code,
        1
    );
    assert_eq!(fetch(&mut raw, "again", 0, 0).high_watermark, 0);
}

/// Rows 44 and 46.
#[test]
fn every_version_of_fetch_gives_the_records_in_its_own_layout() {
    let (_broker, mut raw) = start();
    let id = create(&mut raw, "layouts", 1, &[]);
    for _ in 0..3 {
        append(&mut raw, "layouts", 0, batch(&["a", "b"]));
    }
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(0)
        .with_offset(2);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic_name("layouts"))
        .with_partitions(vec![partition]);
    raw.call(
        2,
        &DeleteRecordsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(10_000),
    );
    let (min, max) = advertised::<FetchRequest>(&mut raw).expect("Fetch is offered");
    assert_eq!((min, max), (4, 18));
    for version in min..=max {
        for isolation in [0, 1] {
            let request = fetch_request(version, "layouts", id, &[(0, 2, 1 << 20)])
                .with_isolation_level(isolation);
            let reply = raw.call(version, &request);
            let data = &reply.responses[0].partitions[0];
            assert_eq!(
                (
                    data.error_code,
                    data.high_watermark,
                    data.last_stable_offset
                ),
                (0, 6, 6),
                "version {version}"
            );
            if version >= 5 {
                assert_eq!(data.log_start_offset, 2, "version {version}");
            }
            let found = values(data, 2);
            assert_eq!(
                found.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(),
                [2, 3, 4, 5]
            );
            let aborted = data.aborted_transactions.as_deref().unwrap_or_default();
            assert!(aborted.is_empty(), "nothing was aborted");
            if isolation == 1 {
                assert!(data.aborted_transactions.is_some(), "version {version}");
            }
        }
    }
}

#[test]
fn a_fetch_from_inside_a_batch_gets_the_whole_batch() {
    let (_broker, mut raw) = start();
    create(&mut raw, "inside", 1, &[]);
    append(&mut raw, "inside", 0, batch(&["a", "b", "c"]));
    let data = fetch(&mut raw, "inside", 0, 2);
    assert_eq!(batches(&data)[0].header.base_offset, 0);
    assert_eq!(values(&data, 2), [(2, "c".to_owned())]);
}

/// KIP-227: a session answers with what changed, and forgets what it is told to.
#[test]
fn a_session_answers_only_with_partitions_that_changed() {
    let (_broker, mut raw) = start();
    create(&mut raw, "session", 3, &[]);
    let full = fetch_request(
        FETCH,
        "session",
        Uuid::nil(),
        &[(0, 0, 1 << 20), (1, 0, 1 << 20), (2, 0, 1 << 20)],
    )
    .with_session_epoch(0)
    .with_max_wait_ms(100);
    let reply = raw.call(FETCH, &full);
    let session = reply.session_id;
    assert_ne!(session, 0);
    assert_eq!(
        reply.responses[0].partitions.len(),
        3,
        "a full fetch answers for all"
    );
    let next = |epoch: i32| {
        FetchRequest::default()
            .with_replica_id((-1).into())
            .with_max_wait_ms(100)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_session_id(session)
            .with_session_epoch(epoch)
    };
    let reply = raw.call(FETCH, &next(1));
    assert_eq!((reply.error_code, reply.session_id), (0, session));
    assert!(reply.responses.is_empty(), "nothing changed");
    append(&mut raw, "session", 1, batch(&["news"]));
    let reply = raw.call(FETCH, &next(2));
    let partitions = &reply.responses[0].partitions;
    assert_eq!(
        partitions
            .iter()
            .map(|p| p.partition_index)
            .collect::<Vec<_>>(),
        [1]
    );
    let forgotten = ForgottenTopic::default()
        .with_topic(topic_name("session"))
        .with_partitions(vec![1]);
    let reply = raw.call(FETCH, &next(3).with_forgotten_topics_data(vec![forgotten]));
    assert!(
        reply.responses.is_empty(),
        "the partition with news was forgotten"
    );
    assert_eq!(
        raw.call(FETCH, &next(9)).error_code,
        71,
        "an epoch out of turn"
    );
    let unknown = next(1).with_session_id(session ^ 0x55);
    assert_eq!(
        raw.call(FETCH, &unknown).error_code,
        70,
        "a session that is not known"
    );
}
