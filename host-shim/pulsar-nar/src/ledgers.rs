//! Control operations on managed ledgers and cursors: what needs handles, positions and indexes.
//!
//! Java knows ledgers and positions; what indexes they hold is found out here. It must not know JNI.

use std::sync::Arc;

use bytes::Bytes;
use handler_api::control::{Fault, Nothing, Operation, encode, request};
use handler_api::cursor::{
    Cursor, CursorList, CursorRequest, DeleteCursor, ListCursors, MarkDelete, OpenCursor,
};
use handler_api::ledger::{
    DescribeLedgers, HandleRef, Ledger, LedgerList, OpenLedgers, Opened, OpenedList, Properties,
    PropertiesChange, Rollover, StorageReport, StorageUse, Trim, TrimRequest,
    UpdateLedgerProperties,
};
use handler_api::topics::TopicNames;
use handler_api::{ApiError, ErrorCode, Position, Reply};

use crate::bridge::Bridge;
use crate::control::{Reader, Upcalls, Writer};
use crate::partition::{Bounds, Partition};

/// Answers an operation of this file; nothing if it is none.
pub(crate) fn dispatch(
    bridge: &Arc<Bridge>,
    op: u32,
    version: u32,
    bytes: &Bytes,
) -> Option<Reply<Bytes>> {
    macro_rules! answer {
        ($($operation:ident => $answer:ident,)+) => {$(
            if let Some(asked) = request::<$operation>(op, version, bytes) {
                let bridge = Arc::clone(bridge);
                return Some(match asked {
                    Ok(asked) => Reply::pending(async move {
                        $answer(&bridge, asked).await.map(|answer| encode(&answer))
                    }),
                    Err(error) => Reply::err(error),
                });
            }
        )+};
    }
    answer! {
        OpenLedgers => open,
        DescribeLedgers => describe,
        Rollover => roll_over,
        Trim => trim,
        UpdateLedgerProperties => update_properties,
        StorageUse => storage_use,
        OpenCursor => open_cursor,
        MarkDelete => mark_delete,
        DeleteCursor => delete_cursor,
        ListCursors => list_cursors,
    }
    None
}

fn partition_of(bridge: &Bridge, handle: Option<HandleRef>) -> Result<Arc<Partition>, ApiError> {
    let handle = handle.ok_or_else(|| invalid("the request names no handle"))?;
    let partition = bridge.table.get(handle.into())?;
    partition.alive()?;
    Ok(partition)
}

fn invalid(text: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidArgument, text)
}

/// A message that begins with a partition's number.
fn about(partition: &Partition) -> Writer {
    let mut writer = Writer::new();
    writer.i64(partition.handle.id.cast_signed());
    writer
}

async fn ask<O: Operation>(bridge: &Bridge, writer: &mut Writer) -> Result<Vec<u8>, ApiError> {
    bridge.call(O::OP, writer.finish()).await
}

async fn open(bridge: &Arc<Bridge>, names: TopicNames) -> Result<OpenedList, ApiError> {
    let answer = ask::<OpenLedgers>(bridge, Writer::new().texts(names.names.iter())).await?;
    let opened = Reader::new(&answer).list(|reader| match reader.i32()? {
        0 => Ok(Ok((reader.i64()?, reader.map()?))),
        code => Ok(Err(ApiError {
            code: code.cast_unsigned(),
            message: reader.text()?.into(),
        })),
    })?;
    let mut ledgers = Vec::with_capacity(opened.len());
    for one in opened {
        let opened = match one {
            Ok((id, properties)) => {
                let opened = opened_as(bridge, id.cast_unsigned()).await;
                opened.map(|opened| Opened {
                    properties,
                    ..opened
                })
            }
            Err(error) => Err(error),
        };
        ledgers.push(opened.unwrap_or_else(|error| Opened {
            fault: Some(Fault::from(error)),
            ..Opened::default()
        }));
    }
    Ok(OpenedList { ledgers })
}

async fn opened_as(bridge: &Arc<Bridge>, id: u64) -> Result<Opened, ApiError> {
    let partition = bridge.table.by_id(id).ok_or_else(|| {
        // It was closed again while the answer was on its way.
        ApiError::new(
            ErrorCode::NotReady,
            "the topic was closed while it was opened",
        )
    })?;
    let bounds = bridge.bounds(&partition).await?;
    Ok(opened_at(&partition, bounds))
}

fn opened_at(partition: &Partition, bounds: Bounds) -> Opened {
    Opened {
        handle: Some(partition.handle.into()),
        start_index: bounds.start,
        end_index: bounds.end,
        ..Opened::default()
    }
}

/// A ledger as Java tells of it.
struct Told {
    id: i64,
    entries: i64,
    bytes: i64,
    /// When it was sealed, in ms since the epoch; 0 if it is not, or long ago.
    sealed_ms: i64,
    is_sealed: bool,
}

