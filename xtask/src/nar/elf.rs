//! What a shared library demands of the system that loads it, read from the file itself.

use std::fmt;

use goblin::elf::Elf;

/// The newest GLIBC whose symbols a library for glibc may need: that of the oldest systems which run Java 11 brokers.
pub(crate) const OLDEST_GLIBC: Glibc = Glibc(2, 17);

/// Parts of glibc that every system with it has.
const OF_GLIBC: [&str; 6] = [
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
];
/// Names under which musl answers for itself.
const OF_MUSL: [&str; 2] = ["libc.so", "libc.musl-x86_64.so.1"];

/// A version of the symbols of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Glibc(u32, u32);

impl fmt::Display for Glibc {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}.{}", self.0, self.1)
    }
}

/// The C library that a shared library is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Libc {
    /// glibc.
    Gnu,
    /// musl.
    Musl,
}

/// Libraries and symbol versions that must be there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Demands {
    /// The `NEEDED` entries.
    pub(crate) libraries: Vec<String>,
    /// The highest `GLIBC_x.y` among the needed versions.
    pub(crate) glibc: Option<Glibc>,
}

impl Demands {
    /// Reads a file's demands.
    pub(crate) fn of(file: &[u8]) -> Result<Self, String> {
        let elf = Elf::parse(file).map_err(|error| format!("no shared library: {error}"))?;
        let libraries = elf.libraries.iter().map(|&name| name.to_owned()).collect();
        let needed = elf.verneed.iter().flat_map(|section| section.iter());
        let names = needed.flat_map(|library| {
            let names = library
                .iter()
                .filter_map(|version| elf.dynstrtab.get_at(version.vna_name));
            names.collect::<Vec<_>>()
        });
        Ok(Self {
            libraries,
            glibc: names.filter_map(glibc).max(),
        })
    }

    /// Refuses demands that a system with this C library may not meet.
    pub(crate) fn check(&self, libc: Libc) -> Result<(), String> {
        let known = match libc {
            Libc::Gnu => &OF_GLIBC[..],
            Libc::Musl => &OF_MUSL[..],
        };
        let foreign: Vec<&str> = self
            .libraries
            .iter()
            .map(String::as_str)
            .filter(|name| !known.contains(name))
            .collect();
        if !foreign.is_empty() {
            return Err(format!(
                "it needs {}, which not every system has",
                foreign.join(", ")
            ));
        }
        match (libc, self.glibc) {
            (Libc::Gnu, Some(version)) if version > OLDEST_GLIBC => Err(format!(
                "it needs symbols of GLIBC {version}; {OLDEST_GLIBC} is the newest that may be asked for"
            )),
            (Libc::Musl, Some(version)) => Err(format!(
                "it is for musl and needs symbols of GLIBC {version}"
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Demands {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "needs {}", self.libraries.join(", "))?;
        match self.glibc {
            Some(version) => write!(to, "; symbols of GLIBC up to {version}"),
            None => write!(to, "; no symbols of GLIBC"),
        }
    }
}

/// The version in `GLIBC_2.17` or `GLIBC_2.2.5`.
fn glibc(name: &str) -> Option<Glibc> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some(Glibc(major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needing(libraries: &[&str], glibc: Option<Glibc>) -> Demands {
        Demands {
            libraries: libraries.iter().map(|&name| name.to_owned()).collect(),
            glibc,
        }
    }

    #[test]
    fn versions_are_compared_by_number_and_private_ones_are_none() {
        assert_eq!(glibc("GLIBC_2.2.5"), Some(Glibc(2, 2)));
        assert!(glibc("GLIBC_2.9") < glibc("GLIBC_2.17"));
        assert_eq!(glibc("GLIBC_PRIVATE"), None);
        assert_eq!(glibc("GCC_3.0"), None);
    }

    #[test]
    fn this_program_demands_the_c_library_that_it_runs_on() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let demands = Demands::of(&file).unwrap();
        assert!(
            demands
                .libraries
                .iter()
                .any(|name| name.starts_with("libc.")),
            "{demands}"
        );
        assert_eq!(
            demands.glibc.is_some(),
            cfg!(target_env = "gnu"),
            "{demands}"
        );
    }

    #[test]
    fn a_newer_glibc_and_a_library_that_some_systems_lack_are_refused() {
        let good = needing(&["libc.so.6", "libm.so.6"], Some(Glibc(2, 17)));
        assert_eq!(good.check(Libc::Gnu), Ok(()));
        let newer = needing(&["libc.so.6"], Some(Glibc(2, 34)));
        assert!(newer.check(Libc::Gnu).unwrap_err().contains("GLIBC 2.34"));
        let more = needing(&["libc.so.6", "libgcc_s.so.1"], Some(Glibc(2, 14)));
        assert!(more.check(Libc::Gnu).unwrap_err().contains("libgcc_s.so.1"));
    }

    #[test]
    fn a_library_for_musl_that_links_glibc_all_the_same_is_refused() {
        assert_eq!(needing(&["libc.so"], None).check(Libc::Musl), Ok(()));
        let glibc = needing(&["libc.so.6"], Some(Glibc(2, 17)));
        assert!(glibc.check(Libc::Musl).unwrap_err().contains("libc.so.6"));
        let symbols = needing(&["libc.so"], Some(Glibc(2, 4)));
        assert!(symbols.check(Libc::Musl).is_err());
    }

    #[test]
    fn what_is_no_shared_library_is_an_error() {
        assert!(Demands::of(b"#!/bin/sh\n").is_err());
        assert!(Demands::of(b"").is_err());
    }
}
