//! The terminal: the lines that are written there, and the one line that changes while something goes on.
//!
//! Stderr belongs to the whole process, and so does its last line. So one thread writes there: it takes the live line away,
//! writes, and puts the line back. Whoever reads may be slow, or not read at all: only that thread waits for it, and not the
//! workers, whose beats must go on.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
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
/// How many pieces of text may wait to be written before more are left out.
const MOST_WAITING: usize = 4096;
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
    /// How many pieces were left out since the last one that was written.
    missing: Arc<AtomicU64>,
}

static WRITER: OnceLock<Writer> = OnceLock::new();

fn writer() -> &'static Writer {
    WRITER.get_or_init(|| {
        let (orders, taken) = sync_channel(MOST_WAITING);
        let missing = Arc::new(AtomicU64::new(0));
        let counted = missing.clone();
        // Without a thread there is nobody to take orders, and each is carried out where it is given.
        let _ = thread::Builder::new()
            .name("terminal".to_owned())
            .spawn(move || serve(&taken, &counted, &mut io::stdout(), &mut io::stderr()));
        Writer { orders, missing }
    })
}

/// Writes what is ordered. An output that has gone is no reason to stop.
fn serve(orders: &Receiver<Order>, missing: &AtomicU64, stdout: &mut impl Write, stderr: &mut impl Write) {
    let mut shown = String::new();
    for order in orders {
        match order {
            Order::Lines(out, mut lines) => {
                let left_out = missing.swap(0, Ordering::Relaxed);
                if left_out > 0 {
                    let note = format!("({left_out} lines are missing here: nobody read them in time)\n");
                    lines.splice(0..0, note.into_bytes());
                }
                if !shown.is_empty() {
                    let _ = stderr.write_all(CLEAR.as_bytes());
                }
                let _ = match out {
                    Out::Stdout => stdout.write_all(&lines).and_then(|()| stdout.flush()),
                    Out::Stderr => stderr.write_all(&lines),
                };
                let _ = stderr.write_all(shown.as_bytes());
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

/// Writes whole lines to stderr, above the live line if there is one, in a moment. If too much waits, they are left out, and that
/// is said in their place.
pub(crate) fn above(lines: &[u8]) {
    let writer = writer();
    match writer.orders.try_send(Order::Lines(Out::Stderr, lines.to_vec())) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            writer.missing.fetch_add(1, Ordering::Relaxed);
        }
        Err(TrySendError::Disconnected(_)) => {
            let _ = io::stderr().write_all(lines);
        }
    }
}

/// Writes whole lines, and waits as long as too much waits already.
pub(crate) async fn above_in_turn(out: Out, lines: Vec<u8>, env: &Env) {
    let mut order = Order::Lines(out, lines);
    while let Err(TrySendError::Full(again)) = writer().orders.try_send(order) {
        order = again;
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
        let (orders, taken) = sync_channel(8);
        let lines = |out, text: &str| Order::Lines(out, text.as_bytes().to_vec());
        for order in [
            lines(Out::Stderr, "one\n"),
            Order::Live("live".to_owned()),
            Order::Live("live".to_owned()),
            lines(Out::Stderr, "two\n"),
            lines(Out::Stdout, "out\n"),
            Order::Live(String::new()),
            lines(Out::Stderr, "three\n"),
        ] {
            orders.send(order).unwrap();
        }
        drop(orders);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        serve(&taken, &AtomicU64::new(7), &mut stdout, &mut stderr);
        assert_eq!(
            String::from_utf8(stderr).unwrap().replace(CLEAR, "^"),
            "(7 lines are missing here: nobody read them in time)\none\n^live^two\nlive^live^three\n"
        );
        assert_eq!(stdout, b"out\n");
    }
}
