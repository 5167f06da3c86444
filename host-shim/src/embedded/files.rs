//! Ledger files: a bounded cache of open ones, and the system calls on them.
//!
//! It must not know what the bytes mean, except that a sealed file's sparse index is kept beside its descriptor.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev};

use super::layout::Layout;
use super::limits::{MAX_IO_SLICES, MAX_TOLD_DAMAGES};
use super::record::Mark;

/// A ledger and how often it was replaced: what names a file.
pub(crate) type FileKey = (i64, u32);

/// An open ledger file.
#[derive(Debug)]
pub(crate) struct LedgerFile {
    file: File,
    pub(crate) path: PathBuf,
    /// The sparse index of a sealed ledger, once it was needed.
    pub(crate) marks: OnceLock<Arc<[Mark]>>,
    /// Places of damage that the log names already.
    told: Mutex<Vec<u64>>,
    /// Last use, in ticks of the cache.
    used: AtomicU64,
    #[cfg(test)]
    faults: Arc<Faults>,
}

/// Faults that tests inject below the store.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Error number for writes, 0 for none. Half of the bytes are written before it.
    pub(crate) write: std::sync::atomic::AtomicI32,
    /// Error number for fdatasync, 0 for none.
    pub(crate) sync: std::sync::atomic::AtomicI32,
    /// Error number for ftruncate, 0 for none.
    pub(crate) truncate: std::sync::atomic::AtomicI32,
    /// How many there were, and how long each takes in ms.
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_takes_ms: AtomicU64,
    /// Reads that must not wait find nothing.
    pub(crate) cold: AtomicBool,
}

