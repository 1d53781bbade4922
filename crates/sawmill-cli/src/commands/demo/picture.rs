//! The picture of the demonstration: a row per person, a cell per letter, a colour per worker.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use anstyle::{AnsiColor, Style};

use super::progress::{Progress, State};

const COLOURS: &[AnsiColor] = &[AnsiColor::Green, AnsiColor::Cyan, AnsiColor::Magenta];

fn colour(worker: usize) -> Style {
    COLOURS[worker % COLOURS.len()].on_default()
}

/// Draws the progress repeatedly in the same place on a terminal; elsewhere it draws nothing.
pub(super) struct Picture {
    terminal: bool,
    lines: usize,
}

impl Picture {
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), lines: 0 }
    }

    pub(super) fn is_seen(&self) -> bool {
        self.terminal
    }

    /// Draws the current progress. `dead` is the worker that was killed.
    pub(super) fn draw(&mut self, progress: &Progress, dead: Option<usize>, caption: &str) {
        if !self.terminal {
            return;
        }
        let drawn = drawing(progress, dead, caption);
        let mut text = String::new();
        if self.lines > 0 {
            let _ = write!(text, "\x1b[{}A\r", self.lines);
        }
        for line in drawn.lines() {
            let _ = writeln!(text, "\x1b[K{line}");
        }
        self.lines = drawn.lines().count();
        // Stderr may be closed.
        let _ = anstream::stderr().lock().write_all(text.as_bytes());
    }
}

fn drawing(progress: &Progress, dead: Option<usize>, caption: &str) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    for letter in &progress.letters {
        let name = letter.to.as_deref().unwrap_or("later");
        let nth = rows.iter().position(|(row, _)| *row == name).unwrap_or_else(|| {
            rows.push((name, String::new()));
            rows.len() - 1
        });
        rows[nth].1.push_str(&cell(letter.state, dead));
    }
    let mut text = format!("\n  {}\n\n", legend(dead));
    for (name, cells) in rows {
        let _ = writeln!(text, "  {name:>8} {cells}");
    }
    let _ = write!(text, "\n  {caption}\n");
    text
}

fn legend(dead: Option<usize>) -> String {
    let mut text = String::new();
    for worker in 0..super::WORKERS {
        let style = colour(worker);
        match dead == Some(worker) {
            true => {
                let red = AnsiColor::Red.on_default().bold();
                let _ = write!(text, "{red}■ worker {} killed{red:#}   ", worker + 1);
            }
            false => {
                let _ = write!(text, "{style}■ worker {}{style:#}   ", worker + 1);
            }
        }
    }
    text + "\n  ▸ runs   ! tries again   × dead   · waits   ○ not due yet"
}

fn cell(state: State, dead: Option<usize>) -> String {
    let (letter, style) = match state {
        State::Waiting => ('·', Style::new().dimmed()),
        State::Later => ('○', Style::new().dimmed()),
        State::Running { worker } if dead == Some(worker) => ('▸', AnsiColor::Red.on_default().bold()),
        State::Running { worker } => ('▸', colour(worker)),
        State::Failed => ('!', AnsiColor::Yellow.on_default().bold()),
        State::Delivered { worker } => ('■', colour(worker)),
        State::Dead => ('×', AnsiColor::Red.on_default().bold()),
    };
    format!("{style}{letter}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::super::letter;
    use super::*;

    #[test]
    fn a_row_per_person_and_a_cell_per_letter() {
        let letters = letter::all();
        let mut progress =
            Progress::new(letters.into_iter().enumerate().map(|(nth, letter)| (nth.to_string(), letter)));
        progress.apply("started 0 0");
        progress.apply("delivered 0 0");
        progress.apply("started 12 1");
        let drawn = anstream::adapter::strip_str(&drawing(&progress, Some(1), "now")).to_string();
        assert!(drawn.contains("worker 2 killed"), "{drawn}");
        let alice = drawn.lines().find(|line| line.contains("alice")).unwrap();
        assert_eq!(alice.trim(), format!("alice ■▸{}", "·".repeat(22)));
        assert!(drawn.contains(&format!("later {}", "○".repeat(12))), "{drawn}");
    }
}
