//! Tests that get a second run: those that failed because something did not come in time, or because a port was taken.
//!
//! Everything else fails the gate at once, above all a message that was lost, doubled or out of order. A test that needed its second
//! run is named in the closing lines: it depends on how busy the machine is, which is a bug of the test.

/// What a test says that waited in vain, or that found its port taken.
const MAY_BE_THE_MACHINE: &[&str] = &[
    "did not happen",
    "did not come",
    "did not end",
    "in vain:",
    "no hint came within",
    "Address already in use",
];

/// What a test says that saw a broken promise. One of these is enough, whatever else it says.
const BROKEN_PROMISE: &[&str] = &[
    "lost",
    "invented",
    "twice",
    "doubled",
    "started again",
    "out of order",
    "given up",
    "violation",
    "missing",
];

/// More tests than this do not fail because of a moment's load.
pub(crate) const MOST: usize = 5;

/// A test that failed, and what it printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedTest {
    pub(crate) name: String,
    printed: String,
}

impl FailedTest {
    /// The failed tests that a test program names at its end. None if it crashed.
    pub(crate) fn all_of(printed: &str) -> Vec<Self> {
        let mut tests: Vec<Self> = Vec::new();
        let mut inside = false;
        for line in printed.lines() {
            let heading = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
            if let Some(name) = heading {
                tests.push(Self { name: name.to_owned(), printed: String::new() });
                inside = true;
            } else if line == "failures:" {
                inside = false;
            } else if line.starts_with("thread '") && line.contains(" panicked at ") {
                // It holds the names of the test and its file, which say nothing of why it failed.
            } else if let (true, Some(test)) = (inside, tests.last_mut()) {
                test.printed.push_str(line);
                test.printed.push('\n');
            }
        }
        tests
    }

    /// True if it may pass on a machine that is less busy.
    pub(crate) fn deserves_a_second_run(&self) -> bool {
        let says = |words: &[&str]| words.iter().any(|word| self.printed.contains(word));
        says(MAY_BE_THE_MACHINE) && !says(BROKEN_PROMISE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
running 3 tests
test a::waits ... FAILED
test b ... ok
test c ... FAILED

failures:

---- a::waits stdout ----

thread 'a::waits' panicked at tests/a.rs:5:9:
this did not happen: 3 handlers start

---- c stdout ----

thread 'c' panicked at tests/c.rs:5:9:
the end did not happen; 2 messages were lost

failures:
    a::waits
    c

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    #[test]
    fn failed_tests_are_read_with_what_they_printed() {
        let tests = FailedTest::all_of(PRINTED);
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["a::waits", "c"]);
        assert!(tests[0].printed.contains("3 handlers start") && !tests[0].printed.contains("lost"));
        assert!(!tests[1].printed.contains("test result"));
    }

    #[test]
    fn a_timeout_gets_a_second_run_and_a_broken_promise_does_not() {
        let tests = FailedTest::all_of(PRINTED);
        assert!(tests[0].deserves_a_second_run());
        assert!(!tests[1].deserves_a_second_run());
        let failed = |printed: &str| FailedTest { name: String::new(), printed: printed.to_owned() };
        assert!(failed("bind: Address already in use (os error 98)").deserves_a_second_run());
        assert!(!failed("assertion `left == right` failed").deserves_a_second_run());
        assert!(!failed("messages of one push were started twice; it did not end").deserves_a_second_run());
    }

    #[test]
    fn the_name_of_a_test_does_not_count_as_what_it_says() {
        let printed = "---- nothing_is_lost stdout ----\n\n\
            thread 'nothing_is_lost' (7) panicked at tests/lost.rs:5:9:\n3 starts did not happen\n";
        let tests = FailedTest::all_of(printed);
        assert!(tests[0].deserves_a_second_run(), "{tests:?}");
    }

    #[test]
    fn a_program_that_crashed_names_no_test() {
        assert_eq!(FailedTest::all_of("running 3 tests\ntest a ... "), []);
    }
}
