//! Our `tracing` events go to the broker's log: `tracing` itself does not cross a library's border.
//!
//! The subscriber is this library's own and installed once; the host behind it is the one that started the plugin
//! last. The level is asked when the plugin starts. It must not know what is logged.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use handler_api::{Host, Level};
use parking_lot::RwLock;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// With the number of the forwarding that it belongs to.
static HOST: RwLock<Option<(u64, Host)>> = RwLock::new(None);
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The most verbose level that the host keeps, as a number of [`Level`]; 0: none.
static LEVEL: AtomicU32 = AtomicU32::new(0);
static INSTALLED: OnceLock<()> = OnceLock::new();

/// Sends what is logged to a host until it is dropped, or another one is forwarded to. The host is not kept beyond that:
/// what it owns (files, their locks) must not outlive its stop.
#[derive(Debug)]
#[must_use]
pub(crate) struct Forwarding(u64);

impl Drop for Forwarding {
    fn drop(&mut self) {
        let host = {
            let mut current = HOST.write();
            if current
                .as_ref()
                .is_some_and(|(number, _)| *number == self.0)
            {
                current.take()
            } else {
                None
            }
        };
        // Not under the lock: what a host drops may log.
        drop(host);
    }
}

/// Sends what is logged from now on to this host.
pub(crate) fn forward_to(host: &Host) -> Forwarding {
    let levels = [
        Level::Error,
        Level::Warn,
        Level::Info,
        Level::Debug,
        Level::Trace,
    ];
    let most = levels
        .into_iter()
        .take_while(|level| host.log_enabled(*level))
        .last();
    LEVEL.store(most.map_or(0, |level| level as u32), Ordering::Relaxed);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let before = HOST.write().replace((number, host.clone()));
    drop(before);
    INSTALLED.get_or_init(|| {
        // Where the plugin is linked into a program with a subscriber of its own (a test), that one stays.
        let _ = tracing::subscriber::set_global_default(Registry::default().with(Forward));
    });
    tracing::callsite::rebuild_interest_cache();
    Forwarding(number)
}

fn level_of(metadata: &Metadata<'_>) -> Level {
    match *metadata.level() {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::INFO => Level::Info,
        tracing::Level::DEBUG => Level::Debug,
        tracing::Level::TRACE => Level::Trace,
    }
}

struct Forward;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Forward {
    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        level_of(metadata) as u32 <= LEVEL.load(Ordering::Relaxed)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut line = fields.message;
        line.push_str(&fields.rest);
        for span in context.event_scope(event).into_iter().flatten() {
            let _ = write!(line, " | {}", span.name());
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.push_str(&fields.rest);
            }
        }
        let host = HOST.read().clone();
        if let Some((_, host)) = host {
            host.log(level_of(event.metadata()), event.metadata().target(), &line);
        }
    }
}

/// The message, and the other fields as ` key=value`.
#[derive(Default)]
struct Fields {
    message: String,
    rest: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.rest, " {}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            let _ = write!(self.rest, " {}={value:?}", field.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_let_go_with_its_forwarding_and_not_with_an_earlier_one() {
        let services = || host_shim::sim::SimHost::new(1).services();
        let (first, second) = (services(), services());
        let earlier = forward_to(&Host::of(std::sync::Arc::clone(&first)));
        let later = forward_to(&Host::of(std::sync::Arc::clone(&second)));
        assert_eq!(std::sync::Arc::strong_count(&first), 1);
        drop(earlier);
        assert!(std::sync::Arc::strong_count(&second) > 1, "the later stays");
        drop(later);
        assert_eq!(std::sync::Arc::strong_count(&second), 1);
    }

    #[test]
    fn fields_follow_the_message_and_enclosing_spans_follow_the_fields() {
        #[derive(Clone, Default)]
        struct Lines(std::sync::Arc<parking_lot::Mutex<Vec<String>>>);
        impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
            fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
                Forward.on_new_span(attributes, id, context);
            }
            fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
                let mut fields = Fields::default();
                event.record(&mut fields);
                let spans: String = context
                    .event_scope(event)
                    .into_iter()
                    .flatten()
                    .filter_map(|span| span.extensions().get::<Fields>().map(|f| f.rest.clone()))
                    .collect();
                self.0
                    .lock()
                    .push(format!("{}{}|{spans}", fields.message, fields.rest));
            }
        }
        let lines = Lines::default();
        tracing::subscriber::with_default(Registry::default().with(lines.clone()), || {
            let _span = tracing::info_span!("connection", peer = "p").entered();
            tracing::info!(topic = "t", offset = 3, "moved");
        });
        assert_eq!(*lines.0.lock(), ["moved topic=\"t\" offset=3| peer=\"p\""]);
    }
}
