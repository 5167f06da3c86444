//! Folders under `target/tools` that are filled once from a package registry and then kept.
//!
//! A missing toolchain is an ordinary answer that names itself; a fetch that fails is one too, with the client's own
//! words. It must not know what is fetched.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::process::{Finished, run};

/// How long fetching one thing may take.
pub const FETCH: Duration = Duration::from_secs(900);

/// Fetches within one process wait for each other here, and across processes at a lock file.
static FETCHING: Mutex<()> = Mutex::new(());

/// The repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().and_then(Path::parent);
    root.unwrap_or(here).to_owned()
}

/// Cargo's target directory, found from the running program.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let found = program
        .ancestors()
        .find(|path| path.join("CACHEDIR.TAG").is_file());
    found.map_or_else(|| repository().join("target"), Path::to_owned)
}

/// Finds a program, by `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The program, or a sentence that says which toolchain is missing.
pub fn need(program: &str, toolchain: &str) -> Result<PathBuf, String> {
    find(program)
        .ok_or_else(|| format!("{toolchain} is not installed (no `{program}` on the PATH)"))
}

/// The lock that keeps two processes from fetching into the same directory; released when dropped.
struct Fetching(#[expect(dead_code, reason = "holds the lock")] File);

fn lock() -> Result<Fetching, String> {
    let folder = target().join("tools");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let path = folder.join(".lock");
    let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    file.lock()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Fetching(file))
}

/// Runs `fetch` unless the folder `name` is complete for `recipe` (the pinned versions).
pub fn fetched(
    name: &str,
    recipe: &str,
    fetch: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let _here = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let _there = lock()?;
    let folder = target().join("tools").join(name);
    let done = folder.join(".fetched");
    if std::fs::read_to_string(&done).is_ok_and(|found| found == recipe) {
        return Ok(folder);
    }
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    fetch(&folder)?;
    std::fs::write(&done, recipe).map_err(|error| format!("{}: {error}", done.display()))?;
    Ok(folder)
}

/// A program's failure as a sentence with everything that it printed.
pub fn checked(what: &str, finished: Finished) -> Result<(), String> {
    if finished.success() {
        return Ok(());
    }
    Err(format!(
        "{what} failed ({:?}): {}{}",
        finished.status, finished.stdout, finished.stderr
    ))
}

/// Writes a text file.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A Python virtual environment in the folder `name` with these packages (pip's requirements, wheels only).
pub fn python_environment(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let python = need("python3", "Python")?;
    fetched(name, &packages.join(" "), |folder| {
        let mut create = Command::new(&python);
        create.args(["-m", "venv"]).arg(folder);
        checked("creating a Python environment", run(create, None, FETCH))?;
        let mut install = Command::new(folder.join("bin/python"));
        install
            .args(["-m", "pip", "install", "-q", "--only-binary", ":all:"])
            .args(packages);
        checked(
            &format!("installing {} with pip", packages.join(" ")),
            run(install, None, FETCH),
        )
    })
}
