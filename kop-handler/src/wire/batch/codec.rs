//! The four codecs: unpacking under a cap, streaming or whole, and packing.
//!
//! It must not know records: it turns bytes into bytes. Snappy comes in two forms, the framing of snappy-java ("xerial",
//! what Java and most clients send) and one raw block (librdkafka); LZ4 and gzip are their standard frames.

use std::io::{self, Read, Write};

use bytes::Bytes;

use super::BatchError;

/// First bytes of the framing of snappy-java.
const XERIAL_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
/// Magic, version and compatible version.
const XERIAL_HEADER_BYTES: usize = 16;
/// Size of the blocks that we write in snappy-java's framing, in bytes; as the Java client.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
/// Snappy cannot unpack one byte to more than this many; a block that claims more is refused before it is unpacked.
const SNAPPY_MAX_RATIO: usize = 64;
/// First guess of the memory for unpacked records, as a multiple of the packed size.
const EXPECTED_RATIO: usize = 4;
/// zstd level of what we write, the default of Kafka.
const ZSTD_LEVEL: i32 = 3;

/// How the records of a batch are compressed: bits 0 to 2 of its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// Snappy, raw or in snappy-java's framing.
    Snappy,
    /// LZ4 frame format.
    Lz4,
    /// Zstandard (KIP-110).
    Zstd,
}

impl Compression {
    /// All codecs, in the order of their ids.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec with a number.
    ///
    /// # Errors
    /// [`BatchError::UnknownCompression`].
    pub fn from_id(id: u8) -> Result<Self, BatchError> {
        Self::ALL
            .get(usize::from(id))
            .copied()
            .ok_or(BatchError::UnknownCompression(id))
    }

    /// The codec's number.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Kafka's name of the codec, as [`Self::from_name`] takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The codec of a topic's `compression.type`, by Kafka's name. `producer` is not a codec.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "uncompressed" => Self::None,
            "gzip" => Self::Gzip,
            "snappy" => Self::Snappy,
            "lz4" => Self::Lz4,
            "zstd" => Self::Zstd,
            _ => return None,
        })
    }
}

/// Unpacks the records of a batch whole. Without compression the bytes are shared, not copied.
///
/// # Errors
/// [`BatchError::Unpack`], and [`BatchError::UnpackedTooLarge`] as soon as more than `limit` bytes come out.
pub fn decompress(codec: Compression, packed: &Bytes, limit: usize) -> Result<Bytes, BatchError> {
    if codec == Compression::None {
        if packed.len() > limit {
            return Err(BatchError::UnpackedTooLarge { limit });
        }
        return Ok(packed.clone());
    }
    let mut out = Vec::with_capacity(packed.len().saturating_mul(EXPECTED_RATIO).min(limit));
    let allowed = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    Unpacker::new(codec, packed, limit)
        .and_then(|unpacker| unpacker.take(allowed).read_to_end(&mut out))
        .map_err(|error| unpack_error(codec, limit, &error))?;
    if out.len() > limit {
        return Err(BatchError::UnpackedTooLarge { limit });
    }
    Ok(out.into())
}

/// Packs the records of a batch. Snappy is framed as snappy-java does, which every client reads.
///
/// # Errors
/// [`BatchError::Unpack`] with the library's reason, which writing to memory does not give in practice.
pub fn compress(codec: Compression, records: &[u8]) -> Result<Vec<u8>, BatchError> {
    pack(codec, records).map_err(|error| BatchError::Unpack {
        codec,
        reason: error.to_string(),
    })
}

fn pack(codec: Compression, records: &[u8]) -> io::Result<Vec<u8>> {
    match codec {
        Compression::None => Ok(records.to_vec()),
        Compression::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(records)?;
            out.finish()
        }
        Compression::Snappy => pack_xerial(records),
        Compression::Lz4 => {
            let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
            out.write_all(records)?;
            out.finish().map_err(io::Error::other)
        }
        Compression::Zstd => zstd::stream::encode_all(records, ZSTD_LEVEL),
    }
}

fn pack_xerial(records: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = XERIAL_MAGIC.to_vec();
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(XERIAL_BLOCK_BYTES) {
        let packed = encoder.compress_vec(block)?;
        let length = u32::try_from(packed.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&packed);
    }
    Ok(out)
}

/// The marker inside an I/O error that means "over the cap", not "broken data".
#[derive(Debug, thiserror::Error)]
#[error("unpacks to more than is allowed")]
struct OverLimit;

pub(super) fn unpack_error(codec: Compression, limit: usize, error: &io::Error) -> BatchError {
    if error.get_ref().is_some_and(|inner| inner.is::<OverLimit>()) {
        return BatchError::UnpackedTooLarge { limit };
    }
    BatchError::Unpack {
        codec,
        reason: error.to_string(),
    }
}

