//! The panic fence, and the bridge from a [`Reply`] to a future that can cross.
//!
//! It must not know which call it guards.

use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use abi_stable::std_types::{RResult, RVec};
use async_ffi::{FfiFuture, FutureExt};

use crate::host::Reply;
use crate::types::{ApiError, ErrorCode};

/// Runs `f` and turns a panic into an error that names `what`.
pub fn fence<T>(what: &str, f: impl FnOnce() -> T) -> Result<T, ApiError> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| panicked(what, payload.as_ref()))
}

fn panicked(what: &str, payload: &(dyn std::any::Any + Send)) -> ApiError {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    ApiError::new(ErrorCode::Internal, format!("{what} panicked: {text}"))
}

/// A value that is dropped behind the fence: the other side may drop what holds it, and a destructor that panics there
/// would end the process.
pub(super) struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> Deref for Guarded<T> {
    type Target = T;
    #[expect(clippy::expect_used, reason = "emptied by `drop` only")]
    fn deref(&self) -> &T {
        self.0
            .as_ref()
            .expect("a guarded value lives until its drop")
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        let _ = fence("a destructor", move || drop(value));
    }
}

/// A future whose panics become errors.
struct Fenced<F> {
    what: &'static str,
    inner: Option<Pin<Box<F>>>,
}

impl<F> Drop for Fenced<F> {
    fn drop(&mut self) {
        let unfinished = self.inner.take();
        let _ = fence(self.what, move || drop(unfinished));
    }
}

impl<T, F: Future<Output = Result<T, ApiError>>> Future for Fenced<F> {
    type Output = Result<T, ApiError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let what = self.what;
        let Some(inner) = self.inner.as_mut() else {
            return Poll::Ready(Err(ApiError::new(
                ErrorCode::Internal,
                format!("{what} was polled after its end"),
            )));
        };
        match fence(what, || inner.as_mut().poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => {
                self.inner = None;
                Poll::Ready(result)
            }
            Err(error) => {
                // A future that panicked is never polled again; what it still holds is dropped behind the fence too.
                let broken = self.inner.take();
                let _ = fence(what, move || drop(broken));
                Poll::Ready(Err(error))
            }
        }
    }
}

/// Starts an operation behind the fence: `make` runs now, on the caller's thread, its reply is polled there too.
pub(super) fn bridge<T: Send + 'static, U: Send + 'static>(
    what: &'static str,
    make: impl FnOnce() -> Reply<T>,
    convert: impl FnOnce(T) -> U + Send + 'static,
) -> FfiFuture<RResult<U, ApiError>> {
    match fence(what, make) {
        Err(error) => ready(RResult::RErr(error)),
        Ok(Reply::Ready(Ok(value))) => ready(RResult::ROk(convert(value))),
        Ok(Reply::Ready(Err(error))) => ready(RResult::RErr(error)),
        Ok(Reply::Pending(future)) => async move {
            match (Fenced {
                what,
                inner: Some(Box::pin(future)),
            })
            .await
            {
                Ok(value) => RResult::ROk(convert(value)),
                Err(error) => RResult::RErr(error),
            }
        }
        .into_ffi(),
    }
}

fn ready<T: Send + 'static>(value: RResult<T, ApiError>) -> FfiFuture<RResult<T, ApiError>> {
    async move { value }.into_ffi()
}

pub(super) fn to_list<T>(results: Vec<Result<T, ApiError>>) -> RVec<RResult<T, ApiError>> {
    results.into_iter().map(RResult::from).collect()
}

pub(super) fn from_list<T>(results: RVec<RResult<T, ApiError>>) -> Vec<Result<T, ApiError>> {
    results.into_iter().map(RResult::into_result).collect()
}
