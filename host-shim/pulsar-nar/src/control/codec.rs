//! The bytes in which Rust and Java tell each other what is not on the hot path: big-endian, as `ByteBuffer` has it.
//!
//! Numbers are `i8`, `i32`, `i64`; text is a length (`i32`, −1 for none) and UTF-8; lists and maps are a count and
//! their elements. The Java halves are `io.kop.control.In` and `Out`. It must not know what is told.

use std::collections::HashMap;

use handler_api::{ApiError, ErrorCode};

/// Writes a message.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.0.push(value.into());
        self
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Whether there is a number, and it.
    pub(crate) fn optional_i64(&mut self, value: Option<i64>) -> &mut Self {
        match value {
            Some(value) => self.bool(true).i64(value),
            None => self.bool(false),
        }
    }

    /// The length of something; what is longer than 2 GiB was refused long before.
    fn length(&mut self, length: usize) -> &mut Self {
        self.i32(i32::try_from(length).unwrap_or(i32::MAX))
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn texts<'a, T: AsRef<str> + 'a>(
        &mut self,
        texts: impl ExactSizeIterator<Item = &'a T>,
    ) -> &mut Self {
        self.length(texts.len());
        for text in texts {
            self.text(text.as_ref());
        }
        self
    }

    pub(crate) fn map(&mut self, map: &HashMap<String, String>) -> &mut Self {
        self.length(map.len());
        for (key, value) in map {
            self.text(key).text(value);
        }
        self
    }

    /// A list of anything: its count, then what `write` makes of each.
    pub(crate) fn list<T>(
        &mut self,
        items: &[T],
        mut write: impl FnMut(&mut Self, &T),
    ) -> &mut Self {
        self.length(items.len());
        for item in items {
            write(self, item);
        }
        self
    }

    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Reads a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ApiError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ApiError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, ApiError> {
        self.array::<1>().map(|[byte]| byte != 0)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ApiError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, ApiError> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ApiError> {
        let length = usize::try_from(self.i32()?).map_err(|_| malformed())?;
        self.take(length)
    }

    /// Text, or nothing.
    pub(crate) fn optional_text(&mut self) -> Result<Option<String>, ApiError> {
        let length = self.i32()?;
        if length < 0 {
            return Ok(None);
        }
        let bytes = self.take(usize::try_from(length).map_err(|_| malformed())?)?;
        let text = std::str::from_utf8(bytes).map_err(|_| malformed())?;
        Ok(Some(text.to_owned()))
    }

    /// Text; none is empty.
    pub(crate) fn text(&mut self) -> Result<String, ApiError> {
        self.optional_text().map(Option::unwrap_or_default)
    }

    /// A list of anything: as many as its count says, each made by `read`.
    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, ApiError>,
    ) -> Result<Vec<T>, ApiError> {
        let count = usize::try_from(self.i32()?).map_err(|_| malformed())?;
        // An element takes at least a byte, so a wrong count ends before it asks for memory.
        if count > self.0.len() {
            return Err(malformed());
        }
        (0..count).map(|_| read(self)).collect()
    }

    pub(crate) fn texts(&mut self) -> Result<Vec<String>, ApiError> {
        self.list(Self::text)
    }

    pub(crate) fn map(&mut self) -> Result<HashMap<String, String>, ApiError> {
        let pairs = self.list(|reader| Ok((reader.text()?, reader.text()?)))?;
        Ok(pairs.into_iter().collect())
    }
}

fn malformed() -> ApiError {
    ApiError::new(
        ErrorCode::Internal,
        "the broker's half of the bridge answered with a malformed message",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let map = HashMap::from([
            ("k".to_owned(), "v".to_owned()),
            ("é".to_owned(), String::new()),
        ]);
        let mut writer = Writer::new();
        writer
            .bool(true)
            .i32(-5)
            .i64(i64::MIN)
            .text("ü")
            .bytes(b"\0\xff");
        writer.texts(["a", ""].iter()).map(&map);
        writer.list(&[1i64, 2], |writer, item| {
            writer.i64(*item);
        });
        writer.i32(-1);
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes);
        assert!(reader.bool().unwrap());
        assert_eq!(reader.i32().unwrap(), -5);
        assert_eq!(reader.i64().unwrap(), i64::MIN);
        assert_eq!(reader.text().unwrap(), "ü");
        assert_eq!(reader.bytes().unwrap(), b"\0\xff");
        assert_eq!(reader.texts().unwrap(), ["a", ""]);
        assert_eq!(reader.map().unwrap(), map);
        assert_eq!(reader.list(Reader::i64).unwrap(), [1, 2]);
        assert_eq!(reader.optional_text().unwrap(), None);
        assert!(reader.bool().is_err(), "nothing is left");
    }

    #[test]
    fn wrong_lengths_are_refused() {
        for length in [-2i32, 5, i32::MAX] {
            let mut bytes = length.to_be_bytes().to_vec();
            bytes.extend(b"four");
            assert!(Reader::new(&bytes).bytes().is_err(), "{length}");
            assert!(Reader::new(&bytes).list(Reader::bool).is_err(), "{length}");
        }
        let mut not_text = 1i32.to_be_bytes().to_vec();
        not_text.push(0xff);
        assert!(Reader::new(&not_text).text().is_err());
    }
}
