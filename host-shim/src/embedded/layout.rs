//! The data directory: file names, the lock, the format version and how old formats are upgraded.
//!
//! It must not know what the files hold.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::config::OpenError;

/// The format that this release writes. Raised when an older release could no longer read what is written.
pub const FORMAT: u32 = 1;

const FORMAT_FILE: &str = "FORMAT";
const LOCK_FILE: &str = "LOCK";
const FORMAT_PREFIX: &str = "kop-data ";

/// Brings a directory from one format to the next. It must be safe to run again after a crash: the format file is
/// only rewritten when it has returned.
type Migration = fn(&Path) -> Result<(), OpenError>;

/// Element `n` upgrades format `n + 1` to `n + 2`. Format 1 is the first that was ever released.
const MIGRATIONS: [Migration; FORMAT as usize - 1] = [];

/// Paths within a data directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The catalog's database.
    pub(crate) fn catalog(&self) -> PathBuf {
        self.root.join("catalog.redb")
    }

    /// Where ledger files lie.
    pub(crate) fn ledgers(&self) -> PathBuf {
        self.root.join("ledgers")
    }

    /// The file of a ledger, as replaced so many times.
    pub(crate) fn ledger(&self, id: i64, replaced: u32) -> PathBuf {
        self.ledgers().join(format!("{id:016}-{replaced}.ledger"))
    }

    /// What [`Self::ledger`] named; `None` for a foreign file.
    pub(crate) fn parse_ledger_name(name: &str) -> Option<(i64, u32)> {
        let (id, replaced) = name.strip_suffix(".ledger")?.split_once('-')?;
        Some((id.parse().ok()?, replaced.parse().ok()?))
    }

    /// Creates what is missing, and makes the names durable.
    pub(crate) fn create(&self) -> Result<(), OpenError> {
        let ledgers = self.ledgers();
        fs::create_dir_all(&ledgers).map_err(OpenError::io("cannot create", &ledgers))?;
        sync_dir(&self.root)
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(path: &Path) -> Result<(), OpenError> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(OpenError::io("cannot sync", path))
}

/// The right to use a data directory, held as long as this value lives; the system gives it up with the process.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock or says who has it.
    pub(crate) fn take(layout: &Layout) -> Result<Self, OpenError> {
        let path = layout.root.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut lock = Self::acquire(layout, &options)?;
        let file = &mut lock.file;
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(OpenError::io("cannot write", &path))?;
        Ok(lock)
    }

    /// Takes the lock and changes nothing, not even the lock file.
    pub(crate) fn take_for_reading(layout: &Layout) -> Result<Self, OpenError> {
        Self::acquire(layout, OpenOptions::new().read(true))
    }

    fn acquire(layout: &Layout, options: &OpenOptions) -> Result<Self, OpenError> {
        let path = layout.root.join(LOCK_FILE);
        let mut file = options
            .open(&path)
            .map_err(OpenError::io("cannot open", &path))?;
        if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(OpenError::io("cannot lock", &path)(error.into()));
            }
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = holder.trim();
            return Err(OpenError::InUse {
                dir: layout.root.clone(),
                pid: if holder.is_empty() {
                    "unknown".into()
                } else {
                    holder.into()
                },
            });
        }
        Ok(Self { file })
    }
}

/// Checks the format of a directory, upgrades an older one, and marks a fresh one. Call it under the [`Lock`].
pub(crate) fn prepare(layout: &Layout) -> Result<(), OpenError> {
    prepare_with(layout, FORMAT, &MIGRATIONS)
}

/// The format of an existing data directory, for readers that change nothing.
pub(crate) fn check(layout: &Layout) -> Result<u32, OpenError> {
    match read_format(layout, FORMAT)? {
        Some(found) => Ok(found),
        None => Err(OpenError::Missing {
            dir: layout.root.clone(),
        }),
    }
}

fn prepare_with(layout: &Layout, current: u32, migrations: &[Migration]) -> Result<(), OpenError> {
    let Some(found) = read_format(layout, current)? else {
        let catalog = layout.catalog();
        if catalog.exists() {
            return Err(OpenError::Foreign {
                dir: layout.root.clone(),
                reason: format!("it has a catalog but no {FORMAT_FILE} file"),
            });
        }
        return write_format(layout, current);
    };
    for (step, migrate) in (1..).zip(migrations).skip_while(|(step, _)| *step < found) {
        tracing::info!(from = step, to = step + 1, dir = %layout.root.display(), "upgrading the data directory");
        migrate(&layout.root)?;
        write_format(layout, step + 1)?;
    }
    Ok(())
}

