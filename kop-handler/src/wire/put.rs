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

/// Zigzag varint of 64 bits.
pub(crate) fn varlong(out: &mut impl BufMut, value: i64) {
    let mut value = ((value << 1) ^ (value >> 63)) as u64;
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}
