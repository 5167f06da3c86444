//! Base64 with the usual alphabet and padding (RFC 4648, section 4), as Pulsar's clients write binary keys.
//!
//! Encoding goes straight into the output. It must not know what the bytes mean.

use std::fmt::{self, Write};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::display::Base64Display;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::BufMut;

/// Writes padding; reads texts that lack it, and does not look at the bits behind the last byte.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Length of the text of so many bytes.
pub(super) const fn encoded_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// A buffer as what text is written to; it grows as it must, so writing never fails.
struct Text<'a, B>(&'a mut B);

impl<B: BufMut> Write for Text<'_, B> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.put_slice(text.as_bytes());
        Ok(())
    }
}

/// Writes the text of some bytes.
pub(super) fn encode(out: &mut impl BufMut, bytes: &[u8]) {
    let _ = write!(Text(out), "{}", Base64Display::new(bytes, &ENGINE));
}

/// Adds the bytes of a text to `out`; padding may be missing as a whole. `None` if no bytes have this text.
pub(super) fn decode(out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
    let is_padded = text.last() == Some(&b'=');
    if is_padded && !text.len().is_multiple_of(4) {
        return None;
    }
    ENGINE.decode_vec(text, out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_hold() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            encode(&mut out, bytes.as_bytes());
            assert_eq!(out, text.as_bytes());
            assert_eq!(out.len(), encoded_len(bytes.len()));
            for text in [text, text.trim_end_matches('=')] {
                let mut back = Vec::new();
                assert_eq!(decode(&mut back, text.as_bytes()), Some(()));
                assert_eq!(back, bytes.as_bytes());
            }
        }
    }

    #[test]
    fn what_is_no_base64_is_none() {
        for text in ["Z", "Zg=", "Z===", "====", "Z m8", "Zm9v=", "Zg-_"] {
            assert_eq!(decode(&mut Vec::new(), text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn every_byte_string_comes_back() {
        proptest::proptest!(|(bytes: Vec<u8>, text: Vec<u8>)| {
            let (mut out, mut back) = (Vec::new(), Vec::new());
            encode(&mut out, &bytes);
            decode(&mut back, &out).expect("base64");
            assert_eq!(back, bytes);
            let _ = decode(&mut Vec::new(), &text);
        });
    }
}
