//! Members, deadlines and sweeps, through the engine.

use kafka_protocol::error::ResponseError;

use super::super::testing::{Fate, MemoryStore};
use super::{committing, groups, ms, offset};
use crate::coordinator::Groups;
use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::{commit, member, sync};

/// One member that joins, syncs and is stable.
pub(super) async fn stable(groups: &Groups, name: &str) -> (String, i32) {
    let joined = groups.join("g", member(name)).await;
    assert_eq!(joined.error, None);
    let id = joined.member_id;
    let synced = groups
        .sync("g", sync(&id, joined.generation, &[(&id, "mine")]))
        .await;
    assert_eq!((synced.error, &synced.assignment[..]), (None, &b"mine"[..]));
    (id, joined.generation)
}

fn beat(id: &str, generation: i32) -> Heartbeat {
    Heartbeat {
        member_id: id.into(),
        instance_id: None,
        generation,
    }
}

#[tokio::test(start_paused = true)]
async fn deadlines_take_effect_by_themselves() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    let (id, generation) = stable(&groups, "a").await;
    for _ in 0..5 {
        ms(9_000).await;
        assert_eq!(groups.heartbeat("g", beat(&id, generation)).await, Ok(()));
    }
    ms(9_990).await;
    assert_eq!(groups.describe("g").await.unwrap().unwrap().state, "Stable");
    ms(20).await;
    assert_eq!(groups.describe("g").await.unwrap().unwrap().state, "Empty");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_refused_is_tried_again_after_a_pause() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    stable(&groups, "a").await;
    let before = store.appends();
    store.plan([(Fate::Refused, 0), (Fate::Refused, 0)]);
    ms(10_010).await;
    assert_eq!(
        groups.describe("g").await.unwrap().unwrap().state,
        "Stable",
        "undone"
    );
    ms(60_000).await;
    assert_eq!(groups.describe("g").await.unwrap().unwrap().state, "Empty");
    assert_eq!(store.appends() - before, 3, "no storm of tries");
}

#[tokio::test(start_paused = true)]
async fn a_leaders_assignment_that_is_refused_can_be_handed_in_again_and_followers_stay_parked() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    let join = |name: &'static str| {
        let groups = groups.clone();
        tokio::spawn(async move { groups.join("g", member(name)).await })
    };
    let (a, b) = (join("a"), join("b"));
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    assert_eq!((a.generation, b.generation), (1, 1));
    let (leader, follower) = if a.leader == a.member_id {
        (a, b)
    } else {
        (b, a)
    };
    let waiting = {
        let (groups, id) = (groups.clone(), follower.member_id.clone());
        tokio::spawn(async move { groups.sync("g", sync(&id, 1, &[])).await })
    };
    ms(10).await;
    let assignment = [
        (follower.member_id.as_str(), "F"),
        (leader.member_id.as_str(), "L"),
    ];
    store.plan([(Fate::Refused, 10)]);
    let refused = groups
        .sync("g", sync(&leader.member_id, 1, &assignment))
        .await;
    assert_eq!(refused.error, Some(ResponseError::CoordinatorNotAvailable));
    assert!(
        !waiting.is_finished(),
        "it got no assignment that nobody else knows of"
    );
    assert_eq!(
        groups.describe("g").await.unwrap().unwrap().state,
        "CompletingRebalance"
    );
    let again = groups
        .sync("g", sync(&leader.member_id, 1, &assignment))
        .await;
    assert_eq!(&again.assignment[..], b"L");
    assert_eq!(&waiting.await.unwrap().assignment[..], b"F");
}

