//! The test programs that cargo has built, and the step that each belongs to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A built test program.
pub(super) struct Program {
    pub(super) step: &'static str,
    pub(super) name: String,
    pub(super) executable: PathBuf,
    pub(super) package: PathBuf,
}

/// The step of the programs that are about a real Pulsar; they run in its legs.
pub(super) const PULSAR: &str = "pulsar";
/// The step of the programs that test the whole product from outside.
pub(super) const INTEROP: &str = "interop";

/// Steps of test programs, in the order in which they run. The first whose words are in the package's and the program's
/// name takes it.
pub(super) const STEPS: [(&str, &[&str]); 6] = [
    ("golden", &["golden", "sweep"]),
    ("simulation", &["simul", "sim::", "seeds"]),
    ("abi", &["abi-tests", "contract", "handler-api"]),
    (PULSAR, &["kop-tests pulsar_"]),
    (INTEROP, &["kop-tests"]),
    ("rooms", &[""]),
];

/// The test programs among cargo's messages.
pub(super) fn programs(messages: &str) -> Vec<Program> {
    let mut found = BTreeMap::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let is_test = message["profile"]["test"].as_bool().unwrap_or(false);
        let (Some(executable), Some(manifest)) = (
            message["executable"].as_str(),
            message["manifest_path"].as_str(),
        ) else {
            continue;
        };
        if !is_test {
            continue;
        }
        let target = message["target"]["name"].as_str().unwrap_or("test");
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        let package = Path::new(manifest)
            .parent()
            .unwrap_or_else(|| Path::new("."))
            .to_owned();
        let id = message["package_id"].as_str().unwrap_or_default();
        let owner = package_name(id, &package);
        let name = if owner == target {
            owner
        } else {
            format!("{owner} {target}")
        };
        let program = Program {
            step: step_of(kind, &name),
            name: name.clone(),
            executable: executable.into(),
            package,
        };
        found.insert((name, executable.to_owned()), program);
    }
    found.into_values().collect()
}

/// The name in cargo's package id: `path+file:///…/tests#kop-tests@0.1.0` or `…/xtask#0.1.0`.
fn package_name(id: &str, folder: &Path) -> String {
    let named = id
        .rsplit_once('#')
        .and_then(|(_, rest)| rest.split_once('@'))
        .map(|(name, _)| name.to_owned());
    named.unwrap_or_else(|| {
        folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    })
}

/// The step that a test program belongs to.
fn step_of(kind: &str, name: &str) -> &'static str {
    if kind != "test" {
        return "unit";
    }
    let holds = |words: &[&str]| words.iter().any(|word| name.contains(word));
    STEPS
        .iter()
        .find(|(_, words)| holds(words))
        .map_or("rooms", |(step, _)| step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_and_sorted_into_steps() {
        let artifact = |id: &str, manifest: &str, name: &str, kind: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": id, "manifest_path": manifest,
                "target": {"name": name, "kind": [kind]}, "profile": {"test": test}, "executable": format!("/t/{name}"),
            })
            .to_string()
        };
        let messages = [
            artifact(
                "path+file:///r/tests#kop-tests@0.1.0",
                "/r/tests/Cargo.toml",
                "doris",
                "test",
                true,
            ),
            artifact(
                "path+file:///r/tests#kop-tests@0.1.0",
                "/r/tests/Cargo.toml",
                "golden",
                "test",
                true,
            ),
            artifact(
                "path+file:///r/xtask#0.1.0",
                "/r/xtask/Cargo.toml",
                "xtask",
                "bin",
                true,
            ),
            artifact(
                "path+file:///r/host-shim#0.1.0",
                "/r/host-shim/Cargo.toml",
                "kop",
                "bin",
                false,
            ),
            artifact(
                "path+file:///r/host-shim#0.1.0",
                "/r/host-shim/Cargo.toml",
                "contract",
                "test",
                true,
            ),
            artifact(
                "path+file:///r/host-shim#0.1.0",
                "/r/host-shim/Cargo.toml",
                "recovery",
                "test",
                true,
            ),
        ]
        .join("\n");
        let found: Vec<(String, &str)> = programs(&messages)
            .into_iter()
            .map(|program| (program.name, program.step))
            .collect();
        let expected = [
            ("host-shim contract", "abi"),
            ("host-shim recovery", "rooms"),
            ("kop-tests doris", "interop"),
            ("kop-tests golden", "golden"),
            ("xtask", "unit"),
        ];
        assert_eq!(found, expected.map(|(name, step)| (name.to_owned(), step)));
    }
}
