//! A look at a shared library before the system loads it: a file that is cut short would kill the process by SIGBUS
//! as soon as the missing part is touched.
//!
//! Reads the ELF header and the program headers only. Everything else (the machine, missing symbols) the dynamic
//! loader reports by itself. It must not know what the library is for.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Why a file is no loadable library.
#[derive(Debug, thiserror::Error)]
pub(super) enum ElfError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("is no shared library (no ELF file)")]
    NotElf,
    #[error("is no 64-bit shared library of this machine's byte order")]
    OtherKind,
    #[error("is cut short: {found} of at least {needed} bytes")]
    Truncated { found: u64, needed: u64 },
}

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const CLASS_64: u8 = 2;
const TYPE_SHARED: u16 = 3;
const BYTE_ORDER: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };

/// Checks that all that is to be mapped is there.
pub(super) fn check(path: &Path) -> Result<(), ElfError> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ElfError::NotElf);
    }
    let found = metadata.len();
    let mut header = [0; HEADER_BYTES];
    if file.read_at(&mut header, 0)? < HEADER_BYTES || !header.starts_with(b"\x7fELF") {
        return Err(ElfError::NotElf);
    }
    let kind = u16::from_ne_bytes(bytes(&header, 16));
    if header.get(4..6) != Some(&[CLASS_64, BYTE_ORDER]) || kind != TYPE_SHARED {
        return Err(ElfError::OtherKind);
    }
    let table = u64::from_ne_bytes(bytes(&header, 32));
    let entry_bytes = u16::from_ne_bytes(bytes(&header, 54));
    let entries = u16::from_ne_bytes(bytes(&header, 56));
    if usize::from(entry_bytes) != PROGRAM_HEADER_BYTES {
        return Err(ElfError::OtherKind);
    }
    // The section table is never mapped, but it lies last: where it is missing, the copy did not end.
    let sections = u64::from_ne_bytes(bytes(&header, 40));
    let section_bytes = u16::from_ne_bytes(bytes(&header, 58));
    let section_count = u16::from_ne_bytes(bytes(&header, 60));
    let needed = sections.saturating_add(u64::from(section_bytes) * u64::from(section_count));
    if needed > found {
        return Err(ElfError::Truncated { found, needed });
    }
    for number in 0..u64::from(entries) {
        let at = table.saturating_add(number * PROGRAM_HEADER_BYTES as u64);
        let end_of_entry = at.saturating_add(PROGRAM_HEADER_BYTES as u64);
        let mut entry = [0; PROGRAM_HEADER_BYTES];
        if end_of_entry > found || file.read_at(&mut entry, at)? < PROGRAM_HEADER_BYTES {
            let needed = end_of_entry;
            return Err(ElfError::Truncated { found, needed });
        }
        let offset = u64::from_ne_bytes(bytes(&entry, 8));
        let in_file = u64::from_ne_bytes(bytes(&entry, 32));
        let needed = offset.saturating_add(in_file);
        if needed > found {
            return Err(ElfError::Truncated { found, needed });
        }
    }
    Ok(())
}

/// A fixed number of bytes at a place inside a header.
fn bytes<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    let found = header.get(at..at + N);
    found
        .and_then(|slice| slice.try_into().ok())
        .unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_bytes(content: &[u8]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        check(file.path()).map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    /// This test's own executable is position independent, so it has the type of a shared library.
    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn a_whole_library_passes() {
        assert_eq!(check_bytes(&own()), "fine");
    }

    #[test]
    fn whatever_is_cut_off_is_noticed() {
        let whole = own();
        for length in [64, 100, 1000, 100_000, whole.len() / 2] {
            let text = check_bytes(&whole[..length]);
            assert!(text.starts_with("is cut short"), "{length}: {text}");
        }
        for length in [0, 1, 63] {
            assert_eq!(
                check_bytes(&whole[..length]),
                "is no shared library (no ELF file)"
            );
        }
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(
            check_bytes(&[b'x'; 5000]),
            "is no shared library (no ELF file)"
        );
        let mut other = own();
        other[4] = 1;
        let text = check_bytes(&other);
        assert_eq!(
            text,
            "is no 64-bit shared library of this machine's byte order"
        );
        let directory = tempfile::tempdir().unwrap();
        assert!(check(directory.path()).is_err());
    }

    #[test]
    fn offsets_beyond_the_end_of_numbers_do_no_harm() {
        let whole = own();
        for field in [32..40, 40..48] {
            let mut wrong = whole.clone();
            wrong[field.clone()].fill(0xff);
            let text = check_bytes(&wrong);
            assert!(text.starts_with("is cut short"), "{field:?}: {text}");
        }
        let first = u64::from_ne_bytes(bytes(&whole, 32)) as usize;
        for field in [8..16, 32..40] {
            let mut wrong = whole.clone();
            wrong[first + field.start..first + field.end].fill(0xff);
            let text = check_bytes(&wrong);
            assert!(text.starts_with("is cut short"), "{field:?}: {text}");
        }
    }
}