/// Unpacked bytes as a stream, in memory that does not depend on what the data claims (raw snappy apart, which has to
/// be unpacked whole and is refused above the cap).
pub(super) enum Unpacker<'a> {
    Plain(&'a [u8]),
    Gzip(Box<flate2::read::MultiGzDecoder<&'a [u8]>>),
    Snappy(SnappyBlocks<'a>),
    Lz4(Box<lz4_flex::frame::FrameDecoder<&'a [u8]>>),
    Zstd(zstd::stream::read::Decoder<'static, &'a [u8]>),
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(codec: Compression, packed: &'a [u8], limit: usize) -> io::Result<Self> {
        Ok(match codec {
            Compression::None => Self::Plain(packed),
            Compression::Gzip => Self::Gzip(Box::new(flate2::read::MultiGzDecoder::new(packed))),
            Compression::Snappy => Self::Snappy(SnappyBlocks::new(packed, limit)),
            Compression::Lz4 => Self::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(packed))),
            Compression::Zstd => Self::Zstd(zstd::stream::read::Decoder::with_buffer(packed)?),
        })
    }
}

impl Read for Unpacker<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(rest) => rest.read(out),
            Self::Gzip(decoder) => decoder.read(out),
            Self::Snappy(blocks) => blocks.read(out),
            Self::Lz4(decoder) => decoder.read(out),
            Self::Zstd(decoder) => decoder.read(out),
        }
    }
}

/// Snappy, one block at a time.
pub(super) struct SnappyBlocks<'a> {
    rest: &'a [u8],
    framed: bool,
    limit: usize,
    decoder: snap::raw::Decoder,
    block: Vec<u8>,
    read: usize,
}

impl<'a> SnappyBlocks<'a> {
    fn new(packed: &'a [u8], limit: usize) -> Self {
        let framed = packed.starts_with(XERIAL_MAGIC) && packed.len() >= XERIAL_HEADER_BYTES;
        Self {
            rest: if framed {
                packed.get(XERIAL_HEADER_BYTES..).unwrap_or_default()
            } else {
                packed
            },
            framed,
            limit,
            decoder: snap::raw::Decoder::new(),
            block: Vec::new(),
            read: 0,
        }
    }

    fn next_block(&mut self) -> io::Result<&'a [u8]> {
        if !self.framed {
            return Ok(std::mem::take(&mut self.rest));
        }
        let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "snappy block is cut short");
        let (length, rest) = self.rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (block, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        self.rest = rest;
        Ok(block)
    }

    fn unpack_block(&mut self, packed: &[u8]) -> io::Result<()> {
        let length = snap::raw::decompress_len(packed)?;
        if length > self.limit {
            return Err(io::Error::other(OverLimit));
        }
        if length > packed.len().saturating_mul(SNAPPY_MAX_RATIO) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "snappy block claims an impossible size",
            ));
        }
        self.block.resize(length, 0);
        self.read = 0;
        self.decoder.decompress(packed, &mut self.block)?;
        Ok(())
    }
}

impl Read for SnappyBlocks<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.read == self.block.len() {
            if self.rest.is_empty() {
                return Ok(0);
            }
            let packed = self.next_block()?;
            self.unpack_block(packed)?;
        }
        let mut ready = self.block.get(self.read..).unwrap_or_default();
        let count = ready.read(out)?;
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        (0..200_000u32).map(|n| (n / 7 % 251) as u8).collect()
    }

    #[test]
    fn every_codec_gives_back_what_it_packed() {
        for codec in Compression::ALL {
            for data in [vec![], vec![1], sample()] {
                let packed = Bytes::from(compress(codec, &data).unwrap());
                assert_eq!(
                    decompress(codec, &packed, data.len()).unwrap(),
                    data,
                    "{codec:?}"
                );
            }
        }
    }

    #[test]
    fn raw_snappy_is_read_as_well() {
        let packed = snap::raw::Encoder::new().compress_vec(&sample()).unwrap();
        assert_eq!(
            decompress(Compression::Snappy, &packed.into(), 1 << 20).unwrap(),
            sample()
        );
    }

    #[test]
    fn unpacking_stops_at_the_cap() {
        let zeros = vec![0; 4 << 20];
        for codec in Compression::ALL {
            let packed = Bytes::from(compress(codec, &zeros).unwrap());
            let limit = zeros.len() - 1;
            assert_eq!(
                decompress(codec, &packed, limit),
                Err(BatchError::UnpackedTooLarge { limit }),
                "{codec:?}"
            );
        }
    }

    #[test]
    fn broken_data_is_an_error_and_never_a_panic() {
        for codec in &Compression::ALL[1..] {
            let packed = compress(*codec, &sample()).unwrap();
            for cut in (0..packed.len()).step_by(37) {
                let _ = decompress(*codec, &Bytes::copy_from_slice(&packed[..cut]), 1 << 20);
                let mut flipped = packed.clone();
                flipped[cut] ^= 0x55;
                let _ = decompress(*codec, &flipped.into(), 1 << 20);
            }
            let garbage = Bytes::from_static(&[0xab; 100]);
            assert!(decompress(*codec, &garbage, 1 << 20).is_err(), "{codec:?}");
        }
    }

    #[test]
    fn a_snappy_block_cannot_claim_memory() {
        let claim = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0x00]);
        assert_eq!(
            decompress(Compression::Snappy, &claim, 1 << 20),
            Err(BatchError::UnpackedTooLarge { limit: 1 << 20 })
        );
        assert!(matches!(
            decompress(Compression::Snappy, &claim, usize::MAX),
            Err(BatchError::Unpack { .. })
        ));
    }
}
