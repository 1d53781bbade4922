//! The configuration file. Precedence: flag, environment, file, default.

use std::path::Path;

use serde::Deserialize;

use crate::cli::Globals;
use crate::commands::work;
use crate::failure::Failure;
use crate::terminal::log::LogLevel;

/// The store that is used if none is given.
const DEFAULT_STORE: &str = "sqlite:sawmill.db";

/// The configuration file. Names are those of the flags; an unknown one is an error.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    pub(crate) store: Option<String>,
    pub(crate) ledger: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) log_level: Option<LogLevel>,
    #[serde(default)]
    pub(crate) work: work::Settings,
    #[cfg(feature = "serve")]
    #[serde(default)]
    pub(crate) serve: crate::commands::serve::Settings,
    /// The file as parsed, before its values are interpreted.
    #[serde(skip)]
    pub(crate) raw: toml::Table,
}

impl File {
    /// Reads the file; the error names the line that is wrong.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::usage(format!("configuration file {}: {what}", path.display()));
        let text =
            std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let wrong = |error: toml::de::Error| wrong(describe(&error, &text));
        let file: Self = toml::from_str(&text).map_err(wrong)?;
        Ok(Self { raw: toml::from_str(&text).map_err(wrong)?, ..file })
    }
}

/// Describes an error and its place. The line itself is not shown, as it may hold a password; its key is.
fn describe(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..=span.start)).unwrap_or(text);
    let number = before.lines().count().max(1);
    let name = text.lines().nth(number - 1).and_then(|line| Some(line.split_once('=')?.0.trim()));
    match name {
        Some(name) if !name.is_empty() => format!("line {number}, {name}: {}", error.message()),
        _ => format!("line {number}: {}", error.message()),
    }
}

/// The store settings after applying the precedence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoreSettings {
    pub(crate) store: String,
    pub(crate) ledger: Option<String>,
    pub(crate) namespace: Option<String>,
}

impl StoreSettings {
    /// Clap has already put flags before environment variables.
    pub(crate) fn of(globals: &Globals, file: &File) -> Self {
        let stronger = |flag: &Option<String>, file: &Option<String>| flag.clone().or_else(|| file.clone());
        Self {
            store: stronger(&globals.store, &file.store).unwrap_or_else(|| DEFAULT_STORE.to_owned()),
            ledger: stronger(&globals.ledger, &file.ledger),
            namespace: stronger(&globals.namespace, &file.namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_stronger_than_the_file_and_the_file_than_the_default() {
        let file: File = toml::from_str("store = 'sqlite:file.db'\nnamespace = 'file'").unwrap();
        let globals = Globals { store: Some("sqlite:flag.db".into()), ..Globals::default() };
        let settings = StoreSettings::of(&globals, &file);
        assert_eq!(settings.store, "sqlite:flag.db");
        assert_eq!(settings.namespace.as_deref(), Some("file"));
        assert_eq!(StoreSettings::of(&Globals::default(), &File::default()).store, DEFAULT_STORE);
    }

    #[test]
    fn a_line_that_is_wrong_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sawmill.toml");
        for wrong in [
            "store = 'postgres://u:secret@h",
            "store = postgres://u:secret@h",
            "Store = 'postgres://u:secret@h'",
        ] {
            std::fs::write(&path, format!("namespace = 'x'\n{wrong}\n")).unwrap();
            let failure = File::read(&path).unwrap_err().to_string();
            assert!(failure.contains("line 2") && !failure.contains("secret"), "{failure}");
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sawmill.toml");
        std::fs::write(&path, "stroe = 'sqlite:x.db'\n").unwrap();
        let failure = File::read(&path).unwrap_err().to_string();
        assert!(
            failure.contains("sawmill.toml") && failure.contains("stroe") && failure.contains("line 1"),
            "{failure}"
        );
    }
}
