//! A MariaDB server.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::install;
use crate::process::{answers, done, give, humbly};

/// Runs before the server takes connections.
const FIRST: &str = "\
    CREATE DATABASE IF NOT EXISTS sawmill;\n\
    CREATE USER IF NOT EXISTS sawmill@'%' IDENTIFIED BY 'sawmill';\n\
    GRANT ALL ON *.* TO sawmill@'%' WITH GRANT OPTION;\n";

/// Small, so that it starts quickly beside other work; nothing that a crash could turn into lost data.
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

/// Debian puts them in several folders, so this is the root of those.
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

/// Makes its data.
pub(crate) fn prepare(programs: &Path, folder: &Path) -> Result<(), String> {
    let mut install = at_home(&program(programs, INSTALL)?, folder);
    install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    install.args(["--skip-test-db"]).arg(option("--datadir", &folder.join("data")));
    done(INSTALL, &mut install)?;
    // More settings of a test's own may be written here.
    give(&folder.join("my.cnf"), "[mariadbd]\n")?;
    give(&folder.join("first.sql"), FIRST)
}

/// Starts it, and says which process it is.
pub(crate) fn launch(programs: &Path, folder: &Path, port: u16) -> Result<(u32, Option<Child>), String> {
    let (log, pid_file) = (folder.join("log"), folder.join("pid"));
    let trouble = |error| format!("{}: {error}", log.display());
    let printed = File::options().create(true).append(true).open(&log).map_err(trouble)?;
    // One that a killed server left would name that one.
    let _ = fs::remove_file(&pid_file);
    let mut server = at_home(&program(programs, SERVER)?, folder);
    server.arg(option("--defaults-file", &folder.join("my.cnf"))).args(SETTINGS);
    server.arg(format!("--port={port}")).arg(option("--datadir", &folder.join("data")));
    server.arg(option("--socket", &folder.join("socket"))).arg(option("--pid-file", &pid_file));
    server.arg(option("--init-file", &folder.join("first.sql"))).stdin(Stdio::null());
    server.stdout(printed.try_clone().map_err(trouble)?).stderr(printed);
    // A Ctrl-C at our terminal is not meant for it.
    let mut server = server.process_group(0).spawn().map_err(|error| format!("{SERVER}: {error}"))?;
    answers(port, &mut server, &log)?;
    let pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
    Ok((pid.unwrap_or(server.id()), Some(server)))
}

/// A program that leaves nothing elsewhere. Servers that share a folder for what is temporary remove each other's files when they start.
fn at_home(program: &Path, folder: &Path) -> Command {
    let mut command = humbly(program);
    command.current_dir(folder).env("TMPDIR", folder);
    command
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}
