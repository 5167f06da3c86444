//! The versioned metadata store: rows of the catalog under paths.

use std::sync::Arc;

use handler_api::control::Nothing;
use handler_api::metadata::{Path, PathList, PutRequest, Value, ValueChanged};
use handler_api::{ApiError, ErrorCode, Reply};
use redb::{ReadableTable, Table};

use super::catalog::{VALUES, reply};
use super::limits::{MAX_NAME_BYTES, MAX_VALUE_BYTES};
use super::services::{Core, Services};

/// Checks a path: `/a/b`, without empty parts. The root `/` only has children.
fn check_path(path: &str) -> Result<(), ApiError> {
    let well_formed = path.len() <= MAX_NAME_BYTES
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(|part| !part.is_empty()));
    if well_formed {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::InvalidArgument,
        format!("{path:?} is no path of the metadata store: it must look like /a/b"),
    ))
}

fn missing(path: &str) -> ApiError {
    ApiError::new(
        ErrorCode::NotFound,
        format!("the metadata store has nothing at {path}"),
    )
}

pub(crate) fn get(core: &Core, request: &Path) -> Result<Value, ApiError> {
    check_path(&request.path)?;
    let found = core.catalog.read(|transaction| {
        let row = transaction.open_table(VALUES)?.get(request.path.as_str())?;
        Ok(row.map(|row| {
            let (version, value) = row.value();
            (version, value.to_vec())
        }))
    })?;
    let (version, value) = found.ok_or_else(|| missing(&request.path))?;
    Ok(Value {
        path: request.path.clone(),
        value: value.into(),
        version,
    })
}

/// Compares the stored version with the expected one; answers the stored one.
fn expect(
    table: &Table<'_, &str, (i64, &[u8])>,
    request: &PutRequest,
) -> Result<Result<Option<i64>, ApiError>, redb::Error> {
    let stored = table.get(request.path.as_str())?.map(|row| row.value().0);
    let conflict = request
        .expected_version
        .is_some_and(|expected| stored.unwrap_or(-1) != expected);
    if conflict {
        return Ok(Err(ApiError::new(
            ErrorCode::Conflict,
            format!(
                "{} has version {}, not {}",
                request.path,
                stored.unwrap_or(-1),
                request.expected_version.unwrap_or(-1)
            ),
        )));
    }
    Ok(Ok(stored))
}

pub(crate) fn put(core: &Arc<Core>, request: PutRequest) -> Reply<Value> {
    if let Err(error) = check_path(&request.path) {
        return Reply::err(error);
    }
    if request.value.len() > MAX_VALUE_BYTES {
        return Reply::err(ApiError::new(
            ErrorCode::TooLarge,
            format!(
                "a value of {} bytes is larger than {MAX_VALUE_BYTES}",
                request.value.len()
            ),
        ));
    }
    let (done, reply) = reply();
    let listener = Arc::clone(core);
    core.catalog.submit(
        move |transaction| {
            let mut table = transaction.open_table(VALUES)?;
            let stored = match expect(&table, &request)? {
                Ok(stored) => stored,
                Err(error) => return Ok(Err(error)),
            };
            let version = stored.map_or(0, |version| version + 1);
            table.insert(request.path.as_str(), (version, &*request.value))?;
            Ok(Ok(Value {
                path: request.path,
                value: request.value,
                version,
            }))
        },
        move |result: Result<Value, ApiError>| {
            // Told before it is answered: whoever watches from now on hears of later changes only.
            if let Ok(value) = &result {
                changed(&listener, &value.path, false);
            }
            done(result);
        },
    );
    reply
}

pub(crate) fn delete(core: &Arc<Core>, request: PutRequest) -> Reply<Nothing> {
    if let Err(error) = check_path(&request.path) {
        return Reply::err(error);
    }
    let (done, reply) = reply();
    let listener = Arc::clone(core);
    let path = request.path.clone();
    core.catalog.submit(
        move |transaction| {
            let mut table = transaction.open_table(VALUES)?;
            match expect(&table, &request)? {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Err(missing(&request.path))),
                Err(error) => return Ok(Err(error)),
            }
            table.remove(request.path.as_str())?;
            Ok(Ok(Nothing {}))
        },
        move |result: Result<Nothing, ApiError>| {
            if result.is_ok() {
                changed(&listener, &path, true);
            }
            done(result);
        },
    );
    reply
}

fn changed(core: &Core, path: &str, deleted: bool) {
    let event = ValueChanged {
        path: path.to_owned(),
        deleted,
    };
    core.attachments.announce_path(path, &event);
}

/// The paths directly below one; those that only lead to others are among them, as in Pulsar's stores.
pub(crate) fn children(core: &Core, request: &Path) -> Result<PathList, ApiError> {
    let prefix = if request.path == "/" {
        "/".to_owned()
    } else {
        check_path(&request.path)?;
        format!("{}/", request.path)
    };
    let paths = core.catalog.read(|transaction| {
        let table = transaction.open_table(VALUES)?;
        let mut paths: Vec<String> = Vec::new();
        for row in table.range(prefix.as_str()..)? {
            let (path, _) = row?;
            let Some(rest) = path.value().strip_prefix(&prefix) else {
                break;
            };
            let name = rest.split('/').next().unwrap_or(rest);
            let child = format!("{prefix}{name}");
            if paths.last() != Some(&child) {
                paths.push(child);
            }
        }
        // A child and what lies below it may have others between them: `/a/b`, `/a/b-c`, `/a/b/d`.
        paths.sort_unstable();
        paths.dedup();
        Ok(paths)
    })?;
    Ok(PathList { paths })
}

pub(crate) fn watch(services: &Services, request: Path) -> Result<Nothing, ApiError> {
    if request.path != "/" {
        check_path(&request.path)?;
    }
    services.attachment.watch_path(request.path)?;
    Ok(Nothing {})
}
