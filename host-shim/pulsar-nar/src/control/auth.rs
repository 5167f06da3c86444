//! Authentication and authorization, in the bridge's own bytes.

use handler_api::auth::{
    Authenticate, Authorize, AuthorizeRequest, Credentials, Decisions, EndSession, Identity,
    Session,
};
use handler_api::control::Nothing;
use handler_api::{ApiError, ErrorCode};

use super::translate::Translated;
use super::{Reader, Writer};

/// Numbers of sessions are Java's, which has none above this.
fn session(number: u64) -> Result<i64, ApiError> {
    i64::try_from(number).map_err(|_| {
        ApiError::new(
            ErrorCode::Unauthenticated,
            format!("there is no session {number}"),
        )
    })
}

impl Translated for Authenticate {
    fn write(request: &Credentials, writer: &mut Writer) -> Result<(), ApiError> {
        writer
            .text(&request.method)
            .bytes(&request.data)
            .text(&request.remote_address);
        Ok(())
    }

    fn read(_: &Credentials, reader: &mut Reader<'_>) -> Result<Identity, ApiError> {
        Ok(Identity {
            role: reader.text()?,
            session: reader.i64()?.cast_unsigned(),
            expires_ms: reader.i64()?,
        })
    }
}

impl Translated for Authorize {
    fn write(request: &AuthorizeRequest, writer: &mut Writer) -> Result<(), ApiError> {
        writer.text(&request.role).i64(session(request.session)?);
        writer.list(&request.actions, |writer, action| {
            writer
                .i32(action.resource)
                .text(&action.name)
                .i32(action.operation)
                .text(&action.subscription);
        });
        Ok(())
    }

    fn read(request: &AuthorizeRequest, reader: &mut Reader<'_>) -> Result<Decisions, ApiError> {
        let allowed = reader.list(Reader::bool)?;
        // A decision too few must not be taken for another action's.
        if allowed.len() != request.actions.len() {
            return Err(ApiError::new(
                ErrorCode::Internal,
                "the broker decided on another number of actions than it was asked for",
            ));
        }
        Ok(Decisions { allowed })
    }
}

impl Translated for EndSession {
    fn write(request: &Session, writer: &mut Writer) -> Result<(), ApiError> {
        writer.i64(session(request.session)?);
        Ok(())
    }

    fn read(_: &Session, _: &mut Reader<'_>) -> Result<Nothing, ApiError> {
        Ok(Nothing {})
    }
}
