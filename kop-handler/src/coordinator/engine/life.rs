//! The life of a shard: loading, appending, ending; and the one task that watches deadlines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use tracing::{Instrument, debug, info, info_span, warn};

use super::active::{Active, Settled};
use super::store::{Pending, ShardLog, StoreFault};
use super::timers::Due;
use super::{Cell, Engine, Phase};
use crate::coordinator::group::Shard;
use crate::coordinator::group::message::{Command, Reply};
use crate::coordinator::record;

/// Longest sleep of the timer task when nothing is due.
const MAX_SLEEP: Duration = Duration::from_secs(3600);

impl Engine {
    pub(super) async fn load(self: &Arc<Self>, cell: &Arc<Cell>) {
        let Ok(_permit) = self.loads.acquire().await else {
            return; // the semaphore is never closed
        };
        match self.read_all(cell).await {
            Ok((machine, log)) => self.begin_life(cell, machine, log),
            Err(StoreFault::NotOwner(fault)) => {
                // A client that asked the wrong broker, which is nobody's fault.
                debug!(
                    fault,
                    "a shard of the group coordinator is served elsewhere"
                );
                let error = ResponseError::NotCoordinator;
                self.end_life(cell, &mut cell.phase.lock(), error);
            }
            Err(fault) => {
                warn!(%fault, "a shard of the group coordinator cannot be loaded");
                let error = ResponseError::CoordinatorNotAvailable;
                self.end_life(cell, &mut cell.phase.lock(), error);
            }
        }
    }

    async fn read_all(&self, cell: &Cell) -> Result<(Shard, Arc<dyn ShardLog>), StoreFault> {
        let log = self.store.open(cell.index).await?;
        let mut machine = Shard::new(Arc::clone(&self.settings));
        let mut next = Some(0);
        let mut unreadable = 0_u64;
        while let Some(from) = next {
            let chunk = log.read(from, self.limits.load_chunk_bytes).await?;
            for record in chunk.records {
                match record::decode(&record.key, record.value.as_deref()) {
                    Ok(Some(record)) => drop(machine.replay(record)),
                    Ok(None) => {}
                    Err(error) => {
                        unreadable += 1;
                        warn!(%error, "a record of the offsets topic cannot be read and is skipped");
                    }
                }
            }
            next = chunk.next.filter(|next| *next > from);
            tokio::task::yield_now().await; // a long log does not starve connections
        }
        let held = machine.census();
        info!(
            groups = held.groups,
            offsets = held.offsets,
            unreadable,
            "a shard of the group coordinator is loaded"
        );
        Ok((machine, log))
    }

    fn begin_life(self: &Arc<Self>, cell: &Arc<Cell>, mut machine: Shard, log: Arc<dyn ShardLog>) {
        let now = self.now();
        machine.wake(now);
        let life = self.lives.fetch_add(1, Ordering::SeqCst) + 1;
        let mut active = Box::new(Active::new(life, machine, log));
        let mut phase = cell.phase.lock();
        let Phase::Loading(waiting) = &mut *phase else {
            return; // the engine was closed meanwhile
        };
        let waiting: VecDeque<_> = std::mem::take(waiting);
        let groups: Vec<Arc<str>> = active.machine.group_ids().cloned().collect();
        for group in &groups {
            self.arm(cell, &mut active, group, 0);
        }
        self.arm_expiry(cell, life);
        for work in waiting {
            self.work(cell, &mut active, work);
        }
        cell.failures.store(0, Ordering::SeqCst);
        *phase = Phase::Active(active);
        self.end_if_dead(cell, &mut phase);
    }

    fn arm_expiry(&self, cell: &Cell, life: u64) {
        self.timers.arm(Due {
            at_ms: self.now().mono_ms + self.settings.offsets_check_interval_ms,
            shard: cell.index,
            life,
            group: None,
        });
    }

    /// Ends a load or a life; the shard is loaded again when it is asked for after a pause. Ownership that went elsewhere
    /// is no failure: it may be back at once.
    pub(super) fn end_life(&self, cell: &Cell, phase: &mut Phase, error: ResponseError) {
        let failures = if error == ResponseError::NotCoordinator {
            0
        } else {
            cell.failures.fetch_add(1, Ordering::SeqCst).min(16)
        };
        let pause_ms =
            (self.limits.min_reload_pause_ms << failures).min(self.limits.max_reload_pause_ms);
        let broken = Phase::Broken {
            until_ms: self.now().mono_ms.saturating_add(pause_ms),
            error,
        };
        match std::mem::replace(phase, broken) {
            Phase::Loading(waiting) => waiting.into_iter().for_each(|work| work.refuse(error)),
            Phase::Active(active) => active.abandon(error),
            Phase::Idle | Phase::Broken { .. } => {}
        }
        cell.idle.notify_waiters();
    }

