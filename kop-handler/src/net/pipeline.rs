//! The requests of one connection that are in flight, in order: each is started when it is read, any may finish first,
//! replies are taken from the front.
//!
//! A request is polled once in the moment of its dispatch, so that what a handler does before it first waits happens
//! in the order of arrival; most are done then. It must not know sockets.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;
use tracing::instrument::Instrumented;

use super::budget::Memory;
use crate::api::{Line, Reply, Server, Work, refuse};
use crate::error::Fault;
use crate::metrics::Metrics;
use crate::wire::WireError;
use crate::wire::response::Encoded;

/// A request that was started.
struct Slot {
    line: &'static Line,
    started: Instant,
    outcome: Option<Result<Reply, WireError>>,
    /// When the outcome was there, if it had to wait for earlier ones.
    blocked: bool,
    /// The bytes that the request keeps in memory until its outcome, given back to the budget then.
    held: Option<(usize, Memory)>,
}

/// What is needed to answer a request whose handler did not.
struct Ticket {
    line: &'static Line,
    version: i16,
    correlation_id: i32,
    /// Empty if a refusal can do without.
    body: Bytes,
}

type Outcome = Result<Reply, WireError>;
type Running = Pin<Box<dyn Future<Output = (u64, Outcome)> + Send>>;

/// A request as the connection hands it over.
pub(super) struct Dispatch {
    pub(super) line: &'static Line,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    /// The body, for a refusal in the API's own layout.
    pub(super) body: Bytes,
    pub(super) work: Instrumented<Work>,
    /// Bytes of its frame, and what was taken from the budget for them.
    pub(super) bytes: usize,
    pub(super) memory: Memory,
}

/// Requests in flight, oldest first.
pub(super) struct Pipeline {
    server: Arc<Server>,
    slots: VecDeque<Slot>,
    /// Number of the oldest slot.
    first: u64,
    running: FuturesUnordered<Running>,
    bytes: usize,
}

