//! The live line: on a terminal only.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::library::Library;
use crate::support::{Place, until};

/// The sequence that clears the live line before other output.
const CLEAR: &str = "\r\u{1b}[2K";

/// The program on its own terminal, with everything that it has written there. It is killed if the test ends
/// first.
struct Terminal {
    child: Child,
    reader: Option<JoinHandle<()>>,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(place: &Place, columns: u16, args: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let mut command = place.command(args);
        command.env("TERM", "xterm").env("NO_COLOR", "1").stdin(Stdio::null());
        command.stdout(Stdio::from(theirs.try_clone().unwrap())).stderr(Stdio::from(theirs));
        let child = command.spawn().unwrap();
        // The command holds copies of the terminal's file descriptors; reading does not end while they are
        // open.
        drop(command);
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        let reader = thread::spawn(move || {
            let mut terminal = File::from(ours);
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = terminal.read(&mut chunk) {
                heard.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        Self { child, reader: Some(reader), said }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let mut status = None;
        until("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
        self.reader.take().unwrap().join().unwrap();
        self.said()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns what a person would finally see: cleared lines are gone.
fn seen(said: &str) -> Vec<String> {
    let last = |line: &str| line.rsplit(CLEAR).next().unwrap_or_default().trim_end_matches('\r').to_owned();
    said.split('\n').map(last).collect()
}

#[test]
fn a_terminal_has_a_live_line_that_garbles_nothing() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    let script = place.script("run", "read what; echo out $what; echo err $what >&2; [ \"$what\" != bad ]");
    let terminal =
        Terminal::start(&place, 120, &["work", "t", "--retries", "0", "--concurrency", "2", "--", &script]);
    until("the line is there", || {
        terminal.said().contains("t/default  0 done  0 failed  0.0/s  backlog 0  0/2 busy")
    });
    for number in 0..20 {
        library.push("t", number.to_string());
    }
    library.push("t", "bad");
    until("the line counts", || terminal.said().contains("t/default  20 done  1 failed  "));
    let seen = seen(&terminal.end());
    for number in 0..20 {
        for line in [format!("out {number}"), format!("err {number}")] {
            assert!(seen.contains(&line), "{line:?} does not stand alone in {seen:#?}");
        }
    }
    assert!(
        seen.iter().any(|line| line.starts_with("20") && line.contains("WARN  dead letter: ")),
        "{seen:#?}"
    );
    assert!(seen.iter().any(|line| line.contains("stopped: 20 done, 1 failed, 1 dead letters")), "{seen:#?}");
    assert!(
        !seen.iter().any(|line| line.contains("t/default")),
        "the live line is gone in the end: {seen:#?}"
    );
}

#[test]
fn the_live_line_fits_the_terminal() {
    let place = Place::new();
    let _library = Library::with_topic(&place, "t");
    let terminal = Terminal::start(&place, 24, &["work", "t", "--log-level", "error", "--", "true"]);
    until("the line is there", || terminal.said().contains("t/default  0 done  0 f…"));
    assert!(!terminal.end().contains("failed"));
}

#[test]
fn there_is_no_live_line_if_it_is_not_wanted_or_nobody_sees_it() {
    let place = Place::new();
    let library = Library::with_topic(&place, "t");
    library.push("t", "1");
    let terminal = Terminal::start(&place, 120, &["work", "t", "--quiet", "--", "sh", "-c", "cat > last"]);
    until("it is done", || library.status("t").done == 1);
    assert_eq!(terminal.end(), "");

    library.push("t", "2");
    let ended = place.run(&["work", "t", "--drain", "--", "true"]);
    assert!(!ended.stderr.contains("t/default") && !ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}
