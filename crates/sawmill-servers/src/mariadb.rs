//! A MariaDB server.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::install;
use crate::process::{answers, run, unprivileged, write_private};

/// Runs before the server accepts connections.
const INIT_SQL: &str = "\
    CREATE DATABASE IF NOT EXISTS sawmill;\n\
    CREATE USER IF NOT EXISTS sawmill@'%' IDENTIFIED BY 'sawmill';\n\
    GRANT ALL ON *.* TO sawmill@'%' WITH GRANT OPTION;\n";

/// Small buffers, for a quick start beside other work. No setting trades durability for speed.
const SETTINGS: &[&str] = &[
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=64M",
    "--max-allowed-packet=64M",
    "--max-connections=300",
];

const INSTALL: &str = "mariadb-install-db";
const SERVER: &str = "mariadbd";

/// Returns the root of the folders with its programs: Debian installs them in several.
pub(crate) fn programs() -> Result<PathBuf, String> {
    let root = PathBuf::from("/");
    let found = || find(&root, INSTALL).is_some() && find(&root, SERVER).is_some();
    if !found() {
        install::packages(&["mariadb-server-core", "mariadb-client-core"])?;
        if !found() {
            return Err("its programs are not found, though the packages are installed".to_owned());
        }
    }
    Ok(root)
}

fn find(root: &Path, name: &str) -> Option<PathBuf> {
    let folders = ["usr/bin", "usr/sbin", "usr/local/bin"].map(|folder| root.join(folder).join(name));
    folders.into_iter().find(|path| path.exists())
}

fn program(root: &Path, name: &str) -> Result<PathBuf, String> {
    find(root, name).ok_or_else(|| format!("{name} is not there any more"))
}

/// Creates its data.
pub(crate) fn prepare(programs: &Path, folder: &Path) -> Result<(), String> {
    let mut install = in_folder(&program(programs, INSTALL)?, folder);
    install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    install.args(["--skip-test-db"]).arg(option("--datadir", &folder.join("data")));
    run(INSTALL, &mut install)?;
    // Tests may add settings to this file.
    write_private(&folder.join("my.cnf"), "[mariadbd]\n")?;
    write_private(&folder.join("first.sql"), INIT_SQL)
}

/// Starts it and returns its process id.
pub(crate) fn launch(programs: &Path, folder: &Path, port: u16) -> Result<(u32, Option<Child>), String> {
    let (log, pid_file) = (folder.join("log"), folder.join("pid"));
    let with_path = |error| format!("{}: {error}", log.display());
    let printed = File::options().create(true).append(true).open(&log).map_err(with_path)?;
    // The file of a killed server would hold the wrong process id.
    let _ = fs::remove_file(&pid_file);
    let mut server = in_folder(&program(programs, SERVER)?, folder);
    server.arg(option("--defaults-file", &folder.join("my.cnf"))).args(SETTINGS);
    server.arg(format!("--port={port}")).arg(option("--datadir", &folder.join("data")));
    server.arg(option("--socket", &folder.join("socket"))).arg(option("--pid-file", &pid_file));
    server.arg(option("--init-file", &folder.join("first.sql"))).stdin(Stdio::null());
    server.stdout(printed.try_clone().map_err(with_path)?).stderr(printed);
    // Ctrl-C at our terminal must not reach it.
    let mut server = server.process_group(0).spawn().map_err(|error| format!("{SERVER}: {error}"))?;
    answers(port, &mut server, &log)?;
    let pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
    Ok((pid.unwrap_or(server.id()), Some(server)))
}

/// A command with its temporary files in the folder. Servers that share a temporary folder remove each
/// other's files when they start.
fn in_folder(program: &Path, folder: &Path) -> Command {
    let mut command = unprivileged(program);
    command.current_dir(folder).env("TMPDIR", folder);
    command
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}
