//! Waiting for the ends of partitions to move: one watch at the host per partition, while somebody waits.
//!
//! ```text
//! wait ─> listed at each partition ─> host.watch (once per partition)
//!                 │                        │ end moved, or the handle died
//!                 └──────── woken <────────┘
//! ```
//!
//! Nothing polls and nothing has a task. It must not know what is read afterwards.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use super::limits::MAX_WAITERS;
use super::partition::Partition;
use super::shared::Shared;

/// Why a [`Waiter`] completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something moved, or a partition died: read again.
    Moved,
    /// Too many wait already: answer with what there is.
    Overloaded,
    /// The host does not watch a partition now: read again, but not at once, or a host that answers so for long is
    /// asked without pause.
    Unwatched,
}

/// What a waiter and its partitions share.
#[derive(Debug, Default)]
struct Bell {
    rung: AtomicBool,
    /// Set before it is rung because the host does not watch.
    unwatched: AtomicBool,
    waker: AtomicWaker,
}

impl Bell {
    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// Who waits at a partition.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    bells: HashMap<u64, Arc<Bell>>,
    /// The host calls when the end is beyond this index.
    armed: Option<i64>,
    next_id: u64,
}

/// Completes when one of its partitions moved. Dropping it leaves nothing behind.
pub struct Waiter {
    bell: Arc<Bell>,
    places: Vec<(Arc<Partition>, u64)>,
    shared: Arc<Shared>,
    is_counted: bool,
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter")
            .field("partitions", &self.places.len())
            .field("rung", &self.bell.rung)
            .finish_non_exhaustive()
    }
}

pub(super) fn wait(shared: &Arc<Shared>, partitions: &[(Arc<Partition>, i64)]) -> Waiter {
    let is_counted = shared.waiters.fetch_add(1, Ordering::AcqRel) < MAX_WAITERS;
    let mut waiter = Waiter {
        bell: Arc::new(Bell::default()),
        places: Vec::with_capacity(partitions.len()),
        shared: Arc::clone(shared),
        is_counted,
    };
    if !is_counted {
        shared.waiters.fetch_sub(1, Ordering::AcqRel);
        return waiter;
    }
    for (partition, offset) in partitions {
        if waiter.bell.rung.load(Ordering::Acquire) {
            break;
        }
        let id = list(partition, &waiter.bell, *offset);
        waiter.places.push((Arc::clone(partition), id));
    }
    waiter
}

/// Puts a bell at a partition, and has the host call if nobody did yet.
fn list(partition: &Arc<Partition>, bell: &Arc<Bell>, offset: i64) -> u64 {
    let after = offset - 1;
    let (id, must_arm) = {
        let mut waiting = partition.waiting.lock();
        let id = waiting.next_id;
        waiting.next_id += 1;
        waiting.bells.insert(id, Arc::clone(bell));
        let must_arm = waiting.armed.is_none_or(|armed| after < armed);
        if must_arm {
            waiting.armed = Some(after);
        }
        (id, must_arm)
    };
    // Dying marks first and wakes then; so whoever is listed either sees the mark or is woken.
    if !partition.is_alive() || partition.high_watermark() > offset {
        // Whoever was listed meanwhile relies on the watch that is not set now.
        if must_arm {
            wake(partition);
        } else {
            bell.ring();
        }
    } else if must_arm {
        // Not under the lock: the host may call back from within.
        match partition.shared.host.watch(partition.handle(), after) {
            Ok(end) if end > after => {
                partition.raise_end(end + 1);
                wake(partition);
            }
            Ok(_) => {}
            Err(_) => ring(partition, true),
        }
    }
    id
}

/// Wakes all who wait at a partition.
pub(super) fn wake(partition: &Partition) {
    ring(partition, false);
}

fn ring(partition: &Partition, unwatched: bool) {
    let bells = {
        let mut waiting = partition.waiting.lock();
        waiting.armed = None;
        std::mem::take(&mut waiting.bells)
    };
    for bell in bells.into_values() {
        if unwatched {
            bell.unwatched.store(true, Ordering::Release);
        }
        bell.ring();
    }
}

impl Future for Waiter {
    type Output = Wake;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Wake> {
        if !self.is_counted {
            return Poll::Ready(Wake::Overloaded);
        }
        self.bell.waker.register(context.waker());
        if self.bell.rung.load(Ordering::Acquire) {
            Poll::Ready(if self.bell.unwatched.load(Ordering::Acquire) {
                Wake::Unwatched
            } else {
                Wake::Moved
            })
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        for (partition, id) in &self.places {
            partition.waiting.lock().bells.remove(id);
        }
        if self.is_counted {
            self.shared.waiters.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.bells.len()
    }
}
