//! What does not fit must neither fail for ever nor be tried without rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kafka_protocol::error::ResponseError;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::super::testing::{Fate, MemoryStore, PausedClock};
use super::super::{Engine, EngineLimits};
use super::members::stable;
use super::{committing, limits, ms};
use crate::clock::Clock;
use crate::coordinator::Groups;
use crate::coordinator::group::message::*;
use crate::coordinator::group::testing::commit;

/// Counts how often it is looked at, and breaks whoever looks without end: time stands still for such a task.
#[derive(Debug)]
struct CountingClock {
    inner: Arc<PausedClock>,
    looks: AtomicU64,
}

impl Clock for CountingClock {
    fn now_ms(&self) -> i64 {
        self.inner.now_ms()
    }

    fn monotonic_ms(&self) -> u64 {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst);
        assert!(looks < 100_000, "a task looks at the clock without rest");
        self.inner.monotonic_ms()
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

fn groups(
    store: &Arc<MemoryStore>,
    settings: GroupSettings,
    limits: EngineLimits,
) -> (Groups, Arc<CountingClock>) {
    let clock = Arc::new(CountingClock {
        inner: PausedClock::new(1),
        looks: AtomicU64::new(0),
    });
    let store = Arc::clone(store);
    let engine = Engine::new(
        Arc::clone(&clock) as Arc<dyn Clock>,
        store,
        settings,
        limits,
        Handle::current(),
    );
    (Groups::new(engine), clock)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_finds_no_room_is_tried_again_after_a_pause() {
    let few = EngineLimits {
        max_gathered_steps: 1,
        ..limits()
    };
    let small = EngineLimits {
        max_gathered_bytes: 1,
        ..limits()
    };
    for limits in [few, small] {
        let store = MemoryStore::new(1);
        let (groups, clock) = groups(&store, GroupSettings::default(), limits);
        stable(&groups, "a").await;
        store.plan([(Fate::Kept, 60_000)]);
        let stuck = committing(&groups, "h", 0, 1).await;
        let behind = committing(&groups, "h", 0, 2).await;
        let refused = committing(&groups, "h", 0, 3).await.await.unwrap();
        let busy = ResponseError::CoordinatorNotAvailable;
        assert_eq!(refused, Err(busy), "there is no room");

        ms(9_000).await;
        let before = clock.looks.load(Ordering::SeqCst);
        ms(50_000).await;
        let looks = clock.looks.load(Ordering::SeqCst) - before;
        assert!((50..1_000).contains(&looks), "{looks} in 50 seconds");
        ms(3_000).await;
        assert_eq!(stuck.await.unwrap(), Err(busy), "in time");
        behind.await.unwrap().unwrap();
        let group = groups.describe("g").await.unwrap().unwrap();
        assert_eq!(group.state, "Empty", "the deadline took effect");
    }
}

#[tokio::test(start_paused = true)]
async fn heartbeats_do_not_hide_a_deadline() {
    let store = MemoryStore::new(1);
    let (groups, _) = groups(&store, GroupSettings::default(), limits());
    let (id, generation) = stable(&groups, "a").await;
    let beat = || Heartbeat {
        member_id: id.clone(),
        instance_id: None,
        generation,
    };
    for _ in 0..50 {
        ms(700).await;
        assert_eq!(groups.heartbeat("g", beat()).await, Ok(()));
    }
    ms(9_990).await;
    assert_eq!(groups.describe("g").await.unwrap().unwrap().state, "Stable");
    ms(20).await;
    assert_eq!(groups.describe("g").await.unwrap().unwrap().state, "Empty");
}

#[tokio::test(start_paused = true)]
async fn work_on_a_group_with_a_long_id_is_done_in_parts_that_fit() {
    const PARTITIONS: i32 = 40;
    for id_len in [10, 900, 1_500] {
        for how in ["deleted", "topic deleted", "expired"] {
            let store = MemoryStore::new(1);
            let settings = GroupSettings {
                max_decision_bytes: 2_000,
                ..GroupSettings::default()
            };
            let limits = EngineLimits {
                max_append_bytes: 4_000,
                ..limits()
            };
            let (groups, _) = groups(&store, settings, limits);
            let id = "x".repeat(id_len);
            let mut whole = commit("", -1, "t", 0, 1);
            let one = whole.topics[0].partitions[0].clone();
            whole.topics[0].partitions = (0..PARTITIONS)
                .map(|partition| CommitPartition {
                    partition,
                    ..one.clone()
                })
                .collect();
            let committed = groups.commit(&id, whole).await.unwrap();
            assert_eq!(committed.len(), 1);
            let outcomes = &committed[0].partitions;
            let expected: Vec<_> = (0..PARTITIONS).map(|n| (n, None)).collect();
            assert_eq!(outcomes, &expected, "ids of {id_len}");
            assert_eq!(groups.census().held.offsets, 40);
            match how {
                "deleted" => groups.delete(&id).await.unwrap(),
                "topic deleted" => groups.topic_deleted("t", Uuid::nil()).await.unwrap(),
                _ => ms(8 * 24 * 3_600_000).await,
            }
            assert_eq!(groups.census().held.offsets, 0, "{how}, ids of {id_len}");
            assert_eq!(groups.describe(&id).await, Ok(None), "{how}");
        }
    }
}
