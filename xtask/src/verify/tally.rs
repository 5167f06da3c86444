//! What the standard test runner says at its end, counted.

/// What the standard test runner said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) ignored: usize,
    pub(super) failed: Vec<String>,
}

impl Tally {
    pub(super) fn of(output: &str) -> Self {
        let mut tally = Self::default();
        for line in output.lines() {
            if let Some(result) = line.strip_prefix("test result: ") {
                tally.passed += number_before(result, " passed");
                tally.ignored += number_before(result, " ignored");
            } else if let Some(test) = line
                .strip_prefix("test ")
                .and_then(|rest| rest.strip_suffix(" ... FAILED"))
            {
                tally.failed.push(test.to_owned());
            }
        }
        tally
    }
}

fn number_before(text: &str, word: &str) -> usize {
    let number = text
        .split_once(word)
        .and_then(|(before, _)| before.rsplit(' ').next());
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_and_failed_tests_are_counted() {
        let output = "test a ... ok\ntest b::c ... FAILED\ntest d ... ignored\n\
                      test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n\
                      test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured\n";
        let tally = Tally::of(output);
        assert_eq!(
            tally,
            Tally {
                passed: 21,
                ignored: 1,
                failed: vec!["b::c".to_owned()]
            }
        );
    }
}
