//! Calls to Java: the objects that are held, and their methods, whose ids are looked up once.
//!
//! Each is a safe function; that an id fits its object is decided here and nowhere else. It must not know why a call
//! is made.

#![expect(
    unsafe_code,
    reason = "methods are called by ids that were looked up with the very signatures used here"
)]

use std::sync::OnceLock;

use handler_api::{ApiError, Position};
use jni::JNIEnv;
use jni::objects::{GlobalRef, JClass, JLongArray, JMethodID, JObject, JStaticMethodID, JValue};
use jni::signature::{Primitive, ReturnType};
use jni::sys::jvalue;

use super::{env, failure, internal};

/// The ids of every method that is called.
struct Methods {
    append: JMethodID,
    read: JMethodID,
    find: JMethodID,
    is_at: JMethodID,
    layout: JMethodID,
    await_entries: JMethodID,
    forget: JMethodID,
    release: JMethodID,
    control: JMethodID,
    log: JStaticMethodID,
    log_level: JStaticMethodID,
}

static METHODS: OnceLock<Methods> = OnceLock::new();
static LOG: OnceLock<GlobalRef> = OnceLock::new();

/// Looks the methods up, given the classes `Partition`, `ReadBatch`, `Control` and `Log`.
pub(super) fn capture(env: &mut JNIEnv<'_>, classes: &[JClass<'_>]) -> jni::errors::Result<()> {
    let [partition, batch, control, log] = classes else {
        return Err(jni::errors::Error::WrongJValueType(
            "classes",
            "another number",
        ));
    };
    let methods = Methods {
        append: env.get_method_id(partition, "append", "(JIIZ)V")?,
        read: env.get_method_id(partition, "read", "(JJJI)V")?,
        find: env.get_method_id(partition, "find", "(JJ)V")?,
        is_at: env.get_method_id(partition, "isAt", "(JJJ)Z")?,
        layout: env.get_method_id(partition, "layout", "()[J")?,
        await_entries: env.get_method_id(partition, "awaitEntries", "()V")?,
        forget: env.get_method_id(partition, "forget", "()V")?,
        release: env.get_method_id(batch, "release", "()V")?,
        control: env.get_method_id(control, "call", "(JI[B)V")?,
        log: env.get_static_method_id(log, "line", "(ILjava/lang/String;Ljava/lang/String;)V")?,
        log_level: env.get_static_method_id(log, "level", "()I")?,
    };
    let log = env.new_global_ref(log)?;
    // The library is loaded by one class loader only, so a second time sees the same classes.
    let _ = METHODS.set(methods);
    let _ = LOG.set(log);
    Ok(())
}

fn methods() -> Result<&'static Methods, ApiError> {
    METHODS
        .get()
        .ok_or_else(|| internal("the bridge's classes are not known yet"))
}

const VOID: ReturnType = ReturnType::Primitive(Primitive::Void);

fn long(value: i64) -> jvalue {
    JValue::Long(value).as_jni()
}

fn int(value: i32) -> jvalue {
    JValue::Int(value).as_jni()
}

fn boolean(value: bool) -> jvalue {
    JValue::Bool(value.into()).as_jni()
}

/// Calls a method without an answer.
fn call(
    object: &GlobalRef,
    method: JMethodID,
    what: &str,
    arguments: &[jvalue],
) -> Result<(), ApiError> {
    let mut env = env()?;
    // SAFETY: `method` was looked up in the class of `object` with the signature that `arguments` follow.
    let called = unsafe { env.call_method_unchecked(object, method, VOID, arguments) };
    called
        .map(drop)
        .map_err(|error| failure(&mut env, what, &error))
}

/// Java's `Partition`: an open managed ledger.
#[derive(Debug)]
pub(crate) struct PartitionRef(GlobalRef);

/// What a managed ledger looks like at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The last confirmed entry as the broker names it; its number may be −1.
    pub(crate) confirmed: Position,
    /// The last entry that exists; not known if there is none.
    pub(crate) last: Position,
    /// The first entry that exists; not known if there is none.
    pub(crate) first: Position,
    /// The first ledger.
    pub(crate) first_ledger: i64,
    /// The index that the broker gave out last, also to entries that are not confirmed yet.
    pub(crate) given_out: i64,
    /// Entries that are not confirmed yet.
    pub(crate) pending: i64,
}

impl PartitionRef {
    pub(super) fn new(env: &JNIEnv<'_>, object: &JObject<'_>) -> jni::errors::Result<Self> {
        env.new_global_ref(object).map(Self)
    }

    /// Appends the entry that `Native.fill` gives for `ctx`; order and ownership are fixed when this returns.
    pub(crate) fn append(
        &self,
        ctx: i64,
        length: i32,
        messages: i32,
        is_marker: bool,
    ) -> Result<(), ApiError> {
        let arguments = [long(ctx), int(length), int(messages), boolean(is_marker)];
        call(&self.0, methods()?.append, "append", &arguments)
    }

    /// Reads up to `entries` entries from a position on.
    pub(crate) fn read(&self, ctx: i64, from: Position, entries: i32) -> Result<(), ApiError> {
        let arguments = [long(ctx), long(from.ledger), long(from.entry), int(entries)];
        call(&self.0, methods()?.read, "read", &arguments)
    }

    /// Finds the first entry whose index is not below one.
    pub(crate) fn find(&self, ctx: i64, index: i64) -> Result<(), ApiError> {
        call(&self.0, methods()?.find, "find", &[long(ctx), long(index)])
    }

