//! The generated part of the document: behaviours by engine, then the tests of each behaviour.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::gaps::Gaps;
use super::{Column, GAPS, Shown};

/// The number of tests that show each behaviour in each column, and their names.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    id: String,
    cells: Vec<Cell>,
    /// The tests by name, each with the columns in which it runs.
    tests: BTreeMap<String, Vec<Column>>,
}

#[derive(Debug)]
enum Cell {
    Tests(usize),
    /// A gap with a recorded reason.
    Explained,
    /// No test, and none required: a pair of engines need not repeat what each of the two shows.
    Empty,
}

impl Table {
    /// Builds the table of these behaviours. The error says what is wrong with the tests or the list of gaps.
    pub(super) fn new(described: &[String], shown: &BTreeSet<Shown>, gaps: &Gaps) -> Result<Self, String> {
        if let Some(test) = shown.iter().find(|shown| shown.ids.iter().any(|id| !described.contains(id))) {
            return Err(format!("{} names a behaviour that docs/behaviours.md does not describe", test.name));
        }
        let is_shown = |id: &str, column: Column| {
            shown.iter().any(|shown| shown.column == column && shown.ids.iter().any(|other| other == id))
        };
        if let Some(needless) = gaps.needless(is_shown) {
            return Err(format!("{GAPS} explains a gap that does not exist: {needless}"));
        }
        let rows = described.iter().map(|id| Row::new(id, shown, gaps)).collect::<Result<_, _>>()?;
        Ok(Self { rows })
    }
}

impl Row {
    fn new(id: &str, shown: &BTreeSet<Shown>, gaps: &Gaps) -> Result<Self, String> {
        let mut tests: BTreeMap<String, Vec<Column>> = BTreeMap::new();
        for shown in shown.iter().filter(|shown| shown.ids.iter().any(|other| other == id)) {
            tests.entry(shown.name.clone()).or_default().push(shown.column);
        }
        if tests.is_empty() {
            return Err(format!("no test shows {id}"));
        }
        let cell = |column: &Column| {
            let count = tests.values().filter(|columns| columns.contains(column)).count();
            match (count, gaps.reason(id, *column)) {
                (0, None) if column.is_engine() => {
                    Err(format!("no test shows {id} on {}, and {GAPS} does not say why", column.title()))
                }
                (0, Some(_)) => Ok(Cell::Explained),
                (0, None) => Ok(Cell::Empty),
                (count, _) => Ok(Cell::Tests(count)),
            }
        };
        let cells = Column::ALL.iter().map(cell).collect::<Result<_, _>>()?;
        Ok(Self { id: id.to_owned(), cells, tests })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles: Vec<&str> = Column::ALL.iter().map(|column| column.title()).collect();
        writeln!(out, "\n| id | {} |\n|---|{}", titles.join(" | "), "---|".repeat(titles.len()))?;
        for row in &self.rows {
            let cells: Vec<String> = row.cells.iter().map(Cell::to_string).collect();
            writeln!(out, "| {} | {} |", row.id, cells.join(" | "))?;
        }
        writeln!(out, "\n### The tests, by behaviour")?;
        for row in &self.rows {
            writeln!(out, "- **{}**", row.id)?;
            for (test, columns) in &row.tests {
                let titles: Vec<&str> = columns.iter().map(|column| column.title()).collect();
                writeln!(out, "  - `{test}`: {}", titles.join(", "))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tests(count) => count.fmt(out),
            Self::Explained => out.write_str("·"),
            Self::Empty => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, columns: &[Column]) -> Vec<Shown> {
        let of = |column: &Column| {
            let ids = name.split('_').map_while(super::super::id).collect();
            Shown { ids, name: name.to_owned(), column: *column }
        };
        columns.iter().map(of).collect()
    }

    fn engines() -> Vec<Column> {
        Column::ALL.iter().copied().filter(|column| column.is_engine()).collect()
    }

    #[test]
    fn a_gap_without_a_reason_is_an_error() {
        let mut all = engines();
        let described = ["F1".to_owned()];
        let tests = |columns: &[Column]| shown("f1_a", columns).into_iter().collect::<BTreeSet<_>>();
        assert!(Table::new(&described, &tests(&all), &Gaps::default()).is_ok());
        all.retain(|column| *column != Column::Kafka);
        let error = Table::new(&described, &tests(&all), &Gaps::default()).unwrap_err();
        assert!(error.contains("F1 on Kafka"), "{error}");
        let gaps = Gaps::parse("F1 | kafka | it cannot").unwrap();
        let table = Table::new(&described, &tests(&all), &gaps).unwrap().to_string();
        assert!(table.contains("| F1 |  | 1 | 1 | 1 | 1 | · | 1 |"), "{table}");
        assert!(table.contains("  - `f1_a`: SQLite, PostgreSQL"), "{table}");
        let error = Table::new(&described, &tests(&engines()), &gaps).unwrap_err();
        assert!(error.contains("a gap that does not exist"), "{error}");
    }

    #[test]
    fn a_test_of_an_unknown_behaviour_and_a_behaviour_without_a_test_are_errors() {
        let tests: BTreeSet<Shown> = shown("f1_f2_a", &engines()).into_iter().collect();
        assert!(Table::new(&["F1".to_owned()], &tests, &Gaps::default()).unwrap_err().contains("f1_f2_a"));
        let described = ["F1", "F2", "F3"].map(str::to_owned);
        assert!(Table::new(&described, &tests, &Gaps::default()).unwrap_err().contains("no test shows F3"));
    }
}
