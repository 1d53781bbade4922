//! The terminal: the lines that are written there, and the one line that changes while something goes on.
//!
//! Stderr belongs to the whole process, and so does its last line. So one thread writes there: it takes the live line away,
//! writes, and puts the line back. Whoever reads may be slow, or not read at all: only that thread waits for it, and not the
//! workers, whose beats must go on.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use sawmill::clock::Moment;
use sawmill::env::Env;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The shortest time between two changes of the live line: an eye sees no more, and a slow connection bears no more.
const SHORTEST: Duration = Duration::from_millis(100);
/// How wide a terminal is that does not say.
const USUAL_WIDTH: usize = 80;
/// Back to the first column, and away with what stands there.
const CLEAR: &str = "\r\x1b[2K";
/// How many pieces of text, and bytes of lines, may wait to be written before more are left out.
const MOST_WAITING: usize = 4096;
const MOST_BYTES: usize = 4 << 20;
/// How long to wait for all to be written, if nobody reads.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where lines go. Both may be the same terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Out {
    Stdout,
    Stderr,
}

enum Order {
    /// Whole lines, to be written above the live line.
    Lines(Out, Vec<u8>),
    /// The live line is to be this.
    Live(String),
    /// Say when you have come this far.
    Tell(SyncSender<()>),
}

/// The way to the thread that writes.
struct Writer {
    orders: SyncSender<Order>,
    queue: Arc<Queue>,
}

/// What both ends of that way know.
#[derive(Default)]
struct Queue {
    /// How many bytes of lines wait to be written.
    bytes: AtomicUsize,
    /// How many pieces were left out since the last one that was written.
    missing: AtomicU64,
}

static WRITER: OnceLock<Writer> = OnceLock::new();

fn writer() -> &'static Writer {
    WRITER.get_or_init(|| {
        let (writer, taken) = Writer::new();
        let queue = writer.queue.clone();
        // Without a thread there is nobody to take orders, and lines are written where they are given.
        let _ = thread::Builder::new()
            .name("terminal".to_owned())
            .spawn(move || serve(&taken, &queue, &mut io::stdout(), &mut io::stderr()));
        writer
    })
}

impl Writer {
    fn new() -> (Self, Receiver<Order>) {
        let (orders, taken) = sync_channel(MOST_WAITING);
        (Self { orders, queue: Arc::default() }, taken)
    }

    /// Has lines written in a moment. If too much waits already, they come back. A piece that is longer than all that may wait
    /// waits alone.
    fn order(&self, out: Out, lines: Vec<u8>) -> Result<(), Vec<u8>> {
        let (size, bytes) = (lines.len(), &self.queue.bytes);
        let with_it = |waiting: usize| {
            (waiting == 0 || waiting.saturating_add(size) <= MOST_BYTES).then(|| waiting.saturating_add(size))
        };
        if bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it).is_err() {
            return Err(lines);
        }
        let (order, gone) = match self.orders.try_send(Order::Lines(out, lines)) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(order)) => (order, false),
            Err(TrySendError::Disconnected(order)) => (order, true),
        };
        bytes.fetch_sub(size, Ordering::Relaxed);
        match order {
            Order::Lines(out, lines) if gone => write(out, &lines, &mut io::stdout(), &mut io::stderr()),
            Order::Lines(_, lines) => return Err(lines),
            Order::Live(_) | Order::Tell(_) => {}
        }
        Ok(())
    }
}

/// Writes what is ordered. An output that has gone is no reason to stop.
fn serve(orders: &Receiver<Order>, queue: &Queue, stdout: &mut impl Write, stderr: &mut impl Write) {
    let mut shown = String::new();
    for order in orders {
        match order {
            Order::Lines(out, lines) => {
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
            Order::Live(text) if text == shown => {}
            Order::Live(text) => {
                let _ = stderr.write_all(format!("{CLEAR}{text}").as_bytes());
                shown = text;
            }
            Order::Tell(said) => {
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

/// Writes whole lines to stderr, above the live line if there is one, in a moment. If too much waits, they are left out, and that
/// is said in their place.
pub(crate) fn above(lines: &[u8]) {
    let writer = writer();
    if writer.order(Out::Stderr, lines.to_vec()).is_err() {
        writer.queue.missing.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes whole lines, and waits as long as too much waits already.
pub(crate) async fn above_in_turn(out: Out, lines: Vec<u8>, env: &Env) {
    let mut lines = lines;
    while let Err(again) = writer().order(out, lines) {
        lines = again;
        env.sleep(SHORTEST).await;
    }
}

/// Waits until all that was to be written is, but not for ever.
pub(crate) fn flush() {
    let Some(writer) = WRITER.get() else { return };
    let (say, said) = sync_channel(1);
    if writer.orders.try_send(Order::Tell(say)).is_ok() {
        let _ = said.recv_timeout(PATIENCE);
    }
}

/// True if somebody would see a live line.
pub(crate) fn is_seen() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A line that can be changed. It is there only if stderr is a terminal, and gone when this is dropped. There is one at a time.
pub(crate) struct LiveLine {
    env: Env,
    /// When it was last drawn; `None` if nobody would see it.
    drawn: Option<Mutex<Option<Moment>>>,
}

impl LiveLine {
    /// A line that shows nothing yet.
    pub(crate) fn new(env: &Env) -> Self {
        Self { env: env.clone(), drawn: is_seen().then(Mutex::default) }
    }

    /// Shows this instead of what was there, unless that was drawn just now.
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

    /// Takes the line away until something is set again.
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
        // What is printed next is not printed behind it.
        flush();
    }
}

/// The live line is to be this. If too much waits to be written, the next one will do.
fn draw(text: String) {
    let _ = writer().orders.try_send(Order::Live(text));
}

fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.map(|size| usize::from(size.ws_col)).ok().filter(|width| *width > 0).unwrap_or(USUAL_WIDTH)
}

/// As much of the text as fits on one line. The last column stays free, as some terminals go to the next line when it is filled.
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
        let lines = |out, text: &str| writer.order(out, text.as_bytes().to_vec()).unwrap();
        let live = |text: &str| writer.orders.send(Order::Live(text.to_owned())).unwrap();
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
        let ordered = |lines: &[u8]| writer.order(Out::Stdout, lines.to_vec()).is_ok();
        assert_eq!([&half[..], &half, b"x"].map(ordered), [true, true, false]);
        let waiting: Vec<Order> = taken.try_iter().collect();
        assert_eq!(waiting.len(), 2);
        writer.queue.bytes.store(0, Ordering::Relaxed);
        assert_eq!([&half.repeat(3)[..], b"x"].map(ordered), [true, false], "a long one waits alone");
    }
}
