//! A MariaDB server of our own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::roster::Running;
use super::server::{answers, done, folder, free_port, humbly};
use super::{Engine, install};

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

pub(super) fn start() -> Result<Running, String> {
    let programs = match programs() {
        Some(programs) => programs,
        None => {
            install::packages(&["mariadb-server-core", "mariadb-client-core"])?;
            programs().ok_or("its programs are not found, though the packages are installed")?
        }
    };
    let folder = folder("mariadb")?;
    let started = start_in(&folder, &programs);
    if started.is_err() {
        // The error says all; what is left of the attempt is not needed.
        let _ = fs::remove_dir_all(&folder);
    }
    started
}

fn start_in(folder: &Path, programs: &Programs) -> Result<Running, String> {
    let trouble = |path: &Path| {
        let path = path.display().to_string();
        move |error| format!("{path}: {error}")
    };
    let (data, log, first) = (folder.join("data"), folder.join("log"), folder.join("first.sql"));
    let (pid_file, socket) = (folder.join("pid"), folder.join("socket"));
    let mut install = humbly(&programs.install);
    install.current_dir(folder).args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    install.args(["--skip-test-db"]).arg(option("--datadir", &data));
    done("mariadb-install-db", &mut install)?;
    fs::write(&first, FIRST).map_err(trouble(&first))?;
    let printed = File::create(&log).map_err(trouble(&log))?;
    let port = free_port()?;
    let mut server = humbly(&programs.server);
    server.current_dir(folder).arg("--no-defaults").args(SETTINGS).arg(format!("--port={port}"));
    server.args([option("--datadir", &data), option("--socket", &socket), option("--pid-file", &pid_file)]);
    server.arg(option("--init-file", &first)).stdin(Stdio::null());
    server.stdout(printed.try_clone().map_err(trouble(&log))?).stderr(printed);
    // A Ctrl-C at our terminal is not meant for it.
    let mut server = server.process_group(0).spawn().map_err(|error| format!("mariadbd: {error}"))?;
    let ready = answers(port, &mut server, &log);
    let pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
    let url = format!("mysql://sawmill:sawmill@127.0.0.1:{port}/sawmill");
    let running =
        Running { engine: Engine::Mariadb, pid: pid.unwrap_or(server.id()), folder: folder.to_owned(), url };
    if let Err(why) = ready {
        running.stop();
        return Err(why);
    }
    Ok(running)
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

struct Programs {
    install: PathBuf,
    server: PathBuf,
}

fn programs() -> Option<Programs> {
    let find = |name: &str| {
        let folders = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(|folder| Path::new(folder).join(name));
        folders.into_iter().find(|path| path.exists())
    };
    Some(Programs { install: find("mariadb-install-db")?, server: find("mariadbd")? })
}
