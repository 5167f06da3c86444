//! Everything that is not on the hot path: handler-api's control operations, translated into the messages that Java's
//! `control` classes answer, and Java's events, translated back.
//!
//! One file per service. It must not know JNI: it asks an [`Upcalls`].

mod codec;

use bytes::Bytes;
use handler_api::control::unsupported;
use handler_api::{ApiError, Reply};

pub(crate) use codec::{Reader, Writer};

/// An answer of Java, or why there is none.
pub(crate) type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Vec<u8>, ApiError>> + Send>>;

/// How Java is asked.
pub(crate) trait Upcalls: Send + Sync {
    /// Asks an operation of Java's `Control`; the number is handler-api's, or one of [`private`].
    fn call(&self, op: u32, request: Vec<u8>) -> Answer;
}

/// Operations that only the two halves of the bridge know.
pub(crate) mod private {
    /// Who serves topics.
    pub(crate) const LOOKUP: u32 = 0x8001;
}

/// Answers a control operation.
pub(crate) fn dispatch(
    upcalls: &dyn Upcalls,
    op: u32,
    version: u32,
    request: &Bytes,
) -> Reply<Bytes> {
    let _ = (upcalls, request);
    Reply::err(unsupported(op, version))
}
