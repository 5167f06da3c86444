//! How a rebalance begins, waits and ends: the shared steps of joining, leaving and expiring.
//!
//! [`Draft`] is a living state in the making, together with the records and replies that it leads to. Kafka's source:
//! `GroupMetadataManager.prepareRebalance`, `completeClassicGroupJoin` and around.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::live::{InitialDelay, JoinTimer, Live, State};
use super::message::{GroupSettings, JoinReply, Now, Reply, SyncReply, Token};
use super::{Decision, Group, Soft};
use crate::coordinator::record::Record;

/// A join phase in which nobody has joined is tried again, but not more often than this.
const MIN_JOIN_RETRY_MS: u64 = 1_000;

/// A living state in the making.
pub(super) struct Draft<'a> {
    pub(super) id: &'a str,
    pub(super) now: Now,
    pub(super) live: Live,
    records: Vec<Record>,
    released: Vec<(Token, Reply)>,
}

impl<'a> Draft<'a> {
    pub(super) fn of(now: Now, id: &'a str, group: Option<&Group>) -> Self {
        Self {
            id,
            now,
            live: group.map_or_else(Live::empty, |group| group.live.clone()),
            records: Vec::new(),
            released: Vec::new(),
        }
    }

    /// The decision that puts this draft in place.
    pub(super) fn decide(self, reply: Option<Reply>) -> Decision {
        Decision {
            records: self.records,
            soft: Soft::Replace(Box::new(self.live)),
            reply,
            released: self.released,
        }
    }

    pub(super) fn persist(&mut self) {
        self.records.push(Record::Group {
            group: self.id.to_owned(),
            value: Some(self.live.record()),
        });
    }

    pub(super) fn in_ms(&self, delay_ms: u64) -> u64 {
        self.now.mono_ms.saturating_add(delay_ms)
    }

    pub(super) fn release_join(&mut self, token: Option<Token>, reply: JoinReply) {
        if let Some(token) = token {
            self.released.push((token, Reply::Join(reply)));
        }
    }

    pub(super) fn release_sync(&mut self, token: Option<Token>, reply: SyncReply) {
        if let Some(token) = token {
            self.released.push((token, Reply::Sync(reply)));
        }
    }

    /// A member's session begins again.
    pub(super) fn touch(&mut self, member_id: &str) {
        let now = self.now.mono_ms;
        if let Some(member) = self.live.change(member_id) {
            member.deadline_ms = now.saturating_add(member.session_ms());
        }
    }

    /// A member goes; what it had parked is answered UNKNOWN_MEMBER_ID, so that it joins anew if it is still there.
    pub(super) fn drop_member(&mut self, member_id: &str) {
        if let Some(member) = self.live.change(member_id) {
            let (join, sync) = (member.join.take(), member.sync.take());
            let error = ResponseError::UnknownMemberId;
            self.release_join(join, JoinReply::refused(error, ""));
            self.release_sync(sync, SyncReply::refused(error));
        }
        self.live.remove(member_id);
    }

    /// After a membership changed: a new rebalance where the state allows one, else perhaps the end of this one.
    pub(super) fn rebalance_or_complete(&mut self, settings: &GroupSettings) {
        if self.live.is(State::PreparingRebalance) {
            self.maybe_complete_join();
        } else {
            self.prepare_rebalance(settings);
        }
    }

    /// Ends the join phase if all have joined; the first rebalance of a group waits for its timer.
    pub(super) fn maybe_complete_join(&mut self) {
        if self.live.is(State::PreparingRebalance)
            && self.live.all_joined()
            && self.live.previous != State::Empty
        {
            self.complete_join();
        }
    }

