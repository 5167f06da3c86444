//! Pulsar's codecs: a payload is compressed as a whole, and the metadata says how long it was.
//!
//! Unpacking never makes more than the metadata claims, nor more than [`MAX_PAYLOAD`]. It must not know messages.

use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::format::{DecodeError, MAX_PAYLOAD};
use crate::wire::batch::Compression;

/// Pulsar's numbers of its codecs.
const NONE: u64 = 0;
const LZ4: u64 = 1;
const ZLIB: u64 = 2;
const ZSTD: u64 = 3;
const SNAPPY: u64 = 4;
/// What LZ4 and Snappy can unpack one byte to at most; a larger claim is refused before memory is taken for it.
const LZ4_MAX_RATIO: usize = 255;
const SNAPPY_MAX_RATIO: usize = 64;
/// Beginning of Snappy's framing, which the Rust client writes and reads where all others use one raw block.
const SNAPPY_FRAME: &[u8] = b"\xff\x06\x00\x00sNaPpY";
/// The client has spent its time on packing well; here the broker's counts.
const ZSTD_LEVEL: i32 = 1;

/// Unpacks a payload; without compression it is shared.
pub(super) fn unpack(codec: u64, packed: Bytes, claimed: u64) -> Result<Bytes, DecodeError> {
    let claimed = usize::try_from(claimed).unwrap_or(usize::MAX);
    if claimed.max(packed.len()) > MAX_PAYLOAD {
        return Err(DecodeError::TooLarge);
    }
    let limit = if claimed == 0 { MAX_PAYLOAD } else { claimed };
    let out = match codec {
        NONE => return Ok(packed),
        LZ4 if claimed == 0 => Vec::new(),
        LZ4 if claimed > packed.len().saturating_mul(LZ4_MAX_RATIO) => {
            return Err(DecodeError::Unpack);
        }
        LZ4 => lz4_flex::block::decompress(&packed, claimed).map_err(|_| DecodeError::Unpack)?,
        ZLIB => read(flate2::read::ZlibDecoder::new(packed.as_ref()), limit)?,
        ZSTD => {
            let decoder = zstd::stream::read::Decoder::with_buffer(packed.as_ref());
            read(decoder.map_err(|_| DecodeError::Unpack)?, limit)?
        }
        SNAPPY if packed.starts_with(SNAPPY_FRAME) => {
            read(snap::read::FrameDecoder::new(packed.as_ref()), limit)?
        }
        SNAPPY if packed.is_empty() => Vec::new(),
        SNAPPY => raw_snappy(&packed, limit)?,
        other => return Err(DecodeError::UnknownCodec(other)),
    };
    Ok(out.into())
}

fn read(decoder: impl Read, limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    let allowed = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder
        .take(allowed)
        .read_to_end(&mut out)
        .map_err(|_| DecodeError::Unpack)?;
    if out.len() > limit {
        return Err(DecodeError::TooLarge);
    }
    Ok(out)
}

fn raw_snappy(packed: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let length = snap::raw::decompress_len(packed).map_err(|_| DecodeError::Unpack)?;
    if length > limit || length > packed.len().saturating_mul(SNAPPY_MAX_RATIO) {
        return Err(DecodeError::TooLarge);
    }
    snap::raw::Decoder::new()
        .decompress_vec(packed)
        .map_err(|_| DecodeError::Unpack)
}

/// Packs a payload with the codec of Pulsar that comes nearest to the one that the Kafka client chose. `None`: it stays
/// as it is, since there is no codec or nothing is won.
///
/// Snappy becomes LZ4: Pulsar's clients disagree about snappy (Rust's wants frames, Go's knows none).
pub(super) fn pack(codec: Compression, payload: &[u8]) -> Option<(u64, Vec<u8>)> {
    let packed = match codec {
        Compression::None => return None,
        Compression::Snappy | Compression::Lz4 => (LZ4, lz4_flex::block::compress(payload)),
        Compression::Gzip => (ZLIB, zlib(payload).ok()?),
        Compression::Zstd => (ZSTD, zstd::bulk::compress(payload, ZSTD_LEVEL).ok()?),
    };
    (packed.1.len() < payload.len()).then_some(packed)
}

fn zlib(payload: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(payload)?;
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        (0..100_000u32).map(|n| (n / 9 % 251) as u8).collect()
    }

    fn all(payload: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut frames = snap::write::FrameEncoder::new(Vec::new());
        frames.write_all(payload).expect("written");
        vec![
            (LZ4, lz4_flex::block::compress(payload)),
            (ZLIB, zlib(payload).expect("packed")),
            (ZSTD, zstd::bulk::compress(payload, 3).expect("packed")),
            (
                SNAPPY,
                snap::raw::Encoder::new()
                    .compress_vec(payload)
                    .expect("packed"),
            ),
            (SNAPPY, frames.into_inner().expect("packed")),
        ]
    }

    #[test]
    fn every_codec_is_unpacked() {
        for payload in [vec![], vec![1], sample()] {
            for (codec, packed) in all(&payload) {
                let unpacked = unpack(codec, packed.into(), payload.len() as u64);
                assert_eq!(unpacked.expect("unpacked"), payload, "{codec}");
            }
        }
    }

    #[test]
    fn nothing_is_unpacked_beyond_what_is_claimed_or_allowed() {
        let payload = sample();
        for (codec, packed) in all(&payload) {
            for claimed in [1, payload.len() as u64 - 1, 1 << 40] {
                let unpacked = unpack(codec, packed.clone().into(), claimed);
                assert!(unpacked.is_err(), "{codec} {claimed}");
            }
        }
        let bomb = zlib(&vec![0; MAX_PAYLOAD + 1]).expect("packed");
        assert_eq!(unpack(ZLIB, bomb.into(), 0), Err(DecodeError::TooLarge));
        let unknown = unpack(9, Bytes::from_static(b"x"), 1);
        assert_eq!(unknown, Err(DecodeError::UnknownCodec(9)));
    }

    #[test]
    fn damaged_data_is_an_error_and_never_a_panic() {
        let payload = sample();
        for (codec, packed) in all(&payload) {
            for cut in (0..packed.len()).step_by(packed.len() / 40 + 1) {
                let _ = unpack(codec, packed[..cut].to_vec().into(), payload.len() as u64);
                let mut flipped = packed.clone();
                flipped[cut] ^= 0x55;
                let _ = unpack(codec, flipped.into(), payload.len() as u64);
            }
        }
    }

    #[test]
    fn what_is_packed_comes_back_and_what_would_grow_stays() {
        let payload = sample();
        for codec in &Compression::ALL[1..] {
            let (id, packed) = pack(*codec, &payload).expect("it shrinks");
            let back = unpack(id, packed.into(), payload.len() as u64);
            assert_eq!(back.expect("unpacked"), payload, "{codec:?}");
            assert_eq!(pack(*codec, b"abc"), None);
        }
        assert_eq!(pack(Compression::None, &payload), None);
    }
}