async fn told(bridge: &Bridge, partition: &Partition) -> Result<Vec<Told>, ApiError> {
    let answer = ask::<DescribeLedgers>(bridge, &mut about(partition)).await?;
    Reader::new(&answer).list(|reader| {
        Ok(Told {
            id: reader.i64()?,
            entries: reader.i64()?,
            bytes: reader.i64()?,
            sealed_ms: reader.i64()?,
            is_sealed: reader.bool()?,
        })
    })
}

async fn describe(bridge: &Arc<Bridge>, handle: HandleRef) -> Result<LedgerList, ApiError> {
    let partition = partition_of(bridge, Some(handle))?;
    let bounds = bridge.bounds(&partition).await?;
    let told = told(bridge, &partition).await?;
    let mut ledgers = Vec::with_capacity(told.len());
    let mut next_index = bounds.start;
    let mut created_ms = 0;
    for one in told {
        let last_index = if one.entries == 0 {
            next_index - 1
        } else {
            last_index(bridge, &partition, &one)
                .await?
                .max(next_index - 1)
        };
        let appended_ms = match (one.entries, one.sealed_ms) {
            (0, _) => 0,
            (_, 0) => now_ms(),
            (_, sealed_ms) => sealed_ms,
        };
        // A ledger is made when the one before it is sealed; of the first only its first entry can tell.
        if created_ms == 0 {
            created_ms = first_append_ms(bridge, &partition, &one).await?;
        }
        if created_ms == 0 {
            created_ms = if appended_ms > 0 {
                appended_ms
            } else {
                now_ms()
            };
        }
        ledgers.push(Ledger {
            id: one.id,
            first_index: next_index,
            last_index,
            entries: one.entries.cast_unsigned(),
            bytes: one.bytes.cast_unsigned(),
            sealed: one.is_sealed,
            created_ms: created_ms.min(if appended_ms > 0 {
                appended_ms
            } else {
                i64::MAX
            }),
            last_append_ms: appended_ms,
            replaced: 0,
        });
        next_index = last_index + 1;
        created_ms = one.sealed_ms;
    }
    Ok(LedgerList { ledgers })
}

/// Index of a ledger's last entry; that of a sealed one is remembered.
async fn last_index(
    bridge: &Bridge,
    partition: &Partition,
    ledger: &Told,
) -> Result<i64, ApiError> {
    if ledger.is_sealed
        && let Some(known) = partition.border(ledger.id)
    {
        return Ok(known);
    }
    let position = Position::new(ledger.id, ledger.entries - 1);
    let last = bridge.read_at(partition, position, 1).await?;
    let index = last.first().map_or(-1, |entry| entry.index);
    if ledger.is_sealed && index >= 0 {
        partition.learned_border(ledger.id, index);
    }
    Ok(index)
}

