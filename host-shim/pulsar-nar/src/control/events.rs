//! What Java tells, as handler-api's events.

use bytes::Bytes;
use handler_api::control::encode;
use handler_api::metadata::ValueChanged;
use handler_api::topics::{BrokersChanged, OwnershipChanged, TopicsChanged};
use handler_api::{ApiError, Event};

use super::Reader;
use super::topics::cluster;

/// The event's payload for the plugin; `None` for one that is not known here.
pub(crate) fn translate(op: u32, payload: &[u8]) -> Result<Option<Bytes>, ApiError> {
    let mut reader = Reader::new(payload);
    Ok(Some(match op {
        OwnershipChanged::OP => encode(&OwnershipChanged {
            topics: reader.texts()?,
            acquired: reader.bool()?,
        }),
        TopicsChanged::OP => encode(&TopicsChanged {
            topics: reader.texts()?,
        }),
        BrokersChanged::OP => encode(&BrokersChanged {
            cluster: Some(cluster(&mut reader)?),
        }),
        ValueChanged::OP => encode(&ValueChanged {
            path: reader.text()?,
            deleted: reader.bool()?,
        }),
        _ => return Ok(None),
    }))
}
