//! How a control operation gets to Java and back: its request and answer in the bridge's own bytes, beside
//! handler-api's. It must not know any operation.

use bytes::Bytes;
use handler_api::control::{self, Operation};
use handler_api::{ApiError, ErrorCode, Reply};

use super::{Reader, Upcalls, Writer};

/// A control operation whose messages Java understands.
pub(super) trait Translated: Operation {
    /// Writes what is asked; an error is answered in Java's stead.
    fn write(request: &Self::Request, writer: &mut Writer) -> Result<(), ApiError>;

    /// Reads what Java answered to this request.
    fn read(request: &Self::Request, reader: &mut Reader<'_>) -> Result<Self::Answer, ApiError>;
}

/// Answers a call if it is operation `O`.
pub(super) fn answer<O: Translated>(
    upcalls: &dyn Upcalls,
    op: u32,
    version: u32,
    request: &Bytes,
) -> Option<Reply<Bytes>>
where
    O::Request: Send,
{
    let asked = control::request::<O>(op, version, request)?;
    Some(match asked.and_then(|request| written::<O>(request)) {
        Ok((request, bytes)) => {
            let pending = upcalls.call(O::OP, bytes);
            Reply::pending(async move {
                let answered = pending.await?;
                let answer = O::read(&request, &mut Reader::new(&answered))?;
                Ok(control::encode(&answer))
            })
        }
        Err(error) => Reply::err(error),
    })
}

fn written<O: Translated>(request: O::Request) -> Result<(O::Request, Vec<u8>), ApiError> {
    let mut writer = Writer::new();
    O::write(&request, &mut writer)?;
    Ok((request, writer.finish()))
}

/// A number of partitions as Java counts them.
pub(super) fn partitions_to(partitions: u32) -> Result<i32, ApiError> {
    i32::try_from(partitions).map_err(|_| {
        ApiError::new(
            ErrorCode::InvalidArgument,
            format!("{partitions} partitions are too many"),
        )
    })
}

/// A number of partitions that Java told.
pub(super) fn partitions_from(partitions: i32) -> Result<u32, ApiError> {
    u32::try_from(partitions).map_err(|_| {
        ApiError::new(
            ErrorCode::Internal,
            format!("the broker told of a topic with {partitions} partitions"),
        )
    })
}
