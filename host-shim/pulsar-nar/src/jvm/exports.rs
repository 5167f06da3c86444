//! The native methods of `io.kop.Native`: each is fenced, so that no panic unwinds into Java.
//!
//! It must not know what a call means: each hands its numbers to the bridge.

#![expect(
    unsafe_code,
    reason = "exported by the names that Java looks for; addresses are those of buffers that Java holds"
)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use handler_api::ffi::fence;
use handler_api::{ApiError, ErrorCode, Position};
use jni::JNIEnv;
use jni::objects::{JByteArray, JByteBuffer, JClass, JLongArray, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jbyteArray, jint, jlong, jstring};

use super::memory::{Fill, Lease, Segments};
use super::upcalls::{BatchRef, ControlRef, PartitionRef, capture};
use super::{MACHINE, failure, internal, optional_text, text_of, texts_of};
use crate::bridge::{self, Bridge, Settings};
use crate::entry::Stored;

type Env<'a> = JNIEnv<'a>;

/// Does something with the bridge, if it is there, behind the fence.
fn with_bridge(what: &str, task: impl FnOnce(&Arc<Bridge>)) {
    let done = fence(what, || {
        if let Some(bridge) = bridge::current() {
            task(&bridge);
        }
    });
    if let Err(error) = done {
        tracing::error!("{error}");
    }
}

