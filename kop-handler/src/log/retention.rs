//! Which ledgers of a partition go, and when the open one is closed: decided from what the host says of them.
//!
//! Kafka's rules for segments, with ledgers in their place. No I/O, no clock.

use handler_api::ledger::Ledger;

use super::time_index::TimeIndex;
use super::types::TopicSettings;

/// What to do with a partition's ledgers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Seal the open ledger first.
    pub(super) roll: bool,
    /// Give up everything below this offset.
    pub(super) trim_before: Option<i64>,
    /// The same without the open ledger, should it not be sealed now.
    pub(super) trim_sealed_before: Option<i64>,
}

/// Decides for one partition. `log_start` is the first offset that was not deleted by hand.
pub(super) fn plan(
    settings: &TopicSettings,
    ledgers: &[Ledger],
    times: &TimeIndex,
    log_start: i64,
    now_ms: i64,
) -> Plan {
    let mut plan = Plan::default();
    let mut keep_from = 0;
    if settings.delete {
        let expired = count_expired(settings, ledgers, times, now_ms);
        keep_from = expired.max(count_surplus(settings, ledgers));
    }
    let before = |count: usize| {
        count
            .checked_sub(1)
            .and_then(|last| ledgers.get(last))
            .map(|ledger| ledger.last_index + 1)
    };
    let by_hand = Some(log_start).filter(|start| {
        ledgers
            .first()
            .is_some_and(|first| first.first_index < *start)
    });
    plan.trim_before = before(keep_from).max(by_hand);
    let sealed = ledgers.iter().filter(|ledger| ledger.sealed).count();
    plan.trim_sealed_before = before(keep_from.min(sealed)).max(by_hand);
    if let Some(open) = ledgers
        .last()
        .filter(|ledger| !ledger.sealed && ledger.entries > 0)
    {
        plan.roll = keep_from == ledgers.len() || is_full(settings, open, now_ms);
    }
    plan
}

fn is_full(settings: &TopicSettings, open: &Ledger, now_ms: i64) -> bool {
    let age_ms = now_ms.saturating_sub(open.created_ms);
    open.bytes >= settings.segment_bytes
        || age_ms >= settings.segment_ms
        || (settings.compact && age_ms >= settings.max_compaction_lag_ms)
}

/// How many of the oldest ledgers hold only records older than `retention.ms`.
fn count_expired(
    settings: &TopicSettings,
    ledgers: &[Ledger],
    times: &TimeIndex,
    now_ms: i64,
) -> usize {
    if settings.retention_ms < 0 {
        return 0;
    }
    ledgers
        .iter()
        .take_while(|ledger| {
            let is_empty = !ledger.sealed && ledger.entries == 0;
            !is_empty && now_ms.saturating_sub(latest(ledger, times)) > settings.retention_ms
        })
        .count()
}

/// How many of the oldest ledgers must go so that the rest is not larger than `retention.bytes` needs.
fn count_surplus(settings: &TopicSettings, ledgers: &[Ledger]) -> usize {
    let Ok(most) = u64::try_from(settings.retention_bytes) else {
        return 0;
    };
    let total: u64 = ledgers.iter().map(|ledger| ledger.bytes).sum();
    let mut surplus = total.saturating_sub(most);
    if surplus == 0 {
        return 0;
    }
    let mut count = 0;
    for ledger in ledgers {
        if ledger.bytes > surplus || (!ledger.sealed && ledger.entries == 0) {
            break;
        }
        surplus -= ledger.bytes;
        count += 1;
    }
    count
}

