//! The command that runs for each message. It is looked up before the worker joins its group, so that a wrong
//! command fails no message.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::failure::Failure;

/// A command and its arguments, run without a shell.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<OsString>,
}

impl Program {
    /// Looks up the command as a shell would.
    pub(crate) fn find(words: &[OsString]) -> Result<Self, Failure> {
        let (command, args) =
            words.split_first().ok_or_else(|| Failure::usage("say which COMMAND to run, after `--`"))?;
        let path = match command.as_bytes().contains(&b'/') {
            true => PathBuf::from(command),
            false => search(command).ok_or_else(|| {
                Failure::usage(format!(
                    "the command {} is not in PATH: give its path, or install it",
                    command.display()
                ))
            })?,
        };
        let wrong =
            |why: &str| Failure::usage(format!("the command {} cannot be run: {why}", path.display()));
        match path.metadata() {
            Err(error) => Err(wrong(&error.to_string())),
            Ok(metadata) if metadata.is_dir() => Err(wrong("it is a folder")),
            Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
                Err(wrong("it is not executable (try `chmod +x`)"))
            }
            Ok(_) => Ok(Self { path, args: args.to_vec() }),
        }
    }
}

fn search(command: &OsString) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|folder| folder.join(command)).find(is_program)
}
