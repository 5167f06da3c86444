//! The few primitive encodings that we write by hand: varints and compact lengths (KIP-482).

use bytes::BufMut;

/// Unsigned varint: 7 bits per byte, low bits first.
pub(crate) fn unsigned_varint(out: &mut impl BufMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Bytes that [`unsigned_varint`] writes.
pub(crate) const fn unsigned_varint_len(value: u32) -> usize {
    let bits = 32 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Zigzag varint of 32 bits, as records use it.
pub(crate) fn varint(out: &mut impl BufMut, value: i32) {
    unsigned_varint(out, ((value << 1) ^ (value >> 31)) as u32);
}

/// Bytes that [`varint`] writes.
pub(crate) const fn varint_len(value: i32) -> usize {
    unsigned_varint_len(((value << 1) ^ (value >> 31)) as u32)
}

/// Bytes that [`varlong`] writes.
pub(crate) const fn varlong_len(value: i64) -> usize {
    let value = ((value << 1) ^ (value >> 63)) as u64;
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Zigzag varint of 64 bits.
pub(crate) fn varlong(out: &mut impl BufMut, value: i64) {
    let mut value = ((value << 1) ^ (value >> 63)) as u64;
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_what_is_written() {
        let mut values: Vec<i64> = (0..63).flat_map(|bit| [1 << bit, -(1 << bit)]).collect();
        values.extend([
            0,
            i64::MAX,
            i64::MIN,
            i64::from(i32::MIN),
            i64::from(i32::MAX),
        ]);
        for value in values {
            let mut out = Vec::new();
            varlong(&mut out, value);
            assert_eq!(out.len(), varlong_len(value), "{value}");
            if let Ok(value) = i32::try_from(value) {
                out.clear();
                varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
            }
        }
    }
}
