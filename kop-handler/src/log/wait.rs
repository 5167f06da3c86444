//! Waiting for a partition's end to move. It must not know what is read afterwards.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Why a [`Waiter`] completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something moved: read again.
    Moved,
    /// Too many wait already: answer with what there is.
    Overloaded,
}

/// Completes when one of its partitions moved. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct Waiter {}

impl Future for Waiter {
    type Output = Wake;
    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Wake> {
        unimplemented!()
    }
}
