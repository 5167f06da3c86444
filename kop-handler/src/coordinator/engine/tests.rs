//! The engine: loading, sharing appends, waiting for durability, undoing, reloading, deadlines.

mod bounds;
mod members;
mod refresh;

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::store::StoreFault;
use super::testing::{Fate, MemoryStore, PausedClock};
use super::{Engine, EngineLimits, shard_index};
use crate::config::{Config, Limits};
use crate::coordinator::Groups;
use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::{commit, member, partitions};

pub(super) fn limits() -> EngineLimits {
    let config = Config::parse(
        &[(
            "kafkaListeners".to_owned(),
            "PLAINTEXT://127.0.0.1:0".to_owned(),
        )]
        .into(),
    );
    EngineLimits::new(&Limits::new(&config.unwrap()), 5_000)
}

fn groups_with(store: &Arc<MemoryStore>, limits: EngineLimits) -> Groups {
    groups_under(store, GroupSettings::default(), limits)
}

fn groups_under(store: &Arc<MemoryStore>, settings: GroupSettings, limits: EngineLimits) -> Groups {
    let clock = PausedClock::new(1);
    let store = Arc::clone(store);
    let engine = Engine::new(clock, store, settings, limits, Handle::current());
    Groups::new(engine)
}

fn groups(store: &Arc<MemoryStore>) -> Groups {
    groups_with(store, limits())
}

/// A commit in its own task; it is handed over before this returns.
async fn committing(
    groups: &Groups,
    group: &str,
    partition: i32,
    offset: i64,
) -> JoinHandle<Result<Vec<TopicOutcome>, ResponseError>> {
    let (groups, group) = (groups.clone(), group.to_owned());
    let task = tokio::spawn(async move {
        groups
            .commit(&group, commit("", -1, "t", partition, offset))
            .await
    });
    tokio::task::yield_now().await;
    task
}

async fn offset(groups: &Groups, group: &str, partition: i32) -> Result<i64, ResponseError> {
    let topics = Some(vec![partitions("t", &[partition])]);
    let topics = groups.fetch(group, FetchOffsets { topics }).await?;
    Ok(topics[0].partitions[0].offset)
}

async fn ms(ms: u64) {
    sleep(Duration::from_millis(ms)).await;
}

