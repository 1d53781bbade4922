//! Decides which failed tests get a second run: those that timed out, and those that found a port taken.
//!
//! Any other failure fails the gate at once, above all a message that was lost, doubled or out of order. A
//! test that passes only in its second run is listed in the closing lines: it depends on the load of the
//! machine, which is a bug of the test.

/// The prefix of every panic that a timeout in a test causes. A wait that sees a broken promise panics
/// without this prefix, and its test is not run again.
const TIMEOUT_PREFIX: &str = "test timed out: ";
/// The system's error, in the first line of a panic.
const PORT_TAKEN: &str = "Address already in use";

/// If more tests than this qualify, none gets a second run: a busy machine does not explain that many
/// failures.
pub(crate) const MOST: usize = 5;

/// A failed test, and the first line of each of its panics, in all threads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedTest {
    pub(crate) name: String,
    panics: Vec<String>,
}

impl FailedTest {
    /// Reads the failed tests that a test program lists at its end. Empty if it crashed.
    pub(crate) fn all_of(printed: &str) -> Vec<Self> {
        let mut tests: Vec<Self> = Vec::new();
        let mut inside = false;
        let mut lines = printed.lines();
        while let Some(line) = lines.next() {
            let heading = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
            if let Some(name) = heading {
                tests.push(Self { name: name.to_owned(), panics: Vec::new() });
                inside = true;
            } else if line == "failures:" {
                inside = false;
            } else if let (true, true, Some(test)) = (inside, is_panic(line), tests.last_mut()) {
                test.panics.push(lines.next().unwrap_or_default().to_owned());
            }
        }
        tests
    }

    /// True if it may pass on a machine that is less busy.
    pub(crate) fn deserves_a_second_run(&self) -> bool {
        let is_retryable = |panic: &String| panic.starts_with(TIMEOUT_PREFIX) || panic.contains(PORT_TAKEN);
        !self.panics.is_empty() && self.panics.iter().all(is_retryable)
    }
}

/// True for the line before the message of a panic. It may begin with output that had no end of line.
fn is_panic(line: &str) -> bool {
    line.split_once("thread '").is_some_and(|(_, rest)| rest.contains("' ") && rest.contains(" panicked at "))
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
test timed out: 3 handlers start

---- c stdout ----

thread 'c' panicked at tests/c.rs:5:9:
lost: 2 of 7 messages

failures:
    a::waits
    c

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    fn failed(panics: &[&str]) -> FailedTest {
        let panics = panics.iter().map(|panic| (*panic).to_owned()).collect();
        FailedTest { name: String::new(), panics }
    }

    #[test]
    fn failed_tests_are_read_with_their_panics() {
        let tests = FailedTest::all_of(PRINTED);
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["a::waits", "c"]);
        assert_eq!(tests[0].panics, ["test timed out: 3 handlers start"]);
        assert_eq!(tests[1].panics, ["lost: 2 of 7 messages"]);
    }

    #[test]
    fn a_timeout_and_a_taken_port_get_a_second_run_and_nothing_else_does() {
        let tests = FailedTest::all_of(PRINTED);
        assert!(tests[0].deserves_a_second_run());
        assert!(!tests[1].deserves_a_second_run());
        assert!(failed(&["bind: Address already in use (os error 98)"]).deserves_a_second_run());
        assert!(!failed(&["assertion `left == right` failed"]).deserves_a_second_run());
        assert!(!failed(&["messages of one push were started twice"]).deserves_a_second_run());
        assert!(!failed(&["2 are lost; test timed out: all is done"]).deserves_a_second_run());
        assert!(!failed(&[]).deserves_a_second_run(), "an error that a test returns is no wait");
    }

    #[test]
    fn the_name_of_a_wait_or_of_a_test_is_no_broken_promise() {
        for wait in ["it is given up", "the lost are known", "a message that is missing is named"] {
            assert!(failed(&[&format!("{TIMEOUT_PREFIX}{wait}")]).deserves_a_second_run(), "{wait}");
        }
        let printed = "---- nothing_is_lost stdout ----\n\n\
            1 started twice: thread 'nothing_is_lost' (7) panicked at tests/lost.rs:5:9:\n\
            test timed out: 3 starts\nleft: 1 lost\n";
        let tests = FailedTest::all_of(printed);
        assert!(tests[0].deserves_a_second_run(), "{tests:?}");
    }

    #[test]
    fn one_panic_that_is_no_wait_is_enough() {
        let printed = "---- a stdout ----\n\n\
            thread 'tokio-rt-worker' (8) panicked at tests/a.rs:3:9:\n7 was started twice\n\n\
            thread 'a' (7) panicked at tests/a.rs:5:9:\ntest timed out: 3 starts\n";
        let tests = FailedTest::all_of(printed);
        assert_eq!(tests[0].panics.len(), 2);
        assert!(!tests[0].deserves_a_second_run());
        assert!(!failed(&["1 is lost", "Address already in use"]).deserves_a_second_run());
    }

    #[test]
    fn a_program_that_crashed_names_no_test() {
        assert_eq!(FailedTest::all_of("running 3 tests\ntest a ... "), []);
    }
}
