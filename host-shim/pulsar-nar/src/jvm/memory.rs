//! Memory of the other side: an entry is copied into a buffer of the broker's, and entries that were read are looked
//! at where the broker keeps them.
//!
//! It must not know what the bytes mean.

#![expect(
    unsafe_code,
    reason = "addresses come from direct buffers that Java holds for as long as they are used"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use handler_api::SharedBytes;

use super::BatchRef;

/// A piece of the broker's memory that a call may write, for as long as the call lasts.
#[derive(Debug)]
pub(crate) struct Fill<'a> {
    room: &'a mut [u8],
}

impl Fill<'_> {
    /// The memory at an address that Java gave, or nothing if it makes no sense.
    ///
    /// # Safety
    ///
    /// `length` bytes at `address` must be writable, and nobody else's, while this value lives.
    pub(super) unsafe fn at(address: i64, length: i32) -> Option<Self> {
        let length = usize::try_from(length).ok()?;
        if length == 0 {
            return Some(Self { room: &mut [] });
        }
        let address = usize::try_from(address)
            .ok()
            .filter(|address| *address != 0)?;
        let pointer = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the caller's promise.
        let room = unsafe { std::slice::from_raw_parts_mut(pointer, length) };
        Some(Self { room })
    }

    /// Copies pieces one behind the other; false if they do not fill the memory exactly.
    pub(crate) fn copy(self, pieces: &[SharedBytes]) -> bool {
        let mut rest = self.room;
        for piece in pieces {
            let Some((room, behind)) = rest.split_at_mut_checked(piece.len()) else {
                return false;
            };
            room.copy_from_slice(piece);
            rest = behind;
        }
        rest.is_empty()
    }
}

/// Entries in the broker's memory, which is given back when this is dropped.
#[derive(Debug)]
struct Held {
    batch: BatchRef,
    lease: Lease,
}

/// Bytes of the broker's memory that are counted as held until this is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    counter: Arc<AtomicU64>,
    bytes: u64,
}

impl Lease {
    pub(super) fn take(counter: Arc<AtomicU64>, bytes: u64) -> Self {
        counter.fetch_add(bytes, Ordering::AcqRel);
        Self { counter, bytes }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.batch.release() {
            let bytes = self.lease.bytes;
            tracing::warn!("{bytes} bytes of the broker's memory were not given back: {error}");
        }
    }
}

/// One segment of the broker's memory.
struct Segment {
    _held: Arc<Held>,
    address: usize,
    length: usize,
}

impl AsRef<[u8]> for Segment {
    fn as_ref(&self) -> &[u8] {
        let pointer = std::ptr::with_exposed_provenance::<u8>(self.address);
        // SAFETY: `Segments::segment` is only called with addresses of the batch, which keeps its direct buffers,
        // unchanged, until it is released, and that is not before `_held` is dropped.
        unsafe { std::slice::from_raw_parts(pointer, self.length) }
    }
}

/// The segments of a batch of entries.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    held: Arc<Held>,
}

impl Segments {
    pub(super) fn new(batch: BatchRef, lease: Lease) -> Self {
        Self {
            held: Arc::new(Held { batch, lease }),
        }
    }

    /// The bytes at an address of this batch.
    ///
    /// # Safety
    ///
    /// `length` bytes at `address` must belong to a direct buffer that the batch holds.
    pub(super) unsafe fn segment(&self, address: i64, length: i64) -> Option<Bytes> {
        let (address, length) = (
            usize::try_from(address).ok()?,
            usize::try_from(length).ok()?,
        );
        if address == 0 || length == 0 {
            return (length == 0).then(Bytes::new);
        }
        let held = Arc::clone(&self.held);
        Some(Bytes::from_owner(Segment {
            _held: held,
            address,
            length,
        }))
    }
}