async fn first_append_ms(
    bridge: &Bridge,
    partition: &Partition,
    ledger: &Told,
) -> Result<i64, ApiError> {
    if ledger.entries == 0 {
        return Ok(0);
    }
    let first = bridge
        .read_at(partition, Position::new(ledger.id, 0), 1)
        .await?;
    Ok(first.first().and_then(|entry| entry.time_ms()).unwrap_or(0))
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

async fn roll_over(bridge: &Arc<Bridge>, handle: HandleRef) -> Result<Nothing, ApiError> {
    let partition = partition_of(bridge, Some(handle))?;
    ask::<Rollover>(bridge, &mut about(&partition)).await?;
    Ok(Nothing {})
}

async fn trim(bridge: &Arc<Bridge>, asked: TrimRequest) -> Result<Opened, ApiError> {
    let partition = partition_of(bridge, asked.handle)?;
    let mut through = None;
    for ledger in told(bridge, &partition).await? {
        let is_over = ledger.is_sealed
            && (ledger.entries == 0
                || last_index(bridge, &partition, &ledger).await? < asked.before_index);
        if !is_over {
            break;
        }
        if ledger.entries > 0 {
            through = Some(ledger.id);
        }
    }
    if let Some(through) = through {
        ask::<Trim>(bridge, about(&partition).i64(through)).await?;
    }
    let bounds = bridge.bounds(&partition).await?;
    Ok(opened_at(&partition, bounds))
}

async fn update_properties(
    bridge: &Arc<Bridge>,
    change: PropertiesChange,
) -> Result<Properties, ApiError> {
    let partition = partition_of(bridge, change.handle)?;
    let mut writer = about(&partition);
    writer.map(&change.set).texts(change.remove.iter());
    let answer = ask::<UpdateLedgerProperties>(bridge, &mut writer).await?;
    let properties = Reader::new(&answer).map()?;
    Ok(Properties { properties })
}

async fn storage_use(bridge: &Arc<Bridge>, names: TopicNames) -> Result<StorageReport, ApiError> {
    let answer = ask::<StorageUse>(bridge, Writer::new().texts(names.names.iter())).await?;
    let mut reader = Reader::new(&answer);
    let bytes = reader.list(|reader| reader.i64().map(i64::cast_unsigned))?;
    Ok(StorageReport {
        bytes,
        // The storage is the bookies'; a broker does not know their disks.
        total_bytes: 0,
        usable_bytes: 0,
        location: reader.text()?,
    })
}

/// The position up to which a cursor is done if it is done with an index.
async fn done_with(
    bridge: &Bridge,
    partition: &Partition,
    index: i64,
) -> Result<Position, ApiError> {
    let bounds = bridge.bounds(partition).await?;
    if index < bounds.start {
        return Ok(Position::new(bounds.first_ledger, -1));
    }
    let at = bridge.find_index(partition, index.min(bounds.end)).await?;
    let found = bridge.read_at(partition, at, 1).await?;
    found
        .first()
        .map(|entry| entry.position)
        .ok_or_else(|| invalid("the cursor's place does not exist"))
}

/// A cursor as it is told: done up to a position.
async fn cursor_at(
    bridge: &Bridge,
    partition: &Partition,
    name: String,
    at: Position,
) -> Result<Cursor, ApiError> {
    let bounds = bridge.bounds(partition).await?;
    if at.entry >= 0 {
        let found = bridge.read_at(partition, at, 1).await?;
        if let Some(entry) = found.first().filter(|entry| entry.position == at) {
            return Ok(Cursor {
                name,
                index: entry.index,
                position: Some(at.into()),
            });
        }
    }
    Ok(Cursor {
        name,
        index: bounds.start - 1,
        position: None,
    })
}

fn named(asked: &CursorRequest) -> Result<(), ApiError> {
    if asked.name.is_empty() {
        return Err(invalid("a cursor has a name"));
    }
    Ok(())
}

fn position(reader: &mut Reader<'_>) -> Result<Position, ApiError> {
    Ok(Position::new(reader.i64()?, reader.i64()?))
}

async fn cursors(
    bridge: &Bridge,
    partition: &Partition,
) -> Result<Vec<(String, Position)>, ApiError> {
    let answer = ask::<ListCursors>(bridge, &mut about(partition)).await?;
    Reader::new(&answer).list(|reader| Ok((reader.text()?, position(reader)?)))
}

async fn open_cursor(bridge: &Arc<Bridge>, asked: CursorRequest) -> Result<Cursor, ApiError> {
    let partition = partition_of(bridge, asked.handle)?;
    named(&asked)?;
    let known = cursors(bridge, &partition).await?.into_iter();
    if let Some((name, at)) = known.into_iter().find(|(name, _)| *name == asked.name) {
        return cursor_at(bridge, &partition, name, at).await;
    }
    let at = done_with(bridge, &partition, asked.index).await?;
    moved::<OpenCursor>(bridge, &partition, asked.name, at).await
}

async fn mark_delete(bridge: &Arc<Bridge>, asked: CursorRequest) -> Result<Cursor, ApiError> {
    let partition = partition_of(bridge, asked.handle)?;
    named(&asked)?;
    let known = cursors(bridge, &partition).await?.into_iter();
    let Some((name, now)) = known.into_iter().find(|(name, _)| *name == asked.name) else {
        let text = format!("{} has no cursor {}", partition.name, asked.name);
        return Err(ApiError::new(ErrorCode::NotFound, text));
    };
    let now = cursor_at(bridge, &partition, name.clone(), now).await?;
    if asked.index < now.index {
        return Err(invalid("a cursor does not move backwards"));
    }
    let at = done_with(bridge, &partition, asked.index).await?;
    moved::<MarkDelete>(bridge, &partition, name, at).await
}

/// Has Java open or move a cursor.
async fn moved<O: Operation>(
    bridge: &Bridge,
    partition: &Partition,
    name: String,
    to: Position,
) -> Result<Cursor, ApiError> {
    let mut writer = about(partition);
    writer.text(&name).i64(to.ledger).i64(to.entry);
    let answer = ask::<O>(bridge, &mut writer).await?;
    let at = position(&mut Reader::new(&answer))?;
    cursor_at(bridge, partition, name, at).await
}

async fn delete_cursor(bridge: &Arc<Bridge>, asked: CursorRequest) -> Result<Nothing, ApiError> {
    let partition = partition_of(bridge, asked.handle)?;
    named(&asked)?;
    ask::<DeleteCursor>(bridge, about(&partition).text(&asked.name)).await?;
    Ok(Nothing {})
}

async fn list_cursors(bridge: &Arc<Bridge>, handle: HandleRef) -> Result<CursorList, ApiError> {
    let partition = partition_of(bridge, Some(handle))?;
    let mut cursors_told = Vec::new();
    for (name, at) in cursors(bridge, &partition).await? {
        cursors_told.push(cursor_at(bridge, &partition, name, at).await?);
    }
    Ok(CursorList {
        cursors: cursors_told,
    })
}
