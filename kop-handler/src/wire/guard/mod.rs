//! The guard in front of the codec: walks a request body by its shape before the codec may allocate for it.
//!
//! The codec reserves memory for as many elements as a length field claims, so that four bytes can ask for hundreds of
//! gigabytes. The walk refuses each count and length that goes past the end of the body, and more elements than a
//! body of its size can mean: an empty element of one byte becomes a struct of a hundred and more. It allocates
//! nothing, holds no state and must not know what any field means. What it lets through, the codec decodes in memory
//! of a small multiple of the body (`tests/hostile_requests.rs` counts it).

use std::sync::LazyLock;

use thiserror::Error;

pub use shape::Shape;
use shape::{Field, Kind};

mod shape;
mod shapes;

/// Elements that any body may hold, however short: structs, strings of an array, tagged fields.
pub const FREE_ELEMENTS: usize = 16 * 1024;

/// A body may hold one more element per so many bytes.
pub const BYTES_PER_ELEMENT: usize = 8;

/// Highest key in the table, and the size of its index.
const MAX_KEY: usize = 92;

/// Why a body must not be given to the codec. The peer is to blame, its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GuardError {
    /// No shape for this key and version.
    #[error("no shape for key {key} version {version}")]
    NoShape {
        /// API key.
        key: i16,
        /// Version.
        version: i16,
    },
    /// The body ends inside a field, or a count or length goes past its end.
    #[error("field {field} goes past the end of the body")]
    Short {
        /// The field's name in Kafka's description.
        field: &'static str,
    },
    /// Null where the version has none, or a negative length.
    #[error("field {field} has length {length}")]
    Length {
        /// The field's name.
        field: &'static str,
        /// The length as declared.
        length: i64,
    },
    /// A varint of more than 32 bits.
    #[error("a varint is longer than 32 bits")]
    Varint,
    /// A tagged field whose content is not as long as it says.
    #[error("tagged field {field} does not fill its size")]
    TagSize {
        /// The field's name.
        field: &'static str,
    },
    /// More elements than a body of this size may hold.
    #[error("more than {limit} elements")]
    TooManyElements {
        /// The bound for this body.
        limit: usize,
    },
    /// Bytes after the last field.
    #[error("{0} bytes after the end of the body")]
    TrailingBytes(usize),
}

/// The shapes by key, made once.
static BY_KEY: LazyLock<Vec<Option<&'static Shape>>> = LazyLock::new(|| {
    let mut index = vec![None; MAX_KEY + 1];
    for shape in shapes::all() {
        if let Some(slot) = usize::try_from(shape.key)
            .ok()
            .and_then(|key| index.get_mut(key))
        {
            *slot = Some(shape);
        }
    }
    index
});

/// Every shape in the table, for tests that hold it against Kafka's descriptions.
pub fn shapes() -> impl Iterator<Item = &'static Shape> {
    shapes::all()
}

/// Checks the body of a request, header cut off, and tells how many bytes follow its last field.
///
/// Apache Kafka ignores such bytes, and clients send some: librdkafka 2.12's Metadata request for all topics is three
/// bytes longer than its fields.
///
/// # Errors
/// [`GuardError`] at the first thing that is wrong.
pub fn trailing(key: i16, version: i16, body: &[u8]) -> Result<usize, GuardError> {
    let shape = usize::try_from(key)
        .ok()
        .and_then(|key| BY_KEY.get(key).copied().flatten());
    walk(shape, key, version, body).map(<[u8]>::len)
}

/// Checks the body of a request to its last byte: for what must be exact, such as what we write ourselves.
///
/// # Errors
/// As [`trailing`], and [`GuardError::TrailingBytes`].
pub fn check(key: i16, version: i16, body: &[u8]) -> Result<(), GuardError> {
    match trailing(key, version, body)? {
        0 => Ok(()),
        bytes => Err(GuardError::TrailingBytes(bytes)),
    }
}

/// Checks a message that is not a request, by its name in Kafka's descriptions. Bytes may follow it: newer versions
/// of such messages add fields at the end.
///
/// # Errors
/// As [`check`].
pub fn check_prefix(name: &str, version: i16, bytes: &[u8]) -> Result<(), GuardError> {
    walk(
        shapes::all().find(|shape| shape.name == name),
        -1,
        version,
        bytes,
    )
    .map(|_| ())
}

/// Walks the fields and gives the bytes that follow.
fn walk<'a>(
    shape: Option<&Shape>,
    key: i16,
    version: i16,
    bytes: &'a [u8],
) -> Result<&'a [u8], GuardError> {
    let shape = shape
        .filter(|shape| (shape.min..=shape.max).contains(&version))
        .ok_or(GuardError::NoShape { key, version })?;
    let limit = FREE_ELEMENTS + bytes.len() / BYTES_PER_ELEMENT;
    let mut walk = Walk {
        rest: bytes,
        version,
        is_flexible: shape.is_flexible(version),
        limit,
        elements_left: limit,
    };
    walk.fields(shape.fields)?;
    Ok(walk.rest)
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    is_flexible: bool,
    limit: usize,
    elements_left: usize,
}

