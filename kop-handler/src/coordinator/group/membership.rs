//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the deadlines of a classic group, as decisions.
//!
//! * KIP-394: a new dynamic member is first given an id (MEMBER_ID_REQUIRED) and must come back with it.
//! * KIP-345: a static member (`group.instance.id`) that comes back takes its old place without a rebalance.
//! * KIP-814: a static leader that comes back is told to skip its assignment.
//!
//! Kafka's source: `GroupMetadataManager.classicGroupJoin…`, `classicGroupSync`, `classicGroupLeave`.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use super::live::{Live, Member, State};
use super::message::{
    GroupSettings, Heartbeat, Join, JoinReply, Leaving, Left, Now, Reply, Sync, SyncReply, Token,
};
use super::rebalance::Draft;
use super::{Decision, Group};

/// Text longer than this, in bytes, cannot be written into a record.
const MAX_TEXT_LEN: usize = i16::MAX as usize;

fn refuse_join(error: ResponseError, member_id: &str) -> Decision {
    Decision::answer(Reply::Join(JoinReply::refused(error, member_id)))
}

pub(super) fn join(
    settings: &GroupSettings,
    now: Now,
    id: &str,
    group: Option<&Group>,
    token: Token,
    join: Join,
) -> Decision {
    let timeouts = settings.min_session_timeout_ms..=settings.max_session_timeout_ms;
    if !timeouts.contains(&join.session_timeout_ms) {
        return refuse_join(ResponseError::InvalidSessionTimeout, &join.member_id);
    }
    if join.protocols.len() > settings.max_member_protocols || !can_be_stored(&join) {
        return refuse_join(ResponseError::InvalidRequest, &join.member_id);
    }
    let is_new = join.member_id.is_empty();
    if group.is_none() && !is_new {
        return refuse_join(ResponseError::UnknownMemberId, &join.member_id);
    }
    let draft = Draft::of(now, id, group);
    if !accepts(&draft.live, &join.member_id, settings.max_group_size) {
        return turn_away(draft, &join.member_id);
    }
    if !draft.live.supports(&join.protocol_type, &join.protocols) {
        return refuse_join(ResponseError::InconsistentGroupProtocol, &join.member_id);
    }
    if is_new {
        join_new(settings, draft, token, join)
    } else {
        join_again(settings, draft, token, join)
    }
}

fn can_be_stored(join: &Join) -> bool {
    let names = join.protocols.iter().map(|(name, _)| name);
    let mut stored = names.chain([&join.protocol_type]).chain(&join.instance_id);
    stored.all(|text| text.len() <= MAX_TEXT_LEN)
}

/// Whether there is room: while a rebalance gathers, for those that already wait, then for whoever comes first.
fn accepts(live: &Live, member_id: &str, max: usize) -> bool {
    match live.state {
        State::Empty => live.pending.contains_key(member_id) || live.pending.len() < max,
        State::PreparingRebalance => {
            live.member(member_id).is_some_and(|m| m.join.is_some())
                || (live.waiting_to_join() < max && live.pending.len() < max)
        }
        State::CompletingRebalance | State::Stable => {
            live.member(member_id).is_some()
                || (live.members.len() < max && live.pending.len() < max)
        }
    }
}

fn turn_away(mut draft: Draft<'_>, member_id: &str) -> Decision {
    let refusal = Reply::Join(JoinReply::refused(ResponseError::GroupMaxSizeReached, ""));
    if draft.live.member(member_id).is_none() && !draft.live.pending.contains_key(member_id) {
        return Decision::answer(refusal);
    }
    draft.drop_member(member_id);
    draft.decide(Some(refusal))
}

fn join_new(settings: &GroupSettings, mut draft: Draft<'_>, token: Token, join: Join) -> Decision {
    let prefix = join.instance_id.as_deref().unwrap_or(&join.client_id);
    let new_id: Arc<str> = Arc::from(format!("{prefix}-{}", join.fresh_id));
    if let Some(instance) = join.instance_id.clone() {
        return match draft.live.statics.get(&instance).cloned() {
            Some(old) => replace_static(settings, draft, token, join, &instance, &old, &new_id),
            None => add_member(settings, draft, token, join, &new_id),
        };
    }
    if !join.require_known_member_id {
        return add_member(settings, draft, token, join, &new_id);
    }
    let session_ms = u64::try_from(join.session_timeout_ms).unwrap_or(0);
    let deadline = draft.in_ms(session_ms);
    draft.live.pending.insert(Arc::clone(&new_id), deadline);
    let reply = JoinReply::refused(ResponseError::MemberIdRequired, &new_id);
    draft.decide(Some(Reply::Join(reply)))
}

