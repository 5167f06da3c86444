//! Bytes as text: base64 with the URL alphabet, without padding (RFC 4648, section 5).
//!
//! Properties of managed ledgers are strings. It must not know what the bytes mean.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The text of some bytes.
#[must_use]
pub(super) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes of a text; `None` if no bytes have it.
#[must_use]
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_hold() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(encode(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn every_byte_string_comes_back_and_no_other_text_is_taken() {
        proptest::proptest!(|(bytes: Vec<u8>, text: String)| {
            assert_eq!(decode(&encode(&bytes)), Some(bytes));
            if let Some(decoded) = decode(&text) {
                assert_eq!(encode(&decoded), text);
            }
        });
    }
}
