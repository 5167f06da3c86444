//! The way of a batch into the log: check, order, hand over, settle.
//!
//! ```text
//! validate (no lock) ─> lock the partitions ─> producer state ─> host.append ─> unlock ─> durable ─> take in
//!                       └───── one crossing for all; order is fixed inside ─────┘
//! ```
//!
//! The locks are held across the host's call, so that producer state and the host see the same order. A host that
//! answers within the call is settled before the next append can look. It must not wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use handler_api::{ApiError, AppendRequest, Appended, ErrorCode, SharedBytes};
use parking_lot::MutexGuard;
use tokio::sync::oneshot;

use super::partition::{Partition, State};
use super::pending::{Follow, Place};
use super::prepare::{Prepared, prepare};
use super::producers::Verdict;
use super::shared::Shared;
use super::types::{Append, AppendInfo, Rejection};
use super::upkeep;
use crate::error::Fault;

type HostAppend =
    Pin<Box<dyn Future<Output = Result<Vec<Result<Appended, ApiError>>, ApiError>> + Send>>;

/// One append of the request, as far as it is.
enum Slot {
    /// Ended.
    Done(Result<AppendInfo, Rejection>),
    /// With the host.
    Sent,
    /// The same batch is under way already.
    Follows(Following),
}

struct Following {
    receiver: oneshot::Receiver<Place>,
    partition: Arc<Partition>,
    log_append_time_ms: i64,
}

/// A batch that the host has.
struct Sent {
    slot: usize,
    partition: Arc<Partition>,
    ticket: u64,
    span: u32,
    log_append_time_ms: i64,
}

/// Appends under way. Dropping it cancels nothing: what the host has is settled behind the scenes.
pub(super) struct Appending {
    shared: Arc<Shared>,
    slots: Vec<Slot>,
    sent: Vec<Sent>,
    host: Option<HostAppend>,
}

/// A partition of the request, locked.
struct Locked<'a> {
    partition: &'a Arc<Partition>,
    state: MutexGuard<'a, State>,
}

/// Checks and hands over; when this returns, the order is fixed.
pub(super) fn append(shared: &Arc<Shared>, appends: Vec<Append>) -> Appending {
    let now_ms = shared.clock.now_ms();
    let prepared: Vec<(Arc<Partition>, Result<Prepared, Rejection>)> = appends
        .into_iter()
        .map(|append| {
            let prepared = prepare(shared, &append, now_ms);
            (append.partition, prepared)
        })
        .collect();
    let mut partitions: Vec<&Arc<Partition>> = prepared
        .iter()
        .filter(|(_, prepared)| prepared.is_ok())
        .map(|(partition, _)| partition)
        .collect();
    // Everybody locks in the same order, and each partition once.
    partitions.sort_unstable_by_key(|partition| order(partition));
    partitions.dedup_by_key(|partition| order(partition));
    let mut locked: Vec<Locked<'_>> = partitions
        .into_iter()
        .map(|partition| Locked {
            partition,
            state: partition.lock(),
        })
        .collect();

    let mut slots = Vec::with_capacity(prepared.len());
    let mut sent = Vec::with_capacity(prepared.len());
    let mut requests = Vec::with_capacity(prepared.len());
    for (slot, (partition, prepared)) in prepared.iter().enumerate() {
        let step = match prepared {
            Err(rejection) => Step::Answer(Err(rejection.clone())),
            Ok(batch) => match find(&mut locked, partition) {
                None => Step::Answer(Err(partition.gone().into())),
                Some(locked) => decide(partition, &mut locked.state, batch),
            },
        };
        slots.push(match step {
            Step::Answer(answer) => Slot::Done(answer),
            Step::Follow(following) => Slot::Follows(following),
            Step::Append { ticket, batch } => {
                sent.push(Sent {
                    slot,
                    partition: Arc::clone(partition),
                    ticket,
                    span: batch.arrived.span,
                    log_append_time_ms: batch.log_append_time_ms,
                });
                requests.push(AppendRequest {
                    handle: partition.handle(),
                    messages: batch.arrived.span,
                    flags: 0,
                    segments: batch
                        .segments
                        .iter()
                        .cloned()
                        .map(SharedBytes::from)
                        .collect(),
                });
                Slot::Sent
            }
        });
    }
    let mut appending = Appending {
        shared: Arc::clone(shared),
        slots,
        sent,
        host: None,
    };
    if !requests.is_empty() {
        let mut host: HostAppend = Box::pin(shared.host.append(requests));
        // A host that is done already is settled under the locks, so that a refusal is undone before anybody builds on it.
        match host.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(results) => appending.settle(results, |partition, settle| {
                if let Some(locked) = find(&mut locked, partition) {
                    settle(&mut locked.state);
                }
            }),
            Poll::Pending => appending.host = Some(host),
        }
    }
    appending
}

