//! The tests that every host must pass (feature `contract`).
//!
//! A host gives a [`Subject`] and writes `handler_api::contract_tests!(subject)` in a test module; each fact of this
//! contract becomes a test there. Nothing here knows which host it is, and everything goes through the ABI as a
//! plugin's calls do.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "assertions of tests"
)]

mod appending;
mod control;
mod ledgers;
mod reading;
mod watching;

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

pub use appending::*;
pub use control::*;
pub use ledgers::*;
pub use reading::*;
pub use watching::*;

use crate::auth::Credentials;
use crate::control::{Event, Operation};
use crate::ledger::{OpenLedgers, Opened};
use crate::topics::{CreateTopic, Topic, TopicNames};
use crate::{
    ApiError, AppendRequest, Appended, ErrorCode, Handle, Host, HostServices, Position, ReadAnswer,
    ReadRequest, SharedBytes,
};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host under test.
pub trait Subject: Send + Sync {
    /// A fresh host that knows the namespace `public/default` and no topic. What it has to tell goes to `witness`.
    fn start(&self, witness: Arc<Witness>) -> Box<dyn Running>;

    /// Credentials of somebody who may do everything, if the host checks any.
    fn credentials(&self) -> Option<Credentials> {
        None
    }
}

/// A host that was started for one test; dropping it ends it.
pub trait Running: Send + Sync {
    /// Its services.
    fn services(&self) -> Arc<dyn HostServices>;

    /// Lets what is under way go on; called again and again while a test waits. For simulated hosts.
    fn drive(&self) {}
}

/// Keeps what a host tells its plugin.
#[derive(Debug, Default)]
pub struct Witness {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Heard {
    ends: Vec<(Handle, Position, i64)>,
    events: Vec<(u32, Bytes)>,
}

impl Witness {
    /// To be called where a plugin's [`crate::ProtocolHandler::end_moved`] would be.
    pub fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        self.heard
            .lock()
            .unwrap()
            .ends
            .push((handle, position, index));
        self.changed.notify_all();
    }

    /// To be called where a plugin's [`crate::ProtocolHandler::event`] would be.
    pub fn event(&self, op: u32, payload: Bytes) {
        self.heard.lock().unwrap().events.push((op, payload));
        self.changed.notify_all();
    }

    fn ends(&self, handle: Handle) -> Vec<i64> {
        let heard = self.heard.lock().unwrap();
        heard
            .ends
            .iter()
            .filter(|end| end.0 == handle)
            .map(|end| end.2)
            .collect()
    }

    fn events<E: Event>(&self) -> Vec<E> {
        let heard = self.heard.lock().unwrap();
        let mine = heard.events.iter().filter(|(op, _)| *op == E::OP);
        mine.map(|(_, payload)| E::decode(payload.clone()).unwrap())
            .collect()
    }
}

/// One started host and its witness, with the calls that tests make.
struct Bench {
    witness: Arc<Witness>,
    host: Host,
    running: Box<dyn Running>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

const TOPIC: &str = "persistent://public/default/contract";
const PARTITION: &str = "persistent://public/default/contract-partition-0";

impl Bench {
    fn start(subject: &dyn Subject) -> Self {
        let witness = Arc::new(Witness::default());
        let running = subject.start(Arc::clone(&witness));
        Self {
            witness,
            host: Host::of(running.services()),
            running,
        }
    }

    /// A host with one topic, opened.
    fn with_topic(subject: &dyn Subject) -> (Self, Handle) {
        let bench = Self::start(subject);
        bench.create(TOPIC, 2).unwrap();
        let handle = bench.open(PARTITION).unwrap();
        (bench, handle)
    }

