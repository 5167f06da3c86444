//! The Java half of the NAR: compiles each set of sources against the release of Pulsar that it is for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kop_fetch::folder::checked;
use kop_fetch::java::Jdk;
use kop_fetch::process::run;
use kop_fetch::pulsar::Release;

/// Where the sets of sources lie.
const SOURCES: &str = "host-shim/pulsar-nar/java";
/// The development kit that compiles: the oldest that can read the classes of every release.
const JDK: u32 = 17;
/// How long compiling one set may take.
const COMPILE: Duration = Duration::from_secs(300);

/// Sources that are compiled together.
struct Set {
    folder: &'static str,
    against: Release,
    /// The oldest Java that runs the classes.
    java: &'static str,
}

/// All sets. The first is what the others may use; what they are compiled against differs, for the releases' own
/// classes do.
const SETS: [Set; 4] = [
    Set {
        folder: "common",
        against: Release::V2_10,
        java: "11",
    },
    Set {
        folder: "v2_10",
        against: Release::V2_10,
        java: "11",
    },
    Set {
        folder: "v3_3",
        against: Release::V3_3,
        java: "17",
    },
    Set {
        folder: "v4_0",
        against: Release::V4_0,
        java: "17",
    },
];

/// Compiles every set into one folder of classes.
pub(crate) fn compile(root: &Path, classes: &Path) -> Result<(), String> {
    let jdk = Jdk::of(JDK)?;
    let present = folders(&root.join(SOURCES))?;
    let unknown = |name: &&String| !SETS.iter().any(|set| set.folder == **name);
    if let Some(unknown) = present.iter().find(unknown) {
        return Err(format!(
            "{SOURCES}/{unknown} is for no release that we know"
        ));
    }
    for set in SETS
        .iter()
        .filter(|set| present.iter().any(|it| it == set.folder))
    {
        let sources = sources(&root.join(SOURCES).join(set.folder))?;
        let mut paths = vec![set.against.jars()?.join("*")];
        if set.folder != "common" {
            paths.push(classes.to_owned());
        }
        let class_path = std::env::join_paths(&paths)
            .map_err(|error| format!("{}: {error}", classes.display()))?;
        let mut javac = Command::new(jdk.program("javac"));
        javac.args(["-J-XX:TieredStopAtLevel=1", "--release", set.java]);
        javac.args(["-Xlint:all,-classfile,-path,-processing,-serial", "-Werror"]);
        javac.args(["-proc:none", "-encoding", "UTF-8"]);
        javac.arg("-cp").arg(class_path).arg("-d").arg(classes);
        javac.args(sources);
        checked(
            &format!("compiling the Java sources in {}", set.folder),
            run(javac, None, COMPILE),
        )?;
    }
    Ok(())
}

/// The folders of sources.
fn folders(sources: &Path) -> Result<Vec<String>, String> {
    let broken = |error: std::io::Error| format!("{}: {error}", sources.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(sources).map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && name != "META-INF" {
            found.push(name);
        }
    }
    Ok(found)
}

/// The Java files below a folder, in a fixed order.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let broken = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(broken)? {
        let path = entry.map_err(broken)?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|kind| kind == "java") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Puts a folder's content into a zip archive; `stored` spends no time on making it small.
pub(crate) fn archive(folder: &Path, to: &Path, stored: bool) -> Result<(), String> {
    let mut jar = Command::new(Jdk::of(JDK)?.program("jar"));
    jar.arg("--create").arg("--no-manifest");
    if stored {
        jar.arg("--no-compress");
    }
    // A fixed date: the same content gives the same file.
    jar.args(["--date", "2020-01-01T00:00:00Z"]);
    jar.arg("--file").arg(to).arg("-C").arg(folder).arg(".");
    checked("packing with jar", run(jar, None, COMPILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_java_files_of_a_tree_are_found_in_order_and_no_others() {
        let root = std::env::temp_dir().join(format!("xtask-java-{}", std::process::id()));
        std::fs::create_dir_all(root.join("io/kop")).unwrap();
        for name in ["io/B.java", "io/kop/A.java", "io/notes.txt"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        let found = sources(&root).unwrap();
        assert_eq!(found, [root.join("io/B.java"), root.join("io/kop/A.java")]);
        std::fs::remove_dir_all(&root).unwrap();
        assert!(sources(&root).is_err());
    }
}