fn join_again(
    settings: &GroupSettings,
    mut draft: Draft<'_>,
    token: Token,
    join: Join,
) -> Decision {
    let id = join.member_id.clone();
    if draft.live.pending.contains_key(id.as_str()) {
        if join.instance_id.is_some() {
            return refuse_join(ResponseError::UnknownMemberId, &id); // ids that are given out are never static
        }
        return add_member(settings, draft, token, join, &Arc::from(id));
    }
    if let Err(error) = validate(&draft.live, &id, join.instance_id.as_deref()) {
        return refuse_join(error, &id);
    }
    let matches = draft
        .live
        .member(&id)
        .is_some_and(|member| member.protocols == join.protocols);
    let answer_now = match draft.live.state {
        State::Empty => return refuse_join(ResponseError::UnknownMemberId, &id),
        State::PreparingRebalance => false,
        // It may have missed the answer to its first join: the current generation still holds.
        State::CompletingRebalance => matches,
        // A leader joins again to force a rebalance, e.g. when a topic got partitions.
        State::Stable => matches && !draft.live.is_leader(&id),
    };
    if answer_now {
        return Decision::answer(Reply::Join(draft.live.join_reply(&id)));
    }
    update_member(&mut draft, &id, &join, token);
    draft.rebalance_or_complete(settings);
    draft.decide(None)
}

fn add_member(
    settings: &GroupSettings,
    mut draft: Draft<'_>,
    token: Token,
    join: Join,
    new_id: &Arc<str>,
) -> Decision {
    if draft.live.is(State::PreparingRebalance) && draft.live.previous == State::Empty {
        draft.live.new_member_added = true;
    }
    let member = Member {
        instance_id: join.instance_id,
        client_id: join.client_id,
        client_host: join.client_host,
        rebalance_timeout_ms: join.rebalance_timeout_ms,
        session_timeout_ms: join.session_timeout_ms,
        protocols: own_protocols(&join.protocols),
        assignment: Bytes::new(),
        join: Some(token),
        sync: None,
        is_new: true,
        deadline_ms: draft.in_ms(settings.new_member_join_timeout_ms),
    };
    draft.live.add(new_id, member, &join.protocol_type);
    draft.rebalance_or_complete(settings);
    draft.decide(None)
}

/// Bytes to keep: those of a request are slices of its whole frame, which they would hold in memory.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn own_protocols(protocols: &[(String, Bytes)]) -> Vec<(String, Bytes)> {
    protocols
        .iter()
        .map(|(name, metadata)| (name.clone(), own(metadata)))
        .collect()
}

/// A member joins again: its protocols and timeouts are the new ones, and its JoinGroup waits.
fn update_member(draft: &mut Draft<'_>, id: &str, join: &Join, token: Token) {
    let Some(member) = draft.live.change(id) else {
        return;
    };
    member.protocols = own_protocols(&join.protocols);
    member.rebalance_timeout_ms = join.rebalance_timeout_ms;
    member.session_timeout_ms = join.session_timeout_ms;
    let forgotten = member.join.replace(token);
    // Its older JoinGroup, on a connection that it has most likely given up, must not wait for ever.
    let reply = JoinReply::refused(ResponseError::RebalanceInProgress, id);
    draft.release_join(forgotten, reply);
}

/// A static member is back without its member id: it takes its old place under a new id, and the old id is fenced.
fn replace_static(
    settings: &GroupSettings,
    mut draft: Draft<'_>,
    token: Token,
    join: Join,
    instance: &str,
    old: &Arc<str>,
    new_id: &Arc<str>,
) -> Decision {
    let old_leader = draft.live.leader.as_deref().unwrap_or_default().to_owned();
    if let Some(member) = draft.live.change(old) {
        let (parked_join, parked_sync) = (member.join.take(), member.sync.take());
        let fenced = ResponseError::FencedInstanceId;
        draft.release_join(parked_join, JoinReply::refused(fenced, old));
        draft.release_sync(parked_sync, SyncReply::refused(fenced));
    }
    draft.live.replace_static(instance, old, new_id);
    update_member(&mut draft, new_id, &join, token);
    draft.touch(new_id);

    match draft.live.state {
        State::Stable if draft.live.select_protocol() == draft.live.protocol => {
            if let Some(member) = draft.live.change(new_id) {
                member.join = None; // answered now, by this decision's own reply
            }
            draft.persist();
            let mut reply = draft.live.join_reply(new_id);
            if join.supports_skipping_assignment {
                reply.skip_assignment = draft.live.is_leader(new_id);
            } else {
                // A client that cannot skip its assignment must not believe that it leads.
                reply.leader = old_leader;
                reply.members.clear();
            }
            draft.decide(Some(Reply::Join(reply)))
        }
        State::Stable => {
            draft.rebalance_or_complete(settings);
            draft.decide(None)
        }
        // The leader may be assigning to the old id at this moment.
        State::CompletingRebalance => {
            draft.prepare_rebalance(settings);
            draft.decide(None)
        }
        State::PreparingRebalance | State::Empty => {
            draft.maybe_complete_join();
            draft.decide(None)
        }
    }
}

