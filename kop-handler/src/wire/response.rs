//! Replies as bytes ready for the socket: length, response header, body.
//!
//! It must not know sockets: a reply is a list of segments for a vectored write.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Encodable, HeaderVersion};

use super::WireError;

/// A reply with its length field, in pieces that go out one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The bytes in order. Record batches are shared with whoever read them, not copied.
    pub segments: Vec<Bytes>,
}

impl Encoded {
    /// Length in bytes over all segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(Bytes::is_empty)
    }
}

/// Encodes a reply in `version`, with the response header that its API and version call for
/// (version 1 with tagged fields where the API is flexible; always 0 for ApiVersions).
///
/// # Errors
/// [`WireError::Reply`] if a field is set that the version does not have, [`WireError::ReplyTooLarge`].
pub fn encode<R: Encodable + HeaderVersion>(
    correlation_id: i32,
    version: i16,
    reply: &R,
) -> Result<Encoded, WireError> {
    let failed = |reason: &dyn std::fmt::Display| WireError::Reply {
        version,
        reason: reason.to_string(),
    };
    let body = reply.compute_size(version).map_err(|e| failed(&e))?;
    let header = header_len(R::header_version(version));
    let length = header + body;
    let mut out = BytesMut::with_capacity(4 + length);
    put_header(&mut out, length, correlation_id, R::header_version(version))?;
    reply.encode(&mut out, version).map_err(|e| failed(&e))?;
    if out.len() != 4 + length {
        return Err(failed(&"its size was computed wrong"));
    }
    Ok(Encoded {
        segments: vec![out.freeze()],
    })
}

/// Bytes of a response header.
pub(super) const fn header_len(header_version: i16) -> usize {
    if header_version >= 1 { 5 } else { 4 }
}

/// Length field and response header. `length` counts the header.
pub(super) fn put_header(
    out: &mut BytesMut,
    length: usize,
    correlation_id: i32,
    header_version: i16,
) -> Result<(), WireError> {
    out.put_i32(i32::try_from(length).map_err(|_| WireError::ReplyTooLarge(length))?);
    out.put_i32(correlation_id);
    if header_version >= 1 {
        out.put_u8(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::{ApiVersionsResponse, FetchResponse, MetadataResponse};

    fn check<R: Encodable + HeaderVersion + Default>(version: i16, header: &[u8]) {
        let encoded = encode(9, version, &R::default()).unwrap();
        let bytes = encoded.segments.concat();
        let length = usize::try_from(i32::from_be_bytes(bytes[..4].try_into().unwrap())).unwrap();
        assert_eq!(length + 4, bytes.len());
        assert_eq!(encoded.len(), bytes.len());
        assert_eq!(&bytes[4..4 + header.len()], header);
        let mut body = Vec::new();
        R::default().encode(&mut body, version).unwrap();
        assert_eq!(&bytes[4 + header.len()..], body);
    }

    #[test]
    fn the_header_follows_api_and_version() {
        check::<MetadataResponse>(8, &[0, 0, 0, 9]);
        check::<MetadataResponse>(9, &[0, 0, 0, 9, 0]);
        check::<ApiVersionsResponse>(0, &[0, 0, 0, 9]);
        check::<ApiVersionsResponse>(4, &[0, 0, 0, 9]);
    }

    #[test]
    fn a_field_that_the_version_lacks_is_our_fault_and_named() {
        let reply = FetchResponse::default().with_session_id(3);
        let error = encode(1, 6, &reply).unwrap_err();
        assert!(
            matches!(error, WireError::Reply { version: 6, .. }),
            "{error}"
        );
    }
}
