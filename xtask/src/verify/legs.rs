//! The runs inside a real Pulsar: which release, which Java, and how much is tested there.

use super::programs::{INTEROP, PULSAR, Program};

/// One run inside a real Pulsar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leg {
    /// Its name in reports.
    pub(super) name: &'static str,
    /// The release, as `KOP_TEST_HOST` has it.
    pub(super) host: &'static str,
    /// The Java, as `KOP_TEST_JDK` has it.
    pub(super) jdk: &'static str,
    /// What is settled there is tested in every run; the rest gets the smoke test. With `--long`, all get every test.
    full: bool,
}

/// All runs, in their order.
pub(super) const LEGS: [Leg; 5] = [
    Leg {
        name: "pulsar-4.0.0",
        host: "pulsar-4.0.0",
        jdk: "17",
        full: true,
    },
    Leg {
        name: "pulsar-3.3.2",
        host: "pulsar-3.3.2",
        jdk: "17",
        full: false,
    },
    Leg {
        name: "pulsar-2.10.0",
        host: "pulsar-2.10.0",
        jdk: "17",
        full: false,
    },
    Leg {
        name: "pulsar-4.0.0 on Java 25",
        host: "pulsar-4.0.0",
        jdk: "25",
        full: false,
    },
    Leg {
        name: "pulsar-3.3.2 on Java 25",
        host: "pulsar-3.3.2",
        jdk: "25",
        full: false,
    },
];

/// Programs about our own host, or about no broker at all.
const NOT_INSIDE: [&str; 4] = ["descriptions", "damage", "full_disk", "shipped_config"];
/// The program that shows whether anything works at all.
const SMOKE: &str = "pulsar_smoke";
/// The programs that have passed as a whole inside the newest release. The others, which find what is still to be done
/// there, run with `--long`; one moves here once it passes.
const SETTLED: [&str; 5] = [
    "pulsar_operator",
    "pulsar_admin",
    "pulsar_topics",
    "pulsar_host",
    "librdkafka",
];

impl Leg {
    /// Whether the leg is run at all.
    pub(super) fn is_due(self, long: bool) -> bool {
        // The smoke test, all that the others get, kills a standalone Pulsar, which then now and then loses sight of its
        // own bookie: its registration of before is taken away and made again without end, or is not found at all.
        // Nothing can be read there, by anyone; until the test can do without, they are for the long run.
        long || self.full
    }

    /// Whether the leg runs this program.
    pub(super) fn runs(self, program: &Program, long: bool) -> bool {
        let inside = program.step == PULSAR
            || program.step == INTEROP
                && !NOT_INSIDE.iter().any(|name| program.name.ends_with(name));
        let due: &[&str] = if self.full { &SETTLED } else { &[SMOKE] };
        inside && (long || due.iter().any(|name| program.name.ends_with(name)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn program(step: &'static str, name: &str) -> Program {
        Program {
            step,
            name: name.to_owned(),
            executable: PathBuf::new(),
            package: PathBuf::new(),
        }
    }

    #[test]
    fn the_newest_release_gets_what_is_settled_and_the_others_a_smoke_test_unless_it_is_a_long_run()
    {
        let settled = program(INTEROP, "kop-tests librdkafka");
        let doris = program(INTEROP, "kop-tests doris");
        let smoke = program(PULSAR, "kop-tests pulsar_smoke");
        let [newest, older, ..] = LEGS;
        for long in [false, true] {
            assert!(newest.runs(&settled, long));
            assert_eq!(newest.runs(&smoke, long), long);
            assert!(older.runs(&smoke, long));
            assert_eq!(newest.runs(&doris, long), long);
            assert_eq!(older.runs(&settled, long), long);
        }
    }

    #[test]
    fn what_is_about_our_own_host_is_not_run_inside_pulsar() {
        let newest = LEGS[0];
        assert!(!newest.runs(&program(INTEROP, "kop-tests full_disk"), true));
        assert!(!newest.runs(&program("rooms", "kop-handler rooms"), true));
    }

    #[test]
    fn java_25_is_tried_with_both_releases_in_a_long_run() {
        let on_25 = LEGS.iter().filter(|leg| leg.jdk == "25");
        let due = |long: bool| on_25.clone().filter(move |leg| leg.is_due(long)).count();
        assert_eq!((due(false), due(true)), (0, 2));
    }
}