/// Whether the member is one, and the one that its instance id belongs to.
pub(super) fn validate(
    live: &Live,
    member_id: &str,
    instance_id: Option<&str>,
) -> Result<(), ResponseError> {
    if let Some(instance) = instance_id {
        match live.statics.get(instance) {
            None => return Err(ResponseError::UnknownMemberId),
            Some(held) if **held != *member_id => return Err(ResponseError::FencedInstanceId),
            Some(_) => {}
        }
    }
    if live.member(member_id).is_none() {
        return Err(ResponseError::UnknownMemberId);
    }
    Ok(())
}

pub(super) fn sync(
    now: Now,
    id: &str,
    group: Option<&Group>,
    token: Token,
    sync: Sync,
) -> Decision {
    let refuse = |error| Decision::answer(Reply::Sync(SyncReply::refused(error)));
    let Some(group) = group else {
        return refuse(ResponseError::UnknownMemberId);
    };
    let live = &group.live;
    if let Err(error) = validate(live, &sync.member_id, sync.instance_id.as_deref()) {
        return refuse(error);
    }
    if sync.generation != live.generation {
        return refuse(ResponseError::IllegalGeneration);
    }
    let differs = |asked: &Option<String>, held: &Option<String>| {
        asked.is_some() && held.is_some() && asked != held
    };
    if differs(&sync.protocol_type, &live.protocol_type) || differs(&sync.protocol, &live.protocol)
    {
        return refuse(ResponseError::InconsistentGroupProtocol);
    }
    match live.state {
        State::Empty => refuse(ResponseError::UnknownMemberId),
        State::PreparingRebalance => refuse(ResponseError::RebalanceInProgress),
        State::CompletingRebalance => sync_completing(Draft::of(now, id, Some(group)), token, sync),
        State::Stable => {
            let assignment = live.member(&sync.member_id).map(|m| m.assignment.clone());
            let reply = Reply::Sync(SyncReply {
                error: None,
                protocol_type: live.protocol_type.clone(),
                protocol: live.protocol.clone(),
                assignment: assignment.unwrap_or_default(),
            });
            if !live.pending_sync.contains_key(&sync.member_id) {
                return Decision::answer(reply);
            }
            let mut draft = Draft::of(now, id, Some(group));
            synced(&mut draft.live, &sync.member_id);
            draft.decide(Some(reply))
        }
    }
}

/// A member has sent its SyncGroup; when all have, nobody need be thrown out for it.
fn synced(live: &mut Live, member_id: &str) {
    live.pending_sync.remove(member_id);
    if live.pending_sync.is_empty() {
        live.sync_deadline_ms = None;
    }
}

/// Every SyncGroup waits for the leader's, whose assignment makes the group stable once it is durable.
fn sync_completing(mut draft: Draft<'_>, token: Token, sync: Sync) -> Decision {
    if let Some(member) = draft.live.change(&sync.member_id) {
        let forgotten = member.sync.replace(token);
        let reply = SyncReply::refused(ResponseError::RebalanceInProgress);
        draft.release_sync(forgotten, reply);
    }
    synced(&mut draft.live, &sync.member_id);
    if draft.live.is_leader(&sync.member_id) {
        // If a member is assigned to twice, the last one counts.
        let mut assigned: HashMap<String, Bytes> = sync.assignments.into_iter().collect();
        for id in draft.member_ids() {
            if let Some(member) = draft.live.change(&id) {
                member.assignment = own(&assigned.remove(&*id).unwrap_or_default());
            }
        }
        draft.live.enter(State::Stable, draft.now);
        draft.persist();
        draft.propagate(None);
    }
    draft.decide(None)
}

