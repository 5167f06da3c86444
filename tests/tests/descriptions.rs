//! The extract of Kafka's message descriptions, from which the guard's table was made, against the jar itself.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kop_tests::process::run;
use kop_tests::{or_skip, tools};
use serde_json::Value;

const EXTRACT: &str = include_str!("../../kop-handler/tests/data/kafka-4.3.1-requests.txt");

#[test]
fn the_extract_is_what_the_jar_describes() {
    let kafka = or_skip!(tools::kafka());
    let jar = or_skip!(kafka.jar("kafka-clients"));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut unpack = Command::new("jar");
    unpack
        .current_dir(folder.path())
        .arg("xf")
        .arg(&jar)
        .arg("common/message");
    let unpacked = run(unpack, None, Duration::from_secs(120));
    assert!(unpacked.success(), "{}", unpacked.stderr);
    let described = read_json(&folder.path().join("common/message"));
    let mut count = 0;
    for section in sections() {
        count += 1;
        let name = section.split(' ').nth(1).expect("a name");
        assert_eq!(described.get(name), Some(&section), "{name}");
    }
    assert!(count > 60, "{count} descriptions");
}

/// The lines of each message.
fn sections() -> Vec<String> {
    let mut sections: Vec<String> = Vec::new();
    for line in EXTRACT.lines() {
        match sections.last_mut() {
            Some(section) if line.starts_with(' ') => {
                section.push('\n');
                section.push_str(line);
            }
            _ => sections.push(line.to_owned()),
        }
    }
    sections
}

/// Every description in a directory, in the notation of the extract, by its name without "Request".
fn read_json(directory: &Path) -> HashMap<String, String> {
    let mut found = HashMap::new();
    let files = std::fs::read_dir(directory).expect("the jar has descriptions");
    let paths = files.flatten().map(|file| file.path());
    for path in paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let plain: String = text.lines().map(without_comment).collect();
        let message: Value = serde_json::from_str(&plain).expect("as Kafka writes them");
        let kind = message["type"].as_str().expect("as Kafka writes them");
        if kind != "request" && kind != "data" || !message["fields"].is_array() {
            continue;
        }
        let name = message["name"]
            .as_str()
            .expect("as Kafka writes them")
            .trim_end_matches("Request")
            .to_owned();
        found.insert(name.clone(), render(&message, &name));
    }
    found
}

fn without_comment(line: &str) -> &str {
    // A comment begins after an even number of quotes.
    let is_comment = |at: &usize| line[..*at].matches('"').count().is_multiple_of(2);
    line.match_indices("//")
        .map(|(at, _)| at)
        .find(is_comment)
        .map_or(line, |at| &line[..at])
}

fn render(message: &Value, name: &str) -> String {
    let flexible = message["flexibleVersions"]
        .as_str()
        .expect("as Kafka writes them");
    let key = message["apiKey"].as_i64().unwrap_or(-1);
    let versions = message["validVersions"]
        .as_str()
        .expect("as Kafka writes them");
    let mut out = format!("{key} {name} {versions} flexible {flexible}");
    render_fields(message, &message["fields"], 1, &mut out);
    out
}

fn render_fields(message: &Value, fields: &Value, depth: usize, out: &mut String) {
    for field in fields.as_array().expect("as Kafka writes them") {
        let full = field["type"].as_str().expect("as Kafka writes them");
        let base = full.trim_start_matches("[]");
        let kind = match base {
            "bool" | "int8" => "fixed1",
            "int16" | "uint16" => "fixed2",
            "int32" => "fixed4",
            "int64" | "float64" => "fixed8",
            "uuid" => "fixed16",
            "string" => "text",
            "bytes" | "records" => "bytes",
            _ => "struct",
        };
        let array = if full.starts_with("[]") { "[]" } else { "" };
        let name = field["name"].as_str().expect("as Kafka writes them");
        let versions = field["versions"].as_str().expect("as Kafka writes them");
        write!(
            out,
            "\n{:indent$}{name} {kind}{array} {versions}",
            "",
            indent = depth * 2
        )
        .expect("as Kafka writes them");
        if let Some(nullable) = field["nullableVersions"].as_str() {
            let since = nullable.trim_end_matches('+');
            write!(
                out,
                " null {}+",
                since.split('-').next().expect("as Kafka writes them")
            )
            .expect("as Kafka writes them");
        }
        if let Some(tag) = field["tag"].as_i64() {
            assert_eq!(
                field["taggedVersions"], field["versions"],
                "{name}: tagged from another version on"
            );
            write!(out, " tag {tag}").expect("as Kafka writes them");
        }
        if kind == "struct" {
            render_fields(message, struct_fields(message, field, base), depth + 1, out);
        }
    }
}

/// The fields of a struct, written in place or among the message's common ones.
fn struct_fields<'a>(message: &'a Value, field: &'a Value, name: &str) -> &'a Value {
    if field["fields"].is_array() {
        return &field["fields"];
    }
    let common = message["commonStructs"]
        .as_array()
        .expect("as Kafka writes them");
    &common
        .iter()
        .find(|c| c["name"] == name)
        .expect("as Kafka writes them")["fields"]
}