impl Pipeline {
    pub(super) fn new(server: Arc<Server>) -> Self {
        Self {
            server,
            slots: VecDeque::new(),
            first: 0,
            running: FuturesUnordered::new(),
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes that the running requests keep.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Starts a request and polls it once.
    pub(super) fn start(&mut self, dispatch: Dispatch, cx: &mut Context<'_>) {
        let Dispatch {
            line,
            version,
            correlation_id,
            body,
            work,
            bytes,
            memory,
        } = dispatch;
        let started = Instant::now();
        let mut ticket = Ticket {
            line,
            version,
            correlation_id,
            body,
        };
        let mut work = AssertUnwindSafe(work).catch_unwind();
        let outcome = match work.poll_unpin(cx) {
            Poll::Ready(outcome) => Some(settle(&self.server, &ticket, outcome)),
            Poll::Pending => None,
        };
        let metrics = &self.server.metrics;
        if outcome.is_some() {
            observe(metrics, line, started);
            drop(memory);
            self.slots.push_back(Slot {
                line,
                started,
                outcome,
                blocked: false,
                held: None,
            });
            return;
        }
        metrics.request_queue_size.add(1);
        let held = if line.waits {
            // It is decoded, may wait for minutes, and its refusal names nothing of it: the frame is let go.
            ticket.body = Bytes::new();
            None
        } else {
            metrics.request_bytes_in_flight.add(signed(bytes));
            self.bytes += bytes;
            Some((bytes, memory))
        };
        let number = self.first + self.slots.len() as u64;
        self.slots.push_back(Slot {
            line,
            started,
            outcome: None,
            blocked: false,
            held,
        });
        let server = Arc::clone(&self.server);
        self.running.push(Box::pin(async move {
            if line.waits {
                return (number, settle(&server, &ticket, work.await));
            }
            let patience = Duration::from_millis(server.config.request_timeout_ms);
            match tokio::time::timeout(patience, work).await {
                Ok(outcome) => (number, settle(&server, &ticket, outcome)),
                Err(_) => (number, timed_out(&server, &ticket)),
            }
        }));
    }

    /// Queues a reply that needed no work.
    pub(super) fn answered(&mut self, line: &'static Line, reply: Encoded) {
        let outcome = Some(Ok(Reply::Bytes(reply)));
        self.slots.push_back(Slot {
            line,
            started: Instant::now(),
            outcome,
            blocked: false,
            held: None,
        });
    }

    /// Forgets everything: the connection ends without further replies.
    pub(super) fn clear(&mut self) {
        *self = Self::new(Arc::clone(&self.server));
    }

    /// Completes when one of the running requests is done. Never, if none runs.
    pub(super) async fn advance(&mut self) {
        match self.running.next().await {
            Some((number, outcome)) => self.finish(number, outcome),
            None => std::future::pending().await,
        }
        // Others may be done too: their replies leave in the same write.
        while let Some(Some((number, outcome))) = self.running.next().now_or_never() {
            self.finish(number, outcome);
        }
    }

    fn finish(&mut self, number: u64, outcome: Outcome) {
        let place = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        let metrics = &self.server.metrics;
        observe(metrics, slot.line, slot.started);
        metrics.request_queue_size.add(-1);
        let bytes = slot.held.take().map_or(0, |(bytes, _)| bytes);
        metrics.request_bytes_in_flight.add(-signed(bytes));
        self.bytes = self.bytes.saturating_sub(bytes);
        slot.outcome = Some(outcome);
    }

    /// The next reply, if the oldest request is done.
    pub(super) fn pop(&mut self) -> Option<Outcome> {
        let outcome = self.slots.front_mut()?.outcome.take();
        let Some(outcome) = outcome else {
            self.count_blocked();
            return None;
        };
        self.slots.pop_front();
        self.first += 1;
        Some(outcome)
    }

    /// Counts replies that are ready behind one that is not.
    fn count_blocked(&mut self) {
        for slot in self
            .slots
            .iter_mut()
            .skip(1)
            .filter(|slot| slot.outcome.is_some() && !slot.blocked)
        {
            slot.blocked = true;
            self.server.metrics.response_blocked_times.add(1);
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let running = self
            .slots
            .iter()
            .filter(|slot| slot.outcome.is_none())
            .count();
        self.server.metrics.request_queue_size.add(-signed(running));
        self.server
            .metrics
            .request_bytes_in_flight
            .add(-signed(self.bytes));
    }
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn observe(metrics: &Metrics, line: &'static Line, started: Instant) {
    if let Some(api) = metrics.api(line.place()) {
        api.requests.add(1);
        api.latency.observe(started.elapsed());
    }
}

/// What a handler's end means: its reply, or, if it panicked, a refusal in its own layout.
fn settle(
    server: &Server,
    ticket: &Ticket,
    outcome: Result<Outcome, Box<dyn Any + Send>>,
) -> Outcome {
    match outcome {
        Ok(Err(error @ (WireError::Reply { .. } | WireError::ReplyTooLarge(_)))) => {
            let fault = Fault::Internal(error.to_string());
            fail(server, ticket, &fault, "a reply could not be written")
        }
        Ok(outcome) => outcome,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            fail(
                server,
                ticket,
                &Fault::Internal(text.to_owned()),
                "a request's handler panicked",
            )
        }
    }
}

fn timed_out(server: &Server, ticket: &Ticket) -> Outcome {
    let fault = Fault::TimedOut(format!(
        "no answer within requestTimeoutMs={}",
        server.config.request_timeout_ms
    ));
    fail(server, ticket, &fault, "a request ran out of time")
}

fn fail(server: &Server, ticket: &Ticket, fault: &Fault, what: &str) -> Outcome {
    if let Some(api) = server.metrics.api(ticket.line.place()) {
        api.failures.add(1);
    }
    tracing::error!(api = ticket.line.name, version = ticket.version, error = %fault, "{what}");
    refuse::reply(
        ticket.line.key,
        ticket.version,
        ticket.correlation_id,
        &ticket.body,
        fault,
    )
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
