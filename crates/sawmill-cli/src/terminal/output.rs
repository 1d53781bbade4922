//! Data on stdout: tables for people, JSON for scripts.

use std::io::{self, BufRead, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::terminal::live;
use crate::terminal::table::Table;

pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// True if the output is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints one value: a JSON object, or the text that `people` makes of it.
    pub(crate) fn object<T: Serialize>(
        &self,
        thing: &T,
        people: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        match self.json {
            true => self.print(&json(thing)),
            false => self.print(&people(thing)),
        }
    }

    /// Prints a list: one JSON object per line, or a table.
    pub(crate) fn list<T: Serialize>(
        &self,
        things: &[T],
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<(), Failure> {
        let lines = match self.json {
            true => things.iter().map(|thing| json(thing) + "\n").collect(),
            false => table(things).to_string(),
        };
        self.print(lines.trim_end_matches('\n'))
    }

    /// Prints text and a line end to stdout. Colours are kept only on a terminal. Empty text prints nothing.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        if !text.is_empty() {
            let mut out = anstream::stdout().lock();
            writeln!(out, "{text}")?;
            out.flush()?;
        }
        Ok(())
    }
}

pub(crate) fn json<T: Serialize>(thing: &T) -> String {
    serde_json::to_string(thing).expect("what the program prints has only names for keys")
}

/// Prints a note for people to stderr. Errors are ignored: stderr may be closed.
pub(crate) fn note(text: &str) {
    let text = match anstream::AutoStream::choice(&io::stderr()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
        _ => text.to_owned(),
    };
    live::above(format!("{text}\n").as_bytes());
    // Later output on stdout must appear after the note.
    live::flush();
}

/// Asks for confirmation before an action that cannot be undone. Without a terminal, `--yes` is required.
pub(crate) fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(format!("{question} There is no terminal to ask on: say it with --yes.")));
    }
    let mut err = io::stderr().lock();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::failed("not confirmed; nothing was changed")),
    }
}
