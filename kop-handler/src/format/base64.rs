//! Base64 with the usual alphabet and padding (RFC 4648, section 4), as Pulsar's clients write binary keys.
//!
//! Encoding goes straight into the output. It must not know what the bytes mean.

use bytes::BufMut;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Length of the text of so many bytes.
pub(super) const fn encoded_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Writes the text of some bytes.
pub(super) fn encode(out: &mut impl BufMut, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let at = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let group = (at(0) << 16) | (at(1) << 8) | at(2);
        let digit = |shift: u32| {
            let digit = (group >> shift) as usize & 63;
            ALPHABET.get(digit).copied().unwrap_or(b'=')
        };
        let mut text = [digit(18), digit(12), digit(6), digit(0)];
        if chunk.len() < 3 {
            text[3] = b'=';
        }
        if chunk.len() < 2 {
            text[2] = b'=';
        }
        out.put_slice(&text);
    }
}

/// Adds the bytes of a text to `out`; padding may be missing. `None` if no bytes have this text.
pub(super) fn decode(out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let text = match padding {
        0 => text,
        1 | 2 if text.len().is_multiple_of(4) => text.get(..text.len() - padding)?,
        _ => return None,
    };
    for chunk in text.chunks(4) {
        let mut group = 0u32;
        for letter in chunk {
            group = (group << 6) | u32::from(digit(*letter)?);
        }
        match chunk.len() {
            4 => out.extend_from_slice(group.to_be_bytes().get(1..)?),
            3 => out.extend_from_slice((group >> 2).to_be_bytes().get(2..)?),
            2 => out.push((group >> 4) as u8),
            _ => return None,
        }
    }
    Some(())
}

const fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
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
