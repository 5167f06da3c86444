//! How the shapes of requests are written down: fields with versions, in the order of the wire.
//!
//! It must not know how bytes are walked.

use std::fmt;

/// A version that never comes.
pub(super) const NEVER: i16 = i16::MAX;

/// Tag of a field that is not tagged.
const UNTAGGED: u32 = u32::MAX;

/// The body of a request, over all its versions.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// API key; −1 for a message that is not a request.
    pub key: i16,
    /// Kafka's name, without "Request".
    pub name: &'static str,
    /// First version.
    pub min: i16,
    /// Last version of Kafka 4.3.1.
    pub max: i16,
    /// First version with compact lengths and tagged fields, [`NEVER`] if none.
    pub(super) flexible: i16,
    pub(super) fields: &'static [Field],
}

/// A field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) is_array: bool,
    since: i16,
    until: i16,
    nullable: i16,
    tag: u32,
}

/// What lies in a field, or in each element of it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// So many bytes.
    Fixed(usize),
    /// A string, its length in 16 bits where it is not compact.
    Text,
    /// Bytes or records, their length in 32 bits where it is not compact.
    Bytes,
    /// Fields one after the other.
    Struct(&'static [Field]),
}

pub(super) const fn shape(
    key: i16,
    name: &'static str,
    min: i16,
    max: i16,
    flexible: i16,
) -> Shape {
    Shape {
        key,
        name,
        min,
        max,
        flexible,
        fields: &[],
    }
}

impl Shape {
    pub(super) const fn body(mut self, fields: &'static [Field]) -> Self {
        self.fields = fields;
        self
    }

    /// Whether a version has compact lengths and tagged fields.
    pub(super) const fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible
    }
}

const fn field(name: &'static str, kind: Kind, is_array: bool) -> Field {
    Field {
        name,
        kind,
        is_array,
        since: 0,
        until: NEVER,
        nullable: NEVER,
        tag: UNTAGGED,
    }
}

pub(super) const fn fixed(name: &'static str, bytes: usize) -> Field {
    field(name, Kind::Fixed(bytes), false)
}

pub(super) const fn fixed_array(name: &'static str, bytes: usize) -> Field {
    field(name, Kind::Fixed(bytes), true)
}

pub(super) const fn text(name: &'static str) -> Field {
    field(name, Kind::Text, false)
}

pub(super) const fn text_array(name: &'static str) -> Field {
    field(name, Kind::Text, true)
}

pub(super) const fn bytes(name: &'static str) -> Field {
    field(name, Kind::Bytes, false)
}

pub(super) const fn nested(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Kind::Struct(fields), false)
}

pub(super) const fn array(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Kind::Struct(fields), true)
}

impl Field {
    /// First version that has the field.
    pub(super) const fn since(mut self, version: i16) -> Self {
        self.since = version;
        self
    }

    /// Last version that has the field.
    pub(super) const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }

    /// First version in which it may be null.
    pub(super) const fn nullable(mut self, version: i16) -> Self {
        self.nullable = version;
        self
    }

    /// Number of the tagged field.
    pub(super) const fn tag(mut self, tag: u32) -> Self {
        self.tag = tag;
        self
    }

    pub(super) const fn exists(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }

    pub(super) const fn may_be_null(&self, version: i16) -> bool {
        version >= self.nullable
    }

    pub(super) const fn tag_number(&self) -> Option<u32> {
        if self.tag == UNTAGGED {
            None
        } else {
            Some(self.tag)
        }
    }
}

/// The notation of `tests/data`: one line per field, nested ones further in.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.key, self.name)?;
        write_range(f, self.min, self.max)?;
        match self.flexible {
            NEVER => f.write_str(" flexible none")?,
            since => write!(f, " flexible {since}+")?,
        }
        self.fields.iter().try_for_each(|field| field.write(f, 1))
    }
}

impl Field {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        write!(f, "\n{:depth$}{} ", "", self.name, depth = depth * 2)?;
        match self.kind {
            Kind::Fixed(bytes) => write!(f, "fixed{bytes}")?,
            Kind::Text => f.write_str("text")?,
            Kind::Bytes => f.write_str("bytes")?,
            Kind::Struct(_) => f.write_str("struct")?,
        }
        f.write_str(if self.is_array { "[] " } else { " " })?;
        write_range(f, self.since, self.until)?;
        if self.nullable != NEVER {
            write!(f, " null {}+", self.nullable)?;
        }
        if let Some(tag) = self.tag_number() {
            write!(f, " tag {tag}")?;
        }
        match self.kind {
            Kind::Struct(fields) => fields
                .iter()
                .try_for_each(|field| field.write(f, depth + 1)),
            _ => Ok(()),
        }
    }
}

fn write_range(f: &mut fmt::Formatter<'_>, since: i16, until: i16) -> fmt::Result {
    match until {
        NEVER => write!(f, "{since}+"),
        until if until == since => write!(f, "{since}"),
        until => write!(f, "{since}-{until}"),
    }
}