    /// Begins appending what was gathered, until something is under way or nothing is left.
    pub(super) fn append(self: &Arc<Self>, cell: &Arc<Cell>, active: &mut Active) {
        while let Some(mut append) = active.begin_append(&self.limits) {
            // Hosts complete appends within the first poll where they can; only others need a task.
            let mut context = Context::from_waker(Waker::noop());
            match append.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => {
                    if !self.settle(cell, active, outcome) {
                        return;
                    }
                }
                Poll::Pending => {
                    let (engine, cell, life) = (Arc::clone(self), Arc::clone(cell), active.life);
                    let span = info_span!("shard", partition = cell.index);
                    let follow = async move { engine.follow(&cell, life, append).await };
                    self.runtime.spawn(follow.instrument(span));
                    return;
                }
            }
        }
    }

    /// Puts the outcome of an append into effect. Whether the shard lives on.
    fn settle(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        active: &mut Active,
        outcome: Result<(), StoreFault>,
    ) -> bool {
        let fault = outcome.as_ref().err().map(ToString::to_string);
        match active.settle(self.now(), outcome) {
            Settled::Alive => true,
            Settled::Refused(groups) => {
                warn!(
                    partition = cell.index,
                    fault, "decisions of the group coordinator were refused and undone"
                );
                let pause_ms = self.now().mono_ms + self.limits.refused_pause_ms;
                for group in groups {
                    active.armed.remove(&group);
                    self.arm(cell, active, &group, pause_ms);
                }
                true
            }
            Settled::Dead(error) => {
                if error == ResponseError::NotCoordinator {
                    info!(
                        partition = cell.index,
                        fault, "a shard of the group coordinator moved away"
                    );
                } else {
                    warn!(
                        partition = cell.index,
                        fault, "a shard of the group coordinator loads again"
                    );
                }
                active.dead = Some(error);
                false
            }
        }
    }

    /// A shard whose append failed for good is ended by whoever holds its phase.
    pub(super) fn end_if_dead(&self, cell: &Cell, phase: &mut Phase) {
        if let Phase::Active(active) = &*phase
            && let Some(error) = active.dead
        {
            self.end_life(cell, phase, error);
        }
    }

    /// Follows an append that did not complete at once.
    async fn follow(self: &Arc<Self>, cell: &Arc<Cell>, life: u64, mut append: Pending<()>) {
        let patience = Duration::from_millis(self.limits.append_timeout_ms);
        let outcome = match tokio::time::timeout(patience, &mut append).await {
            Ok(outcome) => outcome,
            Err(_) => {
                if let Phase::Active(active) = &mut *cell.phase.lock()
                    && active.life == life
                {
                    active.give_up_waiting();
                }
                append.await
            }
        };
        let mut phase = cell.phase.lock();
        let Phase::Active(active) = &mut *phase else {
            return;
        };
        if active.life != life {
            return;
        }
        if self.settle(cell, active, outcome) {
            self.append(cell, active);
        }
        if active.is_idle() {
            cell.idle.notify_waiters();
        }
        self.end_if_dead(cell, &mut phase);
    }

    pub(super) fn spawn_timer_task(self: &Arc<Self>) {
        let timers = Arc::clone(&self.timers);
        let clock = Arc::clone(&self.clock);
        let engine = Arc::downgrade(self);
        self.runtime.spawn(async move {
            loop {
                let wait = timers.next_ms().map_or(MAX_SLEEP, |at_ms| {
                    Duration::from_millis(at_ms.saturating_sub(clock.monotonic_ms())).min(MAX_SLEEP)
                });
                let _ = tokio::time::timeout(wait, timers.sooner.notified()).await; // either way: look again
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                if engine.closed.load(Ordering::SeqCst) {
                    return;
                }
                for due in timers.take(clock.monotonic_ms()) {
                    engine.fire(due);
                }
            }
        });
    }

    fn fire(self: &Arc<Self>, due: Due) {
        let cells = self.cells.get().map(Vec::as_slice).unwrap_or_default();
        let Some(cell) = cells.get(due.shard as usize) else {
            return;
        };
        let mut phase = cell.phase.lock();
        let Phase::Active(active) = &mut *phase else {
            return;
        };
        if active.life != due.life {
            return;
        }
        match due.group {
            Some(group) => {
                if active.armed.get(&group) == Some(&due.at_ms) {
                    active.armed.remove(&group);
                }
                self.run(cell, active, &group, Command::Tick, None);
            }
            None => {
                self.arm_expiry(cell, due.life);
                let groups: Vec<Arc<str>> = active.machine.group_ids().cloned().collect();
                for group in groups {
                    self.run(cell, active, &group, Command::Expire, None);
                }
                self.refresh_if_due(active);
            }
        }
        self.end_if_dead(cell, &mut phase);
    }

    /// Has what is old written again now and then, where the log would lose it: at the first look after a load, since
    /// nobody knows when that was done last, and then once per interval.
    fn refresh_if_due(self: &Arc<Self>, active: &mut Active) {
        let now = self.now();
        let Some(every_ms) = self.settings.refresh_after_ms else {
            return;
        };
        if now.mono_ms < active.refresh_at_ms {
            return;
        }
        active.refresh_at_ms = now.mono_ms.saturating_add(every_ms);
        let age_ms = i64::try_from(every_ms).unwrap_or(i64::MAX);
        let before_ms = now.wall_ms.saturating_sub(age_ms);
        let groups: Vec<Arc<str>> = active.machine.group_ids().cloned().collect();
        self.runtime
            .spawn(Arc::clone(self).refresh(groups, before_ms));
    }

    /// One group after the other, each step durable before the next: it never holds up clients' commands.
    async fn refresh(self: Arc<Self>, groups: Vec<Arc<str>>, before_ms: i64) {
        for group in groups {
            let mut after = None;
            loop {
                let command = Command::Refresh { before_ms, after };
                match self.submit(&group, command).await {
                    Reply::Refreshed(Some(next)) => after = Some(next),
                    Reply::Refreshed(None) => break,
                    // The shard is gone, or the log is full: the next look begins anew.
                    _ => return,
                }
            }
        }
    }
}