/// The format, `None` in a directory without a mark; an error for a newer one.
fn read_format(layout: &Layout, supported: u32) -> Result<Option<u32>, OpenError> {
    let path = layout.root.join(FORMAT_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io("cannot read", &path)(error)),
    };
    let found: u32 = text
        .strip_prefix(FORMAT_PREFIX)
        .and_then(|rest| rest.trim().parse().ok())
        .filter(|found| *found > 0)
        .ok_or_else(|| OpenError::Foreign {
            dir: layout.root.clone(),
            reason: format!("its {FORMAT_FILE} file is malformed"),
        })?;
    if found > supported {
        return Err(OpenError::Newer {
            dir: layout.root.clone(),
            found,
            supported,
        });
    }
    Ok(Some(found))
}

/// Replaces the format file in one step.
fn write_format(layout: &Layout, format: u32) -> Result<(), OpenError> {
    let path = layout.root.join(FORMAT_FILE);
    let fresh = layout.root.join(format!("{FORMAT_FILE}.new"));
    File::create(&fresh)
        .and_then(|mut file| {
            writeln!(file, "{FORMAT_PREFIX}{format}")?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&fresh, &path))
        .map_err(OpenError::io("cannot write", &path))?;
    sync_dir(&layout.root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.create().unwrap();
        (dir, layout)
    }

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder() {
        let (_dir, layout) = directory();
        let lock = Lock::take(&layout).unwrap();
        let error = Lock::take(&layout).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        assert!(
            error.contains(&layout.root().display().to_string()),
            "{error}"
        );
        drop(lock);
        Lock::take(&layout).unwrap();
    }

    #[test]
    fn a_newer_format_is_refused_in_one_line() {
        let (_dir, layout) = directory();
        write_format(&layout, FORMAT + 1).unwrap();
        let error = prepare(&layout).unwrap_err();
        assert!(matches!(error, OpenError::Newer { found, .. } if found == FORMAT + 1));
        assert_eq!(error.to_string().lines().count(), 1);
    }

    #[test]
    fn older_formats_are_upgraded_step_by_step_and_only_once() {
        fn mark(dir: &Path, name: &str) -> Result<(), OpenError> {
            let path = dir.join(name);
            assert!(!path.exists(), "{name} ran twice");
            File::create(&path)
                .map(drop)
                .map_err(OpenError::io("cannot create", path))
        }
        let (dir, layout) = directory();
        write_format(&layout, 1).unwrap();
        let steps: [Migration; 2] = [|dir| mark(dir, "one"), |dir| mark(dir, "two")];
        prepare_with(&layout, 2, &steps[..1]).unwrap();
        assert!(dir.path().join("one").exists() && !dir.path().join("two").exists());
        prepare_with(&layout, 3, &steps).unwrap();
        assert!(dir.path().join("two").exists());
        prepare_with(&layout, 3, &steps).unwrap();
        assert_eq!(read_format(&layout, 3).unwrap(), Some(3));
    }

    #[test]
    fn a_failed_upgrade_leaves_the_old_format() {
        let (_dir, layout) = directory();
        write_format(&layout, 1).unwrap();
        let steps: [Migration; 1] = [|dir| {
            Err(OpenError::Missing {
                dir: dir.to_path_buf(),
            })
        }];
        prepare_with(&layout, 2, &steps).unwrap_err();
        assert_eq!(read_format(&layout, 2).unwrap(), Some(1));
    }

    #[test]
    fn a_malformed_format_file_is_foreign() {
        let (dir, layout) = directory();
        for text in ["", "kop-data", "kop-data x", "kop-data 0", "kafka 1"] {
            fs::write(dir.path().join(FORMAT_FILE), text).unwrap();
            assert!(
                matches!(prepare(&layout), Err(OpenError::Foreign { .. })),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_catalog_without_a_format_file_is_foreign() {
        let (_dir, layout) = directory();
        fs::write(layout.catalog(), b"x").unwrap();
        assert!(matches!(prepare(&layout), Err(OpenError::Foreign { .. })));
    }

    #[test]
    fn ledger_names_are_read_back() {
        let layout = Layout::new("/x");
        let name = layout.ledger(42, 7);
        let name = name.file_name().unwrap().to_str().unwrap();
        assert_eq!(Layout::parse_ledger_name(name), Some((42, 7)));
        for foreign in ["", "a-b.ledger", "1.ledger", "1-2", "1-2.ledger.new"] {
            assert_eq!(Layout::parse_ledger_name(foreign), None, "{foreign}");
        }
    }
}