#[cfg(test)]
fn injected(fault: &std::sync::atomic::AtomicI32) -> io::Result<()> {
    match fault.load(Ordering::SeqCst) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

impl LedgerFile {
    /// Whether damage at this offset is news for the log: readers try again and again, and meet it each time.
    pub(crate) fn is_news(&self, offset: u64) -> bool {
        let mut told = self.told.lock();
        let news = told.len() < MAX_TOLD_DAMAGES && !told.contains(&offset);
        if news {
            told.push(offset);
        }
        news
    }

    /// Writes all slices at `offset`, in as few calls as possible.
    pub(crate) fn write_all_at(
        &self,
        mut slices: &mut [IoSlice<'_>],
        mut offset: u64,
    ) -> io::Result<()> {
        #[cfg(test)]
        if let Err(error) = injected(&self.faults.write) {
            let half = slices.len().div_ceil(2);
            pwritev(&self.file, &slices[..half], offset)?;
            return Err(error);
        }
        while !slices.is_empty() {
            let part = slices.get(..MAX_IO_SLICES).unwrap_or(slices);
            match pwritev(&self.file, part, offset) {
                Ok(0) => {
                    if part.iter().any(|slice| !slice.is_empty()) {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    let skipped = part.len();
                    slices = slices.get_mut(skipped..).unwrap_or_default();
                }
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Fills `buffer` from `offset`, waiting for the disk; answers how many bytes came before the end of the file.
    pub(crate) fn read_waiting(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(room) = buffer.get_mut(done..).filter(|room| !room.is_empty()) {
            match pread(&self.file, room, offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    /// Reads up to `length` bytes from `offset`, waiting for the disk; fewer at the end of the file.
    pub(crate) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        let read = self.read_waiting(&mut buffer, offset)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// Fills `buffer` as far as the page cache has the bytes, without waiting; answers how many came.
    pub(crate) fn read_cached(&self, buffer: &mut [u8], offset: u64, nowait: &AtomicBool) -> usize {
        #[cfg(test)]
        if self.faults.cold.load(Ordering::SeqCst) {
            return 0;
        }
        let mut done = 0;
        while let Some(room) = buffer.get_mut(done..).filter(|room| !room.is_empty()) {
            let at = offset + done as u64;
            let read = if nowait.load(Ordering::Relaxed) {
                let mut slices = [io::IoSliceMut::new(room)];
                rustix::io::preadv2(&self.file, &mut slices, at, ReadWriteFlags::NOWAIT)
            } else {
                pread(&self.file, room, at)
            };
            match read {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) if nowait.load(Ordering::Relaxed) => {
                    // A file system in memory: its reads never wait.
                    nowait.store(false, Ordering::Relaxed);
                }
                Err(_) => break,
            }
        }
        done
    }

    /// Cuts the file; space that was reserved behind its end is given back.
    pub(crate) fn truncate(&self, length: u64) -> io::Result<()> {
        #[cfg(test)]
        injected(&self.faults.truncate)?;
        self.file.set_len(length)
    }

    /// Makes content and length durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        {
            self.faults.syncs.fetch_add(1, Ordering::SeqCst);
            let takes = self.faults.sync_takes_ms.load(Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(takes));
            injected(&self.faults.sync)?;
        }
        self.file.sync_data()
    }

    /// Reserves room on the volume without changing the length. Failing is no error: the write decides.
    pub(crate) fn preallocate(&self, offset: u64, length: u64) {
        let _ = fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, length);
    }

    /// Length of the file.
    pub(crate) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// The open files.
#[derive(Debug)]
pub(crate) struct Files {
    layout: Layout,
    capacity: usize,
    read_only: bool,
    open: Mutex<HashMap<FileKey, Arc<LedgerFile>>>,
    tick: AtomicU64,
    /// Whether reads can be told not to wait.
    pub(crate) nowait: AtomicBool,
    /// Whether names were added to the directory that may not be durable.
    names_dirty: AtomicBool,
    #[cfg(test)]
    pub(crate) faults: Arc<Faults>,
}

impl Files {
    pub(crate) fn new(layout: Layout, capacity: usize) -> Self {
        Self {
            layout,
            capacity: capacity.max(8),
            read_only: false,
            open: Mutex::default(),
            tick: AtomicU64::new(0),
            nowait: AtomicBool::new(true),
            names_dirty: AtomicBool::new(false),
            #[cfg(test)]
            faults: Arc::default(),
        }
    }

    /// For tools that change nothing.
    pub(crate) fn read_only(layout: Layout) -> Self {
        Self {
            read_only: true,
            ..Self::new(layout, 8)
        }
    }

    /// A quarter of the process's limit, for `max_open_files = 0`.
    pub(crate) fn default_capacity() -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        usize::try_from(limit.unwrap_or(u64::MAX) / 4)
            .unwrap_or(usize::MAX)
            .clamp(8, 4096)
    }

    /// How many are open.
    pub(crate) fn open_count(&self) -> usize {
        self.open.lock().len()
    }

    fn wrap(&self, file: File, path: PathBuf) -> Arc<LedgerFile> {
        Arc::new(LedgerFile {
            file,
            path,
            marks: OnceLock::new(),
            told: Mutex::default(),
            used: AtomicU64::new(self.tick.fetch_add(1, Ordering::Relaxed)),
            #[cfg(test)]
            faults: Arc::clone(&self.faults),
        })
    }

    /// Creates a file that must not exist, and keeps it open.
    pub(crate) fn create(&self, key: FileKey) -> io::Result<Arc<LedgerFile>> {
        #[cfg(test)]
        injected(&self.faults.write)?;
        let path = self.layout.ledger(key.0, key.1);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        self.names_dirty.store(true, Ordering::SeqCst);
        let file = self.wrap(file, path);
        self.keep(key, &file);
        Ok(file)
    }

    /// The file of a ledger, opened if it is not.
    pub(crate) fn open(&self, key: FileKey) -> io::Result<Arc<LedgerFile>> {
        if let Some(file) = self.open.lock().get(&key) {
            file.used
                .store(self.tick.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            return Ok(Arc::clone(file));
        }
        let path = self.layout.ledger(key.0, key.1);
        let file = OpenOptions::new()
            .read(true)
            .write(!self.read_only)
            .open(&path)?;
        let file = self.wrap(file, path);
        self.keep(key, &file);
        Ok(file)
    }

    fn keep(&self, key: FileKey, file: &Arc<LedgerFile>) {
        let mut open = self.open.lock();
        if open.len() >= self.capacity {
            // Closing many at once spreads the search over as many later openings.
            let mut ages: Vec<u64> = open
                .values()
                .map(|file| file.used.load(Ordering::Relaxed))
                .collect();
            let middle = ages.len() / 4;
            let (_, oldest, _) = ages.select_nth_unstable(middle);
            let oldest = *oldest;
            open.retain(|_, file| file.used.load(Ordering::Relaxed) > oldest);
        }
        open.insert(key, Arc::clone(file));
    }

    /// Closes a file, unless somebody still reads it.
    pub(crate) fn forget(&self, key: FileKey) {
        self.open.lock().remove(&key);
    }

    /// Deletes a file; one that is not there is no error. Readers that have it open go on.
    pub(crate) fn remove(&self, key: FileKey) -> io::Result<()> {
        self.forget(key);
        match fs::remove_file(self.layout.ledger(key.0, key.1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the names of new files durable, if there are any.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        if self.names_dirty.swap(false, Ordering::SeqCst)
            && let Err(error) = File::open(self.layout.ledgers()).and_then(|dir| dir.sync_all())
        {
            self.names_dirty.store(true, Ordering::SeqCst);
            return Err(error);
        }
        Ok(())
    }
}
