//! Members: joining, syncing, leaving; coordinators and the versions of their APIs.

use super::*;

#[tokio::test]
async fn two_members_share_a_group_and_rebalance_when_one_leaves() {
    let plugin = Plugin::start(&[]).await;
    let (mut a, mut b) = (plugin.connect().await, plugin.connect().await);
    let first = join(&mut a).await;
    assert_eq!((first.generation_id, &first.leader), (1, &first.member_id));
    let synced = a
        .call(5, &sync_request(&first, &[(&first.member_id, "all")]))
        .await;
    assert_eq!(&synced.assignment[..], b"all");

    let given = b.call(9, &join_request("")).await;
    b.send(9, &join_request(&given.member_id)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(heartbeat(&mut a, &first).await, 27, "REBALANCE_IN_PROGRESS");
    let leader = a.call(9, &join_request(&first.member_id)).await;
    let (_, follower) = b.receive::<JoinGroupRequest>(9).await;
    assert_eq!((leader.generation_id, follower.generation_id), (2, 2));
    assert_eq!((leader.members.len(), follower.members.len()), (2, 0));

    // The follower's SyncGroup waits for the leader's: there is no timer to answer it with nothing.
    b.send(5, &sync_request(&follower, &[])).await;
    assert!(b.is_silent(Duration::from_millis(300)).await);
    let shares = [
        (&*leader.member_id, "left"),
        (&*follower.member_id, "right"),
    ];
    let synced = a.call(5, &sync_request(&leader, &shares)).await;
    assert_eq!(&synced.assignment[..], b"left");
    let (_, synced) = b.receive::<SyncGroupRequest>(5).await;
    assert_eq!(&synced.assignment[..], b"right");

    let describe = DescribeGroupsRequest::default().with_groups(vec![group(GROUP)]);
    let described = a.call(6, &describe).await;
    let described = &described.groups[0];
    assert_eq!(
        (&*described.group_state, &*described.protocol_data),
        ("Stable", "range")
    );
    assert_eq!(described.members.len(), 2);
    assert_eq!(
        (
            &*described.members[0].client_id,
            &*described.members[0].client_host
        ),
        ("raw", "/127.0.0.1")
    );

    let leave = LeaveGroupRequest::default()
        .with_group_id(group(GROUP))
        .with_members(vec![
            MemberIdentity::default()
                .with_member_id(follower.member_id.clone())
                .with_reason(Some(text("done"))),
        ]);
    assert_eq!(b.call(5, &leave).await.members[0].error_code, 0);
    assert_eq!(heartbeat(&mut a, &leader).await, 27);
    assert_eq!(heartbeat(&mut b, &follower).await, 25, "UNKNOWN_MEMBER_ID");
    let alone = a.call(9, &join_request(&leader.member_id)).await;
    assert_eq!((alone.generation_id, alone.members.len()), (3, 1));
}

#[tokio::test]
async fn coordinators_are_found_by_every_version() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let brokers = client
        .call(12, &MetadataRequest::default().with_topics(None))
        .await
        .brokers;
    let port = i32::from(plugin.address.port());
    for version in 0..=6 {
        let request = if version < 4 {
            FindCoordinatorRequest::default().with_key(text(GROUP))
        } else {
            FindCoordinatorRequest::default()
                .with_coordinator_keys(vec![text(GROUP), text("other")])
        };
        let reply = client.call(version, &request).await;
        if version < 4 {
            assert_eq!(
                (reply.error_code, reply.node_id, reply.port),
                (0, brokers[0].node_id, port)
            );
            continue;
        }
        let keys: Vec<&str> = reply.coordinators.iter().map(|c| &*c.key).collect();
        assert_eq!(keys, [GROUP, "other"]);
        assert!(
            reply
                .coordinators
                .iter()
                .all(|c| c.error_code == 0 && c.port == port)
        );
    }
}

#[tokio::test]
async fn coordinators_that_are_not_built_are_refused_for_good() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let asked = |kind: i8| {
        FindCoordinatorRequest::default()
            .with_key_type(kind)
            .with_coordinator_keys(vec![text("x")])
    };
    let transaction = client.call(6, &asked(1)).await.coordinators.remove(0);
    assert_eq!(
        transaction.error_code, 53,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients do not retry"
    );
    assert!(!transaction.error_message.unwrap().is_empty());
    for (version, kind) in [(6, 2), (6, 9), (5, 2)] {
        let refused = client
            .call(version, &asked(kind))
            .await
            .coordinators
            .remove(0);
        assert_eq!(refused.error_code, 42, "INVALID_REQUEST");
    }
}

#[tokio::test]
async fn a_sync_of_v5_must_name_the_protocol() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let joined = join(&mut client).await;
    let nameless = sync_request(&joined, &[]).with_protocol_name(None);
    assert_eq!(
        client.call(5, &nameless).await.error_code,
        23,
        "INCONSISTENT_GROUP_PROTOCOL"
    );
    let older = nameless.with_protocol_type(None);
    assert_eq!(client.call(4, &older).await.error_code, 0);
}

#[tokio::test]
async fn every_group_api_is_advertised_to_the_version_that_works() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let reply = client
        .call(
            3,
            &ApiVersionsRequest::default()
                .with_client_software_name(text("t"))
                .with_client_software_version(text("1")),
        )
        .await;
    let range = |key: i16| {
        let found = reply.api_keys.iter().find(|k| k.api_key == key).unwrap();
        (found.min_version, found.max_version)
    };
    let expected = [
        (8, (2, 9)),
        (9, (1, 9)),
        (10, (0, 6)),
        (11, (0, 9)),
        (12, (0, 4)),
        (13, (0, 5)),
        (14, (0, 5)),
        (15, (0, 6)),
        (16, (0, 5)),
        (42, (0, 2)),
        (47, (0, 0)),
    ];
    for (key, versions) in expected {
        assert_eq!(range(key), versions, "key {key}");
    }
}