    /// Waits for an answer, driving the host meanwhile.
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut future = std::pin::pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
            self.running.drive();
            assert!(Instant::now() < deadline, "no answer within {PATIENCE:?}");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Waits until a condition holds, driving the host meanwhile.
    fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            self.running.drive();
            assert!(Instant::now() < deadline, "never came: {what}");
            let heard = self.witness.heard.lock().unwrap();
            drop(
                self.witness
                    .changed
                    .wait_timeout(heard, Duration::from_millis(1)),
            );
        }
    }

    fn control<O: Operation>(&self, request: &O::Request) -> Result<O::Answer, ApiError> {
        self.wait(self.host.control::<O>(request))
    }

    fn create(&self, name: &str, partitions: u32) -> Result<Topic, ApiError> {
        self.control::<CreateTopic>(&Topic {
            name: name.into(),
            partitions,
            ..Topic::default()
        })
    }

    /// Opens a partition, coming again while the host is not ready.
    fn opened(&self, name: &str) -> Result<Opened, ApiError> {
        let names = TopicNames {
            names: vec![name.into()],
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let opened = self.control::<OpenLedgers>(&names)?.ledgers.remove(0);
            match opened.fault.clone().map(ApiError::from) {
                None => return Ok(opened),
                Some(error) if error.kind() == ErrorCode::NotReady && Instant::now() < deadline => {
                }
                Some(error) => return Err(error),
            }
        }
    }

    fn open(&self, name: &str) -> Result<Handle, ApiError> {
        self.opened(name)
            .map(|opened| opened.handle.expect("an opened ledger has a handle").into())
    }

    fn append(&self, handle: Handle, messages: u32, payload: &[u8]) -> Result<Appended, ApiError> {
        self.wait(self.host.append(vec![entry(handle, messages, payload)]))
            .unwrap()
            .remove(0)
    }

    /// Appends entries of one to three messages; answers index and payload of each.
    fn fill(&self, handle: Handle, entries: u32) -> Vec<(i64, Vec<u8>)> {
        let fill = |number: u32| {
            let payload =
                format!("entry {number} {}", "x".repeat(number as usize % 7)).into_bytes();
            let appended = self.append(handle, number % 3 + 1, &payload).unwrap();
            (appended.index, payload)
        };
        (0..entries).map(fill).collect()
    }

    fn read(&self, request: ReadRequest, max_bytes: u64) -> Result<ReadAnswer, ApiError> {
        self.wait(self.host.read(vec![request], max_bytes))
            .unwrap()
            .remove(0)
    }

    /// Index and payload of everything from `index` on, read in pieces.
    fn read_all(&self, handle: Handle, mut index: i64) -> Vec<(i64, Vec<u8>)> {
        let mut all = Vec::new();
        let mut position = Position::UNKNOWN;
        loop {
            let request = ReadRequest {
                position,
                max_entries: 3,
                ..from(handle, index)
            };
            let answer = self.read(request, 1 << 20).unwrap();
            let Some(last) = answer.entries.last() else {
                return all;
            };
            index = last.index + 1;
            position = answer.next;
            all.extend(contents(&answer));
        }
    }
}

fn entry(handle: Handle, messages: u32, payload: &[u8]) -> AppendRequest {
    AppendRequest {
        handle,
        messages,
        flags: 0,
        segments: vec![SharedBytes::from(payload.to_vec())].into(),
    }
}

/// A read of everything from an index on.
fn from(handle: Handle, index: i64) -> ReadRequest {
    ReadRequest {
        handle,
        index,
        position: Position::UNKNOWN,
        max_entries: u32::MAX,
        flags: 0,
        max_bytes: 1 << 20,
    }
}

/// Index and payload of the entries of an answer.
fn contents(answer: &ReadAnswer) -> Vec<(i64, Vec<u8>)> {
    answer
        .entries
        .iter()
        .map(|entry| {
            let bytes = entry
                .segments
                .iter()
                .flat_map(|segment| segment.bytes.to_vec());
            (entry.index, bytes.collect())
        })
        .collect()
}

fn kind<T: std::fmt::Debug>(result: Result<T, ApiError>) -> ErrorCode {
    result.expect_err("this must be refused").kind()
}

