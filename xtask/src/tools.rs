//! Finds the folders of the repository and its builds.

use std::io;
use std::path::PathBuf;

/// Changes to the repository's folder.
pub(crate) fn enter_repository() -> io::Result<()> {
    // Cargo sets this to the folder of this package, which is in the repository's folder.
    match std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) {
        Some(xtask) => std::env::set_current_dir(xtask.join("..")),
        None => Ok(()),
    }
}

/// The folder of build products.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}
