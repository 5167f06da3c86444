//! Appends under way, in the order in which the host took them. No I/O, no clock.
//!
//! Outcomes may be learned in any order; batches are taken in from the front only, so that what is known of the log is
//! always that of a prefix of it.

use std::collections::VecDeque;

use handler_api::Appended;
use tokio::sync::oneshot;

use super::producers::{InFlight, Sequence};
use crate::error::Fault;

/// What is kept of a batch until it is durable, and needed to take it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Offsets that it takes up.
    pub(super) span: u32,
    /// Of an idempotent producer.
    pub(super) sequence: Option<Sequence>,
    /// Largest timestamp; −1 for a control batch.
    pub(super) max_timestamp_ms: i64,
    /// Its size.
    pub(super) bytes: u64,
    /// When it arrived, in ms since the epoch.
    pub(super) arrived_ms: i64,
}

/// Where a batch went: base and last offset.
pub(super) type Place = Result<(i64, i64), Fault>;

#[derive(Debug)]
enum Outcome {
    Open,
    Durable(Appended),
    Lost,
}

#[derive(Debug)]
struct Pending {
    ticket: u64,
    batch: Arrived,
    flying: Option<InFlight>,
    outcome: Outcome,
    /// Who sent the same batch again meanwhile.
    followers: Vec<oneshot::Sender<Place>>,
}

/// The appends under way of one partition.
#[derive(Debug, Default)]
pub(super) struct Pendings {
    queue: VecDeque<Pending>,
    next_ticket: u64,
}

/// How to learn where a batch that is under way went.
#[derive(Debug)]
pub(super) enum Follow {
    /// It is known.
    Known(Place),
    /// It comes.
    Later(oneshot::Receiver<Place>),
}

impl Pendings {
    /// Adds an append at the end; its ticket names it.
    pub(super) fn add(&mut self, batch: Arrived) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queue.push_back(Pending {
            ticket,
            batch,
            flying: batch.sequence.map(|sequence| InFlight { ticket, sequence }),
            outcome: Outcome::Open,
            followers: Vec::new(),
        });
        ticket
    }

    /// Batches of idempotent producers that are under way, oldest first.
    pub(super) fn in_flight(&self) -> impl DoubleEndedIterator<Item = &InFlight> + Clone {
        self.queue
            .iter()
            .filter(|pending| !matches!(pending.outcome, Outcome::Lost))
            .filter_map(|pending| pending.flying.as_ref())
    }

    /// Listens to the outcome of an append.
    pub(super) fn follow(&mut self, ticket: u64) -> Follow {
        let lost = || Follow::Known(Err(Fault::Internal("the append is not known".to_owned())));
        let Some(pending) = self.find(ticket) else {
            return lost();
        };
        match &pending.outcome {
            Outcome::Open => {
                let (sender, receiver) = oneshot::channel();
                pending.followers.push(sender);
                Follow::Later(receiver)
            }
            Outcome::Durable(appended) => Follow::Known(Ok(place(&pending.batch, appended))),
            Outcome::Lost => lost(),
        }
    }

    /// Notes how an append ended and tells who follows it.
    pub(super) fn settle(&mut self, ticket: u64, result: &Result<Appended, Fault>) {
        let Some(pending) = self.find(ticket) else {
            return;
        };
        let told = result
            .as_ref()
            .map(|appended| place(&pending.batch, appended))
            .map_err(Clone::clone);
        pending.outcome = match result {
            Ok(appended) => Outcome::Durable(*appended),
            Err(_) => Outcome::Lost,
        };
        for follower in pending.followers.drain(..) {
            // A follower that went away needs no answer.
            let _ = follower.send(told.clone());
        }
    }

    /// The next batch whose turn it is to be taken in, and where it lies.
    pub(super) fn next_durable(&mut self) -> Option<(Arrived, Appended)> {
        loop {
            match self.queue.front()?.outcome {
                Outcome::Open => return None,
                Outcome::Lost => {
                    self.queue.pop_front();
                }
                Outcome::Durable(appended) => {
                    return self
                        .queue
                        .pop_front()
                        .map(|pending| (pending.batch, appended));
                }
            }
        }
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn find(&mut self, ticket: u64) -> Option<&mut Pending> {
        let at = self
            .queue
            .binary_search_by_key(&ticket, |pending| pending.ticket)
            .ok()?;
        self.queue.get_mut(at)
    }
}

/// Base and last offset of a batch.
pub(super) fn place(batch: &Arrived, appended: &Appended) -> (i64, i64) {
    (appended.index - i64::from(batch.span) + 1, appended.index)
}

#[cfg(test)]
mod tests {
    use handler_api::Position;

    use super::*;

    fn batch(span: u32) -> Arrived {
        Arrived {
            span,
            sequence: None,
            max_timestamp_ms: 0,
            bytes: 1,
            arrived_ms: 0,
        }
    }

    fn at(index: i64) -> Result<Appended, Fault> {
        Ok(Appended {
            position: Position::new(1, index),
            index,
        })
    }

    #[test]
    fn outcomes_in_any_order_are_taken_in_from_the_front() {
        let mut pendings = Pendings::default();
        let tickets: Vec<u64> = (1..=4).map(|span| pendings.add(batch(span))).collect();
        pendings.settle(tickets[2], &at(5));
        assert!(pendings.next_durable().is_none(), "the first is open");
        pendings.settle(tickets[1], &Err(Fault::StorageRefused(String::new())));
        pendings.settle(tickets[0], &at(0));
        let taken: Vec<i64> = std::iter::from_fn(|| pendings.next_durable())
            .map(|(_, appended)| appended.index)
            .collect();
        assert_eq!(taken, [0, 5]);
        assert!(!pendings.is_empty());
        pendings.settle(tickets[3], &at(9));
        assert_eq!(
            pendings.next_durable().map(|(batch, _)| batch.span),
            Some(4)
        );
        assert!(pendings.is_empty());
    }

    #[test]
    fn who_follows_an_append_hears_its_place_or_its_fault() {
        let mut pendings = Pendings::default();
        let (first, second) = (pendings.add(batch(3)), pendings.add(batch(1)));
        let (Follow::Later(mut a), Follow::Later(mut b)) =
            (pendings.follow(first), pendings.follow(second))
        else {
            panic!("both are open");
        };
        pendings.settle(first, &at(2));
        pendings.settle(second, &Err(Fault::StorageRefused("full".to_owned())));
        assert_eq!(a.try_recv(), Ok(Ok((0, 2))));
        assert_eq!(
            b.try_recv(),
            Ok(Err(Fault::StorageRefused("full".to_owned())))
        );
        assert!(matches!(pendings.follow(first), Follow::Known(Ok((0, 2)))));
    }
}
