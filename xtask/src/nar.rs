//! `cargo xtask nar`: the one file that an operator drops into a stock Pulsar broker's `protocols/`.
//!
//! A NAR is a zip archive: our classes, and beside them the native libraries of each system that it is shipped to, of
//! which the Java side loads the pair that fits.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::{root, target};

mod elf;
mod java;
mod native;
mod standard_library;

use elf::Libc;
use native::{Library, System};

/// Where Pulsar's loader looks for what a NAR brings along.
const BUNDLED: &str = "META-INF/bundled-dependencies";
/// Tells Pulsar which class serves which protocol.
const DESCRIPTION: &str = "META-INF/services/pulsar-protocol-handler.yml";

#[derive(Args)]
pub(crate) struct Nar {
    /// Only for this machine, with its own toolchain: quicker, and not to be shipped.
    #[arg(long)]
    here: bool,
    /// As `--here`, without optimization: for tests.
    #[arg(long)]
    debug: bool,
    /// With `--here` or `--debug`: the libraries are built already.
    #[arg(long)]
    built: bool,
    /// Leave out the libraries for this C library.
    #[arg(long, value_enum, conflicts_with_all = ["here", "debug"])]
    without: Option<Without>,
    /// The processors whose libraries go in; that of this machine if none is named.
    #[arg(long, value_enum, conflicts_with_all = ["here", "debug"])]
    arch: Vec<Arch>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Without {
    Gnu,
    Musl,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

impl Arch {
    fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

impl Nar {
    /// The systems that it is shipped to.
    fn systems(&self) -> Vec<System> {
        let mut archs: Vec<&'static str> = self.arch.iter().map(|arch| arch.name()).collect();
        if archs.is_empty() {
            archs.push(std::env::consts::ARCH);
        }
        let mut systems = Vec::new();
        for arch in archs {
            for (libc, left_out) in [(Libc::Gnu, Without::Gnu), (Libc::Musl, Without::Musl)] {
                if self.without != Some(left_out) {
                    systems.push(System { arch, libc });
                }
            }
        }
        systems
    }
}

pub(crate) fn run(asked: &Nar) -> ExitCode {
    match root().and_then(|root| build(&root, asked)) {
        Ok(nar) => {
            println!("{}", nar.display());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the NAR; answers where it lies.
fn build(root: &Path, asked: &Nar) -> Result<PathBuf, String> {
    let for_here = asked.here || asked.debug;
    let folder = target(root)
        .join("nar")
        .join(match (for_here, asked.debug) {
            (false, _) => "shipped",
            (true, false) => "release",
            (true, true) => "debug",
        });
    let _ = std::fs::remove_dir_all(folder.join("work"));
    let work = make(folder.join("work"))?;
    let mut libraries = Vec::new();
    if for_here {
        libraries = native::here(root, asked.debug, asked.built)?;
        native::stripped(&mut libraries, &make(work.join("stripped"))?)?;
    } else {
        for system in asked.systems() {
            libraries.extend(native::shipped(root, system)?);
        }
    }
    let classes = make(work.join("classes"))?;
    java::compile(root, &classes)?;
    pack(root, &folder, &work, &libraries, for_here)
}

/// Lays the NAR's content out and archives it.
fn pack(
    root: &Path,
    folder: &Path,
    work: &Path,
    libraries: &[Library],
    stored: bool,
) -> Result<PathBuf, String> {
    let content = make(work.join("content"))?;
    let native = make(content.join(BUNDLED).join("native"))?;
    for library in libraries {
        copy(&library.file, &native.join(&library.name))?;
    }
    make(content.join("META-INF/services"))?;
    copy(
        &root.join("host-shim/pulsar-nar/java").join(DESCRIPTION),
        &content.join(DESCRIPTION),
    )?;
    let jar = content.join(BUNDLED).join("kop.jar");
    java::archive(&work.join("classes"), &jar, stored)?;
    let new = folder.join("kop.nar.new");
    java::archive(&content, &new, stored)?;
    // A broker that is starting may be reading the file of before.
    let nar = folder.join("kop.nar");
    std::fs::rename(&new, &nar).map_err(|error| format!("{}: {error}", nar.display()))?;
    Ok(nar)
}

fn make(folder: PathBuf) -> Result<PathBuf, String> {
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = std::fs::copy(from, to);
    copied.map_err(|error| format!("{}: {error}", from.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        asked: Nar,
    }

    fn systems(line: &[&str]) -> Vec<String> {
        let words = ["nar"].iter().chain(line);
        let asked = Line::try_parse_from(words).unwrap().asked;
        asked.systems().iter().map(System::to_string).collect()
    }

    #[test]
    fn both_c_libraries_of_this_machines_processor_are_shipped_unless_one_is_left_out() {
        let arch = std::env::consts::ARCH;
        assert_eq!(
            systems(&[]),
            [format!("{arch}-gnu"), format!("{arch}-musl")]
        );
        assert_eq!(systems(&["--without", "musl"]), [format!("{arch}-gnu")]);
        assert_eq!(
            systems(&["--arch", "x86_64", "--arch", "aarch64", "--without", "gnu"]),
            ["x86_64-musl", "aarch64-musl"]
        );
    }

    #[test]
    fn what_is_built_for_this_machine_alone_leaves_nothing_to_choose() {
        assert!(Line::try_parse_from(["nar", "--here", "--without", "musl"]).is_err());
        assert!(Line::try_parse_from(["nar", "--debug", "--arch", "aarch64"]).is_err());
    }
}
