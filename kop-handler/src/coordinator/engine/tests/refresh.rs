//! Where the log loses what is old, what still holds is written again in time.

use super::*;

fn settings(refresh_after_ms: Option<u64>) -> GroupSettings {
    GroupSettings {
        offsets_check_interval_ms: 10_000,
        refresh_after_ms,
        ..GroupSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn offsets_are_written_again_once_per_interval_and_stay_as_they_are() {
    let store = MemoryStore::new(1);
    let groups = groups_under(&store, settings(Some(60_000)), limits());
    for partition in 0..3 {
        committing(&groups, "g", partition, 7)
            .await
            .await
            .unwrap()
            .unwrap();
    }
    committing(&groups, "h", 0, 8).await.await.unwrap().unwrap();
    assert_eq!(store.records(0).len(), 4);
    ms(55_000).await;
    assert_eq!(store.records(0).len(), 4, "they are young");
    ms(90_000).await;
    let first = store.records(0).len();
    assert!((8..=12).contains(&first), "{first}");
    ms(600_000).await;
    let later = store.records(0).len() - first;
    assert!((4 * 9..=4 * 11).contains(&later), "{later}");
    assert_eq!(offset(&groups, "g", 2).await, Ok(7));
    assert_eq!(offset(&groups, "h", 0).await, Ok(8));
    let another = self::groups(&store);
    assert_eq!(offset(&another, "g", 1).await, Ok(7));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_keeps_everything_is_written_nothing_again() {
    let store = MemoryStore::new(1);
    let groups = groups_under(&store, settings(None), limits());
    committing(&groups, "g", 0, 7).await.await.unwrap().unwrap();
    ms(600_000).await;
    assert_eq!(store.records(0).len(), 1);
}