    /// Whether the last confirmed entry and the first ledger are still these.
    pub(crate) fn is_at(&self, confirmed: Position, first_ledger: i64) -> Result<bool, ApiError> {
        let method = methods()?.is_at;
        let mut env = env()?;
        let arguments = [
            long(confirmed.ledger),
            long(confirmed.entry),
            long(first_ledger),
        ];
        let kind = ReturnType::Primitive(Primitive::Boolean);
        // SAFETY: as in `call`.
        let answer = unsafe { env.call_method_unchecked(&self.0, method, kind, &arguments) };
        answer
            .and_then(|value| value.z())
            .map_err(|error| failure(&mut env, "isAt", &error))
    }

    /// What the managed ledger looks like.
    pub(crate) fn layout(&self) -> Result<Layout, ApiError> {
        let method = methods()?.layout;
        let mut env = env()?;
        // SAFETY: as in `call`.
        let answer = unsafe { env.call_method_unchecked(&self.0, method, ReturnType::Array, &[]) };
        let mut numbers = [0i64; 9];
        let told = answer.and_then(|value| value.l()).and_then(|array| {
            let array = JLongArray::from(array);
            let read = env.get_long_array_region(&array, 0, &mut numbers);
            env.delete_local_ref(array)?;
            read
        });
        told.map_err(|error| failure(&mut env, "layout", &error))?;
        let [a, b, c, d, e, f, first_ledger, given_out, pending] = numbers;
        Ok(Layout {
            confirmed: Position::new(a, b),
            last: Position::new(c, d),
            first: Position::new(e, f),
            first_ledger,
            given_out,
            pending,
        })
    }

    /// Asks for one `Native.entriesAvailable`, when an entry is confirmed.
    pub(crate) fn await_entries(&self) -> Result<(), ApiError> {
        call(&self.0, methods()?.await_entries, "awaitEntries", &[])
    }

    /// Says that nothing is asked of it any more.
    pub(crate) fn forget(&self) -> Result<(), ApiError> {
        call(&self.0, methods()?.forget, "forget", &[])
    }
}

/// Java's `ReadBatch`: entries whose memory is the broker's, until they are released.
#[derive(Debug)]
pub(crate) struct BatchRef(GlobalRef);

impl BatchRef {
    pub(super) fn new(env: &JNIEnv<'_>, object: &JObject<'_>) -> jni::errors::Result<Self> {
        env.new_global_ref(object).map(Self)
    }

    /// Gives the memory back. Called once.
    pub(super) fn release(&self) -> Result<(), ApiError> {
        call(&self.0, methods()?.release, "release", &[])
    }
}

/// Java's `Control`.
#[derive(Debug)]
pub(crate) struct ControlRef(GlobalRef);

impl ControlRef {
    pub(super) fn new(env: &JNIEnv<'_>, object: &JObject<'_>) -> jni::errors::Result<Self> {
        env.new_global_ref(object).map(Self)
    }

    /// Asks an operation.
    pub(crate) fn call(&self, ctx: i64, op: u32, request: &[u8]) -> Result<(), ApiError> {
        let method = methods()?.control;
        let mut env = env()?;
        let told = env.byte_array_from_slice(request).and_then(|array| {
            let arguments = [
                long(ctx),
                int(op.cast_signed()),
                JValue::Object(&array).as_jni(),
            ];
            // SAFETY: as in `call`; the array lives until the call returns.
            let called = unsafe { env.call_method_unchecked(&self.0, method, VOID, &arguments) };
            // An exception may be pending, under which a reference may still be deleted.
            env.delete_local_ref(array)?;
            called.map(drop)
        });
        told.map_err(|error| failure(&mut env, "call", &error))
    }
}

/// Writes a line to the broker's log.
pub(crate) fn log(level: i32, target: &str, message: &str) {
    // A log that fails has nobody to tell.
    let _ = try_log(level, target, message);
}

fn try_log(level: i32, target: &str, message: &str) -> Result<(), ApiError> {
    let (method, class) = (methods()?.log, log_class()?);
    let mut env = env()?;
    let told = env.with_local_frame(4, |env| {
        let class = JClass::from(env.new_local_ref(class)?);
        let target = env.new_string(target)?;
        let message = env.new_string(message)?;
        let arguments = [
            int(level),
            JValue::Object(&target).as_jni(),
            JValue::Object(&message).as_jni(),
        ];
        // SAFETY: `method` was looked up in this class with the signature that `arguments` follow.
        unsafe { env.call_static_method_unchecked(&class, method, VOID, &arguments) }.map(drop)
    });
    told.map_err(|error: jni::errors::Error| failure(&mut env, "log", &error))
}

/// The most detailed level that the broker's log keeps.
pub(crate) fn log_level() -> Result<i32, ApiError> {
    let (method, class) = (methods()?.log_level, log_class()?);
    let mut env = env()?;
    let told = env.with_local_frame(2, |env| {
        let class = JClass::from(env.new_local_ref(class)?);
        let kind = ReturnType::Primitive(Primitive::Int);
        // SAFETY: as in `try_log`.
        unsafe { env.call_static_method_unchecked(&class, method, kind, &[]) }
            .and_then(|value| value.i())
    });
    told.map_err(|error: jni::errors::Error| failure(&mut env, "level", &error))
}

fn log_class() -> Result<&'static GlobalRef, ApiError> {
    LOG.get()
        .ok_or_else(|| internal("the bridge's classes are not known yet"))
}
