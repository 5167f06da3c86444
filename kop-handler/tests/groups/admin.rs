//! Groups are listed and deleted, and so are offsets.

use super::*;

#[tokio::test]
async fn groups_are_listed_and_deleted_and_so_are_offsets() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, "t", 1).await;
    assert_eq!(
        client
            .call(5, &ListGroupsRequest::default())
            .await
            .groups
            .len(),
        0
    );
    commit(&mut client, 9, &[("t", 0, 5)]).await;
    for version in 0..=5 {
        let listed = client.call(version, &ListGroupsRequest::default()).await;
        assert_eq!(listed.groups[0].group_id.as_str(), GROUP);
        assert_eq!(
            &*listed.groups[0].group_state,
            if version >= 4 { "Empty" } else { "" }
        );
        assert_eq!(
            &*listed.groups[0].group_type,
            if version >= 5 { "classic" } else { "" }
        );
    }
    let stable = ListGroupsRequest::default().with_states_filter(vec![text("Stable")]);
    assert_eq!(client.call(5, &stable).await.groups.len(), 0);

    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let delete = OffsetDeleteRequest::default()
        .with_group_id(group(GROUP))
        .with_topics(
            ["t", "nowhere"]
                .map(|name| {
                    OffsetDeleteRequestTopic::default()
                        .with_name(topic(name))
                        .with_partitions(vec![partition.clone()])
                })
                .into(),
        );
    let reply = client.call(0, &delete).await;
    let codes: Vec<i16> = reply
        .topics
        .iter()
        .map(|t| t.partitions[0].error_code)
        .collect();
    assert_eq!((reply.error_code, codes), (0, vec![0, 3]));
    assert_eq!(offset(&mut client, "t", 0).await, (-1, 0));

    commit(&mut client, 9, &[("t", 0, 5)]).await;
    let joined = join(&mut client).await;
    let delete =
        DeleteGroupsRequest::default().with_groups_names(vec![group(GROUP), group("nobody")]);
    let codes = async |client: &mut Client| -> Vec<i16> {
        client
            .call(2, &delete)
            .await
            .results
            .iter()
            .map(|r| r.error_code)
            .collect()
    };
    assert_eq!(
        codes(&mut client).await,
        [68, 69],
        "NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND"
    );
    let leave = LeaveGroupRequest::default()
        .with_group_id(group(GROUP))
        .with_member_id(joined.member_id.clone());
    assert_eq!(client.call(2, &leave).await.error_code, 0);
    assert_eq!(state(&mut client).await, "Empty");
    assert_eq!(codes(&mut client).await, [0, 69]);
    assert_eq!(state(&mut client).await, "Dead");
    assert_eq!(offset(&mut client, "t", 0).await, (-1, 0));
}
