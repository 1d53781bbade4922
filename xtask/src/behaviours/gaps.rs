//! Reads the reasons why engines lack behaviours, from lines like `Q15 Q19 | * | reason` or `F6 | kafka,
//! cassandra | reason`.

use super::{Column, id};

/// All reasons, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Gaps(Vec<Gap>);

#[derive(Debug)]
struct Gap {
    ids: Vec<String>,
    /// Empty for all engines.
    columns: Vec<Column>,
    reason: String,
}

impl Gaps {
    /// Reads the file. Empty lines and lines that start with `#` are ignored.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(Gap::parse).collect::<Result<_, _>>().map(Self)
    }

    /// The reason why this engine lacks this behaviour, if there is one.
    pub(super) fn reason(&self, behaviour: &str, column: Column) -> Option<&str> {
        self.0.iter().find(|gap| gap.covers(behaviour, column)).map(|gap| gap.reason.as_str())
    }

    /// Finds a needless reason: a test shows one of its behaviours on an engine that it names, or on all
    /// engines if it names none.
    pub(super) fn needless(&self, is_shown: impl Fn(&str, Column) -> bool) -> Option<String> {
        let needless = |gap: &Gap, behaviour: &String| {
            let mut engines = Column::ALL.iter().filter(|column| column.is_engine());
            match gap.columns.is_empty() {
                true => engines.all(|column| is_shown(behaviour, *column)),
                false => gap.columns.iter().any(|column| is_shown(behaviour, *column)),
            }
        };
        self.0.iter().find_map(|gap| {
            let behaviour = gap.ids.iter().find(|behaviour| needless(gap, behaviour))?;
            Some(format!("{behaviour}: {}", gap.reason))
        })
    }
}

impl Gap {
    fn parse(line: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("docs/behaviour-gaps.txt: {what}: {line}");
        let mut parts = line.splitn(3, '|').map(str::trim);
        let (Some(ids), Some(columns), Some(reason)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong("a line is `IDS | ENGINES | REASON`"));
        };
        let ids: Vec<String> = ids.split_whitespace().map(str::to_owned).collect();
        if ids.is_empty() || ids.iter().any(|behaviour| id(&behaviour.to_ascii_lowercase()).is_none()) {
            return Err(wrong("ids are a letter and a number, with spaces between them"));
        }
        let columns = match columns {
            "*" => Vec::new(),
            named => named
                .split(',')
                .map(|name| Column::named(name.trim()).ok_or_else(|| wrong("there is no such engine")))
                .collect::<Result<_, _>>()?,
        };
        match reason.is_empty() {
            true => Err(wrong("a gap needs a reason")),
            false => Ok(Self { ids, columns, reason: reason.to_owned() }),
        }
    }

    fn covers(&self, behaviour: &str, column: Column) -> bool {
        self.ids.iter().any(|other| other == behaviour)
            && (self.columns.is_empty() || self.columns.contains(&column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_covers_what_it_names() {
        let gaps =
            Gaps::parse("# why\n\nF6 F7 | kafka, cassandra | no transactions\nQ15 | * | signals\n").unwrap();
        assert_eq!(gaps.reason("F7", Column::Kafka), Some("no transactions"));
        assert_eq!(gaps.reason("F7", Column::Sqlite), None);
        assert_eq!(gaps.reason("Q15", Column::Sqlite), Some("signals"));
        assert_eq!(gaps.needless(|_, _| false), None);
        assert!(gaps.needless(|id, _| id == "Q15").unwrap().contains("signals"));
        assert_eq!(gaps.needless(|id, column| id == "Q15" && column == Column::Kafka), None);
        let on_kafka = |id: &str, column| id == "F7" && column == Column::Kafka;
        assert!(gaps.needless(on_kafka).unwrap().contains("F7: no transactions"));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_an_error_that_shows_it() {
        for line in ["F6 kafka no", "six | kafka | no", "F6 | oracle | no", "F6 | kafka |"] {
            assert!(Gaps::parse(line).unwrap_err().contains(line), "{line}");
        }
    }
}
