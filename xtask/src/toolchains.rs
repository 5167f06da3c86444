//! Toolchains of other languages that the tests with real clients need, and that cargo cannot install.

use std::path::PathBuf;
use std::process::Command;

/// A toolchain, the program that shows it, and what cannot run without it.
pub(crate) struct Toolchain {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) needed_for: &'static str,
}

pub(crate) const TOOLCHAINS: [Toolchain; 6] = [
    Toolchain {
        name: "JDK 17",
        program: "javac",
        needed_for: "Kafka's console tools and Java client",
    },
    Toolchain {
        name: "Maven",
        program: "mvn",
        needed_for: "fetching Apache Kafka",
    },
    Toolchain {
        name: "Go",
        program: "go",
        needed_for: "franz-go",
    },
    Toolchain {
        name: "Node.js",
        program: "node",
        needed_for: "kafkajs",
    },
    Toolchain {
        name: "npm",
        program: "npm",
        needed_for: "fetching kafkajs",
    },
    Toolchain {
        name: "Python 3",
        program: "python3",
        needed_for: "confluent-kafka",
    },
];

/// Those that are not on the PATH, or too old.
pub(crate) fn missing() -> Vec<&'static Toolchain> {
    TOOLCHAINS
        .iter()
        .filter(|toolchain| !is_there(toolchain))
        .collect()
}

fn is_there(toolchain: &Toolchain) -> bool {
    find(toolchain.program).is_some() && (toolchain.program != "javac" || jdk_version() >= Some(17))
}

/// The major version of the JDK: `javac -version` prints `javac 17.0.15`.
fn jdk_version() -> Option<u32> {
    let output = Command::new("javac").arg("-version").output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let version = text.split_whitespace().nth(1)?;
    version.split('.').next()?.parse().ok()
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
