//! The head of a request and the decoding of its body.
//!
//! The head is parsed by own code, because the codec's helper panics on short input. It must not know which versions
//! are served: the table of the `api` room decides that between [`RequestHead::parse`] and [`decode`].

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{ApiKey, ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use kafka_protocol::protocol::{Decodable, Message, Request, StrBytes};

use super::{WireError, guard};

/// Bytes of key, version and correlation id.
const FIXED_BYTES: usize = 8;

/// Longest tag section that a request header may have, in fields. Kafka defines none today.
const MAX_HEADER_TAGS: u32 = 64;

/// A request with its head read and its body still encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// API key.
    pub key: i16,
    /// Version of the API that the client speaks; not yet known to be served.
    pub version: i16,
    /// The client's number for the request, echoed in the reply.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<StrBytes>,
    /// The rest of the frame, sharing its memory.
    pub body: Bytes,
}

impl RequestHead {
    /// Reads the head of a frame (header version 1, or 2 with tagged fields, which are skipped).
    ///
    /// ApiVersions is read leniently, because a version that we do not know must still be answered (KIP-511): if what
    /// follows the correlation id cannot be read, the client id is `None` and the body empty.
    ///
    /// # Errors
    /// [`WireError::HeaderTooShort`], [`WireError::UnknownKey`], [`WireError::HeaderLength`],
    /// [`WireError::ClientIdNotUtf8`]: the connection has to be closed.
    pub fn parse(mut frame: Bytes) -> Result<Self, WireError> {
        if frame.len() < FIXED_BYTES {
            return Err(WireError::HeaderTooShort { have: frame.len() });
        }
        let key = frame.get_i16();
        let version = frame.get_i16();
        let correlation_id = frame.get_i32();
        let api = ApiKey::try_from(key).map_err(|()| WireError::UnknownKey(key))?;
        let tagged = api.request_header_version(version) >= 2;
        let rest = read_client_id(&mut frame).and_then(|client_id| {
            if tagged {
                skip_tags(&mut frame)?;
            }
            Ok(client_id)
        });
        let (client_id, body) = match rest {
            Ok(client_id) => (client_id, frame),
            Err(_) if api == ApiKey::ApiVersions => (None, Bytes::new()),
            Err(error) => return Err(error),
        };
        Ok(Self {
            key,
            version,
            correlation_id,
            client_id,
            body,
        })
    }
}

/// Decodes a body whole, behind the guard. Strings, bytes and records are slices of `body`.
///
/// # Errors
/// [`WireError::Guard`] if the body is not one, [`WireError::Body`] if the codec refuses what it holds (a string that is
/// not UTF-8), [`WireError::TrailingBytes`] if it ends elsewhere than the guard found. Bytes after the last field are
/// ignored, as Kafka ignores them.
pub fn decode<R: Request>(version: i16, body: &Bytes) -> Result<R, WireError> {
    let trailing = guard::trailing(R::KEY, version, body)?;
    let fields = body.len().saturating_sub(trailing);
    decode_whole(version, body.slice(..fields))
}

/// Decodes what a consumer of the classic protocol puts into JoinGroup as its metadata: a version, then the
/// subscription. A version newer than ours is read as ours, as Kafka does.
///
/// # Errors
/// As [`decode`]; other protocol types put other things there.
pub fn decode_subscription(
    metadata: &Bytes,
) -> Result<(i16, ConsumerProtocolSubscription), WireError> {
    decode_consumer(
        "ConsumerProtocolSubscription",
        ConsumerProtocolSubscription::VERSIONS.max,
        metadata,
    )
}

/// Decodes what a leader of the classic protocol gives to a consumer in SyncGroup: a version, then the assignment.
///
/// # Errors
/// As [`decode_subscription`].
pub fn decode_assignment(
    assignment: &Bytes,
) -> Result<(i16, ConsumerProtocolAssignment), WireError> {
    decode_consumer(
        "ConsumerProtocolAssignment",
        ConsumerProtocolAssignment::VERSIONS.max,
        assignment,
    )
}

fn decode_consumer<T: Decodable>(
    name: &str,
    newest: i16,
    bytes: &Bytes,
) -> Result<(i16, T), WireError> {
    let mut body = bytes.clone();
    let version = body
        .try_get_i16()
        .map_err(|_| WireError::HeaderTooShort { have: bytes.len() })?;
    let read_as = version.min(newest);
    guard::check_prefix(name, read_as, &body)?;
    let value =
        T::decode(&mut body, read_as).map_err(|reason| WireError::Body(format!("{reason:#}")))?;
    Ok((version, value))
}

fn decode_whole<T: Decodable>(version: i16, mut rest: Bytes) -> Result<T, WireError> {
    let value =
        T::decode(&mut rest, version).map_err(|reason| WireError::Body(format!("{reason:#}")))?;
    if rest.has_remaining() {
        return Err(WireError::TrailingBytes(rest.remaining()));
    }
    Ok(value)
}

