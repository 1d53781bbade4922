//! Getting servers that are not here, from Debian's packages.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::server::{done, we_are_root};

/// While this file is there, the package of PostgreSQL sets up no cluster, and so starts no service.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/sawmill.conf";

/// Installs packages, if this machine lets us.
pub(crate) fn packages(names: &[&str]) -> Result<(), String> {
    let by_hand = format!("install {} by hand", names.join(" and "));
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(format!("it is not installed, and there is no apt-get here; {by_hand}"));
    }
    if !we_are_root() {
        return Err(format!("it is not installed, and only root can do that; {by_hand}"));
    }
    eprintln!("installing {}", names.join(", "));
    done("apt-get update", apt_get().arg("update"))?;
    done("apt-get install", apt_get().args(["install", "-y", "--no-install-recommends"]).args(names))
}

/// PostgreSQL's server without the service that its package would set up.
pub(crate) fn postgres() -> Result<(), String> {
    packages(&["postgresql-common"])?;
    let folder = Path::new(NO_CLUSTER).parent().unwrap_or(Path::new("/"));
    let written =
        fs::create_dir_all(folder).and_then(|()| fs::write(NO_CLUSTER, "create_main_cluster = false\n"));
    written.map_err(|error| format!("{NO_CLUSTER} cannot be written: {error}"))?;
    let installed = packages(&["postgresql"]);
    let removed = fs::remove_file(NO_CLUSTER).map_err(|error| format!("{NO_CLUSTER} stays: {error}"));
    installed.and(removed)
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
