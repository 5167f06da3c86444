//! Plugins and hosts of other versions of the ABI: copies of this repository's `handler-api`, `host-shim` and probe are
//! changed, built, and loaded into each other.
//!
//! The copies lie in `target/abi` and are built in the target directory of this test, so that the dependencies are not
//! built again; the names of what they build carry the copy's name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// How a copy differs from today's sources.
enum Change {
    None,
    /// The next minor version: one more operation and one more event.
    NextMinor,
    /// The next major version.
    NextMajor,
    /// Today's version, with a field more in a struct that crosses by value: what must never be released.
    Broken,
}

/// A plugin's directory and a host's executable of one version.
struct Built {
    plugins: PathBuf,
    host: PathBuf,
}

struct Versions {
    today: Built,
    minor: Built,
    major: Built,
    broken: Built,
}

static VERSIONS: LazyLock<Versions> = LazyLock::new(|| {
    let changes = [
        ("today", Change::None),
        ("minor", Change::NextMinor),
        ("major", Change::NextMajor),
        ("broken", Change::Broken),
    ];
    // All at once, so that they are of the same sources even if somebody edits these meanwhile.
    for (name, change) in &changes {
        prepare(name, change);
    }
    let [today, minor, major, broken] = changes.map(|(name, _)| build(name));
    Versions {
        today,
        minor,
        major,
        broken,
    }
});

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// This test lies in `<target>/debug/deps`.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}

/// The version of today's ABI, and the next ones.
fn version(major: u32, minor: u32) -> String {
    let mut parts = handler_api::ABI_VERSION.split('.');
    let mut next = || parts.next().unwrap().parse::<u32>().unwrap();
    let (old_major, old_minor) = (next(), next());
    match (major, minor) {
        (0, 0) => handler_api::ABI_VERSION.to_owned(),
        (0, more) => format!("{old_major}.{}.0", old_minor + more),
        (more, _) => format!("{}.0.0", old_major + more),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            copy_file(&entry.path(), &target);
        }
    }
}

/// Leaves a file alone that is the same, so that cargo does not build it again.
fn copy_file(from: &Path, to: &Path) {
    write_bytes(to, &fs::read(from).unwrap());
}

fn write(to: &Path, text: &str) {
    write_bytes(to, text.as_bytes());
}

fn write_bytes(to: &Path, bytes: &[u8]) {
    if fs::read(to).ok().as_deref() != Some(bytes) {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, bytes).unwrap();
    }
}

fn edit(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{} lacks {from:?}", file.display());
    write(file, &text.replacen(from, to, 1));
}

/// Copies and changes.
fn prepare(name: &str, change: &Change) {
    let (root, target) = (root(), target());
    let base = target.join("abi");
    // Put together aside first: a file that ends up the same must keep its time.
    let fresh = base.join(format!("{name}.fresh"));
    let _ = fs::remove_dir_all(&fresh);
    // Cargo tells crates apart by their path within the workspace: it has to carry the copy's name.
    let crates = fresh.join(name);
    for part in ["handler-api", "host-shim/src", "tests/abi/src", "conf"] {
        copy(&root.join(part), &crates.join(part));
    }
    for part in ["host-shim/Cargo.toml", "tests/abi/Cargo.toml"] {
        copy_file(&root.join(part), &crates.join(part));
    }
    copy_file(&root.join("Cargo.lock"), &fresh.join("Cargo.lock"));
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let kept = workspace.split_once("[workspace.package]").unwrap().1;
    let kept = kept
        .replace("kop-handler = { path = \"kop-handler\" }\n", "")
        .replace("path = \"", &format!("path = \"{name}/"));
    let members = ["handler-api", "host-shim", "tests/abi"].map(|part| format!("{name}/{part}"));
    write(
        &fresh.join("Cargo.toml"),
        &format!(
            "[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[workspace.package]{kept}"
        ),
    );
    let manifest = crates.join("tests/abi/Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    let (before, after) = text.split_once("# Not linked:").unwrap();
    let (_, after) = after
        .split_once("rustix.workspace = true\ntempfile.workspace = true\n")
        .unwrap();
    write(&manifest, &format!("{before}{after}"));

    for (file, from, to) in [
        (
            "tests/abi/Cargo.toml",
            "name = \"probe_handler\"",
            format!("name = \"probe_handler_{name}\""),
        ),
        (
            "tests/abi/Cargo.toml",
            "name = \"probe-host\"",
            format!("name = \"probe-host-{name}\""),
        ),
        (
            "tests/abi/src/bin/probe_host/main.rs",
            "use probe_handler::",
            format!("use probe_handler_{name}::"),
        ),
    ] {
        edit(&crates.join(file), from, &to);
    }
    apply(change, &root, &crates);
    sync(&fresh, &base.join(name));
}

/// Builds a copy.
fn build(name: &str) -> Built {
    let target = target();
    let base = target.join("abi");
    let host = format!("probe-host-{name}");
    let output = Command::new(env!("CARGO"))
        .current_dir(base.join(name))
        .args(["build", "--offline", "--package", "abi-tests"])
        .args(["--lib", "--bin", &host])
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the copy {name} does not build:\n{text}"
    );
    let plugins = base.join(format!("{name}.protocols"));
    fs::create_dir_all(&plugins).unwrap();
    let plugin = target.join(format!("debug/libprobe_handler_{name}.so"));
    fs::copy(plugin, plugins.join("libprobe_handler.so")).unwrap();
    let host = target.join("debug").join(host);
    Built { plugins, host }
}

