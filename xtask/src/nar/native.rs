//! The native half of the NAR: the bridge and the plugin, for this machine or for every one that they are shipped to.
//!
//! For shipping both are linked by zig against an old glibc, and against musl, and what each library then demands of a
//! system is read back from the file. It must not know Java.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kop_fetch::folder::{find, python_environment};

use super::elf::{Demands, Libc, OLDEST_GLIBC};
use super::standard_library::{self, Source};
use crate::target;

/// The packages that are libraries of the NAR, and the libraries' names.
const LIBRARIES: [(&str, &str); 2] = [("pulsar-nar", "kop_pulsar"), ("kop-handler", "kop_handler")];
/// The linker and the cargo command that uses it, both from PyPI.
const ZIG: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.0"];

/// A system that the libraries are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct System {
    /// The processor, as Rust names it.
    pub(crate) arch: &'static str,
    /// The C library.
    pub(crate) libc: Libc,
}

impl System {
    /// The machine that this runs on.
    pub(crate) const HERE: Self = Self {
        arch: std::env::consts::ARCH,
        libc: if cfg!(target_env = "musl") {
            Libc::Musl
        } else {
            Libc::Gnu
        },
    };

    /// Rust's name of the target.
    pub(crate) fn target(self) -> String {
        let libc = match self.libc {
            Libc::Gnu => "gnu",
            Libc::Musl => "musl",
        };
        format!("{}-unknown-linux-{libc}", self.arch)
    }

    /// The file's name in the NAR, which the Java side puts together from what it finds itself running on.
    fn file(self, library: &str) -> String {
        format!("lib{library}-{self}.so")
    }
}

impl fmt::Display for System {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let libc = match self.libc {
            Libc::Gnu => "gnu",
            Libc::Musl => "musl",
        };
        write!(to, "{}-{libc}", self.arch)
    }
}

/// A built library.
pub(crate) struct Library {
    /// Its name in the NAR.
    pub(crate) name: String,
    /// Where it lies.
    pub(crate) file: PathBuf,
}

/// Builds both libraries with this machine's own toolchain, for this machine; only finds them if they are `built`.
pub(crate) fn here(root: &Path, debug: bool, built: bool) -> Result<Vec<Library>, String> {
    if !built {
        let mut cargo = cargo(root);
        cargo.arg("build").args(packages());
        if !debug {
            cargo.arg("--release");
        }
        run(cargo, "the build")?;
    }
    let profile = if debug { "debug" } else { "release" };
    libraries(&target(root).join(profile), System::HERE)
}

/// Builds both libraries for a system as they are shipped, and checks what they need.
pub(crate) fn shipped(root: &Path, system: System) -> Result<Vec<Library>, String> {
    let environment = python_environment("zig", &ZIG)?.join("bin");
    let target_name = system.target();
    let mut build = Command::new(environment.join("cargo-zigbuild"));
    build.current_dir(root).args(["zigbuild", "--release"]);
    build.args(packages()).env("PATH", path_with(&environment)?);
    build.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    match system.libc {
        Libc::Gnu => build.args(["--target", &format!("{target_name}.{OLDEST_GLIBC}")]),
        // Without this flag the target makes no shared libraries at all.
        Libc::Musl => build.args(["--target", &target_name]).env(
            format!("CARGO_TARGET_{}_RUSTFLAGS", shouted(&target_name)),
            "-C target-feature=-crt-static",
        ),
    };
    match standard_library::of(&target_name)? {
        Source::Installed => {}
        Source::Built(rust) => rust.apply(&mut build),
    }
    run(build, &format!("the build for {system}"))?;
    let found = libraries(&target(root).join(&target_name).join("release"), system)?;
    for library in &found {
        check(library, system)?;
    }
    Ok(found)
}

/// Reads a built library's demands, prints them, and refuses those that a system may not meet.
fn check(library: &Library, system: System) -> Result<(), String> {
    let file = std::fs::read(&library.file)
        .map_err(|error| format!("{}: {error}", library.file.display()))?;
    let demands = Demands::of(&file).map_err(|problem| format!("{}: {problem}", library.name))?;
    println!(
        "{}: {} KiB, {demands}",
        library.name,
        file.len().div_ceil(1_024)
    );
    demands
        .check(system.libc)
        .map_err(|problem| format!("{} cannot be shipped: {problem}", library.name))
}

fn libraries(folder: &Path, system: System) -> Result<Vec<Library>, String> {
    let find = |(_, library): (&str, &str)| {
        let file = folder.join(format!("lib{library}.so"));
        if !file.is_file() {
            return Err(format!("{} was not built", file.display()));
        }
        Ok(Library {
            name: system.file(library),
            file,
        })
    };
    LIBRARIES.into_iter().map(find).collect()
}

fn packages() -> impl Iterator<Item = &'static str> {
    LIBRARIES
        .into_iter()
        .flat_map(|(package, _)| ["--package", package])
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// The `PATH` with this folder first.
fn path_with(folder: &Path) -> Result<std::ffi::OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).map_err(|error| format!("{}: {error}", folder.display()))
}

/// A target's name as cargo spells it in names of environment variables.
fn shouted(target: &str) -> String {
    target.to_uppercase().replace('-', "_")
}

fn run(mut command: Command, what: &str) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| format!("{what}: {command:?}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{what} failed"))
    }
}

/// Takes the debugging information out of copies of libraries, if the machine has a program for it.
pub(crate) fn stripped(libraries: &mut [Library], into: &Path) -> Result<(), String> {
    let Some(strip) = find("strip") else {
        return Ok(());
    };
    for library in libraries {
        let small = into.join(&library.name);
        let mut command = Command::new(&strip);
        command.arg("--strip-debug").arg("-o").arg(&small);
        run(command_with(command, &library.file), "strip")?;
        library.file = small;
    }
    Ok(())
}

fn command_with(mut command: Command, file: &Path) -> Command {
    command.arg(file);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_named_for_its_processor_and_c_library() {
        let musl = System {
            arch: "aarch64",
            libc: Libc::Musl,
        };
        assert_eq!(musl.file("kop_pulsar"), "libkop_pulsar-aarch64-musl.so");
        assert_eq!(musl.target(), "aarch64-unknown-linux-musl");
        assert_eq!(shouted(&musl.target()), "AARCH64_UNKNOWN_LINUX_MUSL");
    }
}
