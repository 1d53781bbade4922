//! The terminal: log lines, and the live line below them that shows progress.
//!
//! Stderr and its last line belong to the whole process, so one thread does all the writing: it clears the
//! live line, writes, and draws the line again. If the reader of the terminal is slow, only that thread
//! waits, never the workers, whose heartbeats must go on.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use sawmill::engine::runtime::{Env, Moment};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The shortest time between two updates of the live line. More would not be seen, and slow connections could
/// not carry it.
const SHORTEST: Duration = Duration::from_millis(100);
/// The assumed width of a terminal that does not report one.
const USUAL_WIDTH: usize = 80;
/// Moves to the first column and clears the line.
const CLEAR: &str = "\r\x1b[2K";
/// Limits of what waits to be written, in pieces of text and in bytes of lines. More is left out.
const MOST_WAITING: usize = 4096;
const MOST_BYTES: usize = 4 << 20;
/// How long a flush waits if nobody reads.
const PATIENCE: Duration = Duration::from_secs(2);

/// The output to write to. Both may be the same terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Out {
    Stdout,
    Stderr,
}

enum Request {
    /// Whole lines to write above the live line.
    Lines(Out, Vec<u8>),
    /// The new live line.
    Live(String),
    /// A reply is due once everything before this is written.
    Flush(SyncSender<()>),
}

/// The sending side of the writer thread.
struct Writer {
    requests: SyncSender<Request>,
    queue: Arc<Queue>,
}

/// The state that both sides share.
#[derive(Default)]
struct Queue {
    /// The bytes of lines that wait to be written.
    bytes: AtomicUsize,
    /// How many pieces were left out since the last one that was written.
    missing: AtomicU64,
}

static WRITER: OnceLock<Writer> = OnceLock::new();

fn writer() -> &'static Writer {
    WRITER.get_or_init(|| {
        let (writer, taken) = Writer::new();
        let queue = writer.queue.clone();
        // If the thread cannot be started, the channel is disconnected, and senders write lines themselves.
        let _ = thread::Builder::new()
            .name("terminal".to_owned())
            .spawn(move || serve(&taken, &queue, &mut io::stdout(), &mut io::stderr()));
        writer
    })
}

impl Writer {
    fn new() -> (Self, Receiver<Request>) {
        let (requests, taken) = sync_channel(MOST_WAITING);
        (Self { requests, queue: Arc::default() }, taken)
    }

    /// Queues lines. Returns them if too much waits already. A piece above the limit is accepted if nothing
    /// else waits.
    fn send(&self, out: Out, lines: Vec<u8>) -> Result<(), Vec<u8>> {
        let (size, bytes) = (lines.len(), &self.queue.bytes);
        let with_it = |waiting: usize| {
            (waiting == 0 || waiting.saturating_add(size) <= MOST_BYTES).then(|| waiting.saturating_add(size))
        };
        if bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it).is_err() {
            return Err(lines);
        }
        let (request, gone) = match self.requests.try_send(Request::Lines(out, lines)) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(request)) => (request, false),
            Err(TrySendError::Disconnected(request)) => (request, true),
        };
        bytes.fetch_sub(size, Ordering::Relaxed);
        match request {
            Request::Lines(out, lines) if gone => write(out, &lines, &mut io::stdout(), &mut io::stderr()),
            Request::Lines(_, lines) => return Err(lines),
            Request::Live(_) | Request::Flush(_) => {}
        }
        Ok(())
    }
}

/// Writes what is requested. Errors of an output are ignored: it may be closed.
fn serve(requests: &Receiver<Request>, queue: &Queue, stdout: &mut impl Write, stderr: &mut impl Write) {
    let mut shown = String::new();
    for request in requests {
        match request {
            Request::Lines(out, lines) => {
                if !shown.is_empty() {
                    let _ = stderr.write_all(CLEAR.as_bytes());
                }
                let left_out = queue.missing.swap(0, Ordering::Relaxed);
                if left_out > 0 {
                    let note = format!("({left_out} lines are missing here: nobody read them in time)\n");
                    write(out, note.as_bytes(), stdout, stderr);
                }
                write(out, &lines, stdout, stderr);
                let _ = stderr.write_all(shown.as_bytes());
                queue.bytes.fetch_sub(lines.len(), Ordering::Relaxed);
            }
            Request::Live(text) if text == shown => {}
            Request::Live(text) => {
                let _ = stderr.write_all(format!("{CLEAR}{text}").as_bytes());
                shown = text;
            }
            Request::Flush(said) => {
                let _ = said.send(());
            }
        }
    }
}

fn write(out: Out, lines: &[u8], stdout: &mut impl Write, stderr: &mut impl Write) {
    let _ = match out {
        Out::Stdout => stdout.write_all(lines).and_then(|()| stdout.flush()),
        Out::Stderr => stderr.write_all(lines),
    };
}

/// Queues whole lines for stderr, above the live line. If too much waits, they are left out, and a note in
/// their place says so.
pub(crate) fn above(lines: &[u8]) {
    let writer = writer();
    if writer.send(Out::Stderr, lines.to_vec()).is_err() {
        writer.queue.missing.fetch_add(1, Ordering::Relaxed);
    }
}

