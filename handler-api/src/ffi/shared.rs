//! Bytes that both sides hold and neither copies.
//!
//! It must not know what the bytes mean.

#![expect(
    unsafe_code,
    reason = "a value of one library is kept and freed by another"
)]

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;

use abi_stable::StableAbi;
use bytes::Bytes;

/// Room for the creator's `Bytes`. In an `UnsafeCell`, because cloning a `Bytes` may change it behind a shared
/// reference.
type Storage = [MaybeUninit<usize>; 4];

const _: () = assert!(
    size_of::<Bytes>() <= size_of::<Storage>() && align_of::<Bytes>() <= align_of::<Storage>(),
    "Bytes must fit into the storage of SharedBytes"
);

#[repr(C)]
#[derive(StableAbi)]
struct SharedBytesVTable {
    clone: unsafe extern "C" fn(*const Storage, *mut Storage),
    drop: unsafe extern "C" fn(*mut Storage),
}

unsafe extern "C" fn clone_storage(from: *const Storage, to: *mut Storage) {
    // SAFETY: only called through a vtable stored beside a `Bytes` that this library moved into `from`.
    unsafe { to.cast::<Bytes>().write((*from.cast::<Bytes>()).clone()) }
}

unsafe extern "C" fn drop_storage(storage: *mut Storage) {
    // SAFETY: as above; called once, from the owner's drop.
    unsafe { storage.cast::<Bytes>().drop_in_place() }
}

static VTABLE: SharedBytesVTable = SharedBytesVTable {
    clone: clone_storage,
    drop: drop_storage,
};

/// Reference-counted, immutable bytes that cross the boundary without a copy.
///
/// The creator's [`Bytes`] is moved inside and only the creator's code touches it, so the two sides may use different
/// versions of the `bytes` crate and different allocators. Turning it back into [`Bytes`] costs nothing on the side
/// that made it, and one small allocation on the other.
#[repr(C)]
#[derive(StableAbi)]
pub struct SharedBytes {
    ptr: *const u8,
    len: usize,
    #[sabi(unsafe_opaque_field)]
    storage: UnsafeCell<Storage>,
    vtable: &'static SharedBytesVTable,
}

// SAFETY: `Bytes` is Send and Sync, and so are reads of its immutable content.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl From<Bytes> for SharedBytes {
    fn from(bytes: Bytes) -> Self {
        let (ptr, len) = (bytes.as_ptr(), bytes.len());
        let mut storage: Storage = [MaybeUninit::uninit(); 4];
        // SAFETY: size and alignment are checked above; the value is moved in and dropped only by `drop_storage`.
        unsafe { storage.as_mut_ptr().cast::<Bytes>().write(bytes) };
        Self {
            ptr,
            len,
            storage: UnsafeCell::new(storage),
            vtable: &VTABLE,
        }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<SharedBytes> for Bytes {
    fn from(shared: SharedBytes) -> Self {
        if std::ptr::eq(shared.vtable, &VTABLE) {
            let shared = std::mem::ManuallyDrop::new(shared);
            // SAFETY: this library moved a `Bytes` in; it is moved out once because `shared` is never dropped.
            unsafe { shared.storage.get().cast::<Bytes>().read() }
        } else {
            Bytes::from_owner(shared)
        }
    }
}

impl Clone for SharedBytes {
    fn clone(&self) -> Self {
        let mut storage: Storage = [MaybeUninit::uninit(); 4];
        // SAFETY: the vtable belongs to the storage; `ptr` stays valid because the clone holds the same buffer.
        unsafe { (self.vtable.clone)(self.storage.get(), &raw mut storage) };
        Self {
            ptr: self.ptr,
            len: self.len,
            storage: UnsafeCell::new(storage),
            vtable: self.vtable,
        }
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: the vtable belongs to the storage, and this runs once.
        unsafe { (self.vtable.drop)(self.storage.get()) }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` and `len` describe the content of the `Bytes` that the storage keeps alive.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} B)", self.len)
    }
}

impl Default for SharedBytes {
    fn default() -> Self {
        Bytes::new().into()
    }
}
