//! Where Rust's standard library for a target comes from.
//!
//! A toolchain brings that of its own machine. Another is added by `rustup target add`; where rustup's server cannot be
//! reached, the library is compiled from its source, which must be that of the compiler: the toolchain's own
//! (`rustup component add rust-src`) or, on Debian, a compiler and its source from the packages `rustc-web` and
//! `rust-web-src`, unpacked under `target/tools` and installed nowhere.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kop_fetch::folder::{FETCH, checked, fetched, find};
use kop_fetch::process::run;

/// Debian's packages of a current compiler, its source and what it is linked with. Those that carry a version in
/// their names are found as dependencies of these.
const DEBIAN: [&str; 3] = ["rustc-web", "libstd-rust-web-dev", "rust-web-src"];
/// Beginnings of the names of dependencies that are taken too; the rest every system with a C compiler has.
const DEPENDENCIES: [&str; 3] = ["libstd-rust-web-", "libllvm", "libz3-"];
/// How long asking the compiler may take.
const ASK: Duration = Duration::from_secs(60);

/// How a target's standard library is had.
pub(crate) enum Source {
    /// The toolchain has it.
    Installed,
    /// It is compiled along.
    Built(Rust),
}

/// A compiler that has its standard library's source.
pub(crate) struct Rust {
    /// `None` is the toolchain's own.
    unpacked: Option<PathBuf>,
}

impl Rust {
    /// Makes a cargo command compile the standard library, with this compiler.
    pub(crate) fn apply(&self, build: &mut Command) {
        build.args(["-Z", "build-std=std,panic_unwind"]);
        // The flag above is the only one that a stable compiler has to be told to allow.
        build.env("RUSTC_BOOTSTRAP", "1");
        if let Some(unpacked) = &self.unpacked {
            build.env("RUSTC", unpacked.join("usr/bin/rustc"));
            build.env("LD_LIBRARY_PATH", libraries(unpacked));
        }
    }
}

/// Finds the standard library of a target, or says what is missing and how it is to be had.
pub(crate) fn of(target: &str) -> Result<Source, String> {
    let sysroot = sysroot(Command::new("rustc"))?;
    if sysroot
        .join("lib/rustlib")
        .join(target)
        .join("lib")
        .is_dir()
    {
        return Ok(Source::Installed);
    }
    if has_source(&sysroot) {
        return Ok(Source::Built(Rust { unpacked: None }));
    }
    let unpacked = debian().map_err(|problem| {
        format!(
            "Rust's standard library for {target} is missing. Add it with `rustup target add {target}`, or its source \
             with `rustup component add rust-src`, or on Debian let `apt-get update` find the packages {}; or leave \
             that C library out with `--without`. ({problem})",
            DEBIAN.join(", ")
        )
    })?;
    Ok(Source::Built(Rust {
        unpacked: Some(unpacked),
    }))
}

fn sysroot(mut rustc: Command) -> Result<PathBuf, String> {
    rustc.args(["--print", "sysroot"]);
    let finished = run(rustc, None, ASK);
    let sysroot = finished.stdout.trim().to_owned();
    checked("asking rustc for its sysroot", finished)?;
    Ok(PathBuf::from(sysroot))
}

fn has_source(sysroot: &Path) -> bool {
    sysroot
        .join("lib/rustlib/src/rust/library/Cargo.lock")
        .is_file()
}

/// The folder of shared libraries that an unpacked compiler is linked with.
fn libraries(unpacked: &Path) -> PathBuf {
    let folder = format!("{}-linux-gnu", std::env::consts::ARCH);
    unpacked.join("usr/lib").join(folder)
}

/// Debian's compiler and its source, downloaded and unpacked, not installed.
fn debian() -> Result<PathBuf, String> {
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        find(program).ok_or_else(|| format!("no `{program}` here"))?;
    }
    let folder = fetched("rust-source", &DEBIAN.join(" "), |folder| {
        let packages = with_dependencies(DEBIAN.map(str::to_owned).to_vec())?;
        let mut download = Command::new("apt-get");
        download
            .current_dir(folder)
            .args(["download", "-q"])
            .args(&packages);
        checked("apt-get download", run(download, None, FETCH))?;
        for package in entries(folder, ".deb")? {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("-x").arg(&package).arg(folder);
            checked("dpkg-deb", run(unpack, None, FETCH))?;
            let _ = std::fs::remove_file(&package);
        }
        Ok(())
    })?;
    let mut rustc = Command::new(folder.join("usr/bin/rustc"));
    rustc.env("LD_LIBRARY_PATH", libraries(&folder));
    let sysroot = sysroot(rustc)?;
    if has_source(&sysroot) {
        Ok(folder)
    } else {
        Err(format!("no source of the library in {}", sysroot.display()))
    }
}

/// These packages and those of their dependencies that no system has by itself.
fn with_dependencies(mut packages: Vec<String>) -> Result<Vec<String>, String> {
    let mut next = 0;
    while let Some(package) = packages.get(next) {
        let mut depends = Command::new("apt-cache");
        depends.args(["depends", package]);
        let finished = run(depends, None, ASK);
        let text = finished.stdout.clone();
        checked(&format!("apt-cache depends {package}"), finished)?;
        for name in dependencies(&text) {
            if !packages.contains(&name) {
                packages.push(name);
            }
        }
        next += 1;
    }
    Ok(packages)
}

/// The wanted names among the lines `  Depends: NAME` of `apt-cache depends`.
fn dependencies(text: &str) -> Vec<String> {
    let names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    names
        .filter(|name| DEPENDENCIES.iter().any(|wanted| name.starts_with(wanted)))
        .map(str::to_owned)
        .collect()
}

/// The files of a folder whose names end so.
fn entries(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let listed =
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = listed.flatten().map(|entry| entry.path());
    let wanted = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().ends_with(ending))
    };
    Ok(paths.filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_system_has_by_itself_is_taken_of_the_dependencies() {
        let text = "rustc-web\n  Depends: libc6\n  Depends: libstd-rust-web-1.96\n |Depends: gcc\n  Depends: libllvm22\n";
        assert_eq!(dependencies(text), ["libstd-rust-web-1.96", "libllvm22"]);
    }
}