/// Queues whole lines, and waits as long as too much is queued.
pub(crate) async fn above_in_turn(out: Out, lines: Vec<u8>, env: &Env) {
    let mut lines = lines;
    while let Err(again) = writer().send(out, lines) {
        lines = again;
        env.sleep(SHORTEST).await;
    }
}

/// Waits until everything queued is written, at most for `PATIENCE`.
pub(crate) fn flush() {
    let Some(writer) = WRITER.get() else { return };
    let (say, said) = sync_channel(1);
    if writer.requests.try_send(Request::Flush(say)).is_ok() {
        let _ = said.recv_timeout(PATIENCE);
    }
}

/// True if stderr is a terminal that can show a live line.
pub(crate) fn is_seen() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A line on the terminal that can change. It is shown only if stderr is a terminal, and removed on drop.
/// There is at most one at a time.
pub(crate) struct LiveLine {
    env: Env,
    /// When it was last drawn; `None` if there is no terminal.
    drawn: Option<Mutex<Option<Moment>>>,
}

impl LiveLine {
    /// Creates an empty line.
    pub(crate) fn new(env: &Env) -> Self {
        Self { env: env.clone(), drawn: is_seen().then(Mutex::default) }
    }

    /// Shows this text, unless the line was drawn a moment ago.
    pub(crate) fn set(&self, text: &str) {
        let Some(drawn) = &self.drawn else { return };
        let mut drawn = drawn.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now = self.env.now();
        if drawn.is_some_and(|drawn| now.since(drawn) < SHORTEST) {
            return;
        }
        *drawn = Some(now);
        draw(fit(text, width()));
    }

    /// Clears the line until the next text is set.
    pub(crate) fn clear(&self) {
        if let Some(drawn) = &self.drawn {
            *drawn.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
            draw(String::new());
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.clear();
        // Later output must not follow on the same line.
        flush();
    }
}

/// Requests a new live line. If too much waits to be written, it is skipped.
fn draw(text: String) {
    let _ = writer().requests.try_send(Request::Live(text));
}

fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.map(|size| usize::from(size.ws_col)).ok().filter(|width| *width > 0).unwrap_or(USUAL_WIDTH)
}

/// Shortens the text to one line. The last column stays free, as some terminals wrap when it is filled.
fn fit(text: &str, width: usize) -> String {
    let room = width.saturating_sub(1);
    if text.width() <= room {
        return text.to_owned();
    }
    let mut fitted = String::new();
    let mut taken = 1;
    for letter in text.chars() {
        taken += letter.width().unwrap_or(0);
        if taken > room {
            break;
        }
        fitted.push(letter);
    }
    if room > 0 {
        fitted.push('…');
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_takes_more_than_the_terminal_is_wide() {
        assert_eq!(fit("emails  12 done", 80), "emails  12 done");
        assert_eq!(fit("emails  12 done", 16), "emails  12 done");
        assert_eq!(fit("emails  12 done", 15), "emails  12 do…");
        assert_eq!(fit("日本語", 6), "日本…");
        assert_eq!(fit("日本語", 5), "日…");
        assert_eq!((fit("ab", 2), fit("ab", 1), fit("ab", 0)), ("…".into(), String::new(), String::new()));
    }

    #[test]
    fn lines_are_written_above_the_live_line_and_what_is_missing_is_said() {
        let (writer, taken) = Writer::new();
        let lines = |out, text: &str| writer.send(out, text.as_bytes().to_vec()).unwrap();
        let live = |text: &str| writer.requests.send(Request::Live(text.to_owned())).unwrap();
        lines(Out::Stderr, "one\n");
        live("live");
        live("live");
        lines(Out::Stderr, "two\n");
        lines(Out::Stdout, "out\n");
        live("");
        lines(Out::Stderr, "three\n");
        let queue = writer.queue.clone();
        queue.missing.store(7, Ordering::Relaxed);
        drop(writer);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        serve(&taken, &queue, &mut stdout, &mut stderr);
        assert_eq!(
            String::from_utf8(stderr).unwrap().replace(CLEAR, "^"),
            "(7 lines are missing here: nobody read them in time)\none\n^live^two\nlive^live^three\n"
        );
        assert_eq!(stdout, b"out\n");
        assert_eq!(queue.bytes.load(Ordering::Relaxed), 0, "nothing waits any more");
    }

    #[test]
    fn only_so_much_waits_to_be_written() {
        let (writer, taken) = Writer::new();
        let half = vec![b'x'; MOST_BYTES / 2];
        let ordered = |lines: &[u8]| writer.send(Out::Stdout, lines.to_vec()).is_ok();
        assert_eq!([&half[..], &half, b"x"].map(ordered), [true, true, false]);
        let waiting: Vec<Request> = taken.try_iter().collect();
        assert_eq!(waiting.len(), 2);
        writer.queue.bytes.store(0, Ordering::Relaxed);
        assert_eq!([&half.repeat(3)[..], b"x"].map(ordered), [true, false], "a long one waits alone");
    }
}
