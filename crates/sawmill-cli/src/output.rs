//! Data on stdout: tables for people, JSON for scripts.

use std::io::{self, BufRead, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::live;
use crate::table::Table;

pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// True if scripts are reading.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints one thing: a JSON object, or what this says to people.
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

    /// Prints a list: a JSON object per line, or a table.
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

    /// Prints text to stdout with a line end; colours stay only on a terminal. Nothing for nothing.
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

/// Says something beside the data. Stderr may be closed, and that is no reason to stop.
pub(crate) fn note(text: &str) {
    let text = match anstream::AutoStream::choice(&io::stderr()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
        _ => text.to_owned(),
    };
    live::above(format!("{text}\n").as_bytes());
    // What is printed next comes after it.
    live::flush();
}

/// Asks a person before something that cannot be undone. Where there is no person, `--yes` has to say it.
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