fn read_client_id(rest: &mut Bytes) -> Result<Option<StrBytes>, WireError> {
    let length = rest.try_get_i16().map_err(|_| WireError::HeaderLength)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| WireError::HeaderLength)?;
    if rest.len() < length {
        return Err(WireError::HeaderLength);
    }
    StrBytes::from_utf8(rest.split_to(length))
        .map(Some)
        .map_err(|_| WireError::ClientIdNotUtf8)
}

fn skip_tags(rest: &mut Bytes) -> Result<(), WireError> {
    let count = read_unsigned_varint(rest)?;
    if count > MAX_HEADER_TAGS {
        return Err(WireError::HeaderLength);
    }
    for _ in 0..count {
        let _tag = read_unsigned_varint(rest)?;
        let length = read_unsigned_varint(rest)? as usize;
        if rest.len() < length {
            return Err(WireError::HeaderLength);
        }
        rest.advance(length);
    }
    Ok(())
}

fn read_unsigned_varint(rest: &mut Bytes) -> Result<u32, WireError> {
    let mut value = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let byte = rest.try_get_u8().map_err(|_| WireError::HeaderLength)?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(WireError::HeaderLength)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::guard::GuardError;
    use bytes::{BufMut, BytesMut};
    use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest, RequestHeader};
    use kafka_protocol::protocol::encode_request_header_into_buffer;

    fn head(key: i16, version: i16, body: &[u8]) -> Bytes {
        let mut out = BytesMut::new();
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(77)
            .with_client_id(Some(StrBytes::from_static_str("me")));
        encode_request_header_into_buffer(&mut out, &header).unwrap();
        out.put_slice(body);
        out.freeze()
    }

    #[test]
    fn heads_of_both_header_versions_are_read() {
        for key in 0..=92 {
            let Ok(api) = ApiKey::try_from(key) else {
                continue;
            };
            let range = api.valid_versions();
            for version in range.min..=range.max {
                let parsed = RequestHead::parse(head(key, version, b"body")).unwrap();
                assert_eq!((parsed.key, parsed.version), (key, version));
                assert_eq!(parsed.correlation_id, 77);
                assert_eq!(parsed.client_id.as_deref(), Some("me"));
                assert_eq!(&parsed.body[..], b"body");
            }
        }
    }

    #[test]
    fn tagged_fields_of_the_header_are_skipped_and_bounded() {
        let mut frame = BytesMut::from(&head(3, 12, b"")[..]);
        frame.truncate(frame.len() - 1);
        let mut good = frame.clone();
        good.put_slice(&[2, 0, 1, 9, 5, 2, 8, 8, b'x']);
        assert_eq!(&RequestHead::parse(good.freeze()).unwrap().body[..], b"x");
        for bad in [
            &[1][..],
            &[1, 0, 5, 1],
            &[0x80; 6],
            &[65],
            &[0xff, 0xff, 0xff, 0xff, 0x7f],
        ] {
            let mut bytes = frame.clone();
            bytes.put_slice(bad);
            assert_eq!(
                RequestHead::parse(bytes.freeze()),
                Err(WireError::HeaderLength)
            );
        }
    }

    #[test]
    fn short_heads_are_refused_at_every_length() {
        let whole = head(3, 12, b"");
        for length in 0..whole.len() {
            assert!(
                RequestHead::parse(whole.slice(..length)).is_err(),
                "{length} bytes"
            );
        }
        assert_eq!(
            RequestHead::parse(Bytes::from_static(&[0; 7])),
            Err(WireError::HeaderTooShort { have: 7 })
        );
    }

    #[test]
    fn an_unknown_key_and_a_bad_client_id_are_refused() {
        let mut frame = BytesMut::from(&head(3, 0, b"")[..]);
        let length = frame.len();
        frame[length - 1] = 0xff;
        assert_eq!(
            RequestHead::parse(frame.clone().freeze()),
            Err(WireError::ClientIdNotUtf8)
        );
        frame[0] = 0x7f;
        assert_eq!(
            RequestHead::parse(frame.freeze()),
            Err(WireError::UnknownKey(0x7f03))
        );
    }

    #[test]
    fn an_api_versions_request_of_a_future_layout_keeps_its_correlation_id() {
        let mut frame = BytesMut::new();
        frame.put_i16(18);
        frame.put_i16(99);
        frame.put_i32(5);
        frame.put_slice(&[0xff, 0x00, 0x01]);
        let parsed = RequestHead::parse(frame.freeze()).unwrap();
        assert_eq!(
            (parsed.key, parsed.version, parsed.correlation_id),
            (18, 99, 5)
        );
        assert_eq!((parsed.client_id, parsed.body), (None, Bytes::new()));
    }

    #[test]
    fn bytes_after_a_body_are_ignored_and_a_short_body_is_refused() {
        // What librdkafka 2.12.1 sends to ask for all topics: three bytes more than the fields.
        let body = Bytes::from_static(&[0, 0, 0, 0, 1, 0, 0]);
        let request = decode::<MetadataRequest>(13, &body).unwrap();
        assert_eq!(
            (request.topics, request.allow_auto_topic_creation),
            (None, false)
        );
        assert!(matches!(
            decode::<ApiVersionsRequest>(3, &Bytes::from_static(&[9])),
            Err(WireError::Guard(GuardError::Short { .. }))
        ));
    }
}
