//! The Java virtual machine: the only place that speaks JNI, in both directions.
//!
//! `upcalls` are the calls to Java, `exports` the calls from it, `memory` the two places where bytes lie in the other
//! side's memory. Threads are attached once, as daemons, and stay attached.

mod exports;
mod memory;
mod upcalls;

use std::sync::OnceLock;

use handler_api::{ApiError, ErrorCode};
use jni::objects::{JObjectArray, JString};
use jni::{JNIEnv, JavaVM};

pub(crate) use memory::Fill;
pub(crate) use upcalls::{BatchRef, ControlRef, Layout, PartitionRef, log, log_level};

static MACHINE: OnceLock<JavaVM> = OnceLock::new();

/// The environment of this thread, which is attached if it is not.
fn env() -> Result<JNIEnv<'static>, ApiError> {
    let machine = MACHINE
        .get()
        .ok_or_else(|| internal("the Java machine is not known yet"))?;
    machine
        .get_env()
        .or_else(|_| machine.attach_current_thread_as_daemon())
        .map_err(|error| internal(&format!("this thread cannot call Java: {error}")))
}

fn internal(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Internal, message)
}

/// What a failed JNI call means; a pending exception is taken away and told.
fn failure(env: &mut JNIEnv<'_>, what: &str, error: &jni::errors::Error) -> ApiError {
    let told = match env.exception_occurred() {
        Ok(thrown) if !thrown.is_null() => {
            // An exception must not be pending while the next call is made.
            let _ = env.exception_clear();
            let text = env
                .call_method(&thrown, "toString", "()Ljava/lang/String;", &[])
                .and_then(|text| text.l())
                .and_then(|text| text_of(env, &JString::from(text)));
            let _ = env.exception_clear();
            let _ = env.delete_local_ref(thrown);
            text.ok()
        }
        _ => None,
    };
    internal(&format!(
        "{what}: {}",
        told.unwrap_or_else(|| error.to_string())
    ))
}

/// A Java string as text. Java's own encoding of it may hold what is no UTF-8; that is replaced.
fn text_of(env: &mut JNIEnv<'_>, text: &JString<'_>) -> jni::errors::Result<String> {
    env.get_string(text).map(String::from)
}

/// A Java string that may be null.
fn optional_text(env: &mut JNIEnv<'_>, text: &JString<'_>) -> Option<String> {
    if text.is_null() {
        return None;
    }
    text_of(env, text).ok()
}

/// The strings of an array.
fn texts_of(env: &mut JNIEnv<'_>, array: &JObjectArray<'_>) -> jni::errors::Result<Vec<String>> {
    let length = env.get_array_length(array)?;
    let mut texts = Vec::new();
    for at in 0..length {
        let text = JString::from(env.get_object_array_element(array, at)?);
        texts.push(text_of(env, &text)?);
        env.delete_local_ref(text)?;
    }
    Ok(texts)
}
