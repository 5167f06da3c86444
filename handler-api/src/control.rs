//! The generic call: everything that is not on the hot path.
//!
//! An operation is a number, a version and two protobuf messages. Messages grow by new fields (an older peer skips
//! them), operations by new numbers (an older peer answers [`ErrorCode::Unsupported`]), so either side may be newer.
//! Events go from the host to the plugin in the same way, without an answer.

use bytes::Bytes;
use prost::Message;

use crate::types::{ApiError, ErrorCode};

/// A control operation: its number, version and messages.
pub trait Operation: 'static {
    /// Number of the operation, never reused.
    const OP: u32;
    /// Raised only when the meaning of existing fields changes.
    const VERSION: u32 = 1;
    /// For log lines.
    const NAME: &'static str;
    /// What is asked.
    type Request: Message + Default;
    /// What is answered.
    type Answer: Message + Default;
}

/// A message from the host to the plugin that wants no answer.
pub trait Event: Message + Default {
    /// Number of the event, never reused; events and operations have separate numbers.
    const OP: u32;
}

/// Declares operations: `Name = number: Request => Answer`.
macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal: $request:ty => $answer:ty;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl crate::control::Operation for $name {
            const OP: u32 = $number;
            const NAME: &'static str = stringify!($name);
            type Request = $request;
            type Answer = $answer;
        }
    )+};
}
pub(crate) use operations;

/// The empty message.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Nothing {}

/// Encodes a message.
#[must_use]
pub fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// Decodes a message; a malformed one is [`ErrorCode::InvalidArgument`].
pub fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, ApiError> {
    M::decode(bytes).map_err(|error| {
        ApiError::new(
            ErrorCode::InvalidArgument,
            format!("malformed message: {error}"),
        )
    })
}

/// Decodes the request of operation `O` if `op` and `version` name it: the building block of a host's dispatch.
pub fn request<O: Operation>(
    op: u32,
    version: u32,
    bytes: &Bytes,
) -> Option<Result<O::Request, ApiError>> {
    (op == O::OP).then(|| {
        if version == O::VERSION {
            decode(bytes.clone())
        } else {
            Err(unsupported(op, version))
        }
    })
}

/// The answer to an operation that this peer does not know.
#[must_use]
pub fn unsupported(op: u32, version: u32) -> ApiError {
    ApiError::new(
        ErrorCode::Unsupported,
        format!("operation {op:#06x} version {version} is not offered by this peer"),
    )
}

/// An error inside an answer that covers several things.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Fault {
    /// A number of [`ErrorCode`].
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        Self {
            code: error.code,
            message: error.message.into_string(),
        }
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        Self {
            code: fault.code,
            message: fault.message.into(),
        }
    }
}
