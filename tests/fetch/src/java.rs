//! Java: the development kits that the machine has, by major version, and jars by Maven coordinates.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::folder::{FETCH, checked, fetched, find, need, write};
use crate::process::run;

/// Where Linux distributions put their Java development kits.
const INSTALLED: &str = "/usr/lib/jvm";

/// A Java development kit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jdk {
    /// Its directory.
    pub home: PathBuf,
    /// The major version, for instance 17.
    pub major: u32,
}

impl Jdk {
    /// The development kit with this major version: the one on the `PATH`, else one that the distribution installed.
    pub fn of(major: u32) -> Result<Self, String> {
        let on_path = find("javac").and_then(|javac| javac.canonicalize().ok());
        let on_path = on_path.and_then(|javac| Some(javac.parent()?.parent()?.to_owned()));
        let installed = std::fs::read_dir(INSTALLED).into_iter().flatten().flatten();
        let mut homes: Vec<PathBuf> = installed.map(|entry| entry.path()).collect();
        homes.sort();
        let fits =
            |home: &PathBuf| major_of(home) == Some(major) && home.join("bin/javac").is_file();
        on_path
            .into_iter()
            .chain(homes)
            .find(fits)
            .map(|home| Self { home, major })
            .ok_or_else(|| format!("a JDK {major} is not installed"))
    }

    /// One of its programs (`java`, `javac`, `jar`).
    pub fn program(&self, name: &str) -> PathBuf {
        self.home.join("bin").join(name)
    }
}

/// The major version of a development kit, from its `release` file (`JAVA_VERSION="17.0.15"`).
fn major_of(home: &Path) -> Option<u32> {
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let version = release
        .lines()
        .find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    version.trim_matches('"').split('.').next()?.parse().ok()
}

/// Fetches what a POM names, with all that it needs, into `lib` of the folder `name`; `properties` are Maven's `-D`.
pub fn jars(name: &str, pom: &str, properties: &[(&str, &str)]) -> Result<PathBuf, String> {
    let maven = need("mvn", "Maven")?;
    let values: Vec<String> = properties
        .iter()
        .map(|(key, value)| format!("-D{key}={value}"))
        .collect();
    let folder = fetched(name, &format!("{pom}{}", values.join("\n")), |folder| {
        write(&folder.join("pom.xml"), pom)?;
        // Some POMs name repositories of their own; only the central one is to be asked.
        let empty = folder.join("empty");
        std::fs::create_dir_all(&empty).map_err(|error| format!("{}: {error}", empty.display()))?;
        let mirror = format!(
            "<settings><mirrors><mirror><id>none</id><mirrorOf>*,!central</mirrorOf><url>file://{}</url></mirror></mirrors></settings>",
            empty.display()
        );
        write(&folder.join("settings.xml"), &mirror)?;
        let mut command = Command::new(&maven);
        command.current_dir(folder).args(&values).args([
            "-B",
            "-q",
            "-s",
            "settings.xml",
            "dependency:copy-dependencies",
            "-DoutputDirectory=lib",
        ]);
        checked(
            &format!("fetching {name} with Maven"),
            run(command, None, FETCH),
        )
    })?;
    Ok(folder.join("lib"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_the_release_file() {
        let home = std::env::temp_dir().join(format!("kop-fetch-jdk-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let release =
            "IMPLEMENTOR=\"Anyone\"\nJAVA_VERSION=\"25.0.1\"\nJAVA_VERSION_DATE=\"2025\"\n";
        std::fs::write(home.join("release"), release).unwrap();
        assert_eq!(major_of(&home), Some(25));
        std::fs::write(home.join("release"), "JAVA_VERSION=\"later\"\n").unwrap();
        assert_eq!(major_of(&home), None);
        std::fs::remove_dir_all(&home).unwrap();
        assert_eq!(major_of(&home), None);
    }
}
