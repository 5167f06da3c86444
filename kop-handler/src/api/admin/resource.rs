//! What configuration requests name: kinds of resources, and which of them exist here.

use crate::error::Fault;

/// Kafka's `ConfigResource.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i8)]
pub(super) enum Kind {
    /// By topic name.
    Topic = 2,
    /// By node id; an empty name means the cluster-wide default.
    Broker = 4,
    /// By node id.
    BrokerLogger = 8,
    /// By the name of a subscription.
    ClientMetrics = 16,
    /// By group id.
    Group = 32,
}

impl Kind {
    /// The kind behind a number.
    ///
    /// # Errors
    /// [`Fault::InvalidRequest`] for any other number.
    pub(super) fn parse(number: i8, name: &str) -> Result<Self, Fault> {
        [
            Self::Topic,
            Self::Broker,
            Self::BrokerLogger,
            Self::ClientMetrics,
            Self::Group,
        ]
        .into_iter()
        .find(|kind| *kind as i8 == number)
        .ok_or_else(|| {
            Fault::InvalidRequest(format!(
                "Unexpected resource type {number} for resource {name}"
            ))
        })
    }
}

/// Checks that a broker's resource is this one; `None` for the empty name, the cluster-wide default.
///
/// # Errors
/// [`Fault::InvalidRequest`] in Kafka's words.
pub(super) fn check_broker(
    name: &str,
    own_id: i32,
    may_be_empty: bool,
) -> Result<Option<i32>, Fault> {
    if name.is_empty() && may_be_empty {
        return Ok(None);
    }
    let id: i32 = name.parse().map_err(|_| {
        Fault::InvalidRequest(format!("Broker id must be an integer, but it is: {name}"))
    })?;
    if id != own_id {
        let or_empty = if may_be_empty { " or empty string" } else { "" };
        return Err(Fault::InvalidRequest(format!(
            "Unexpected broker id, expected {own_id}{or_empty}, but received {name}"
        )));
    }
    Ok(Some(id))
}
