//! The descriptions: read from the committed extract, and rendered from the JSON of kafka-clients.
//!
//! The extract has one line per message and per field: `Name kind[] versions [null versions] [tag n]`.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

/// A message.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) key: i16,
    pub(crate) name: String,
    pub(crate) min: i16,
    pub(crate) max: i16,
    pub(crate) flexible: i16,
    pub(crate) fields: Vec<Field>,
}

/// A field of it.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) kind: Kind,
    pub(crate) is_array: bool,
    pub(crate) versions: Range,
    pub(crate) nullable: Option<Range>,
    pub(crate) tag: Option<u32>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Fixed(usize),
    Text,
    Bytes,
    Struct(Vec<Field>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Range(i16, i16);

impl Range {
    pub(crate) fn has(self, version: i16) -> bool {
        (self.0..=self.1).contains(&version)
    }

    fn parse(text: &str) -> Self {
        if let Some(since) = text.strip_suffix('+') {
            return Self(since.parse().unwrap(), i16::MAX);
        }
        let (since, until) = text.split_once('-').unwrap_or((text, text));
        Self(since.parse().unwrap(), until.parse().unwrap())
    }
}

/// The text of each message, without the line break at its end.
pub(crate) fn sections(extract: &str) -> Vec<String> {
    let mut sections: Vec<String> = Vec::new();
    for line in extract.lines() {
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

/// All messages of the extract.
pub(crate) fn parse(extract: &str) -> Vec<Description> {
    let message = |section: &String| {
        let mut lines = section.lines().peekable();
        let head: Vec<&str> = lines.next().unwrap().split(' ').collect();
        let versions = Range::parse(head[2]);
        Description {
            key: head[0].parse().unwrap(),
            name: head[1].to_owned(),
            min: versions.0,
            max: versions.1,
            flexible: if head[4] == "none" {
                i16::MAX
            } else {
                Range::parse(head[4]).0
            },
            fields: parse_fields(&mut lines, 2),
        }
    };
    sections(extract).iter().map(message).collect()
}

fn parse_fields(lines: &mut std::iter::Peekable<std::str::Lines<'_>>, indent: usize) -> Vec<Field> {
    let mut fields = Vec::new();
    while let Some(line) = lines.peek() {
        if line.len() - line.trim_start().len() != indent {
            break;
        }
        let words: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        let kind = words[1].trim_end_matches("[]");
        let option = |name| {
            words
                .iter()
                .position(|w| *w == name)
                .map(|at| words[at + 1])
        };
        fields.push(Field {
            is_array: words[1].ends_with("[]"),
            kind: match kind {
                "text" => Kind::Text,
                "bytes" => Kind::Bytes,
                "struct" => Kind::Struct(parse_fields(lines, indent + 2)),
                fixed => Kind::Fixed(fixed.trim_start_matches("fixed").parse().unwrap()),
            },
            versions: Range::parse(words[2]),
            nullable: option("null").map(Range::parse),
            tag: option("tag").map(|tag| tag.parse().unwrap()),
        });
    }
    fields
}

/// Every description in a directory, in the notation of the extract, by its name without "Request".
pub(crate) fn read_json(directory: &Path) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let plain: String = text.lines().map(without_comment).collect();
        let message: Value = serde_json::from_str(&plain).unwrap();
        let kind = message["type"].as_str().unwrap();
        if kind != "request" && kind != "data" || !message["fields"].is_array() {
            continue;
        }
        let name = message["name"]
            .as_str()
            .unwrap()
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
    let flexible = message["flexibleVersions"].as_str().unwrap();
    let key = message["apiKey"].as_i64().unwrap_or(-1);
    let versions = message["validVersions"].as_str().unwrap();
    let mut out = format!("{key} {name} {versions} flexible {flexible}");
    render_fields(message, &message["fields"], 1, &mut out);
    out
}

fn render_fields(message: &Value, fields: &Value, depth: usize, out: &mut String) {
    for field in fields.as_array().unwrap() {
        let full = field["type"].as_str().unwrap();
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
        let name = field["name"].as_str().unwrap();
        let versions = field["versions"].as_str().unwrap();
        write!(
            out,
            "\n{:indent$}{name} {kind}{array} {versions}",
            "",
            indent = depth * 2
        )
        .unwrap();
        if let Some(nullable) = field["nullableVersions"].as_str() {
            let since = nullable.trim_end_matches('+');
            write!(out, " null {}+", since.split('-').next().unwrap()).unwrap();
        }
        if let Some(tag) = field["tag"].as_i64() {
            assert_eq!(
                field["taggedVersions"], field["versions"],
                "{name}: tagged from another version on"
            );
            write!(out, " tag {tag}").unwrap();
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
    let common = message["commonStructs"].as_array().unwrap();
    &common.iter().find(|c| c["name"] == name).unwrap()["fields"]
}
