//! Handshake and security APIs.

pub(crate) mod api_versions;
pub(crate) mod sasl_authenticate;
pub(crate) mod sasl_handshake;
