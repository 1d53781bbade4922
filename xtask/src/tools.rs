//! Where things are.

use std::io;
use std::path::PathBuf;

/// Goes to the repository's folder, wherever this was called.
pub(crate) fn enter_repository() -> io::Result<()> {
    // Cargo says where this package is; the repository is the folder around it.
    match std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) {
        Some(xtask) => std::env::set_current_dir(xtask.join("..")),
        None => Ok(()),
    }
}

/// Where builds go.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}
