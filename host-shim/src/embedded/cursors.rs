//! Durable cursors: rows of the catalog, mirrored in the open managed ledger.

use std::sync::Arc;

use handler_api::cursor::{Cursor, CursorList, CursorRequest};
use handler_api::ledger::PositionRef;
use handler_api::{ApiError, ErrorCode};

use redb::ReadableTable;

use super::catalog::{CURSORS, LIVES};
use super::limits::{MAX_CURSORS, MAX_NAME_BYTES};
use super::partition::Partition;
use super::read::{Patience, Reader};
use super::services::Core;

fn lookup(partition: &Partition, name: &str) -> Result<Option<i64>, ApiError> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(ApiError::new(
            ErrorCode::InvalidArgument,
            format!("a cursor's name has 1 to {MAX_NAME_BYTES} bytes"),
        ));
    }
    let view = partition.view.lock();
    if let Some(dead) = &view.dead {
        return Err(dead.clone());
    }
    let Some(extras) = view.extras.as_ref() else {
        return Ok(None);
    };
    let found = extras.cursors.get(name).copied();
    if found.is_none() && extras.cursors.len() >= MAX_CURSORS {
        return Err(ApiError::new(
            ErrorCode::Refused,
            format!("{} has {MAX_CURSORS} cursors already", partition.name),
        ));
    }
    Ok(found)
}

/// Opens a cursor, creating it if it does not exist.
pub(crate) fn open(
    core: &Arc<Core>,
    partition: &Arc<Partition>,
    request: &CursorRequest,
) -> Result<Cursor, ApiError> {
    let _guard = partition.structure.lock();
    let index = match lookup(partition, &request.name)? {
        Some(index) => index,
        None => {
            store(core, partition, &request.name, request.index)?;
            request.index
        }
    };
    describe(core, partition, &request.name, index)
}

/// Moves a cursor forward.
pub(crate) fn mark_delete(
    core: &Arc<Core>,
    partition: &Arc<Partition>,
    request: &CursorRequest,
) -> Result<Cursor, ApiError> {
    let _guard = partition.structure.lock();
    let index =
        lookup(partition, &request.name)?.ok_or_else(|| unknown(partition, &request.name))?;
    if request.index < index {
        return Err(ApiError::new(
            ErrorCode::InvalidArgument,
            format!(
                "cursor {} of {} is at {index}: it does not move back to {}",
                request.name, partition.name, request.index
            ),
        ));
    }
    store(core, partition, &request.name, request.index)?;
    describe(core, partition, &request.name, request.index)
}

/// Forgets a cursor.
pub(crate) fn delete(
    core: &Arc<Core>,
    partition: &Arc<Partition>,
    request: &CursorRequest,
) -> Result<(), ApiError> {
    let _guard = partition.structure.lock();
    lookup(partition, &request.name)?.ok_or_else(|| unknown(partition, &request.name))?;
    let (topic, number) = (partition.topic_id, partition.number);
    let name = request.name.clone();
    core.catalog.write(move |transaction| {
        transaction
            .open_table(CURSORS)?
            .remove((topic, number, name.as_str()))?;
        Ok(Ok(()))
    })?;
    partition
        .view
        .lock()
        .extras_mut()
        .cursors
        .remove(&request.name);
    Ok(())
}

/// All cursors by name.
pub(crate) fn list(core: &Arc<Core>, partition: &Arc<Partition>) -> Result<CursorList, ApiError> {
    let all = {
        let view = partition.view.lock();
        if let Some(dead) = &view.dead {
            return Err(dead.clone());
        }
        view.extras
            .as_ref()
            .map(|extras| extras.cursors.clone())
            .unwrap_or_default()
    };
    let cursors = all
        .iter()
        .map(|(name, index)| describe(core, partition, name, *index))
        .collect::<Result<_, _>>()?;
    Ok(CursorList { cursors })
}

fn unknown(partition: &Partition, name: &str) -> ApiError {
    ApiError::new(
        ErrorCode::NotFound,
        format!("{} has no cursor {name}", partition.name),
    )
}

fn store(core: &Core, partition: &Partition, name: &str, index: i64) -> Result<(), ApiError> {
    let index = index.max(-1);
    let (topic, number) = (partition.topic_id, partition.number);
    let row = name.to_owned();
    core.catalog.write(move |transaction| {
        if transaction.open_table(LIVES)?.get(topic)?.is_none() {
            return Ok(Err(ApiError::new(
                ErrorCode::HandleClosed,
                "the topic was deleted",
            )));
        }
        transaction
            .open_table(CURSORS)?
            .insert((topic, number, row.as_str()), index)?;
        Ok(Ok(()))
    })?;
    partition
        .view
        .lock()
        .extras_mut()
        .cursors
        .insert(name.to_owned(), index);
    Ok(())
}

/// A cursor with the position of its entry, if that still exists.
fn describe(
    core: &Arc<Core>,
    partition: &Arc<Partition>,
    name: &str,
    index: i64,
) -> Result<Cursor, ApiError> {
    let index = index.max(-1);
    let (start, end) = {
        let view = partition.view.lock();
        (view.start_index, view.end_index)
    };
    let position = if (start..=end).contains(&index) {
        let reader = Reader {
            core,
            partition,
            patience: Patience::Wait,
        };
        let found = reader.find(index).map_err(super::read::Stop::into_error)?;
        // Behind a gap that compaction left, the entry found is a later one.
        (found.base <= index).then(|| PositionRef::from(found.position()))
    } else {
        None
    };
    Ok(Cursor {
        name: name.to_owned(),
        index,
        position,
    })
}
