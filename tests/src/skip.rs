//! Skipping a test for a named reason, and what `--require-all` makes of it.
//!
//! The standard test runner knows no skip at run time, so a skipped test returns early after writing one line to the
//! file named by `KOP_TEST_SKIPS`; `cargo verify` reads that file and takes those tests out of the passed ones.

use std::io::Write;

/// Set to `1` to make every skip a failure.
pub const REQUIRE_ALL: &str = "KOP_REQUIRE_ALL";
/// Names the file to which skips are appended, one `test: reason` line each.
pub const SKIPS_FILE: &str = "KOP_TEST_SKIPS";

/// Whether an environment variable is set to something other than `0` or nothing.
pub fn flag(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.is_empty() && value != "0")
}

/// Records that the running test was skipped for `reason`; panics if everything is required.
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(
        !flag(REQUIRE_ALL),
        "everything is required, but {test} cannot run: {reason}"
    );
    println!("SKIPPED {test}: {reason}");
    note(&test, reason);
}

/// Appends a line to the file of skips, if there is one.
fn note(test: &str, reason: &str) {
    let Ok(path) = std::env::var(SKIPS_FILE) else {
        return;
    };
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    if let Ok(mut file) = file {
        let _ = writeln!(file, "{test}: {reason}");
    }
}

/// Records that the running test does not apply to the broker that the tests run against: never a failure, for no
/// machine could run it.
pub fn inapplicable(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    println!("SKIPPED {test}: {reason}");
    note(&test, reason);
}

/// Unwraps a `Result` whose error is the reason why a test cannot run here, or skips the test.
#[macro_export]
macro_rules! or_skip {
    ($available:expr) => {
        match $available {
            Ok(value) => value,
            Err(reason) => {
                $crate::skip::skip(&reason.to_string());
                return;
            }
        }
    };
}