fn order(partition: &Partition) -> (u64, u64) {
    let handle = partition.handle();
    (handle.id, handle.generation)
}

fn find<'l, 'p>(locked: &'l mut [Locked<'p>], partition: &Partition) -> Option<&'l mut Locked<'p>> {
    let at = locked
        .binary_search_by_key(&order(partition), |locked| order(locked.partition))
        .ok()?;
    locked.get_mut(at)
}

enum Step<'a> {
    Answer(Result<AppendInfo, Rejection>),
    Follow(Following),
    Append { ticket: u64, batch: &'a Prepared },
}

/// What to do with a batch, under the partition's lock.
fn decide<'a>(partition: &Arc<Partition>, state: &mut State, batch: &'a Prepared) -> Step<'a> {
    if !partition.is_alive() {
        return Step::Answer(Err(partition.gone().into()));
    }
    let verdict = match &batch.arrived.sequence {
        None => Ok(Verdict::Accept),
        Some(sequence) => state.producers.check(sequence, state.pendings.in_flight()),
    };
    let info = |base_offset, last_offset, log_append_time_ms| AppendInfo {
        base_offset,
        last_offset,
        log_append_time_ms,
        log_start_offset: partition.log_start_offset(),
    };
    let uses_append_time = batch.log_append_time_ms >= 0;
    match verdict {
        Err(fault) => Step::Answer(Err(fault.into())),
        Ok(Verdict::Accept) => Step::Append {
            ticket: state.pendings.add(batch.arrived),
            batch,
        },
        Ok(Verdict::Duplicate(stored)) => {
            let time = if uses_append_time {
                stored.timestamp_ms
            } else {
                -1
            };
            Step::Answer(Ok(info(stored.base_offset, stored.last_offset, time)))
        }
        Ok(Verdict::DuplicateInFlight(ticket)) => match state.pendings.follow(ticket) {
            Follow::Known(place) => Step::Answer(
                place
                    .map(|(base, last)| info(base, last, batch.log_append_time_ms))
                    .map_err(Rejection::from),
            ),
            Follow::Later(receiver) => Step::Follow(Following {
                receiver,
                partition: Arc::clone(partition),
                log_append_time_ms: batch.log_append_time_ms,
            }),
        },
    }
}

impl Appending {
    /// Notes what the host answered. `with` reaches the locked state of a partition.
    fn settle(
        &mut self,
        results: Result<Vec<Result<Appended, ApiError>>, ApiError>,
        mut with: impl FnMut(&Arc<Partition>, &mut dyn FnMut(&mut State)),
    ) {
        let sent = std::mem::take(&mut self.sent);
        let mut results = match results {
            Ok(results) => results.into_iter().map(Some).collect::<Vec<_>>(),
            Err(error) => sent.iter().map(|_| Some(Err(error.clone()))).collect(),
        };
        results.resize_with(sent.len(), || None);
        for (sent, result) in sent.into_iter().zip(results) {
            let result = result.unwrap_or_else(|| {
                Err(ApiError::new(
                    ErrorCode::Internal,
                    "the host answered for fewer appends than it was given",
                ))
            });
            let answer = self.settle_one(&sent, result, &mut with);
            if let Some(slot) = self.slots.get_mut(sent.slot) {
                *slot = Slot::Done(answer);
            }
        }
    }

