//! Toolchains of other languages that the tests with real clients need, and that cargo cannot install.

use kop_fetch::folder::find;
use kop_fetch::java::Jdk;

/// A toolchain, the program that shows it, and what cannot run without it.
pub(crate) struct Toolchain {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) needed_for: &'static str,
}

pub(crate) const TOOLCHAINS: [Toolchain; 7] = [
    Toolchain {
        name: "JDK 17",
        program: "javac",
        needed_for: "Kafka's console tools and Java client, and Pulsar",
    },
    Toolchain {
        name: "JDK 25",
        program: "javac",
        needed_for: "Pulsar on Java 25",
    },
    Toolchain {
        name: "Maven",
        program: "mvn",
        needed_for: "fetching Apache Kafka and Apache Pulsar",
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

/// What building for Pulsar and starting one needs and this machine lacks.
pub(crate) fn missing_for_pulsar() -> Option<&'static Toolchain> {
    let needed = ["JDK 17", "Maven"];
    missing()
        .into_iter()
        .find(|toolchain| needed.contains(&toolchain.name))
}

fn is_there(toolchain: &Toolchain) -> bool {
    match toolchain.name {
        "JDK 25" => Jdk::of(25).is_ok(),
        "JDK 17" => Jdk::of(17).is_ok(),
        _ => find(toolchain.program).is_some(),
    }
}
