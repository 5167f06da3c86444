//! Sockets: listeners, connections, budgets. Bytes come in, are cut into requests and dispatched through the table of
//! `api`; replies leave in the order of their requests.
//!
//! It must not know what a request means. Reading order: [`listener`], [`connection`], `budget`, `pipeline`, `output`.

mod budget;
pub(crate) mod connection;
#[cfg(test)]
mod fixture;
pub(crate) mod listener;
mod output;
mod pipeline;
mod refusals;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::Semaphore;

use crate::api::Server;
use budget::Budget;
use refusals::RefusalLog;

/// What all connections share.
pub(crate) struct Shared {
    /// What requests work on.
    pub(crate) server: Arc<Server>,
    /// Bytes that requests may still take, over all connections.
    budget: Budget,
    /// Connections that may still be opened.
    places: Arc<Semaphore>,
    next_id: AtomicU64,
    refusals: RefusalLog,
}

impl Shared {
    /// Nothing is open yet.
    pub(crate) fn new(server: Arc<Server>) -> Self {
        let limits = &server.limits;
        Self {
            budget: Budget::new(limits.max_bytes_in_flight),
            places: Arc::new(Semaphore::new(limits.max_connections)),
            next_id: AtomicU64::new(1),
            refusals: RefusalLog::new(limits.refusal_log_lines_per_minute),
            server,
        }
    }

    /// Takes no new connections and reads no further requests; connections end once what is in flight is answered.
    pub(crate) fn close(&self) {
        self.server.closing.send_replace(true);
    }

    /// Completes when no connection is left.
    pub(crate) async fn drained(&self) {
        let all = u32::try_from(self.server.limits.max_connections).unwrap_or(u32::MAX);
        // The semaphore is never closed, so that the only outcome is that all places are free.
        let _ = self.places.acquire_many(all).await;
    }
}