    fn settle_one(
        &self,
        sent: &Sent,
        result: Result<Appended, ApiError>,
        with: &mut impl FnMut(&Arc<Partition>, &mut dyn FnMut(&mut State)),
    ) -> Result<AppendInfo, Rejection> {
        let partition = &sent.partition;
        let result = result.map_err(|error| fault(partition, error));
        if let Ok(appended) = &result {
            partition.raise_end(appended.index + 1);
        }
        let now_ms = self.shared.clock.monotonic_ms();
        with(partition, &mut |state| {
            state.pendings.settle(sent.ticket, &result);
            while let Some((batch, appended)) = state.pendings.next_durable() {
                state.take_in(&batch, appended.position.ledger, appended.index, now_ms);
            }
            upkeep::note_growth(&self.shared, partition, state);
        });
        let appended = result?;
        partition.list_unsaved();
        Ok(AppendInfo {
            base_offset: appended.index - i64::from(sent.span) + 1,
            last_offset: appended.index,
            log_append_time_ms: sent.log_append_time_ms,
            log_start_offset: partition.log_start_offset(),
        })
    }

    fn poll_host(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(host) = self.host.as_mut() else {
            return Poll::Ready(());
        };
        let Poll::Ready(results) = host.as_mut().poll(context) else {
            return Poll::Pending;
        };
        self.host = None;
        self.settle(results, |partition, settle| settle(&mut partition.lock()));
        Poll::Ready(())
    }
}

/// What an append's error means for its partition: some are harmless, after others the handle is dead and what
/// happened is found out by loading again.
fn fault(partition: &Partition, error: ApiError) -> Fault {
    match error.kind() {
        ErrorCode::Refused
        | ErrorCode::NoSpace
        | ErrorCode::TooLarge
        | ErrorCode::InvalidArgument
        | ErrorCode::NotReady
        | ErrorCode::Unsupported
        | ErrorCode::Unauthenticated
        | ErrorCode::Unauthorized
        | ErrorCode::InvalidConfiguration => error.into(),
        ErrorCode::HandleClosed | ErrorCode::NotOwner | ErrorCode::NotFound => {
            partition.die();
            partition.gone()
        }
        ErrorCode::Internal
        | ErrorCode::UnknownOutcome
        | ErrorCode::Closing
        | ErrorCode::Corrupt
        | ErrorCode::Timeout
        | ErrorCode::Conflict => {
            partition.die();
            Fault::StorageUnknown(error.message.into_string())
        }
    }
}

impl Future for Appending {
    type Output = Vec<Result<AppendInfo, Rejection>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut is_pending = self.poll_host(context).is_pending();
        for slot in &mut self.slots {
            let Slot::Follows(following) = slot else {
                continue;
            };
            let Poll::Ready(place) = Pin::new(&mut following.receiver).poll(context) else {
                is_pending = true;
                continue;
            };
            // The sender goes unheard only if its partition was dropped with the append still open.
            let place = place.unwrap_or_else(|_| Err(following.partition.gone()));
            let answer = place.map(|(base_offset, last_offset)| AppendInfo {
                base_offset,
                last_offset,
                log_append_time_ms: following.log_append_time_ms,
                log_start_offset: following.partition.log_start_offset(),
            });
            *slot = Slot::Done(answer.map_err(Rejection::from));
        }
        if is_pending {
            return Poll::Pending;
        }
        let slots = std::mem::take(&mut self.slots);
        Poll::Ready(slots.into_iter().filter_map(Slot::answer).collect())
    }
}

impl Slot {
    fn answer(self) -> Option<Result<AppendInfo, Rejection>> {
        match self {
            Self::Done(answer) => Some(answer),
            Self::Sent | Self::Follows(_) => None,
        }
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        let Some(host) = self.host.take() else {
            return;
        };
        let mut rest = Self {
            shared: Arc::clone(&self.shared),
            slots: Vec::new(),
            sent: std::mem::take(&mut self.sent),
            host: None,
        };
        self.shared.runtime.spawn(async move {
            let results = host.await;
            rest.settle(results, |partition, settle| settle(&mut partition.lock()));
        });
    }
}