pub(super) fn heartbeat(group: Option<&Group>, beat: &Heartbeat) -> Decision {
    let refuse = |error| Decision::answer(Reply::Heartbeat(Some(error)));
    let Some(Group { live, .. }) = group else {
        return refuse(ResponseError::UnknownMemberId);
    };
    if let Err(error) = validate(live, &beat.member_id, beat.instance_id.as_deref()) {
        return refuse(error);
    }
    if beat.generation != live.generation {
        return refuse(ResponseError::IllegalGeneration);
    }
    let error = match live.state {
        State::Empty => return refuse(ResponseError::UnknownMemberId),
        State::PreparingRebalance => Some(ResponseError::RebalanceInProgress),
        State::CompletingRebalance | State::Stable => None,
    };
    Decision::answer(Reply::Heartbeat(error)).touching(&beat.member_id)
}

pub(super) fn leave(
    settings: &GroupSettings,
    now: Now,
    id: &str,
    group: Option<&Group>,
    members: Vec<Leaving>,
) -> Decision {
    let mut draft = Draft::of(now, id, group);
    let mut results = Vec::with_capacity(members.len());
    let mut anyone = false;
    for member in members {
        let outcome = leave_one(&mut draft, &member);
        anyone |= outcome.is_ok();
        results.push(Left {
            error: outcome.err(),
            member_id: member.member_id,
            instance_id: member.instance_id,
        });
    }
    let reply = Reply::Leave(results);
    if !anyone {
        return Decision::answer(reply);
    }
    match draft.live.state {
        State::Stable | State::CompletingRebalance => draft.prepare_rebalance(settings),
        State::PreparingRebalance => draft.maybe_complete_join(),
        State::Empty => {}
    }
    draft.decide(Some(reply))
}

fn leave_one(draft: &mut Draft<'_>, leaving: &Leaving) -> Result<(), ResponseError> {
    let (id, instance) = (leaving.member_id.as_str(), leaving.instance_id.as_deref());
    if id.is_empty() {
        // An administrator removes a static member by its instance id.
        let held = instance.and_then(|instance| draft.live.statics.get(instance).cloned());
        let held = held.ok_or(ResponseError::UnknownMemberId)?;
        draft.drop_member(&held);
        return Ok(());
    }
    if !draft.live.pending.contains_key(id) {
        validate(&draft.live, id, instance)?;
    }
    draft.drop_member(id);
    Ok(())
}

/// Whatever deadline has passed takes effect.
pub(super) fn tick(
    settings: &GroupSettings,
    now: Now,
    id: &str,
    group: Option<&Group>,
) -> Decision {
    let due = group
        .and_then(|group| group.live.next_deadline_ms())
        .is_some_and(|at| at <= now.mono_ms);
    if !due {
        return Decision::answer(Reply::Ticked);
    }
    let mut draft = Draft::of(now, id, group);
    expire_pending(&mut draft);
    expire_members(settings, &mut draft);
    if let Some(timer) = draft.live.join_timer
        && timer.at_ms <= now.mono_ms
    {
        draft.join_timer_fired(timer, settings);
    }
    if draft
        .live
        .sync_deadline_ms
        .is_some_and(|at| at <= now.mono_ms)
    {
        expire_syncs(settings, &mut draft);
    }
    draft.decide(Some(Reply::Ticked))
}

fn expire_pending(draft: &mut Draft<'_>) {
    let now = draft.now.mono_ms;
    let before = draft.live.pending.len();
    draft.live.pending.retain(|deadline| *deadline > now);
    let gone = draft.live.pending.len() < before;
    if gone && draft.live.is(State::PreparingRebalance) && draft.live.all_joined() {
        draft.complete_join();
    }
}

fn expire_members(settings: &GroupSettings, draft: &mut Draft<'_>) {
    for id in draft.member_ids() {
        let expired = draft
            .live
            .member(&id)
            .is_some_and(|m| m.expires() && m.deadline_ms <= draft.now.mono_ms);
        if !expired {
            continue; // looked at anew each time: a rebalance that an earlier one began may have saved it
        }
        draft.drop_member(&id);
        match draft.live.state {
            State::Stable | State::CompletingRebalance => draft.prepare_rebalance(settings),
            State::PreparingRebalance if draft.live.all_joined() => draft.complete_join(),
            State::PreparingRebalance | State::Empty => {}
        }
    }
}

/// Members that have not sent their SyncGroup within the rebalance timeout are out (Kafka: `expirePendingSync`).
fn expire_syncs(settings: &GroupSettings, draft: &mut Draft<'_>) {
    draft.live.sync_deadline_ms = None;
    let completing = draft.live.is(State::CompletingRebalance) || draft.live.is(State::Stable);
    let late: Vec<Arc<str>> = draft.live.pending_sync.keys().cloned().collect();
    if !completing || late.is_empty() {
        return;
    }
    for id in late {
        draft.drop_member(&id);
    }
    draft.prepare_rebalance(settings);
}
