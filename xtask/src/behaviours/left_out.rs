//! Lists the shared tests that some engines leave out because they lack what is tested, including tests
//! without an id.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Column;

/// A test that at least this many engines run is a shared test.
const MOST_ENGINES: usize = 4;

/// The tests by theme and name, with the engines that run them.
#[derive(Debug, Default)]
pub(super) struct SharedTests(BTreeMap<(String, String), BTreeSet<Column>>);

impl SharedTests {
    /// Adds a test from a line of a program's list of tests.
    pub(super) fn note(&mut self, package: &str, line: &str) {
        let Some(path) = line.strip_suffix(": test") else { return };
        let mut parts = path.rsplit("::");
        let (Some(name), Some(theme)) = (parts.next(), parts.next()) else { return };
        if let Some(column) = Column::of(package, path).filter(|column| column.is_engine()) {
            self.0.entry((theme.to_owned(), name.to_owned())).or_default().insert(column);
        }
    }

    /// The tests that this engine leaves out, by theme. A theme without names is left out completely.
    fn left_out_by(&self, column: Column) -> BTreeMap<&str, Vec<&str>> {
        let shared = self.0.iter().filter(|(_, columns)| columns.len() >= MOST_ENGINES);
        let mut themes: BTreeMap<&str, (Vec<&str>, bool)> = BTreeMap::new();
        for ((theme, name), columns) in shared {
            let (left_out, runs_some) = themes.entry(theme).or_default();
            match columns.contains(&column) {
                true => *runs_some = true,
                false => left_out.push(name),
            }
        }
        themes.retain(|_, (left_out, _)| !left_out.is_empty());
        let names = |(left_out, runs_some)| if runs_some { left_out } else { Vec::new() };
        themes.into_iter().map(|(theme, tests)| (theme, names(tests))).collect()
    }
}

impl fmt::Display for SharedTests {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "\n### Shared tests that an engine leaves out")?;
        for column in Column::ALL.iter().filter(|column| column.is_engine()) {
            let left_out = self.left_out_by(*column);
            if left_out.is_empty() {
                continue;
            }
            writeln!(out, "- **{}**", column.title())?;
            for (theme, names) in left_out {
                match names.is_empty() {
                    true => writeln!(out, "  - all of `{theme}`")?,
                    false => names.iter().try_for_each(|name| writeln!(out, "  - `{theme}::{name}`"))?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_engines_run_and_one_does_not_is_listed() {
        let mut shared = SharedTests::default();
        for package in ["sawmill-sqlite", "sawmill-postgres", "sawmill-mysql", "sawmill-kafka"] {
            for line in ["b::trim::one: test", "b::trim::two: test", "due::c: test"] {
                shared.note(package, line);
            }
        }
        shared.note("sawmill-cassandra", "trim::one: test");
        shared.note("sawmill-sqlite", "only::here: test");
        assert_eq!(
            shared.to_string(),
            "\n### Shared tests that an engine leaves out\n- **Cassandra**\n  - all of `due`\n  - `trim::two`\n\
             - **SQLite + ZooKeeper**\n  - all of `due`\n  - all of `trim`\n"
        );
    }
}
