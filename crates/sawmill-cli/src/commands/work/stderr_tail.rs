//! The stderr of a command: passed on in whole lines, with its end kept for a failure that it may explain.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use sawmill::engine::runtime::Env;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::terminal::live::{self, Out};

/// The bytes that are kept.
const KEPT: usize = 4096;
/// The length at which an unfinished line is passed on in parts.
const LONGEST_LINE: usize = 8192;

#[derive(Default)]
pub(crate) struct StderrTail {
    buffer: Mutex<Buffer>,
}

#[derive(Default)]
struct Buffer {
    kept: VecDeque<u8>,
    /// The beginning of an unfinished line.
    line: Vec<u8>,
}

impl StderrTail {
    /// Reads stderr to its end. If our own stderr is read slowly, only this command waits.
    pub(crate) async fn follow(&self, mut stderr: impl AsyncRead + Unpin, env: &Env) {
        let mut chunk = vec![0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            let whole = self.buffer().push(&chunk[..count]);
            if !whole.is_empty() {
                live::above_in_turn(Out::Stderr, whole, env).await;
            }
        }
    }

    /// Returns the end of what was written.
    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> = self.buffer().kept.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// Drops what was kept so far.
    pub(crate) fn clear(&self) {
        self.buffer().kept.clear();
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Buffer {
    /// Keeps the chunk, and returns the whole lines to pass on now.
    fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        self.kept.extend(chunk);
        let surplus = self.kept.len().saturating_sub(KEPT);
        self.kept.drain(..surplus);
        self.line.extend_from_slice(chunk);
        let end = match self.line.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if self.line.len() >= LONGEST_LINE => self.line.len(),
            None => 0,
        };
        let rest = self.line.split_off(end);
        std::mem::replace(&mut self.line, rest)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.line.push(b'\n');
            live::above(&self.line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_passed_on_and_the_end_is_kept() {
        let tail = StderrTail::default();
        let push = |chunk: &[u8]| tail.buffer().push(chunk);
        assert_eq!(push(b"one\ntw"), b"one\n");
        assert_eq!(push(b"o"), b"");
        assert_eq!(push(b"\n"), b"two\n");
        assert_eq!(tail.text(), "one\ntwo");
        push(&b"x".repeat(KEPT));
        assert_eq!(tail.text(), "x".repeat(KEPT));
        assert_eq!(push(&b"y".repeat(LONGEST_LINE)).len(), KEPT + LONGEST_LINE);
        tail.clear();
        assert_eq!(tail.text(), "");
    }
}