/// Changes the crates of a copy.
fn apply(change: &Change, root: &Path, crates: &Path) {
    let newer = root.join("tests/abi/newer");
    let set_version = |version: &str| {
        let old = format!("version = \"{}\"", handler_api::ABI_VERSION);
        let new = format!("version = \"{version}\"");
        edit(&crates.join("handler-api/Cargo.toml"), &old, &new);
    };
    match change {
        Change::None => {}
        Change::NextMinor => {
            set_version(&version(0, 1));
            let control = crates.join("handler-api/src/control.rs");
            let addition = fs::read_to_string(newer.join("control.rs")).unwrap();
            let text = fs::read_to_string(&control).unwrap();
            write(&control, &format!("{text}{addition}"));
            copy_file(
                &newer.join("ping.rs"),
                &crates.join("tests/abi/src/ping.rs"),
            );
            let services = "tests/abi/src/bin/probe_host/services.rs";
            copy_file(&newer.join("services.rs"), &crates.join(services));
        }
        Change::NextMajor => set_version(&version(1, 0)),
        Change::Broken => {
            let handler = crates.join("handler-api/src/handler.rs");
            let field = "    /// Listener name, e.g. `PLAINTEXT`.\n";
            let more = "    /// New.\n    pub more: u64,\n";
            edit(&handler, field, &format!("{more}{field}"));
        }
    }
}

/// Makes `to` the same as `from`, touching only what differs. The lock file stays as cargo left it.
fn sync(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(to).unwrap() {
        let entry = entry.unwrap();
        let source = from.join(entry.file_name());
        if !source.exists() {
            let path = entry.path();
            let removed = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.unwrap();
        }
    }
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            sync(&entry.path(), &target);
        } else if entry.file_name() != "Cargo.lock" || !target.exists() {
            copy_file(&entry.path(), &target);
        }
    }
}

fn run(host: &Built, plugin: &Built) -> Output {
    let output = Command::new(&host.host).arg(&plugin.plugins).output();
    output.unwrap()
}

/// What a host printed that could load and use the plugin.
fn works(host: &Built, plugin: &Built) -> String {
    let output = run(host, plugin);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The one line with which a host refused the plugin.
fn refused(host: &Built, plugin: &Built) -> String {
    let output = run(host, plugin);
    assert!(!output.status.success());
    assert!(
        output.status.code().is_some(),
        "the host was killed: {:?}",
        output.status
    );
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors
}

fn story(host: &str, plugin: &str, ping: &str) -> String {
    format!(
        "host {host} plugin {plugin}\ndo it all: done\nunknown operation: Err(Unsupported)\nping: {ping}\nevent: true\n"
    )
}

#[test]
fn a_plugin_of_a_newer_minor_version_works_in_todays_host() {
    let versions = &*VERSIONS;
    let expected = story(&version(0, 0), &version(0, 1), "Err(Unsupported)");
    assert_eq!(works(&versions.today, &versions.minor), expected);
}

#[test]
fn a_plugin_of_an_older_minor_version_works_in_a_newer_host() {
    let versions = &*VERSIONS;
    let expected = story(&version(0, 1), &version(0, 0), "this plugin knows no ping");
    assert_eq!(works(&versions.minor, &versions.today), expected);
}

#[test]
fn two_of_the_newer_version_use_what_it_adds() {
    let versions = &*VERSIONS;
    let expected = story(&version(0, 1), &version(0, 1), "Ok(Nothing)");
    assert_eq!(works(&versions.minor, &versions.minor), expected);
}

#[test]
fn another_major_version_is_refused_in_one_line_that_names_both() {
    let versions = &*VERSIONS;
    for (host, plugin, host_version, plugin_version) in [
        (
            &versions.today,
            &versions.major,
            version(0, 0),
            version(1, 0),
        ),
        (
            &versions.major,
            &versions.today,
            version(1, 0),
            version(0, 0),
        ),
    ] {
        let line = refused(host, plugin);
        let reason =
            format!("built against ABI {plugin_version}, this host has ABI {host_version}");
        assert!(line.contains(&reason), "{line}");
    }
}

#[test]
fn types_that_differ_within_a_version_are_refused_in_one_line() {
    let versions = &*VERSIONS;
    for (host, plugin) in [
        (&versions.today, &versions.broken),
        (&versions.broken, &versions.today),
    ] {
        let line = refused(host, plugin);
        let today = version(0, 0);
        let reason = format!(
            "built against ABI {today}, whose types differ from those of this host's ABI {today}"
        );
        assert!(line.contains(&reason), "{line}");
    }
}
