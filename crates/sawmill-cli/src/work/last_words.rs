//! What a command says on stderr: passed on as it comes, in whole lines, and its end kept for the failure it may explain.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use sawmill::env::Env;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::live::{self, Out};

/// How much is kept.
const KEPT: usize = 4096;
/// How long a line may get before it is passed on in parts.
const LONGEST_LINE: usize = 8192;

#[derive(Default)]
pub(crate) struct LastWords {
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    kept: VecDeque<u8>,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
}

impl LastWords {
    /// Listens to its end. Whoever reads our own stderr may take his time: only this command waits for that.
    pub(crate) async fn follow(&self, mut stderr: impl AsyncRead + Unpin, env: &Env) {
        let mut chunk = vec![0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            let whole = self.heard().push(&chunk[..count]);
            if !whole.is_empty() {
                live::above_in_turn(Out::Stderr, whole, env).await;
            }
        }
    }

    /// The last that was said.
    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> = self.heard().kept.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// Forgets what was said so far.
    pub(crate) fn clear(&self) {
        self.heard().kept.clear();
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Heard {
    /// Keeps this, and gives what is to be passed on now.
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

impl Drop for Heard {
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
        let words = LastWords::default();
        let push = |chunk: &[u8]| words.heard().push(chunk);
        assert_eq!(push(b"one\ntw"), b"one\n");
        assert_eq!(push(b"o"), b"");
        assert_eq!(push(b"\n"), b"two\n");
        assert_eq!(words.text(), "one\ntwo");
        push(&b"x".repeat(KEPT));
        assert_eq!(words.text(), "x".repeat(KEPT));
        assert_eq!(push(&b"y".repeat(LONGEST_LINE)).len(), KEPT + LONGEST_LINE);
        words.clear();
        assert_eq!(words.text(), "");
    }
}