impl<'a> Walk<'a> {
    /// The fields of a struct, its tagged ones last.
    fn fields(&mut self, fields: &'static [Field]) -> Result<(), GuardError> {
        let version = self.version;
        for field in fields {
            if field.exists(version) && field.tag_number().is_none() {
                self.field(field)?;
            }
        }
        if self.is_flexible {
            self.tags(fields)
        } else {
            Ok(())
        }
    }

    fn field(&mut self, field: &'static Field) -> Result<(), GuardError> {
        if !field.is_array {
            return self.value(field);
        }
        let Some(count) = self.count(field)? else {
            return Ok(());
        };
        if let Kind::Fixed(bytes) = field.kind {
            return self.skip(count.saturating_mul(bytes), field.name);
        }
        // Each element takes at least a byte.
        if count > self.rest.len() {
            return Err(GuardError::Short { field: field.name });
        }
        self.charge(count)?;
        for _ in 0..count {
            match field.kind {
                Kind::Fixed(bytes) => self.skip(bytes, field.name)?,
                Kind::Text => self.string(field, false)?,
                Kind::Bytes => self.string(field, false)?,
                Kind::Struct(fields) => self.fields(fields)?,
            }
        }
        Ok(())
    }

    fn value(&mut self, field: &'static Field) -> Result<(), GuardError> {
        match field.kind {
            Kind::Fixed(bytes) => self.skip(bytes, field.name),
            Kind::Text | Kind::Bytes => self.string(field, field.may_be_null(self.version)),
            Kind::Struct(fields) => {
                if field.may_be_null(self.version) && !self.is_present(field)? {
                    return Ok(());
                }
                self.fields(fields)
            }
        }
    }

    fn string(&mut self, field: &'static Field, may_be_null: bool) -> Result<(), GuardError> {
        let width = if matches!(field.kind, Kind::Text) {
            2
        } else {
            4
        };
        match self.declared(field.name, width)? {
            -1 if may_be_null => Ok(()),
            length => {
                let bytes = usize::try_from(length).map_err(|_| GuardError::Length {
                    field: field.name,
                    length,
                })?;
                self.skip(bytes, field.name)
            }
        }
    }

    /// Number of elements; `None` for a null that is allowed.
    fn count(&mut self, field: &'static Field) -> Result<Option<usize>, GuardError> {
        match self.declared(field.name, 4)? {
            -1 if field.may_be_null(self.version) => Ok(None),
            length => usize::try_from(length)
                .map(Some)
                .map_err(|_| GuardError::Length {
                    field: field.name,
                    length,
                }),
        }
    }

    /// A length or count in the version's form; −1 for null.
    fn declared(&mut self, name: &'static str, width: usize) -> Result<i64, GuardError> {
        if self.is_flexible {
            return Ok(i64::from(self.unsigned_varint(name)?) - 1);
        }
        let bytes = self.take(width, name)?;
        Ok(match *bytes {
            [a, b] => i64::from(i16::from_be_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
            _ => return Err(GuardError::Short { field: name }),
        })
    }

    /// The byte in front of a struct that may be null.
    fn is_present(&mut self, field: &'static Field) -> Result<bool, GuardError> {
        match self.take(1, field.name)? {
            [1] => Ok(true),
            [0xff] => Ok(false),
            other => Err(GuardError::Length {
                field: field.name,
                length: other.first().copied().map_or(0, i64::from),
            }),
        }
    }

    fn tags(&mut self, fields: &'static [Field]) -> Result<(), GuardError> {
        let count = self.unsigned_varint("tagged fields")? as usize;
        self.charge(count)?;
        for _ in 0..count {
            let number = self.unsigned_varint("tagged fields")?;
            let size = self.unsigned_varint("tagged fields")? as usize;
            let version = self.version;
            let known = fields
                .iter()
                .find(|f| f.tag_number() == Some(number) && f.exists(version));
            match known {
                None => self.skip(size, "tagged fields")?,
                Some(field) => self.tagged(field, size)?,
            }
        }
        Ok(())
    }

    /// A known tagged field: the codec does not look at its size, so it has to be right.
    fn tagged(&mut self, field: &'static Field, size: usize) -> Result<(), GuardError> {
        let content = self.take(size, field.name)?;
        let after = std::mem::replace(&mut self.rest, content);
        self.field(field)?;
        if !self.rest.is_empty() {
            return Err(GuardError::TagSize { field: field.name });
        }
        self.rest = after;
        Ok(())
    }

    fn charge(&mut self, count: usize) -> Result<(), GuardError> {
        self.elements_left = self
            .elements_left
            .checked_sub(count)
            .ok_or(GuardError::TooManyElements { limit: self.limit })?;
        Ok(())
    }

    fn unsigned_varint(&mut self, name: &'static str) -> Result<u32, GuardError> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = *self.take(1, name)? else {
                return Err(GuardError::Short { field: name });
            };
            if shift == 28 && byte > 0x0f {
                return Err(GuardError::Varint);
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(GuardError::Varint)
    }

    fn skip(&mut self, count: usize, name: &'static str) -> Result<(), GuardError> {
        self.take(count, name).map(|_| ())
    }

    fn take(&mut self, count: usize, name: &'static str) -> Result<&'a [u8], GuardError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(GuardError::Short { field: name })?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests;
