//! Runs the facts one after the other and writes what became of each: `ok`, `failed` with the reason, or `skipped` for
//! one that needs what the host does not claim to offer.

use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use handler_api::Level;
use handler_api::contract::{FACTS, needs};

use crate::subject::ThisHost;

/// The last panic of any thread, with its place.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Runs the facts whose names hold one of the words, all if there are none. The last line is `end`.
pub(crate) fn run(subject: &ThisHost, results: &Path, chosen: &[String]) {
    if let Err(error) = try_run(subject, results, chosen) {
        let text = format!("{}: {error}", results.display());
        subject.host.log(Level::Error, module_path!(), &text);
    }
}

fn try_run(subject: &ThisHost, results: &Path, chosen: &[String]) -> std::io::Result<()> {
    std::panic::set_hook(Box::new(|panic| {
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
    let mut file = File::create(results)?;
    for (name, fact) in FACTS {
        if !chosen.is_empty() && !chosen.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let outcome = if !subject.host.has(needs(name)) {
            "skipped".to_owned()
        } else if catch_unwind(AssertUnwindSafe(|| fact(subject))).is_ok() {
            "ok".to_owned()
        } else {
            let panic = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
            format!("failed: {}", panic.replace('\n', " "))
        };
        writeln!(file, "{name} {outcome}")?;
        file.flush()?;
    }
    writeln!(file, "end")
}
