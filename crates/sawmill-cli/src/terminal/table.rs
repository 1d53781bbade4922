//! Aligned tables of text. Not by the crate `comfy-table`, which wraps cells to the width of the terminal: here
//! a row is always one line, for `grep` and `awk`.

use std::fmt;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

/// A cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self::styled(text, AnsiColor::Green.on_default())
    }

    pub(crate) fn worrying(text: impl Into<String>) -> Self {
        Self::styled(text, AnsiColor::Yellow.on_default())
    }

    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self::styled(text, AnsiColor::Red.on_default())
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// Rows under a heading. A column whose heading begins with `>` is aligned to the right.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
    right: Vec<bool>,
}

impl Table {
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> Self {
        let heading = |text: &&str| Cell::styled(text.trim_start_matches('>'), Style::new().bold());
        Self {
            right: headings.iter().map(|text| text.starts_with('>')).collect(),
            rows: vec![headings.iter().map(heading).collect()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.right.len())
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or(0)
            })
            .collect();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let pad = " ".repeat(widths[column] - cell.width());
                let last = column + 1 == row.len();
                let style = cell.style;
                match (self.right[column], last) {
                    (true, _) => write!(f, "{gap}{pad}{style}{}{style:#}", cell.text)?,
                    (false, true) => write!(f, "{gap}{style}{}{style:#}", cell.text)?,
                    (false, false) => write!(f, "{gap}{style}{}{style:#}{pad}", cell.text)?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Formats names and values, one below the other. Values are aligned, and so are their further lines.
pub(crate) fn fields(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (name, value) in rows {
        for (index, line) in value.lines().enumerate() {
            let name = if index == 0 { name } else { "" };
            let pad = " ".repeat(width - name.width());
            lines.push(format!("{name}{pad}  {line}").trim_end().to_owned());
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_under_one_another() {
        let text = fields(&[("id", "7".into()), ("error", "no\npaper".into()), ("none", String::new())]);
        assert_eq!(text, "id     7\nerror  no\n       paper");
    }

    #[test]
    fn columns_align_whatever_the_colour_and_the_script() {
        let mut table = Table::new(["NAME", ">COUNT", "STATE"]);
        table.row(["emails".into(), "7".into(), Cell::good("fine")]);
        table.row(["日本".into(), "12,400".into(), Cell::bad("behind")]);
        let plain = anstream::adapter::strip_str(&table.to_string()).to_string();
        let expected = "NAME     COUNT  STATE\nemails       7  fine\n日本    12,400  behind\n";
        assert_eq!(plain, expected);
    }
}