/// The latest time of a ledger's records: their own timestamps where all are known, else not earlier than the append.
fn latest(ledger: &Ledger, times: &TimeIndex) -> i64 {
    let appended = if ledger.last_append_ms > 0 {
        ledger.last_append_ms
    } else {
        ledger.created_ms
    };
    match times.ledger(ledger.id) {
        Some(known) if known.max_timestamp_ms >= 0 => {
            if known.last_offset >= ledger.last_index {
                known.max_timestamp_ms
            } else {
                known.max_timestamp_ms.max(appended)
            }
        }
        _ => appended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::time_index::BatchTimes;

    const NOW: i64 = 1_000_000;

    /// Four ledgers of 100 bytes and 10 offsets, appended to at 100_000, 200_000, 300_000 and 400_000; the last is open.
    fn ledgers() -> Vec<Ledger> {
        (0..4)
            .map(|n| Ledger {
                id: n,
                first_index: n * 10,
                last_index: n * 10 + 9,
                entries: 1,
                bytes: 100,
                sealed: n < 3,
                created_ms: n * 100_000,
                last_append_ms: (n + 1) * 100_000,
                replaced: 0,
            })
            .collect()
    }

    fn settings() -> TopicSettings {
        TopicSettings {
            retention_ms: -1,
            segment_ms: i64::MAX,
            ..TopicSettings::default()
        }
    }

    fn decide(settings: &TopicSettings, times: &TimeIndex, log_start: i64) -> (bool, Option<i64>) {
        let plan = plan(settings, &ledgers(), times, log_start, NOW);
        (plan.roll, plan.trim_before)
    }

    #[test]
    fn old_ledgers_go_and_the_open_one_too_once_it_is_sealed() {
        let none = TimeIndex::default();
        let keep = |retention_ms| TopicSettings {
            retention_ms,
            ..settings()
        };
        assert_eq!(decide(&keep(-1), &none, 0), (false, None));
        assert_eq!(decide(&keep(900_000), &none, 0), (false, None), "not yet");
        assert_eq!(decide(&keep(899_999), &none, 0), (false, Some(10)));
        assert_eq!(decide(&keep(650_000), &none, 0), (false, Some(30)));
        assert_eq!(decide(&keep(0), &none, 0), (true, Some(40)));
        let plan = plan(&keep(0), &ledgers(), &none, 0, NOW);
        assert_eq!(plan.trim_sealed_before, Some(30));
    }

    #[test]
    fn the_records_own_times_count_where_all_are_known() {
        let mut times = TimeIndex::default();
        let mut add = |ledger: i64, max_timestamp_ms, last_offset| {
            times.add(&BatchTimes {
                ledger,
                base_offset: ledger * 10,
                last_offset,
                max_timestamp_ms,
                bytes: 1,
            });
        };
        add(0, 990_000, 9);
        add(1, 5, 19);
        let keep = TopicSettings {
            retention_ms: 20_000,
            ..settings()
        };
        assert_eq!(
            decide(&keep, &times, 0),
            (false, None),
            "late records hold the head"
        );
        let mut times = TimeIndex::default();
        times.add(&BatchTimes {
            ledger: 0,
            base_offset: 0,
            last_offset: 5,
            max_timestamp_ms: 5,
            bytes: 1,
        });
        let keep = TopicSettings {
            retention_ms: 900_000,
            ..settings()
        };
        assert_eq!(decide(&keep, &times, 0), (false, None), "not all are known");
    }

    #[test]
    fn a_partition_stays_as_large_as_retention_bytes_at_least() {
        let none = TimeIndex::default();
        let keep = |retention_bytes| TopicSettings {
            retention_bytes,
            ..settings()
        };
        assert_eq!(decide(&keep(400), &none, 0), (false, None));
        assert_eq!(decide(&keep(301), &none, 0), (false, None));
        assert_eq!(decide(&keep(300), &none, 0), (false, Some(10)));
        assert_eq!(decide(&keep(0), &none, 0), (true, Some(40)));
    }

    #[test]
    fn a_topic_that_is_only_compacted_keeps_its_ledgers_but_not_what_was_deleted_by_hand() {
        let compact = TopicSettings {
            delete: false,
            compact: true,
            retention_ms: 0,
            retention_bytes: 0,
            segment_ms: i64::MAX,
            ..TopicSettings::default()
        };
        let none = TimeIndex::default();
        assert_eq!(decide(&compact, &none, 0), (false, None));
        assert_eq!(decide(&compact, &none, 15), (false, Some(15)));
    }

    #[test]
    fn a_ledger_is_sealed_by_size_age_and_compaction_lag_but_never_empty() {
        let none = TimeIndex::default();
        let roll = |settings: &TopicSettings| decide(settings, &none, 0).0;
        let age_ms = NOW - 300_000;
        assert!(!roll(&settings()));
        assert!(roll(&TopicSettings {
            segment_bytes: 100,
            ..settings()
        }));
        assert!(!roll(&TopicSettings {
            segment_bytes: 101,
            ..settings()
        }));
        assert!(roll(&TopicSettings {
            segment_ms: age_ms,
            ..settings()
        }));
        assert!(!roll(&TopicSettings {
            segment_ms: age_ms + 1,
            ..settings()
        }));
        assert!(roll(&TopicSettings {
            compact: true,
            max_compaction_lag_ms: age_ms,
            ..settings()
        }));
        assert!(!roll(&TopicSettings {
            max_compaction_lag_ms: age_ms,
            ..settings()
        }));
        let mut empty = ledgers();
        empty.truncate(1);
        empty[0].sealed = false;
        empty[0].entries = 0;
        empty[0].bytes = 0;
        let all = TopicSettings {
            segment_ms: 0,
            retention_ms: 0,
            ..settings()
        };
        assert_eq!(plan(&all, &empty, &none, 0, NOW), Plan::default());
    }
}
