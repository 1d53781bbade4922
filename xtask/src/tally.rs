//! Counts the tests of the gate, and decides whether a run of tests has passed.

use std::fmt;
use std::ops::AddAssign;

use crate::run::Counts;

/// The numbers of the closing line.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Tests that skipped themselves, tests marked `ignore`, and steps that could not run here.
    pub(crate) skipped: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, counts: Counts, skips: usize) {
        let skips = skips as u64;
        // A test that skips itself returns normally, so Cargo reports it as passed.
        self.passed += counts.passed.saturating_sub(skips);
        self.failed += counts.failed;
        self.skipped += counts.ignored + skips;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Decides whether a run of tests has passed; the error says why not. `broken` describes the programs that
/// failed.
pub(crate) fn verdict(
    broken: Option<String>,
    counts: Counts,
    skips: usize,
    strict: bool,
) -> Result<(), String> {
    if let Some(broken) = broken {
        return Err(format!("{} tests failed: {broken}", counts.failed));
    }
    if counts.failed > 0 {
        return Err(format!("{} tests failed, and no test program says which", counts.failed));
    }
    if counts.results == 0 {
        return Err("no test program ran".to_owned());
    }
    let skipped = skips as u64 + counts.ignored;
    if strict && skipped > 0 {
        return Err(format!("{skipped} skipped, and with CI=true nothing may be skipped"));
    }
    Ok(())
}

/// Returns one reason per non-empty line, without its `SKIPPED:` prefix.
pub(crate) fn skip_lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| line.strip_prefix("SKIPPED:").unwrap_or(line).trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_one_line_each() {
        assert_eq!(skip_lines(""), Vec::<String>::new());
        assert_eq!(
            skip_lines("SKIPPED: no server\n\nno such engine\n"),
            ["no server".to_owned(), "no such engine".to_owned()]
        );
    }

    #[test]
    fn a_skip_is_fine_on_a_laptop_and_a_failure_in_ci() {
        let counts = Counts { passed: 3, results: 1, ..Counts::default() };
        assert_eq!(verdict(None, counts, 1, false), Ok(()));
        assert_eq!(verdict(None, counts, 0, true), Ok(()));
        assert!(verdict(None, counts, 1, true).unwrap_err().contains("CI=true"));
        let ignored = Counts { ignored: 1, ..counts };
        assert!(verdict(None, ignored, 0, true).unwrap_err().contains("1 skipped"));
    }

    #[test]
    fn a_bad_exit_and_an_empty_run_are_failures() {
        let counts = Counts { passed: 3, failed: 1, results: 1, ..Counts::default() };
        assert!(
            verdict(Some("exit status: 101".to_owned()), counts, 0, false)
                .unwrap_err()
                .contains("1 tests failed")
        );
        assert!(verdict(None, counts, 0, false).unwrap_err().contains("1 tests failed"));
        assert!(verdict(None, Counts::default(), 0, false).unwrap_err().contains("no test program"));
    }

    #[test]
    fn the_closing_line_counts_each_test_once() {
        let mut tally = Tally::default();
        tally.add(Counts { passed: 10, failed: 0, ignored: 2, results: 3 }, 1);
        tally.add(Counts { passed: 5, failed: 1, ignored: 0, results: 1 }, 0);
        assert_eq!(tally.to_string(), "14 passed, 1 failed, 3 skipped");
    }
}
