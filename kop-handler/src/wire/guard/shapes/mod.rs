//! The shapes of all requests that we may serve, and of what consumers put into JoinGroup.
//!
//! It must not know which of them are served.

use super::shape::Shape;

mod admin;
mod data;
mod group;
mod security;
mod share;
mod txn;

/// Every shape, once per API key.
pub(super) fn all() -> impl Iterator<Item = &'static Shape> {
    [
        data::SHAPES,
        group::SHAPES,
        txn::SHAPES,
        admin::SHAPES,
        security::SHAPES,
        share::SHAPES,
    ]
    .into_iter()
    .flatten()
}
