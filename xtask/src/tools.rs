//! The one tool the gate needs that does not come with Rust: cargo-deny.

use std::io;
use std::path::{Path, PathBuf};

use crate::run::{Invocation, say};

/// The version that is installed where none is found; `deny.toml` is written for it.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// Goes to the repository's folder, wherever this was called.
pub(crate) fn enter_repository() -> io::Result<()> {
    // Cargo says where this package is; the repository is the folder around it.
    match std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) {
        Some(xtask) => std::env::set_current_dir(xtask.join("..")),
        None => Ok(()),
    }
}

/// Where builds go, and where tools are kept.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// cargo-deny: the one on the PATH, else our own, else a fresh one, which takes some minutes once. The error says why
/// there is none.
pub(crate) fn cargo_deny() -> Result<Invocation, String> {
    let tools = target_dir().join("tools");
    let own = tools.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if let Some(found) = first_that_works(&[Path::new("cargo-deny"), &own]) {
        return Ok(found);
    }
    let install = install_cargo_deny(&tools);
    say(&format!("cargo-deny is not there; installing it once, which takes some minutes: {install}"));
    match install.run() {
        Ok(status) if status.success() => Ok(Invocation::program(&own)),
        Ok(status) => Err(format!("cargo-deny could not be installed ({status}): {install}")),
        Err(error) => Err(format!("cargo-deny could not be installed ({error}): {install}")),
    }
}

fn install_cargo_deny(tools: &Path) -> Invocation {
    Invocation::cargo(&["install", "cargo-deny", "--version", CARGO_DENY_VERSION, "--locked", "--root"])
        .args([tools.to_string_lossy()])
}

fn first_that_works(programs: &[&Path]) -> Option<Invocation> {
    let found = programs.iter().find(|program| Invocation::program(program).args(["--version"]).works());
    found.map(|program| Invocation::program(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_version_is_pinned() {
        assert_eq!(
            install_cargo_deny(Path::new("target/tools")).to_string(),
            "cargo install cargo-deny --version 0.20.2 --locked --root target/tools"
        );
    }

    #[test]
    fn the_first_program_that_runs_is_taken() {
        let cargo = std::env::var("CARGO").unwrap();
        let programs = [Path::new("no-such-program-anywhere"), Path::new(&cargo)];
        let found = first_that_works(&programs).map(|program| program.to_string());
        assert_eq!(found, Some(Invocation::program(Path::new(&cargo)).to_string()));
        assert!(first_that_works(&programs[..1]).is_none());
    }
}
