//! Prints the figures as a table for people or as JSON for programs.

use serde_json::{Map, Value, json};

use crate::Failure;
use crate::settings::Settings;

/// One figure of Sawmill and its comparison.
pub(crate) struct Figure {
    /// Its name in the JSON.
    pub(crate) key: &'static str,
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    /// The same figure of the engine alone, or on the smaller backlog.
    pub(crate) base: Option<f64>,
    pub(crate) ours: f64,
    pub(crate) wanted: Option<Wanted>,
    /// Further JSON fields. The table shows them in a note.
    details: Vec<(&'static str, Value)>,
}

/// The goal of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    /// At least this multiple of the base.
    Times(f64),
    AtMost(f64),
}

impl Figure {
    pub(crate) fn new(key: &'static str, what: impl Into<String>, unit: &'static str, ours: f64) -> Self {
        Self { key, what: what.into(), unit, base: None, ours, wanted: None, details: Vec::new() }
    }

    pub(crate) fn base(mut self, base: f64) -> Self {
        self.base = Some(base);
        self
    }

    pub(crate) fn wanted(mut self, wanted: Wanted) -> Self {
        self.wanted = Some(wanted);
        self
    }

    pub(crate) fn with(mut self, name: &'static str, detail: Value) -> Self {
        self.details.push((name, detail));
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.base.filter(|base| *base > 0.0).map(|base| self.ours / base)
    }

    fn is_met(&self) -> Option<bool> {
        match self.wanted? {
            Wanted::Times(times) => self.ratio().map(|ratio| ratio >= times),
            Wanted::AtMost(most) => Some(self.ours <= most),
        }
    }
}

#[derive(Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// A sentence to go with the figures.
    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(crate) fn print_as(&self, settings: &Settings) -> Result<(), Failure> {
        if settings.json { self.print_json() } else { self.print() }
    }

    fn print(&self) -> Result<(), Failure> {
        let width = self.figures.iter().map(|figure| figure.what.chars().count()).max().unwrap_or(0);
        println!("{:<width$}  {:>14}  {:>14}  {:>7}  wanted", "", "base", "Sawmill", "ratio");
        for figure in &self.figures {
            let amount = |amount: f64| format!("{} {}", readable(amount), figure.unit);
            let base = figure.base.map(amount).unwrap_or_default();
            let ratio = figure.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let wanted = match figure.wanted {
                None => String::new(),
                Some(Wanted::Times(times)) => format!(">= {times} x"),
                Some(Wanted::AtMost(most)) => format!("<= {} {}", readable(most), figure.unit),
            };
            let met = match figure.is_met() {
                None => "",
                Some(true) => "  met",
                Some(false) => "  NOT met",
            };
            let line = format!(
                "{:<width$}  {base:>14}  {:>14}  {ratio:>7}  {wanted}{met}",
                figure.what,
                amount(figure.ours)
            );
            println!("{}", line.trim_end());
        }
        for note in &self.notes {
            println!("{note}");
        }
        Ok(())
    }

    fn print_json(&self) -> Result<(), Failure> {
        let mut all = Map::new();
        for figure in &self.figures {
            let mut entry = json!({ "what": figure.what, "unit": figure.unit, "sawmill": figure.ours });
            if let Some(base) = figure.base {
                entry["base"] = json!(base);
                entry["ratio"] = json!(figure.ratio());
            }
            match figure.wanted {
                None => {}
                Some(Wanted::Times(times)) => entry["wanted_ratio_at_least"] = json!(times),
                Some(Wanted::AtMost(most)) => entry["wanted_at_most"] = json!(most),
            }
            if let Some(met) = figure.is_met() {
                entry["met"] = json!(met);
            }
            for (name, detail) in &figure.details {
                entry[*name] = detail.clone();
            }
            all.insert(figure.key.to_owned(), entry);
        }
        println!("{}", Value::Object(all));
        Ok(())
    }
}

/// Formats large numbers in groups of three digits, and small ones with some decimals.
fn readable(amount: f64) -> String {
    if amount < 100.0 {
        let text = format!("{amount:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{amount:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prints progress to standard error.
pub(crate) fn progress(said: &str) {
    eprintln!("bench: {said}");
}
