//! Lines of stdin in batches, in constant memory. A thread reads ahead of the pushes.

use std::collections::VecDeque;
use std::io::{self, Read};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::terminal::text;

/// The longest line in bytes: no engine takes a larger payload.
pub(super) const LONGEST: usize = 16 << 20;
/// The bytes of one read.
const CHUNK: usize = 256 << 10;
/// The number of chunks that may wait to be pushed.
const AHEAD: usize = 4;
/// The bytes of a batch of several lines.
const BATCH_BYTES: usize = 4 << 20;

/// True if stdin is the null device. The standard library opens the null device in place of a closed stdin.
pub(super) fn is_nothing() -> bool {
    use rustix::fs::{fstat, stat};
    matches!((fstat(io::stdin()), stat("/dev/null")), (Ok(a), Ok(b)) if a.st_rdev == b.st_rdev)
}

pub(super) fn unreadable(error: &io::Error) -> Failure {
    Failure::failed(format!("stdin cannot be read: {error}"))
}

/// Consecutive lines.
pub(super) struct Batch {
    /// The number of the first line, from 1.
    pub(super) first: u64,
    pub(super) lines: Vec<Bytes>,
    /// The error that ended the input, if it is not its regular end.
    pub(super) error: Option<Failure>,
}

/// The lines of stdin.
pub(super) struct Lines {
    chunks: mpsc::Receiver<Result<Bytes, Failure>>,
    waiting: VecDeque<Bytes>,
    error: Option<Failure>,
    next: u64,
    most: usize,
}

impl Lines {
    /// Reads stdin in batches of at most `most` lines. A batch does not wait for more lines than have
    /// arrived.
    pub(super) fn of_stdin(most: usize) -> Result<Self, Failure> {
        let (sender, chunks) = mpsc::channel(AHEAD);
        std::thread::Builder::new()
            .name("sawmill-stdin".to_owned())
            .spawn(move || read(io::stdin().lock(), &sender))
            .map_err(|error| Failure::failed(format!("no thread could be started to read stdin: {error}")))?;
        Ok(Self { chunks, waiting: VecDeque::new(), error: None, next: 1, most })
    }

    /// Returns the next batch; none at the end of stdin.
    pub(super) async fn next(&mut self) -> Option<Batch> {
        if self.waiting.is_empty() && self.error.is_none() {
            let chunk = self.chunks.recv().await?;
            self.take(chunk);
        }
        while !self.has_enough() && self.error.is_none() {
            let Ok(chunk) = self.chunks.try_recv() else { break };
            self.take(chunk);
        }
        let lines: Vec<Bytes> = self.waiting.drain(..self.waiting.len().min(self.most)).collect();
        let error = if self.waiting.is_empty() { self.error.take() } else { None };
        let first = self.next;
        self.next += lines.len() as u64;
        Some(Batch { first, lines, error })
    }

    fn has_enough(&self) -> bool {
        self.waiting.len() >= self.most || self.waiting.iter().map(Bytes::len).sum::<usize>() >= BATCH_BYTES
    }

    fn take(&mut self, chunk: Result<Bytes, Failure>) {
        match chunk {
            Ok(chunk) => self.waiting.extend(split(&chunk)),
            Err(failure) => self.error = Some(failure),
        }
    }
}

/// Splits a chunk into lines without their ends.
fn split(chunk: &Bytes) -> impl Iterator<Item = Bytes> {
    let whole = chunk.strip_suffix(b"\n").unwrap_or(chunk);
    whole.split(|byte| *byte == b'\n').map(|line| chunk.slice_ref(line))
}

/// Reads whole lines and sends them on as they arrive.
fn read(mut stdin: impl Read, sender: &mpsc::Sender<Result<Bytes, Failure>>) {
    let mut buffer = BytesMut::new();
    loop {
        let filled = buffer.len();
        buffer.resize(filled + CHUNK, 0);
        let answer = stdin.read(&mut buffer[filled..]);
        buffer.truncate(filled + *answer.as_ref().unwrap_or(&0));
        let count = match answer {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                // The receiver may be gone.
                let _ = sender.blocking_send(Err(unreadable(&error)));
                return;
            }
        };
        let ready = match buffer[filled..].iter().rposition(|byte| *byte == b'\n') {
            Some(end) => Ok(buffer.split_to(filled + end + 1).freeze()),
            None if count == 0 && buffer.is_empty() => return,
            None if count == 0 => Ok(buffer.split().freeze()),
            None if buffer.len() > LONGEST => Err(Failure::failed(format!(
                "it is longer than {}, the most a message may have",
                text::size(LONGEST as u64)
            ))),
            None => continue,
        };
        let failed = ready.is_err();
        if sender.blocking_send(ready).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns a few bytes at a time.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn lines(input: &[u8], at_a_time: usize) -> Vec<Bytes> {
        let (sender, mut chunks) = mpsc::channel(10_000);
        read(Drops(input, at_a_time), &sender);
        drop(sender);
        let mut lines = Vec::new();
        while let Some(chunk) = chunks.blocking_recv() {
            lines.extend(split(&chunk.unwrap()));
        }
        lines
    }

    #[test]
    fn lines_are_the_same_however_they_come() {
        for at_a_time in [1, 2, 3, 7, 1000] {
            assert_eq!(lines(b"one\n\nthree\r\nfour", at_a_time), ["one", "", "three\r", "four"]);
            assert_eq!(lines(b"one\n", at_a_time), ["one"]);
            assert_eq!(lines(b"\n", at_a_time), [""]);
            assert_eq!(lines(b"", at_a_time), [] as [Bytes; 0]);
        }
    }
}