#[test]
fn shards_are_those_of_javas_hash_with_a_modulo_that_has_no_sign() {
    // "hello".hashCode() = 99162322, "polygenelubricants".hashCode() = Integer.MIN_VALUE.
    assert_eq!(shard_index("hello", 50), 22);
    assert_eq!(shard_index("polygenelubricants", 50), 2);
    assert_eq!(shard_index("", 50), 0);
    assert_eq!(shard_index("😀", 50), 49); // two UTF-16 units: hash 1772899
    for count in 1..100 {
        assert!(shard_index("polygenelubricants", count) < u32::try_from(count).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn reading_creates_nothing_and_writing_creates_the_topic() {
    let store = MemoryStore::new(5);
    let groups = groups(&store);
    assert_eq!(offset(&groups, "g", 0).await, Ok(-1));
    assert_eq!(groups.describe("g").await, Ok(None));
    assert_eq!(groups.list(&[], &[]).await, Ok(vec![]));
    assert_eq!(
        groups.delete("g").await,
        Err(ResponseError::GroupIdNotFound)
    );
    assert_eq!(store.opened(), 1, "DeleteGroups looks into the shard");
    assert!(store.exists());
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    assert_eq!(store.records(shard_index("g", 5)).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_loaded_when_it_is_asked_for_and_only_once() {
    let store = MemoryStore::new(5);
    let groups = groups(&store);
    let many: Vec<_> = (0..20).map(|n| committing(&groups, "g", n, 1)).collect();
    for task in many {
        task.await.await.unwrap().unwrap();
    }
    assert_eq!(store.opened(), 1);
    assert_eq!(groups.census().loaded, 1);
    assert_eq!(groups.census().held.offsets, 20);
}

#[tokio::test(start_paused = true)]
async fn decisions_made_while_an_append_is_under_way_share_the_next_entry() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    store.plan([(Fate::Kept, 100)]);
    let first = committing(&groups, "g", 0, 2).await;
    let mut others = Vec::new();
    for n in 1..50 {
        others.push(committing(&groups, &format!("g{n}"), 0, n).await);
    }
    ms(99).await;
    assert!(!first.is_finished(), "no answer before it is durable");
    ms(2).await;
    first.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_eq!(store.entries(0), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_durable_is_not_shown() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    store.plan([(Fate::Kept, 100)]);
    let writing = committing(&groups, "g", 0, 2).await;
    let other = groups.clone();
    let reading = tokio::spawn(async move { offset(&other, "g", 0).await });
    ms(50).await;
    assert!(
        !reading.is_finished(),
        "it would show an offset that may yet be refused"
    );
    assert_eq!(
        offset(&groups, "quiet", 0).await,
        Ok(-1),
        "another group does not wait"
    );
    writing.await.unwrap().unwrap();
    assert_eq!(reading.await.unwrap(), Ok(2));

    store.plan([(Fate::Refused, 100)]);
    let writing = committing(&groups, "g", 0, 3).await;
    let other = groups.clone();
    let reading = tokio::spawn(async move { offset(&other, "g", 0).await });
    assert_eq!(
        writing.await.unwrap(),
        Err(ResponseError::CoordinatorNotAvailable)
    );
    assert_eq!(
        reading.await.unwrap(),
        Err(ResponseError::CoordinatorNotAvailable)
    );
    assert_eq!(offset(&groups, "g", 0).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_and_the_shard_lives_on() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    store.plan([(Fate::Refused, 10), (Fate::Refused, 0)]);
    let refused = committing(&groups, "g", 0, 2).await;
    let behind = committing(&groups, "h", 0, 2).await;
    assert_eq!(
        refused.await.unwrap(),
        Err(ResponseError::CoordinatorNotAvailable)
    );
    assert_eq!(
        behind.await.unwrap(),
        Err(ResponseError::CoordinatorNotAvailable)
    );
    let refused = committing(&groups, "g", 0, 2).await;
    assert_eq!(
        refused.await.unwrap(),
        Err(ResponseError::CoordinatorNotAvailable)
    );
    assert_eq!(offset(&groups, "g", 0).await, Ok(1), "reads go on");
    assert_eq!(
        groups.describe("h").await,
        Ok(None),
        "a group that came into being by it is gone"
    );
    committing(&groups, "g", 0, 4).await.await.unwrap().unwrap();
    assert_eq!(
        offset(&groups, "g", 0).await,
        Ok(4),
        "and writes resume when there is room"
    );
    assert_eq!(store.opened(), 1, "nothing was loaded again");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_reloads_and_whatever_is_in_the_log_counts() {
    for (fate, expected) in [(Fate::Lost, 1), (Fate::KeptUnheard, 2)] {
        let store = MemoryStore::new(1);
        let groups = groups(&store);
        committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
        store.plan([(fate, 10)]);
        let unknown = committing(&groups, "g", 0, 2).await;
        assert_eq!(
            unknown.await.unwrap(),
            Err(ResponseError::CoordinatorNotAvailable)
        );
        assert_eq!(
            offset(&groups, "g", 0).await,
            Err(ResponseError::CoordinatorNotAvailable),
            "a pause"
        );
        ms(100).await;
        assert_eq!(offset(&groups, "g", 0).await, Ok(expected));
        assert_eq!(store.opened(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_moved_sends_its_clients_elsewhere() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    let waiting = {
        let groups = groups.clone();
        tokio::spawn(async move { groups.join("g", member("a")).await })
    };
    ms(10).await;
    groups.lose(0);
    ms(1).await;
    assert!(!waiting.is_finished(), "the news is of an earlier opening");
    store.restarted();
    groups.lose(0);
    assert_eq!(
        waiting.await.unwrap().error,
        Some(ResponseError::NotCoordinator)
    );
    let refused = committing(&groups, "g", 0, 2).await.await.unwrap();
    assert_eq!(refused, Err(ResponseError::NotCoordinator));
    store.plan([(Fate::Closed, 0)]);
    ms(100).await;
    let refused = committing(&groups, "g", 0, 2).await.await.unwrap();
    assert_eq!(
        refused,
        Err(ResponseError::NotCoordinator),
        "learned from the append"
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_may_tell_from_within_an_append_that_the_log_was_closed() {
    for (fate, delay_ms) in [
        (Fate::Closed, 0),
        (Fate::Closed, 10),
        (Fate::Lost, 0),
        (Fate::KeptUnheard, 10),
        (Fate::Kept, 0),
    ] {
        let store = MemoryStore::new(1);
        let groups = groups(&store);
        committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
        let (told, returned) = std::sync::mpsc::channel();
        let news = groups.clone();
        store.witness_by(Box::new(move |shard| {
            // On a thread of its own, so that a lock that never comes fails the test instead of hanging it.
            let (news, done) = (news.clone(), told.clone());
            let (first, begun) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                news.lose(shard);
                let _ = first.send(());
            });
            let in_time = begun.recv_timeout(Duration::from_secs(5)).is_ok();
            done.send(in_time).unwrap();
        }));
        store.plan([(fate, delay_ms)]);
        let outcome = committing(&groups, "g", 0, 2).await.await.unwrap();
        assert_eq!(outcome.is_ok(), fate == Fate::Kept, "{fate:?}");
        assert_eq!(returned.try_recv(), Ok(true), "{fate:?}: it waits for us");
        ms(1_000).await;
        let held = match fate {
            Fate::Kept | Fate::KeptUnheard => 2,
            _ => 1,
        };
        assert_eq!(offset(&groups, "g", 0).await, Ok(held), "{fate:?}");
        let opened = if fate == Fate::Kept { 1 } else { 2 };
        assert_eq!(store.opened(), opened, "{fate:?}: a shard reloads once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_fails_is_tried_again_after_growing_pauses() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    let fault = || StoreFault::Failed("io".into());
    store.fail_opens([fault(), fault(), StoreFault::NotOwner("other".into())]);
    let first = committing(&groups, "g", 0, 1).await.await.unwrap();
    assert_eq!(first, Err(ResponseError::CoordinatorNotAvailable));
    ms(40).await;
    assert_eq!(
        offset(&groups, "g", 0).await,
        Err(ResponseError::CoordinatorNotAvailable)
    );
    assert_eq!(store.opened(), 1, "not yet");
    ms(20).await;
    assert_eq!(
        offset(&groups, "g", 0).await,
        Err(ResponseError::CoordinatorNotAvailable)
    );
    assert_eq!(store.opened(), 2);
    ms(60).await;
    assert_eq!(
        offset(&groups, "g", 0).await,
        Err(ResponseError::CoordinatorNotAvailable)
    );
    assert_eq!(store.opened(), 2, "the second pause is longer");
    ms(60).await;
    assert_eq!(
        offset(&groups, "g", 0).await,
        Err(ResponseError::NotCoordinator)
    );
    ms(1_000).await;
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    assert_eq!(store.opened(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_request_does_not_wait_for_a_stuck_append_for_ever() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    store.plan([(Fate::Kept, 60_000)]);
    let stuck = committing(&groups, "g", 0, 2).await;
    ms(4_999).await;
    assert!(!stuck.is_finished());
    ms(2).await;
    assert_eq!(
        stuck.await.unwrap(),
        Err(ResponseError::CoordinatorNotAvailable)
    );
    ms(60_000).await;
    assert_eq!(
        offset(&groups, "g", 0).await,
        Ok(2),
        "the commit came through all the same"
    );
}

#[tokio::test(start_paused = true)]
async fn decisions_that_wait_are_bounded() {
    let store = MemoryStore::new(1);
    let groups = groups_with(
        &store,
        EngineLimits {
            max_gathered_steps: 3,
            ..limits()
        },
    );
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    store.plan([(Fate::Kept, 100)]);
    let mut all = Vec::new();
    for n in 0..6 {
        all.push(committing(&groups, "g", n, 2).await);
    }
    let mut outcomes = Vec::new();
    for task in all {
        outcomes.push(task.await.unwrap().is_ok());
    }
    assert_eq!(
        outcomes,
        [true, true, true, true, false, false],
        "one under way, three behind it"
    );
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_load_is_bounded() {
    let store = MemoryStore::new(1);
    let groups = groups_with(
        &store,
        EngineLimits {
            max_waiting_for_load: 2,
            ..limits()
        },
    );
    let mut all = Vec::new();
    for n in 0..3 {
        all.push(committing(&groups, "g", n, 2).await);
    }
    let last = all.pop().unwrap().await.unwrap();
    assert_eq!(last, Err(ResponseError::CoordinatorLoadInProgress));
    for task in all {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_append_is_no_larger_than_it_may_be_and_an_entry_that_never_fits_is_refused() {
    let store = MemoryStore::new(1);
    let groups = groups_with(
        &store,
        EngineLimits {
            max_append_bytes: 400,
            ..limits()
        },
    );
    committing(&groups, "g", 0, 1).await.await.unwrap().unwrap();
    store.plan([(Fate::Kept, 10)]);
    let mut all = Vec::new();
    for n in 0..9 {
        all.push(committing(&groups, "g", n, 2).await);
    }
    for task in all {
        task.await.unwrap().unwrap();
    }
    let entries = store.entries(0);
    assert!((3..10).contains(&entries), "{entries} entries");

    let mut long = commit("", -1, "t", 0, 3);
    long.topics[0].partitions[0].metadata = "x".repeat(1_000);
    assert_eq!(
        groups.commit("g", long).await,
        Err(ResponseError::UnknownServerError)
    );
    assert_eq!(offset(&groups, "g", 0).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn commits_of_one_client_take_effect_in_their_order_even_while_the_shard_loads() {
    let store = MemoryStore::new(1);
    let groups = groups(&store);
    let mut all = Vec::new();
    for n in 1..=20 {
        all.push(committing(&groups, "g", 0, n).await);
    }
    for task in all {
        task.await.unwrap().unwrap();
    }
    assert_eq!(offset(&groups, "g", 0).await, Ok(20));
}
