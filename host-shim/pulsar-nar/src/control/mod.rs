//! Everything that is not on the hot path: handler-api's control operations, translated into the messages that Java's
//! `control` classes answer, and Java's events, translated back.
//!
//! One file per service. It must not know JNI: it asks an [`Upcalls`].

mod auth;
mod codec;
mod events;
mod lookup;
#[cfg(test)]
mod tests;
mod topics;
mod translate;
mod values;

use bytes::Bytes;
use handler_api::auth::{Authenticate, Authorize, EndSession};
use handler_api::control::unsupported;
use handler_api::metadata::{DeleteValue, GetValue, ListChildren, PutValue, WatchPath};
use handler_api::topics::{
    CreateTopic, DeleteTopic, DescribeTopics, EnsureNamespace, ListBrokers, ListNamespaces,
    ListTopics, SetNamespacePolicies, SetTopicPolicies, UpdateTopic,
};
use handler_api::{ApiError, Reply};

pub(crate) use codec::{Reader, Writer};
pub(crate) use events::translate;
pub(crate) use lookup::lookup;

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

/// Answers the call if it is one of the operations that Java understands as they are.
macro_rules! translated {
    ($upcalls:ident, $op:ident, $version:ident, $request:ident; $($operation:ty),+ $(,)?) => {$(
        if let Some(reply) = translate::answer::<$operation>($upcalls, $op, $version, $request) {
            return reply;
        }
    )+};
}

/// Answers a control operation.
pub(crate) fn dispatch(
    upcalls: &dyn Upcalls,
    op: u32,
    version: u32,
    request: &Bytes,
) -> Reply<Bytes> {
    translated!(upcalls, op, version, request;
        DescribeTopics, ListTopics, CreateTopic, UpdateTopic, DeleteTopic,
        EnsureNamespace, ListNamespaces, ListBrokers, SetTopicPolicies, SetNamespacePolicies,
        GetValue, PutValue, DeleteValue, ListChildren, WatchPath,
        Authenticate, Authorize, EndSession,
    );
    Reply::err(unsupported(op, version))
}
