//! The broker's log: lines on stderr, for the host and for plugins. It must not know what is logged.

use std::backtrace::BacktraceStatus;
use std::io::IsTerminal;

use handler_api::Level;
use tracing_subscriber::EnvFilter;

/// Sends the log of this process to stderr: what `RUST_LOG` says, or else `directives`. Later calls change nothing.
pub fn to_stderr(directives: &str) {
    let filter = EnvFilter::try_from_default_env()
        .or_else(|_| EnvFilter::try_new(directives))
        .unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .finish();
    // An embedder may have set up its own.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
}

/// A panic of the host is contained where it happens, but somebody must read of it. (Plugins have hooks of their own.)
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let backtrace = std::backtrace::Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!("thread {name}: {panic}\n{backtrace}"),
        _ => tracing::error!("thread {name}: {panic}"),
    }
}

/// Whether a plugin's line of this level would be kept: for [`handler_api::HostServices::log_enabled`]. Plugins log
/// under the target `plugin`, so `RUST_LOG=plugin=debug` is for all of them.
#[must_use]
pub fn plugin_enabled(level: Level) -> bool {
    match level {
        Level::Error => tracing::enabled!(target: "plugin", tracing::Level::ERROR),
        Level::Warn => tracing::enabled!(target: "plugin", tracing::Level::WARN),
        Level::Info => tracing::enabled!(target: "plugin", tracing::Level::INFO),
        Level::Debug => tracing::enabled!(target: "plugin", tracing::Level::DEBUG),
        Level::Trace => tracing::enabled!(target: "plugin", tracing::Level::TRACE),
    }
}

/// Writes a plugin's line: for [`handler_api::HostServices::log`].
pub fn plugin_line(level: Level, module: &str, message: &str) {
    match level {
        Level::Error => tracing::error!(target: "plugin", plugin = module, "{message}"),
        Level::Warn => tracing::warn!(target: "plugin", plugin = module, "{message}"),
        Level::Info => tracing::info!(target: "plugin", plugin = module, "{message}"),
        Level::Debug => tracing::debug!(target: "plugin", plugin = module, "{message}"),
        Level::Trace => tracing::trace!(target: "plugin", plugin = module, "{message}"),
    }
}
