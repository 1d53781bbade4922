//! Secrets, from an environment variable or a file. The command line is not an option, as every user can read
//! it.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A secret that one of two options names.
pub(super) struct Secret<'a> {
    /// The prefix of the options: `password` for `--password-env` and `--password-file`.
    pub(super) name: &'a str,
    pub(super) variable: Option<&'a str>,
    pub(super) file: Option<&'a PathBuf>,
}

impl Secret<'_> {
    /// Returns the option that was given, if any.
    pub(super) fn option(&self) -> Option<String> {
        match (self.variable, self.file) {
            (Some(_), _) => Some(format!("--{}-env", self.name)),
            (None, Some(_)) => Some(format!("--{}-file", self.name)),
            (None, None) => None,
        }
    }

    /// Reads the secret; none if no option was given. Clap allows at most one of them.
    pub(super) fn read(&self) -> Result<Option<String>, Failure> {
        match (self.variable, self.file) {
            (Some(variable), _) => self.of_variable(variable).map(Some),
            (None, Some(file)) => self.of_file(file).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn of_variable(&self, variable: &str) -> Result<String, Failure> {
        let option = format!("--{}-env {variable}", self.name);
        match std::env::var(variable) {
            Ok(secret) if !secret.is_empty() => Ok(secret),
            Ok(_) => Err(Failure::usage(format!("{option}: this variable is empty"))),
            Err(error) => {
                Err(Failure::usage(format!("{option}: {error}; the secret has to be in its value")))
            }
        }
    }

    /// Reads the only line of a file. The line end that editors add is not part of the secret.
    fn of_file(&self, file: &Path) -> Result<String, Failure> {
        let wrong = |what: String| {
            Failure::usage(format!("--{}-file {}: the file {what}", self.name, file.display()))
        };
        let text =
            std::fs::read_to_string(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let secret = text.trim_end_matches(['\r', '\n']);
        match secret.is_empty() {
            true => Err(wrong("is empty".to_owned())),
            false if secret.contains(['\r', '\n']) => Err(wrong("has more than one line".to_owned())),
            false => Ok(secret.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_line_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let read = || Secret { name: "secret", variable: None, file: Some(&file) }.read();
        assert!(read().err().unwrap().to_string().contains("cannot be read"));
        for (text, said) in [("", "is empty"), ("\n", "is empty"), ("a\nb\n", "more than one line")] {
            std::fs::write(&file, text).unwrap();
            let failure = read().err().unwrap().to_string();
            assert!(failure.contains("--secret-file") && failure.contains(said), "{text:?}: {failure}");
        }
        std::fs::write(&file, " s3cret \r\n").unwrap();
        assert_eq!(read().ok().flatten().as_deref(), Some(" s3cret "));
    }
}
