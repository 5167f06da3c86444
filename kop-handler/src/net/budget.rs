//! Memory for requests: one budget over all connections, taken as bytes arrive.
//!
//! ```text
//!   a frame that fits the front buffer    takes what there is, and never waits
//!   a larger one                          before more is read: as many bytes as have arrived, or waits for them
//!   ... while the budget is empty         one frame at a time goes on beyond it
//! ```
//!
//! So a promise costs nothing, a small request never waits behind large ones, and frames of which each waits for what
//! the others hold do not stop one another. It must not know sockets, nor requests.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The budget. Bytes are counted in permits.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    bytes: Arc<Semaphore>,
    /// The right to read one frame beyond the budget.
    overdraft: Arc<Semaphore>,
}

/// What one frame has taken; dropping it gives it back.
#[derive(Debug, Default)]
pub(super) struct Memory {
    permit: Option<OwnedSemaphorePermit>,
    overdraft: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes: Arc::new(Semaphore::new(bytes)),
            overdraft: Arc::new(Semaphore::new(1)),
        }
    }

    /// Bytes, if they are free now.
    pub(super) fn try_take(&self, bytes: usize) -> Option<Memory> {
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(permits(bytes));
        permit.ok().map(|permit| Memory {
            permit: Some(permit),
            overdraft: None,
        })
    }

    /// Waits for bytes, or for the right to do without. `None` is never: the budget is not closed.
    pub(super) fn take(&self, bytes: usize) -> impl Future<Output = Option<Memory>> + Send + use<> {
        let (budget, overdraft) = (Arc::clone(&self.bytes), Arc::clone(&self.overdraft));
        async move {
            tokio::select! {
                biased;
                permit = budget.acquire_many_owned(permits(bytes)) => permit.ok().map(|permit| Memory {
                    permit: Some(permit),
                    overdraft: None,
                }),
                overdraft = overdraft.acquire_owned() => overdraft.ok().map(|overdraft| Memory {
                    permit: None,
                    overdraft: Some(overdraft),
                }),
            }
        }
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.bytes.available_permits()
    }
}

impl Memory {
    /// Whether so many bytes may be in memory.
    pub(super) fn covers(&self, bytes: usize) -> bool {
        self.overdraft.is_some() || self.bytes() >= bytes
    }

    /// Bytes taken from the budget.
    pub(super) fn bytes(&self) -> usize {
        self.permit
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Whether it goes beyond the budget.
    pub(super) fn is_overdraft(&self) -> bool {
        self.overdraft.is_some()
    }

    /// Adds what another has taken.
    pub(super) fn add(&mut self, more: Self) {
        match (&mut self.permit, more.permit) {
            (Some(permit), Some(more)) => permit.merge(more),
            (permit @ None, more) => *permit = more,
            (Some(_), None) => {}
        }
        if self.overdraft.is_none() {
            self.overdraft = more.overdraft;
        }
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
