//! The one line on a terminal that changes while something goes on.
//!
//! Stderr belongs to the whole process, and so does its last line: whoever writes there goes through [`above`], which takes
//! the line away, writes, and puts it back.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sawmill::clock::Moment;
use sawmill::env::Env;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The shortest time between two changes: an eye sees no more, and a slow connection bears no more.
const SHORTEST: Duration = Duration::from_millis(100);
/// How wide a terminal is that does not say.
const USUAL_WIDTH: usize = 80;
/// Back to the first column, and away with what stands there.
const CLEAR: &str = "\r\x1b[2K";

/// What stands on the last line now; nothing if there is none.
static SHOWN: Mutex<String> = Mutex::new(String::new());

fn shown() -> MutexGuard<'static, String> {
    SHOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Writes whole lines to stderr, above the live line if there is one.
pub(crate) fn above(lines: &[u8]) -> io::Result<()> {
    write_above(io::stderr().lock(), lines)
}

/// Writes whole lines to stdout, which may be the same terminal, above the live line if there is one.
pub(crate) fn above_on_stdout(lines: &[u8]) -> io::Result<()> {
    write_above(io::stdout().lock(), lines)
}

fn write_above(mut out: impl Write, lines: &[u8]) -> io::Result<()> {
    let shown = shown();
    if !shown.is_empty() {
        io::stderr().write_all(CLEAR.as_bytes())?;
    }
    out.write_all(lines)?;
    out.flush()?;
    io::stderr().write_all(shown.as_bytes())
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
    }
}

/// Draws this where the last text stands. A terminal that has gone is no reason to stop.
fn draw(text: String) {
    let mut shown = shown();
    if *shown != text {
        let _ = io::stderr().lock().write_all(format!("{CLEAR}{text}").as_bytes());
        *shown = text;
    }
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
}
