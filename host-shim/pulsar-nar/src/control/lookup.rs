//! Who serves topics: the answers of Java's lookup, one per bundle, given to each topic in it.

use handler_api::{ApiError, ErrorCode, Owner, Reply, Text};

use super::{Reader, Upcalls, Writer, private};

/// An answer to each of the topics.
pub(crate) type Owners = Vec<Result<Owner, ApiError>>;

/// Looks topics up.
pub(crate) fn lookup(upcalls: &dyn Upcalls, topics: &[String]) -> Reply<Owners> {
    let asked = topics.len();
    let mut writer = Writer::new();
    writer.texts(topics.iter());
    let pending = upcalls.call(private::LOOKUP, writer.finish());
    Reply::pending(async move {
        let answered = pending.await?;
        let owners = read(&mut Reader::new(&answered))?;
        if owners.len() == asked {
            return Ok(owners);
        }
        Err(ApiError::new(
            ErrorCode::Internal,
            format!("the broker looked up {} of {asked} topics", owners.len()),
        ))
    })
}

fn read(reader: &mut Reader<'_>) -> Result<Owners, ApiError> {
    let answers = reader.list(answer)?;
    reader.list(|reader| {
        let number = usize::try_from(reader.i32()?).unwrap_or(usize::MAX);
        let answer = answers.get(number).cloned().ok_or_else(|| {
            ApiError::new(
                ErrorCode::Internal,
                format!("the broker's lookup has no answer {number}"),
            )
        })?;
        Ok(answer)
    })
}

/// An owner, or the code and text of a fault.
fn answer(reader: &mut Reader<'_>) -> Result<Result<Owner, ApiError>, ApiError> {
    let code = reader.i32()?;
    if code != 0 {
        return Ok(Err(ApiError {
            code: code.cast_unsigned(),
            message: Text::from(reader.text()?),
        }));
    }
    Ok(Ok(Owner {
        local: reader.bool()?,
        broker: Text::from(reader.text()?),
        protocol_data: Text::from(reader.text()?),
    }))
}
