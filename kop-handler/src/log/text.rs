//! Bytes as text: base64 with the URL alphabet, without padding (RFC 4648, section 5).
//!
//! Properties of managed ledgers are strings. It must not know what the bytes mean.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The text of some bytes.
#[must_use]
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .zip([16, 8, 0])
            .fold(0u32, |group, (byte, shift)| {
                group | (u32::from(*byte) << shift)
            });
        for shift in [18, 12, 6, 0].into_iter().take(chunk.len() + 1) {
            let digit = (group >> shift) & 63;
            if let Some(letter) = usize::try_from(digit).ok().and_then(|at| ALPHABET.get(at)) {
                text.push(char::from(*letter));
            }
        }
    }
    text
}

/// The bytes of a text; `None` if no bytes have it.
#[must_use]
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut group = 0u32;
        for (letter, shift) in chunk.iter().zip([18, 12, 6, 0]) {
            group |= u32::from(digit(*letter)?) << shift;
        }
        let [_, a, b, c] = group.to_be_bytes();
        let (whole, rest): (&[u8], u32) = match chunk.len() {
            4 => (&[a, b, c], 0),
            3 => (&[a, b], u32::from(c)),
            2 => (&[a], u32::from(b) << 8 | u32::from(c)),
            _ => return None,
        };
        if rest != 0 {
            return None;
        }
        bytes.extend_from_slice(whole);
    }
    Some(bytes)
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
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