    pub(super) fn prepare_rebalance(&mut self, settings: &GroupSettings) {
        if self.live.is(State::CompletingRebalance) {
            for id in self.member_ids() {
                if let Some(member) = self.live.change(&id) {
                    member.assignment = Bytes::new();
                }
            }
            self.propagate(Some(ResponseError::RebalanceInProgress));
        }
        self.live.pending_sync.clear();
        self.live.sync_deadline_ms = None;

        let initial = self.live.is(State::Empty);
        if initial {
            let delay_ms = settings.initial_rebalance_delay_ms;
            self.live.join_timer = Some(JoinTimer {
                at_ms: self.in_ms(delay_ms),
                initial: Some(InitialDelay {
                    delay_ms,
                    remaining_ms: self.live.rebalance_timeout_ms().saturating_sub(delay_ms),
                }),
            });
        }
        self.live.enter(State::PreparingRebalance, self.now);
        if initial {
            return;
        }
        if self.live.all_joined() {
            self.complete_join();
        } else {
            self.live.join_timer = Some(JoinTimer {
                at_ms: self.in_ms(self.live.rebalance_timeout_ms()),
                initial: None,
            });
        }
    }

    /// The timer of the join phase ran out.
    pub(super) fn join_timer_fired(&mut self, timer: JoinTimer, settings: &GroupSettings) {
        match timer.initial {
            Some(waited) if self.live.new_member_added && waited.remaining_ms != 0 => {
                self.live.new_member_added = false;
                let delay_ms = settings.initial_rebalance_delay_ms.min(waited.remaining_ms);
                self.live.join_timer = Some(JoinTimer {
                    at_ms: self.in_ms(delay_ms),
                    initial: Some(InitialDelay {
                        delay_ms,
                        remaining_ms: waited.remaining_ms.saturating_sub(waited.delay_ms),
                    }),
                });
            }
            _ => self.complete_join(),
        }
    }

    /// Ends the join phase: who has not joined is out (static members stay), and the next generation begins.
    pub(super) fn complete_join(&mut self) {
        self.live.join_timer = None;
        let late: Vec<Arc<str>> = self
            .live
            .members
            .iter()
            .filter(|(_, m)| m.join.is_none() && m.instance_id.is_none())
            .map(|(id, _)| Arc::clone(id))
            .collect();
        for id in late {
            self.drop_member(&id);
        }
        if !self.live.elect_joined_leader() && !self.live.members.is_empty() {
            // Only static members are left and none has joined: wait until one does, or their sessions end.
            let wait_ms = self.live.rebalance_timeout_ms().max(MIN_JOIN_RETRY_MS);
            self.live.join_timer = Some(JoinTimer {
                at_ms: self.in_ms(wait_ms),
                initial: None,
            });
            return;
        }

        self.live.generation = self.live.generation.checked_add(1).unwrap_or(1);
        self.live.pending_sync.clear();
        self.live.new_member_added = false;
        if self.live.members.is_empty() {
            self.live.protocol = None;
            self.live.leader = None;
            self.live.enter(State::Empty, self.now);
            self.persist();
            return;
        }
        self.live.protocol = self.live.select_protocol();
        self.live.enter(State::CompletingRebalance, self.now);
        for id in self.member_ids() {
            let reply = self.live.join_reply(&id);
            let token = self.live.change(&id).and_then(|member| {
                member.is_new = false;
                member.join.take()
            });
            self.release_join(token, reply);
            self.touch(&id);
            self.live.pending_sync.insert(id, ());
        }
        self.live.sync_deadline_ms = Some(self.in_ms(self.live.rebalance_timeout_ms()));
    }

    /// Answers every parked SyncGroup, with its assignment or an error, and begins those sessions again.
    pub(super) fn propagate(&mut self, error: Option<ResponseError>) {
        for id in self.member_ids() {
            let Some(member) = self.live.change(&id) else {
                continue;
            };
            let Some(token) = member.sync.take() else {
                continue;
            };
            let reply = match error {
                Some(error) => SyncReply::refused(error),
                None => SyncReply {
                    error: None,
                    assignment: member.assignment.clone(),
                    protocol_type: self.live.protocol_type.clone(),
                    protocol: self.live.protocol.clone(),
                },
            };
            self.release_sync(Some(token), reply);
            self.touch(&id);
        }
    }

    pub(super) fn member_ids(&self) -> Vec<Arc<str>> {
        self.live.members.keys().cloned().collect()
    }
}
