//! The descriptions, read from the committed extract.
//!
//! The extract has one line per message and per field: `Name kind[] versions [null versions] [tag n]`.

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
