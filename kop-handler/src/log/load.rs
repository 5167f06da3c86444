//! Opening a partition: the host's handle, the stored snapshot, then the entries behind it.
//!
//! The snapshot bounds what is read again. Where there is none (a log that others wrote), only the last part of the
//! log is: producers that were silent for longer count as unknown, as Kafka's do once they expire.

use std::sync::Arc;

use handler_api::ledger::{DescribeLedgers, Ledger, OpenLedgers, Opened};
use handler_api::topics::TopicNames;
use handler_api::{ApiError, Handle};

use super::limits::UNKNOWN_LOG_BYTES;
use super::partition::Partition;
use super::pending::Arrived;
use super::read::decode;
use super::search::Scan;
use super::shared::Shared;
use super::snapshot;
use super::time_index::Range;
use super::types::TopicSettings;
use crate::error::Fault;

/// Asks the host for the managed ledgers of partitions, in one call.
pub(super) async fn open_ledgers(
    shared: &Shared,
    names: &[Arc<str>],
) -> Vec<Result<Opened, Fault>> {
    let request = TopicNames {
        names: names.iter().map(|name| name.to_string()).collect(),
    };
    match shared.host.control::<OpenLedgers>(&request).await {
        Err(error) => {
            let fault = Fault::from(error);
            names.iter().map(|_| Err(fault.clone())).collect()
        }
        Ok(answer) => {
            let mut ledgers = answer.ledgers.into_iter();
            names
                .iter()
                .map(|_| match ledgers.next() {
                    Some(Opened {
                        fault: Some(fault), ..
                    }) => Err(ApiError::from(fault).into()),
                    Some(opened) => Ok(opened),
                    None => Err(Fault::Internal(
                        "the host answered for fewer partitions than it was given".to_owned(),
                    )),
                })
                .collect()
        }
    }
}

/// Builds a partition from what the host has of it.
pub(super) async fn load(
    shared: &Arc<Shared>,
    name: Arc<str>,
    opened: &Opened,
    settings: TopicSettings,
) -> Result<Partition, Fault> {
    let handle: Handle = opened
        .handle
        .ok_or_else(|| Fault::Internal("the host gave no handle".to_owned()))?
        .into();
    let (start, end) = (opened.start_index, opened.end_index + 1);
    let restored = snapshot::restore(&opened.properties, end);
    for (property, error) in &restored.unusable {
        tracing::warn!(partition = %name, property, %error, "a stored property cannot be used; the log is read instead");
    }
    let has_snapshot = restored.end_offset.is_some();
    let partition = Partition::new(
        name,
        handle,
        Arc::clone(shared),
        settings,
        (start, end),
        restored,
    );
    let from = if has_snapshot || end == start {
        partition.lock().taken_in.max(start)
    } else {
        start_of_unknown(shared, handle, start).await?
    };
    replay(&partition, from, end).await?;
    Ok(partition)
}

/// Where to begin in a log without a snapshot.
async fn start_of_unknown(shared: &Shared, handle: Handle, start: i64) -> Result<i64, Fault> {
    let ledgers = shared
        .host
        .control::<DescribeLedgers>(&handle.into())
        .await?
        .ledgers;
    Ok(last_part(&ledgers, UNKNOWN_LOG_BYTES)
        .unwrap_or(start)
        .max(start))
}

/// First offset of the newest ledgers that together hold no more than some bytes; of the newest with any, if that
/// alone holds more.
fn last_part(ledgers: &[Ledger], most: u64) -> Option<i64> {
    let mut bytes = 0u64;
    let mut first = None;
    for ledger in ledgers.iter().rev().filter(|ledger| ledger.entries > 0) {
        bytes = bytes.saturating_add(ledger.bytes);
        if bytes > most && first.is_some() {
            break;
        }
        first = Some(ledger.first_index);
    }
    first
}

/// Takes in what the snapshot does not know.
async fn replay(partition: &Partition, from: i64, end: i64) -> Result<(), Fault> {
    let now_ms = partition.shared.clock.monotonic_ms();
    let mut skipped = 0u64;
    let mut scan = Scan::new(partition, Range { from, to: end - 1 });
    while let Some(entries) = scan.next().await? {
        let mut state = partition.lock();
        for entry in entries {
            let (position, index) = (entry.position, entry.index);
            match decode(entry) {
                Ok((batch, header)) => {
                    let span = u32::try_from(header.offset_span()).unwrap_or(1);
                    let arrived = Arrived::of(&header, batch.len(), batch.publish_time_ms, span);
                    state.take_in(&arrived, position.ledger, index, now_ms);
                }
                Err(_) => skipped += 1,
            }
        }
    }
    if skipped > 0 {
        tracing::warn!(
            partition = partition.name(),
            skipped,
            "entries that are no Kafka batches were passed over"
        );
    }
    partition.lock().taken_in = end;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(first_index: i64, entries: u64, bytes: u64) -> Ledger {
        Ledger {
            first_index,
            entries,
            bytes,
            ..Ledger::default()
        }
    }

    #[test]
    fn of_an_unknown_log_the_newest_ledgers_within_the_bound_are_read() {
        let ledgers = [
            ledger(0, 5, 60),
            ledger(50, 5, 60),
            ledger(100, 5, 40),
            ledger(150, 0, 0),
        ];
        assert_eq!(last_part(&ledgers, 100), Some(50));
        assert_eq!(last_part(&ledgers, 99), Some(100));
        assert_eq!(last_part(&ledgers, 1), Some(100), "one ledger at least");
        assert_eq!(last_part(&ledgers, 1000), Some(0));
        assert_eq!(last_part(&[ledger(0, 0, 0)], 10), None);
    }
}
