//! Who may import whom: the table of `ARCHITECTURE.md`, read off the sources.
//!
//! A room may name the rooms listed for it, and none of the words forbidden to it. Test code (`tests.rs`, `*_tests.rs`,
//! what stands below `#[cfg(test)]`) may name anything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A room: its paths under `src`, the rooms that it may import, what its files must not name.
struct Room {
    paths: &'static [&'static str],
    may: &'static [&'static str],
    never: &'static [&'static str],
}

const SOCKETS: &[&str] = &[
    "tokio::net",
    "socket2::",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
];
const IMPURE: &[&str] = &[
    "tokio::",
    "std::net::",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::fs::",
    "std::thread",
    "async fn",
    "async move",
    ".await",
    "handler_api::",
];

const ROOMS: &[Room] = &[
    Room {
        paths: &["wire", "format"],
        may: &["wire", "format", "error"],
        never: IMPURE,
    },
    Room {
        paths: &[
            "coordinator/group",
            "coordinator/record",
            "coordinator/record.rs",
        ],
        may: &["coordinator", "error"],
        never: IMPURE,
    },
    Room {
        paths: &[
            "coordinator/engine",
            "coordinator/groups",
            "coordinator/groups.rs",
            "coordinator/ids.rs",
            "coordinator/mod.rs",
        ],
        may: &[
            "coordinator",
            "log",
            "topics",
            "clock",
            "config",
            "error",
            "wire",
        ],
        never: SOCKETS,
    },
    Room {
        paths: &["log"],
        may: &["log", "wire", "format", "error", "clock"],
        never: SOCKETS,
    },
    Room {
        paths: &["topics"],
        may: &[
            "topics", "log", "wire", "format", "error", "clock", "config",
        ],
        never: SOCKETS,
    },
    Room {
        paths: &["api"],
        may: &[
            "api",
            "wire",
            "coordinator",
            "log",
            "topics",
            "auth",
            "error",
            "clock",
            "config",
            "metrics",
        ],
        never: SOCKETS,
    },
    Room {
        paths: &["net"],
        may: &["net", "wire", "api", "auth", "error", "config", "metrics"],
        never: &[],
    },
    Room {
        paths: &[
            "clock.rs",
            "error.rs",
            "metrics.rs",
            "metrics",
            "telemetry.rs",
        ],
        may: &["config"],
        never: SOCKETS,
    },
    Room {
        paths: &["config.rs", "config"],
        may: &["config", "error", "format"],
        never: IMPURE_BUT_ERRORS,
    },
    // Builds and connects all others.
    Room {
        paths: &["plugin.rs", "plugin", "lib.rs"],
        may: &["*"],
        never: &[],
    },
];

/// The configuration answers with the ABI's errors, and does nothing else with the ABI.
const IMPURE_BUT_ERRORS: &[&str] = &[
    "tokio::",
    "std::fs::",
    "std::thread",
    "async fn",
    "handler_api::Host",
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
    {
        let path = entry.unwrap_or_else(|e| panic!("{e}")).path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// All source files that are no tests: path under `src`, and text without comments and test modules.
fn files() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    walk(&sources(), &mut paths);
    paths
        .iter()
        .filter_map(|path| {
            let name = path.strip_prefix(sources()).ok()?.to_str()?.to_owned();
            let is_test = ["tests.rs", "testing.rs", "fixture.rs"]
                .iter()
                .any(|end| name.ends_with(end));
            (!is_test).then(|| {
                (
                    name,
                    strip(&fs::read_to_string(path).unwrap_or_else(|e| panic!("{e}"))),
                )
            })
        })
        .collect()
}

/// Code as far as its tests, without comments.
fn strip(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code = code
        .split("#[cfg(test)]\n#[path")
        .next()
        .unwrap_or_default();
    code.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The rooms that a text names: `crate::room`, and each of `crate::{room, …}`.
fn imports(text: &str) -> BTreeSet<String> {
    let word = |text: &str| {
        text.chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut found = BTreeSet::new();
    for rest in text.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => {
                found.insert(word(rest));
            }
            Some(group) => {
                let mut depth = 0_u32;
                let mut item = String::new();
                for c in group.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            found.insert(word(std::mem::take(&mut item).trim()));
                        }
                        c if depth == 0 => item.push(c),
                        _ => {}
                    }
                }
                found.insert(word(item.trim()));
            }
        }
    }
    found.remove("");
    found
}

fn belongs(file: &str, path: &str) -> bool {
    file == path
        || file
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('/'))
}

#[test]
fn every_file_belongs_to_one_room() {
    for (file, _) in files() {
        let rooms = ROOMS
            .iter()
            .filter(|room| room.paths.iter().any(|path| belongs(&file, path)))
            .count();
        assert_eq!(
            rooms, 1,
            "{file} belongs to {rooms} rooms: name its room in this test and in ARCHITECTURE.md"
        );
    }
}

#[test]
fn rooms_import_only_what_the_architecture_allows() {
    let mut broken = Vec::new();
    for (file, text) in files() {
        for room in ROOMS
            .iter()
            .filter(|room| room.paths.iter().any(|path| belongs(&file, path)))
        {
            for import in imports(&text) {
                // What the crate's root gives besides rooms starts with a capital or is a macro.
                let allowed = room.may.contains(&"*") || room.may.contains(&import.as_str());
                if !allowed && import.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                    broken.push(format!("{file} imports {import}"));
                }
            }
            for word in room.never {
                if text.contains(word) {
                    broken.push(format!("{file} names {word}"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn no_api_file_uses_another_apis_file() {
    let files = files();
    let is_api = |text: &str| text.contains("async fn handle(");
    let apis: Vec<(&str, &str)> = files
        .iter()
        .filter(|(file, text)| file.starts_with("api/") && is_api(text))
        .filter_map(|(file, _)| {
            Some((file.as_str(), file.rsplit('/').next()?.strip_suffix(".rs")?))
        })
        .collect();
    assert!(apis.len() > 5, "the search for API files is broken");
    let mut broken = Vec::new();
    for (file, text) in files.iter().filter(|(_, text)| is_api(text)) {
        for (other, name) in apis.iter().filter(|(other, _)| other != file) {
            let named = [format!("super::{name}::"), format!("::{name}::handle")];
            let in_group = text.split("use super::").skip(1).any(|rest| {
                let list = rest.split(';').next().unwrap_or_default();
                list.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                    .any(|word| word == *name)
            });
            if in_group || named.iter().any(|named| text.contains(named)) {
                broken.push(format!("{file} uses {other}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_file_opens_with_what_it_is() {
    for (file, _) in files() {
        let text = fs::read_to_string(sources().join(&file)).unwrap_or_else(|e| panic!("{e}"));
        assert!(text.starts_with("//! "), "{file} has no header");
        assert!(
            text.lines().count() < 600,
            "{file} is longer than 600 lines"
        );
    }
}

#[test]
fn imports_are_found_in_both_spellings() {
    let found =
        imports("use crate::{api::{Call, Server}, log, wire::x};\nlet a = crate::topics::b();");
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        ["api", "log", "topics", "wire"]
    );
}
