//! Open managed ledgers by handle and by name, and the plugins that are told about them.

use std::collections::HashMap;
use std::sync::Arc;

use handler_api::control::Event;
use handler_api::{ApiError, ErrorCode, Handle};
use parking_lot::RwLock;

use super::limits::MAX_WATCHED_PATHS;
use super::partition::{Fired, Partition};
use crate::events::{EventSink, broadcast};

#[derive(Default)]
struct Slots {
    /// By [`Handle::id`].
    open: Vec<Option<Arc<Partition>>>,
    free: Vec<u64>,
    /// By full name.
    names: HashMap<Arc<str>, Arc<Partition>>,
    /// Openings that died of a fault, until the next one has taken over their ledgers.
    dead: HashMap<Arc<str>, Arc<Partition>>,
    openings: u32,
}

/// The table of handles.
pub(crate) struct Handles {
    /// Which start of the broker this is: no pair of an earlier one comes back.
    start: u64,
    slots: RwLock<Slots>,
}

impl Handles {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            start,
            slots: RwLock::default(),
        }
    }

    /// The managed ledger behind a handle.
    pub(crate) fn get(&self, handle: Handle) -> Result<Arc<Partition>, ApiError> {
        let slots = self.slots.read();
        usize::try_from(handle.id)
            .ok()
            .and_then(|id| slots.open.get(id)?.as_ref())
            .filter(|partition| partition.handle == handle)
            .cloned()
            .ok_or_else(|| {
                ApiError::new(
                    ErrorCode::HandleClosed,
                    format!(
                        "handle {}/{} is closed: look up and open the topic again",
                        handle.id, handle.generation
                    ),
                )
            })
    }

    /// The open managed ledger of a name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Partition>> {
        self.slots.read().names.get(name).cloned()
    }

    /// The last opening of a name, if it died of a fault.
    pub(crate) fn dead(&self, name: &str) -> Option<Arc<Partition>> {
        self.slots.read().dead.get(name).cloned()
    }

    /// Adds an opening, built for the handle that it gets.
    pub(crate) fn insert(&self, build: impl FnOnce(Handle) -> Partition) -> Arc<Partition> {
        let mut slots = self.slots.write();
        slots.openings += 1;
        let id = slots.free.pop().unwrap_or(slots.open.len() as u64);
        let handle = Handle {
            id,
            generation: self.start << 32 | u64::from(slots.openings),
        };
        let partition = Arc::new(build(handle));
        slots
            .names
            .insert(Arc::clone(&partition.name), Arc::clone(&partition));
        slots.dead.remove(&partition.name);
        let place = Some(Arc::clone(&partition));
        match usize::try_from(id)
            .ok()
            .and_then(|id| slots.open.get_mut(id))
        {
            Some(slot) => *slot = place,
            None => slots.open.push(place),
        }
        partition
    }

    /// Takes an opening out; `keep` if its ledgers have yet to be taken over.
    pub(crate) fn remove(&self, partition: &Arc<Partition>, keep: bool) {
        let mut slots = self.slots.write();
        let handle = partition.handle;
        let Some(slot) = usize::try_from(handle.id)
            .ok()
            .and_then(|id| slots.open.get_mut(id))
        else {
            return;
        };
        if slot.as_ref().is_none_or(|open| open.handle != handle) {
            return;
        }
        *slot = None;
        slots.free.push(handle.id);
        if slots
            .names
            .get(&partition.name)
            .is_some_and(|open| open.handle == handle)
        {
            slots.names.remove(&partition.name);
        }
        if keep {
            slots
                .dead
                .insert(Arc::clone(&partition.name), Arc::clone(partition));
        }
    }

    /// Forgets an opening that died.
    pub(crate) fn forget_dead(&self, name: &str) -> Option<Arc<Partition>> {
        self.slots.write().dead.remove(name)
    }

    /// All openings that died of a fault and were not followed by others.
    pub(crate) fn all_dead(&self) -> Vec<Arc<Partition>> {
        self.slots.read().dead.values().cloned().collect()
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.slots.read().names.len()
    }

    /// All openings.
    pub(crate) fn all(&self) -> Vec<Arc<Partition>> {
        self.slots.read().open.iter().flatten().cloned().collect()
    }
}

/// A plugin that uses the services.
pub(crate) struct Attachment {
    pub(crate) id: u64,
    pub(crate) sink: Arc<dyn EventSink>,
    /// Paths of the metadata store that it watches.
    watched: RwLock<Vec<String>>,
}

impl Attachment {
    /// Adds a path to what is watched.
    pub(crate) fn watch_path(&self, path: String) -> Result<(), ApiError> {
        let mut watched = self.watched.write();
        if watched.contains(&path) {
            return Ok(());
        }
        if watched.len() >= MAX_WATCHED_PATHS {
            return Err(ApiError::new(
                ErrorCode::Refused,
                format!("more than {MAX_WATCHED_PATHS} paths are watched"),
            ));
        }
        watched.push(path);
        Ok(())
    }

    fn watches(&self, path: &str) -> bool {
        self.watched.read().iter().any(|watched| {
            path.strip_prefix(watched.as_str()).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || watched.ends_with('/')
            })
        })
    }
}

/// The plugins that are attached.
#[derive(Default)]
pub(crate) struct Attachments {
    all: RwLock<(u64, Vec<Arc<Attachment>>)>,
}

impl Attachments {
    pub(crate) fn add(&self, sink: Arc<dyn EventSink>) -> Arc<Attachment> {
        let mut all = self.all.write();
        all.0 += 1;
        let attachment = Arc::new(Attachment {
            id: all.0,
            sink,
            watched: RwLock::default(),
        });
        all.1.push(Arc::clone(&attachment));
        attachment
    }

    pub(crate) fn remove(&self, id: u64) {
        self.all.write().1.retain(|attachment| attachment.id != id);
    }

    fn sinks(&self, wanted: impl Fn(&Attachment) -> bool) -> Vec<Arc<dyn EventSink>> {
        let all = self.all.read();
        all.1
            .iter()
            .filter(|attachment| wanted(attachment))
            .map(|attachment| Arc::clone(&attachment.sink))
            .collect()
    }

    /// Tells everyone of an event. No lock may be held.
    pub(crate) fn announce<E: Event>(&self, event: &E) {
        broadcast(&self.sinks(|_| true), event);
    }

    /// Tells those who watch a path.
    pub(crate) fn announce_path<E: Event>(&self, path: &str, event: &E) {
        broadcast(&self.sinks(|attachment| attachment.watches(path)), event);
    }

    /// Delivers wake-ups. No lock may be held.
    pub(crate) fn deliver(&self, fired: &[Fired]) {
        for wake in fired {
            for sink in self.sinks(|attachment| attachment.id == wake.attachment) {
                sink.end_moved(wake.handle, wake.position, wake.index);
            }
        }
    }
}
