//! Protobuf's wire format, as far as Pulsar's metadata needs it: fields one after the other, borrowed.
//!
//! Every entry of every fetch passes here, so nothing is allocated. It must not know what a field means.

use bytes::{Buf, BufMut};

use super::DecodeError;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A varint.
    Number(u64),
    /// Bytes, text or a message.
    Slice(&'a [u8]),
    /// Four or eight bytes, which no field of Pulsar's metadata has.
    Fixed,
}

/// Number and value of the next field.
pub(super) fn field<'a>(bytes: &mut &'a [u8]) -> Result<(u64, Value<'a>), DecodeError> {
    let tag = varint(bytes)?;
    let value = match tag & 7 {
        0 => Value::Number(varint(bytes)?),
        1 => fixed(bytes, 8)?,
        2 => {
            let length = usize::try_from(varint(bytes)?).unwrap_or(usize::MAX);
            let slice = bytes
                .get(..length)
                .ok_or(DecodeError::Malformed("a field is cut off"))?;
            bytes.advance(length);
            Value::Slice(slice)
        }
        5 => fixed(bytes, 4)?,
        _ => return Err(DecodeError::Malformed("unknown wire type")),
    };
    Ok((tag >> 3, value))
}

fn fixed<'a>(bytes: &mut &'a [u8], length: usize) -> Result<Value<'a>, DecodeError> {
    if bytes.len() < length {
        return Err(DecodeError::Malformed("a field is cut off"));
    }
    bytes.advance(length);
    Ok(Value::Fixed)
}

/// The next number.
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let Some((&byte, rest)) = bytes.split_first() else {
            return Err(DecodeError::Malformed("a number is cut off"));
        };
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Malformed("a number is too long"))
}

/// Name and value of a `KeyValue` message.
pub(super) fn key_value(mut bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    while !bytes.is_empty() {
        match field(&mut bytes)? {
            (1, Value::Slice(bytes)) => key = bytes,
            (2, Value::Slice(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Bytes that a number takes up.
pub(super) const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Bytes that a field with a number takes up.
pub(super) const fn number_len(field: u64, value: u64) -> usize {
    varint_len(field << 3) + varint_len(value)
}

/// Bytes that a field with `length` bytes takes up.
pub(super) const fn slice_len(field: u64, length: usize) -> usize {
    varint_len((field << 3) | 2) + varint_len(length as u64) + length
}

/// Writes a number.
pub(super) fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Writes a field with a number.
pub(super) fn put_number(out: &mut impl BufMut, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

/// Writes what stands before the bytes of a field: its number, and how many there are.
pub(super) fn put_slice_head(out: &mut impl BufMut, field: u64, length: usize) {
    put_varint(out, (field << 3) | 2);
    put_varint(out, length as u64);
}

/// Writes a field with bytes.
pub(super) fn put_slice(out: &mut impl BufMut, field: u64, bytes: &[u8]) {
    put_slice_head(out, field, bytes.len());
    out.put_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_what_is_written() {
        for (field, value) in [(1, 0), (15, 127), (16, 128), (25, u64::MAX), (1, 1 << 35)] {
            let mut out = Vec::new();
            put_number(&mut out, field, value);
            assert_eq!(out.len(), number_len(field, value));
            let mut rest = out.as_slice();
            assert_eq!(super::field(&mut rest), Ok((field, Value::Number(value))));
            assert!(rest.is_empty());
        }
        for (field, length) in [(1, 0), (17, 3), (2, 300)] {
            let bytes = vec![7; length];
            let mut out = Vec::new();
            put_slice(&mut out, field, &bytes);
            assert_eq!(out.len(), slice_len(field, length));
            let mut rest = out.as_slice();
            assert_eq!(super::field(&mut rest), Ok((field, Value::Slice(&bytes))));
        }
    }
}
