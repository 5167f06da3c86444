//! What can be wrong with the bytes of a request or with a reply that we tried to build.
//!
//! It must not know error codes of single APIs: the peer gets no reply to most of these, its connection is closed.

use thiserror::Error;

use super::guard::GuardError;

/// Why bytes could not be read as a request, or a reply could not be written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    /// The peer: fewer bytes than a request header needs.
    #[error("request header is cut short after {have} bytes")]
    HeaderTooShort {
        /// Bytes that were there.
        have: usize,
    },
    /// The peer: an API key that no version of the codec knows.
    #[error("API key {0} is not known")]
    UnknownKey(i16),
    /// The peer: a client id or tagged field of the header has an impossible length.
    #[error("request header holds an impossible length")]
    HeaderLength,
    /// The peer: a client id that is no UTF-8.
    #[error("client id is not UTF-8")]
    ClientIdNotUtf8,
    /// The peer: a body that must not be given to the codec.
    #[error("request body: {0}")]
    Guard(#[from] GuardError),
    /// The peer: a body that the codec refuses, with the codec's reason.
    #[error("request body: {0}")]
    Body(String),
    /// The peer: bytes after the end of the request.
    #[error("{0} bytes after the end of the request")]
    TrailingBytes(usize),
    /// Ourselves: a reply that does not exist in the version asked for, with the codec's reason.
    #[error("reply cannot be written in version {version}: {reason}")]
    Reply {
        /// Version of the API.
        version: i16,
        /// What the codec says.
        reason: String,
    },
    /// Ourselves: a reply of more bytes than its length field can say.
    #[error("reply of {0} bytes is larger than a frame")]
    ReplyTooLarge(usize),
}
