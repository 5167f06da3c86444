//! The broker's log: lines of the plugin and of the bridge itself go to Java's.
//!
//! It must not know what is logged.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicI32, Ordering};

use handler_api::Level;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::jvm;

/// The most detailed level that the broker's log keeps; asked anew every second, since it may be changed there.
static KEPT: AtomicI32 = AtomicI32::new(Level::Info as i32);

/// Sends this library's own lines and panics to the broker's log.
pub(crate) fn install() {
    refresh();
    let subscriber = tracing_subscriber::registry().with(ToBroker);
    // Set already if an earlier broker of this process has failed to start.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let backtrace = std::backtrace::Backtrace::capture();
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("unnamed");
            line(
                Level::Error,
                "kop_pulsar",
                &format!("thread {name}: {panic}\n{backtrace}"),
            );
        }));
    }
}

/// Asks anew which lines are kept.
pub(crate) fn refresh() {
    if let Ok(level) = jvm::log_level() {
        KEPT.store(level, Ordering::Relaxed);
    }
}

/// Whether a line of this level would be kept.
pub(crate) fn enabled(level: Level) -> bool {
    level as i32 <= KEPT.load(Ordering::Relaxed)
}

/// Writes a line.
pub(crate) fn line(level: Level, target: &str, message: &str) {
    if enabled(level) {
        jvm::log(level as i32, target, message);
    }
}

/// Our own lines.
struct ToBroker;

fn level_of(level: tracing::Level) -> Level {
    match level {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::INFO => Level::Info,
        tracing::Level::DEBUG => Level::Debug,
        tracing::Level::TRACE => Level::Trace,
    }
}

/// A line's text: its message, then its fields.
#[derive(Default)]
struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl<S: tracing::Subscriber> Layer<S> for ToBroker {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        enabled(level_of(*metadata.level())) && !is_ours_to_skip(metadata.target())
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        line(level_of(*metadata.level()), metadata.target(), &text.0);
    }
}

/// Crates that log each of their calls, which would log again.
fn is_ours_to_skip(target: &str) -> bool {
    target.starts_with("jni")
}