/// Hands the names of all facts to a macro, behind what is passed on to it.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_facts {
    ($callback:path; $($passed:tt)*) => {
        $callback! { $($passed)*;
            appends_keep_the_order_of_their_calls_whatever_becomes_of_the_replies
            indexes_are_dense_and_count_messages
            a_refused_entry_takes_up_no_index
            results_are_in_the_order_of_requests_across_partitions
            entries_in_many_pieces_are_one_entry
            bytes_cross_without_a_copy
            concurrent_appends_lose_and_double_nothing
            a_read_starts_with_the_entry_that_holds_the_index
            reads_go_on_from_the_position_that_was_answered
            a_wrong_position_does_no_harm
            reads_stop_at_every_limit
            only_the_first_entry_of_a_call_may_exceed_its_limits
            reads_outside_of_what_there_is_answer_the_bounds
            find_answers_the_entry_that_holds_an_index
            a_watch_is_told_once_and_only_when_the_end_moved
            a_second_watch_replaces_the_first
            no_wake_up_is_lost_between_threads
            handles_die_with_their_topic_and_never_come_back
            opening_twice_gives_the_same_handle
            topics_are_created_described_and_listed
            topics_grow_but_do_not_shrink
            topic_properties_are_kept
            topic_properties_change_by_compare_and_set
            deleting_a_topic_deletes_its_data
            namespaces_are_needed_and_made
            retention_is_set_where_the_host_gives_up_data
            values_change_by_compare_and_set
            values_are_listed_by_path
            watched_paths_are_told_of
            cursors_only_move_forward
            trimming_keeps_what_lies_behind_a_cursor
            unknown_operations_and_malformed_requests_are_refused
            everything_is_looked_up_here_or_elsewhere
            permissions_are_answered_one_by_one
            credentials_are_checked_where_they_are_asked_for
            rolling_over_keeps_entries_and_indexes
            trimming_moves_the_start_to_an_entry
            a_trimmed_ledger_goes_on_where_it_was
            a_sealed_ledger_is_replaced_in_one_step
            a_replacement_that_does_not_fit_is_refused
            ledger_properties_are_kept
            storage_use_counts_bytes
        }
    };
}

/// Turns every fact of the contract into a test of the host that the expression names.
#[macro_export]
macro_rules! contract_tests {
    ($subject:expr) => {
        $crate::contract_facts! { $crate::contract_tests; @each $subject }
    };
    (@each $subject:expr; $($name:ident)+) => {
        $(#[test] fn $name() { $crate::contract::$name(&$subject); })+
    };
}

/// A fact: it fails by a panic.
pub type Fact = fn(&dyn Subject);

macro_rules! listed {
    (; $($name:ident)+) => {
        /// Every fact of the contract with its name, for hosts that no test harness can be linked to.
        pub const FACTS: &[(&str, Fact)] = &[$((stringify!($name), $name as Fact),)+];
    };
}
contract_facts! { listed; }

/// The capability without which a fact says nothing of a host; 0 for most.
#[must_use]
pub fn needs(fact: &str) -> u64 {
    match fact {
        "a_sealed_ledger_is_replaced_in_one_step"
        | "a_replacement_that_does_not_fit_is_refused" => crate::host::capability::REPLACE_LEDGER,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    /// A fact that is not in the macro's list would never be tested.
    #[test]
    fn every_fact_is_in_the_list() {
        let list = include_str!("contract.rs");
        let sources = [
            include_str!("contract/appending.rs"),
            include_str!("contract/control.rs"),
            include_str!("contract/ledgers.rs"),
            include_str!("contract/reading.rs"),
            include_str!("contract/watching.rs"),
        ];
        let facts: Vec<&str> = sources
            .iter()
            .flat_map(|source| source.split("pub fn ").skip(1))
            .filter_map(|rest| rest.split_once("(subject: &dyn Subject)"))
            .map(|(name, _)| name)
            .collect();
        assert!(facts.len() > 30);
        for fact in facts {
            assert!(
                list.contains(&format!("            {fact}\n")),
                "{fact} is not listed"
            );
        }
    }
}