/// Does something that may fail, behind the fence; a failure becomes a Java exception.
fn throwing<T>(
    env: &mut Env<'_>,
    what: &str,
    otherwise: T,
    task: impl FnOnce(&mut Env<'_>) -> Result<T, ApiError>,
) -> T {
    match fence(what, || task(env)).and_then(|result| result) {
        Ok(value) => value,
        Err(error) => {
            // If not even that can be thrown, another exception is pending already.
            let _ = env.throw_new("java/lang/IllegalStateException", error.message.as_str());
            otherwise
        }
    }
}

fn error_of(env: &mut Env<'_>, code: jint, message: &JString<'_>) -> ApiError {
    ApiError {
        code: u32::try_from(code).unwrap_or(ErrorCode::Internal as u32),
        message: optional_text(env, message).unwrap_or_default().into(),
    }
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_initialize<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
    classes: JObjectArray<'a>,
    file: JString<'a>,
    protocol: JString<'a>,
    configuration: JObjectArray<'a>,
) {
    throwing(&mut env, "initialize", (), |env| {
        let read = |env: &mut Env<'_>| {
            let machine = env.get_java_vm()?;
            // Set already if an earlier broker of this process has failed to start.
            let _ = MACHINE.set(machine);
            let mut found = Vec::new();
            for at in 0..env.get_array_length(&classes)? {
                found.push(JClass::from(env.get_object_array_element(&classes, at)?));
            }
            capture(env, &found)?;
            let texts = texts_of(env, &configuration)?;
            Ok((text_of(env, &file)?, text_of(env, &protocol)?, texts))
        };
        let told = read(env);
        let (file, protocol, texts) = told.map_err(|error| failure(env, "initialize", &error))?;
        crate::logging::install();
        let pairs = texts.chunks_exact(2);
        let configuration: HashMap<String, String> = pairs
            .filter_map(|pair| Some((pair.first()?.clone(), pair.get(1)?.clone())))
            .collect();
        bridge::initialize(&file, &protocol, &configuration)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_advertised<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
) -> jstring {
    throwing(&mut env, "advertised", std::ptr::null_mut(), |env| {
        let text = bridge::advertised()?;
        let told = env.new_string(text);
        told.map(JString::into_raw)
            .map_err(|error| failure(env, "advertised", &error))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_start<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
    control: JObject<'a>,
    numbers: JLongArray<'a>,
) {
    throwing(&mut env, "start", (), |env| {
        let mut read = [0i64; 5];
        let told = env
            .get_long_array_region(&numbers, 0, &mut read)
            .and_then(|()| ControlRef::new(env, &control));
        let control = told.map_err(|error| failure(env, "start", &error))?;
        let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
        let [timeout_ms, entry, appends, held, authentication] = read;
        let settings = Settings {
            append_timeout: Duration::from_millis(unsigned(timeout_ms)),
            max_entry_bytes: unsigned(entry),
            max_append_bytes: unsigned(appends),
            max_held_bytes: unsigned(held),
            authentication: authentication != 0,
        };
        bridge::start(control, settings)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_close<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
    timeout_ms: jlong,
) {
    throwing(&mut env, "close", (), |_| {
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        bridge::close(timeout)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_metrics<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
) -> jbyteArray {
    throwing(&mut env, "metrics", std::ptr::null_mut(), |env| {
        let text = bridge::metrics();
        let told = env.byte_array_from_slice(&text);
        told.map(JByteArray::into_raw)
            .map_err(|error| failure(env, "metrics", &error))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_tick<'a>(_env: Env<'a>, _class: JClass<'a>) {
    with_bridge("tick", |bridge| {
        crate::logging::refresh();
        bridge.tick();
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_address<'a>(
    env: Env<'a>,
    _class: JClass<'a>,
    buffer: JByteBuffer<'a>,
) -> jlong {
    let address = fence("address", || env.get_direct_buffer_address(&buffer).ok());
    let address = address
        .ok()
        .flatten()
        .map(|pointer| pointer.expose_provenance());
    address
        .and_then(|address| jlong::try_from(address).ok())
        .unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_opened<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
    partition: JObject<'a>,
    name: JString<'a>,
) -> jlong {
    throwing(&mut env, "opened", 0, |env| {
        let bridge = bridge::current()
            .ok_or_else(|| ApiError::new(ErrorCode::Closing, "the broker is shutting down"))?;
        let told =
            text_of(env, &name).and_then(|name| Ok((name, PartitionRef::new(env, &partition)?)));
        let (name, partition) = told.map_err(|error| failure(env, "opened", &error))?;
        let id = bridge.opened(partition, name);
        jlong::try_from(id).map_err(|_| internal("too many handles"))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_fill<'a>(
    _env: Env<'a>,
    _class: JClass<'a>,
    ctx: jlong,
    address: jlong,
    length: jint,
) -> jboolean {
    let filled = fence("fill", || {
        let bridge = bridge::current()?;
        // SAFETY: Java calls this with the address of a buffer of that length that it has just made.
        let room = unsafe { Fill::at(address, length) }?;
        Some(bridge.fill(ctx, room))
    });
    filled.ok().flatten().unwrap_or(false).into()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_appended<'a>(
    _env: Env<'a>,
    _class: JClass<'a>,
    ctx: jlong,
    ledger: jlong,
    entry: jlong,
    index: jlong,
) {
    with_bridge("appended", |bridge| {
        bridge.appended(ctx, Position::new(ledger, entry), index);
    });
}

/// A call of any kind has failed.
#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_failed<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
    ctx: jlong,
    code: jint,
    message: JString<'a>,
) {
    with_bridge("failed", |bridge| {
        let error = error_of(&mut env, code, &message);
        if let Some(call) = bridge.calls.take(ctx) {
            bridge.fail(call, error);
        }
    });
}

/// Entries were read. False: the batch was not taken over, and Java must release it and tell that the call has failed.
#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_entriesRead<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
    ctx: jlong,
    batch: JObject<'a>,
    table: JLongArray<'a>,
) -> jboolean {
    let env = &mut env;
    let taken = fence("entriesRead", || {
        let read = |env: &mut Env<'_>| {
            let length = env.get_array_length(&table)?;
            let mut numbers = vec![0i64; usize::try_from(length).unwrap_or(0)];
            env.get_long_array_region(&table, 0, &mut numbers)?;
            Ok((numbers, BatchRef::new(env, &batch)?))
        };
        read(env).map_err(|error| failure(env, "entriesRead", &error))
    });
    match taken.and_then(|result| result) {
        Ok((numbers, batch)) => {
            deliver(ctx, &numbers, batch);
            true.into()
        }
        Err(error) => {
            tracing::error!("{error}");
            false.into()
        }
    }
}

/// Hands entries on. From here on the batch is released whatever happens: an answer that is late meets nobody, and is
/// dropped.
fn deliver(ctx: i64, numbers: &[i64], batch: BatchRef) {
    let done = fence("entriesRead", || {
        let bridge = bridge::current();
        let counter = bridge.as_ref().map(|bridge| Arc::clone(&bridge.held_bytes));
        let lease = Lease::take(counter.unwrap_or_default(), bytes_in(numbers));
        let segments = Segments::new(batch, lease);
        let entries = entries(numbers, &segments);
        let Some(bridge) = bridge else {
            return;
        };
        match entries {
            Some(entries) => bridge.entries_read(ctx, entries),
            None => {
                if let Some(call) = bridge.calls.take(ctx) {
                    bridge.fail(call, internal("entries with lengths that cannot be"));
                }
            }
        }
    });
    if let Err(error) = done {
        tracing::error!("{error}");
    }
}

/// Runs through the numbers of a batch: per entry ledger, entry, number of segments, and address and length of each.
fn walk(numbers: &[i64], mut each: impl FnMut(Position, &[(i64, i64)])) -> Option<()> {
    let mut rest = numbers;
    while let [ledger, entry, count, tail @ ..] = rest {
        let count = usize::try_from(*count).ok()?;
        let (pairs, behind) = tail.split_at_checked(count.checked_mul(2)?)?;
        let pairs: Vec<(i64, i64)> = pairs
            .chunks_exact(2)
            .filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)))
            .collect();
        each(Position::new(*ledger, *entry), &pairs);
        rest = behind;
    }
    rest.is_empty().then_some(())
}

fn bytes_in(numbers: &[i64]) -> u64 {
    let mut bytes = 0u64;
    let _ = walk(numbers, |_, pairs| {
        let lengths = pairs
            .iter()
            .map(|(_, length)| u64::try_from(*length).unwrap_or(0));
        bytes = bytes.saturating_add(lengths.sum());
    });
    bytes
}

fn entries(numbers: &[i64], segments: &Segments) -> Option<Vec<Stored>> {
    let mut entries = Vec::new();
    let mut is_whole = true;
    walk(numbers, |position, pairs| {
        let bytes: Option<Vec<Bytes>> = pairs
            .iter()
            // SAFETY: Java's `ReadBatch` makes the table of the direct buffers that it holds until it is released.
            .map(|(address, length)| unsafe { segments.segment(*address, *length) })
            .collect();
        match bytes {
            Some(bytes) => entries.push(Stored::parse(position, bytes)),
            None => is_whole = false,
        }
    })?;
    is_whole.then_some(entries)
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_found<'a>(
    _env: Env<'a>,
    _class: JClass<'a>,
    ctx: jlong,
    ledger: jlong,
    entry: jlong,
) {
    with_bridge("found", |bridge| {
        bridge.found(ctx, Position::new(ledger, entry))
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_answered<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
    ctx: jlong,
    answer: JByteArray<'a>,
) {
    with_bridge("answered", |bridge| {
        let answer = env.convert_byte_array(&answer);
        let answer = answer.map_err(|error| failure(&mut env, "answered", &error));
        bridge.control_answered(ctx, answer);
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_event<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
    op: jint,
    payload: JByteArray<'a>,
) {
    with_bridge("event", |bridge| {
        let payload = env.convert_byte_array(&payload);
        match payload.map_err(|error| failure(&mut env, "event", &error)) {
            Ok(payload) => bridge.happened(op.cast_unsigned(), &payload),
            Err(error) => tracing::error!("{error}"),
        }
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_entriesAvailable<'a>(
    _env: Env<'a>,
    _class: JClass<'a>,
    id: jlong,
) {
    with_bridge("entriesAvailable", |bridge| {
        if let Some(partition) = bridge.table.by_id(id.cast_unsigned()) {
            bridge.entries_available(&partition);
        }
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_closed<'a>(
    mut env: Env<'a>,
    _class: JClass<'a>,
    id: jlong,
    reason: JString<'a>,
) {
    with_bridge("closed", |bridge| {
        let reason = optional_text(&mut env, &reason).unwrap_or_default();
        if let Some(partition) = bridge.table.by_id(id.cast_unsigned()) {
            bridge.close_partition(&partition, &reason);
        }
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_kop_Native_startMoved<'a>(_env: Env<'a>, _class: JClass<'a>, id: jlong) {
    with_bridge("startMoved", |bridge| {
        if let Some(partition) = bridge.table.by_id(id.cast_unsigned()) {
            bridge.refresh_later(partition);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_batch_must_come_out_even() {
        let counted = |numbers: &[i64]| {
            let mut seen = Vec::new();
            walk(numbers, |position, pairs| {
                seen.push((position, pairs.len()))
            })
            .map(|()| seen)
        };
        assert_eq!(counted(&[]), Some(Vec::new()));
        let two = [5, 0, 1, 100, 7, 5, 1, 2, 200, 8, 300, 9];
        assert_eq!(
            counted(&two),
            Some(vec![(Position::new(5, 0), 1), (Position::new(5, 1), 2)])
        );
        assert_eq!(bytes_in(&two), 24);
        for wrong in [&[5, 0][..], &[5, 0, 1, 100], &[5, 0, -1], &[5, 0, i64::MAX]] {
            assert_eq!(counted(wrong), None, "{wrong:?}");
        }
    }
}