#[tokio::test(start_paused = true)]
async fn members_outlive_a_reload_with_fresh_sessions() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    let (id, generation) = stable(&groups, "a").await;
    ms(9_000).await;
    store.plan([(Fate::Lost, 0)]);
    let lost = groups.commit("g", commit(&id, generation, "t", 0, 1)).await;
    assert_eq!(lost, Err(ResponseError::CoordinatorNotAvailable));
    ms(200).await;
    assert_eq!(groups.heartbeat("g", beat(&id, generation)).await, Ok(()));
    ms(9_900).await;
    assert_eq!(groups.heartbeat("g", beat(&id, generation)).await, Ok(()));
    ms(10_010).await;
    let gone = groups.heartbeat("g", beat(&id, generation)).await;
    assert_eq!(
        gone,
        Err(ResponseError::UnknownMemberId),
        "deadlines run in the new life too"
    );
}

#[tokio::test(start_paused = true)]
async fn expired_offsets_go_by_themselves() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    ms(7 * 24 * 3_600_000 - 1_000_000).await;
    assert_eq!(offset(&groups, "g", 0).await, Ok(1));
    ms(2_000_000).await;
    assert_eq!(offset(&groups, "g", 0).await, Ok(-1));
    assert_eq!(groups.describe("g").await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_is_forgotten_by_all_groups_of_all_shards() {
    let store = MemoryStore::new(7);
    let groups = groups(&store);
    for n in 0..20 {
        committing(&groups, &format!("g{n}"), 0, 1)
            .await
            .await
            .unwrap()
            .unwrap();
    }
    let groups = self::groups(&store.restarted()); // nothing is loaded
    groups.topic_deleted("t", uuid::Uuid::nil()).await.unwrap();
    for n in 0..20 {
        assert_eq!(offset(&groups, &format!("g{n}"), 0).await, Ok(-1));
    }
}

#[tokio::test(start_paused = true)]
async fn groups_are_listed_from_all_shards_by_state_and_type() {
    let store = MemoryStore::new(7);
    let groups = groups(&store);
    stable(&groups, "a").await;
    for n in 0..5 {
        committing(&groups, &format!("s{n}"), 0, 1)
            .await
            .await
            .unwrap()
            .unwrap();
    }
    let count =
        async |states: &[&str], types: &[&str]| groups.list(states, types).await.unwrap().len();
    assert_eq!(count(&[], &[]).await, 6);
    assert_eq!(count(&["stable"], &[]).await, 1);
    assert_eq!(count(&["Empty", "Stable"], &["Classic"]).await, 6);
    assert_eq!(count(&["Dead"], &[]).await, 0);
    assert_eq!(count(&[], &["consumer"]).await, 0);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_appends_and_answers_who_is_parked() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    let parked = {
        let groups = groups.clone();
        tokio::spawn(async move { groups.join("other", member("a")).await })
    };
    tokio::task::yield_now().await;
    store.plan([(Fate::Kept, 100)]);
    let writing = committing(&groups, "g", 0, 2).await;
    groups.close().await;
    writing.await.unwrap().unwrap();
    assert_eq!(
        parked.await.unwrap().error,
        Some(ResponseError::CoordinatorNotAvailable)
    );
    let late = committing(&groups, "g", 0, 3).await.await.unwrap();
    assert_eq!(late, Err(ResponseError::CoordinatorNotAvailable));
}

#[tokio::test(start_paused = true)]
async fn group_ids_are_checked() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    let invalid = ResponseError::InvalidGroupId;
    assert_eq!(groups.join("", member("a")).await.error, Some(invalid));
    assert_eq!(
        groups.sync("", sync("a", 1, &[])).await.error,
        Some(invalid)
    );
    assert_eq!(groups.heartbeat("", beat("a", 1)).await, Err(invalid));
    assert_eq!(groups.leave("", vec![]).await, Err(invalid));
    assert!(
        groups.commit("", commit("", -1, "t", 0, 1)).await.is_ok(),
        "as clients of old do"
    );
    assert_eq!(offset(&groups, "", 0).await, Ok(1));
    let long = "x".repeat(40_000);
    assert_eq!(
        groups.commit(&long, commit("", -1, "t", 0, 1)).await,
        Err(invalid)
    );
}
