//! Calls that Java has not answered yet: numbers with a generation, so that an answer that comes late or twice meets
//! nobody.
//!
//! It must not know what is asked.

use std::time::Instant;

use parking_lot::Mutex;

/// Most calls that may wait at once. More would mean that the broker answers nothing any more.
const MAX_PENDING: usize = 1 << 20;

/// Waiting calls of type `T`.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    slots: Mutex<Slots<T>>,
}

#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    waiting: Option<(T, Instant)>,
}

/// Number and generation in one, as it crosses: never negative.
fn context(number: u32, generation: u32) -> i64 {
    (i64::from(generation & 0x7fff_ffff) << 32) | i64::from(number)
}

impl<T> Pending<T> {
    pub(crate) fn new() -> Self {
        let slots = Slots {
            slots: Vec::new(),
            free: Vec::new(),
        };
        Self {
            slots: Mutex::new(slots),
        }
    }

    /// Keeps a call; answers the number that Java gives back with the answer, or the call if too many wait.
    pub(crate) fn put(&self, call: T, deadline: Instant) -> Result<i64, T> {
        let mut slots = self.slots.lock();
        let Slots { slots, free } = &mut *slots;
        if free.is_empty() && slots.len() < MAX_PENDING {
            let Ok(number) = u32::try_from(slots.len()) else {
                return Err(call);
            };
            slots.push(Slot {
                generation: 0,
                waiting: None,
            });
            free.push(number);
        }
        let Some(number) = free.pop() else {
            return Err(call);
        };
        let Some(slot) = slots.get_mut(number as usize) else {
            return Err(call);
        };
        slot.waiting = Some((call, deadline));
        Ok(context(number, slot.generation))
    }

    /// Looks at a waiting call.
    pub(crate) fn with<R>(&self, ctx: i64, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slots = self.slots.lock();
        let slot = slots.slot(ctx)?;
        slot.waiting.as_mut().map(|(call, _)| look(call))
    }

    /// Takes a call out: the second answer to it meets nobody.
    pub(crate) fn take(&self, ctx: i64) -> Option<T> {
        let mut slots = self.slots.lock();
        let slot = slots.slot(ctx)?;
        let (call, _) = slot.waiting.take()?;
        slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
        slots.free.push(number_of(ctx)?);
        Some(call)
    }

    /// Takes out the calls whose time is over.
    pub(crate) fn expired(&self, now: Instant) -> Vec<T> {
        self.take_all(|deadline| deadline <= now)
    }

    /// Takes out all calls.
    pub(crate) fn drain(&self) -> Vec<T> {
        self.take_all(|_| true)
    }

    fn take_all(&self, over: impl Fn(Instant) -> bool) -> Vec<T> {
        let mut slots = self.slots.lock();
        let Slots { slots, free } = &mut *slots;
        let mut taken = Vec::new();
        for (number, slot) in (0u32..).zip(slots) {
            if slot.waiting.as_ref().is_some_and(|(_, at)| over(*at)) {
                taken.extend(slot.waiting.take().map(|(call, _)| call));
                slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
                free.push(number);
            }
        }
        taken
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        let slots = self.slots.lock();
        slots.slots.len() - slots.free.len()
    }
}

fn number_of(ctx: i64) -> Option<u32> {
    u32::try_from(ctx & 0xffff_ffff).ok()
}

impl<T> Slots<T> {
    fn slot(&mut self, ctx: i64) -> Option<&mut Slot<T>> {
        let slot = self.slots.get_mut(number_of(ctx)? as usize)?;
        (i64::from(slot.generation) == ctx >> 32).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_meets_its_call_once() {
        let pending = Pending::new();
        let deadline = Instant::now();
        let first = pending.put("a", deadline).unwrap();
        let second = pending.put("b", deadline).unwrap();
        assert_eq!(pending.with(second, |call| *call), Some("b"));
        assert_eq!(pending.take(first), Some("a"));
        assert_eq!(pending.take(first), None);
        let third = pending.put("c", deadline).unwrap();
        assert_eq!(pending.take(first), None, "its slot is another's now");
        assert_ne!(first, third);
        assert_eq!(pending.len(), 2);
        assert_eq!(pending.take(third), Some("c"));
        for wrong in [-1, i64::MIN, i64::MAX, 77] {
            assert_eq!(pending.take(wrong), None);
        }
    }

    #[test]
    fn what_is_late_is_taken_out() {
        let pending = Pending::new();
        let now = Instant::now();
        let late = pending.put(1, now).unwrap();
        let early = pending.put(2, now + Duration::from_secs(9)).unwrap();
        assert_eq!(pending.expired(now), [1]);
        assert_eq!(pending.take(late), None);
        assert_eq!(pending.drain(), [2]);
        assert_eq!(pending.take(early), None);
        assert_eq!(pending.len(), 0);
    }
}
