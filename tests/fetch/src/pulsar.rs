//! Apache Pulsar from Maven: the broker of one release with everything that it needs, and the JVM flags to run it.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use crate::java::{Jdk, jars};

/// The releases that the handler is built and tested for, oldest first.
pub const RELEASES: [Release; 3] = [Release::V2_10, Release::V3_3, Release::V4_0];

/// A release of Apache Pulsar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 2.10.0.
    V2_10,
    /// 3.3.2.
    V3_3,
    /// 4.0.0.
    V4_0,
}

impl Release {
    /// The version in full.
    pub fn version(self) -> &'static str {
        match self {
            Self::V2_10 => "2.10.0",
            Self::V3_3 => "3.3.2",
            Self::V4_0 => "4.0.0",
        }
    }

    /// The release with this version.
    pub fn of(version: &str) -> Result<Self, String> {
        let found = RELEASES.into_iter().find(|it| it.version() == version);
        found.ok_or_else(|| {
            let known = RELEASES.map(Self::version).join(", ");
            format!("Pulsar {version} is none of those tested: {known}")
        })
    }

    /// Log4j's binding for the SLF4J that this release uses.
    fn log_binding(self) -> &'static str {
        match self {
            Self::V2_10 => "log4j-slf4j-impl",
            Self::V3_3 | Self::V4_0 => "log4j-slf4j2-impl",
        }
    }

    /// The folder with the release's jars; fetches them once.
    pub fn jars(self) -> Result<PathBuf, String> {
        let name = format!("pulsar-{self}");
        let properties = [
            ("pulsar.version", self.version()),
            ("log.binding", self.log_binding()),
        ];
        jars(&name, include_str!("pulsar.xml"), &properties)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.version())
    }
}

/// What Pulsar's own start script opens to it of the JDK.
const OPENED: [&str; 8] = [
    "java.base/sun.net",
    "java.base/java.lang",
    "java.base/java.util",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
];

/// How much memory a JVM may take, in MiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The heap.
    pub heap: u32,
    /// Direct buffers.
    pub direct: u32,
}

/// Adds the flags and the class path with which a part of a Pulsar cluster runs to a `java` command.
///
/// `optimized` leaves the JIT as it comes, for measuring; else only its fast tier is used, which starts sooner.
pub fn java(
    jdk: &Jdk,
    release: Release,
    memory: Memory,
    optimized: bool,
    command: &mut Command,
) -> Result<(), String> {
    let jars = release.jars()?;
    command
        .arg(format!("-Xmx{}m", memory.heap))
        .arg(format!("-XX:MaxDirectMemorySize={}m", memory.direct))
        .arg("-Xms64m")
        .arg("-Dio.netty.tryReflectionSetAccessible=true");
    if !optimized {
        command.arg("-XX:TieredStopAtLevel=1");
    }
    if jdk.major >= 24 {
        // Without it such a JDK warns of every native library; without the second, of Netty's direct buffers.
        command.arg("--enable-native-access=ALL-UNNAMED");
        command.arg("--sun-misc-unsafe-memory-access=allow");
    }
    for package in OPENED {
        command.arg(format!("--add-opens={package}=ALL-UNNAMED"));
    }
    command.arg("-cp").arg(jars.join("*"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_found_by_its_version_and_no_other_is() {
        for release in RELEASES {
            assert_eq!(Release::of(release.version()), Ok(release));
        }
        let refused = Release::of("3.0.0").unwrap_err();
        assert!(
            refused.contains("3.0.0") && refused.contains("2.10.0, 3.3.2, 4.0.0"),
            "{refused}"
        );
    }
}
