//! A PostgreSQL server of our own.

use std::fs;
use std::path::{Path, PathBuf};

use super::roster::Running;
use super::server::{done, end_of, folder, free_port, humbly};
use super::{Engine, install};
use crate::run::Invocation;

/// Where Debian puts the binaries of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Small, so that it starts quickly beside other work; nothing that a crash could turn into lost data.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=64MB",
    "max_connections=300",
    "max_wal_size=512MB",
];

pub(super) fn start() -> Result<Running, String> {
    let bin = match binaries() {
        Some(bin) => bin,
        None => {
            install::postgres()?;
            binaries().ok_or("its binaries are not found, though the package is installed")?
        }
    };
    let folder = folder("postgres")?;
    let started = start_in(&folder, &bin);
    if started.is_err() {
        // The error says all; what is left of the attempt is not needed.
        let _ = fs::remove_dir_all(&folder);
    }
    started
}

fn start_in(folder: &Path, bin: &Path) -> Result<Running, String> {
    let (data, password, log) = (folder.join("data"), folder.join("password"), folder.join("log"));
    fs::write(&password, "sawmill\n").map_err(|error| format!("{}: {error}", password.display()))?;
    let mut initdb = humbly(&bin.join("initdb"));
    initdb.current_dir(folder).args([
        "--no-sync",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--username=sawmill",
    ]);
    initdb.args(["--auth=scram-sha-256", "--pwfile"]).arg(&password).arg("-D").arg(&data);
    done("initdb", &mut initdb)?;
    let port = free_port()?;
    let settings: Vec<String> = SETTINGS.iter().map(|setting| format!("-c {setting}")).collect();
    let options = format!("-p {port} {}", settings.join(" "));
    let mut start = humbly(&bin.join("pg_ctl"));
    start.current_dir(folder).args(["start", "-w", "-t", "60", "-o", &options, "-D"]).arg(&data);
    // `done` waits for the ends of its pipes, which the server must not hold.
    start.arg("-l").arg(&log);
    done("pg_ctl start", &mut start).map_err(|error| format!("{error}: {}", end_of(&log)))?;
    let first_line = fs::read_to_string(data.join("postmaster.pid"));
    let pid = first_line.ok().and_then(|text| text.lines().next()?.trim().parse().ok());
    let pid = pid.ok_or("it does not say which process it is")?;
    let url = format!("postgres://sawmill:sawmill@127.0.0.1:{port}/postgres");
    Ok(Running { engine: Engine::Postgres, pid, folder: folder.to_owned(), url })
}

/// The folder of `initdb` and its kin: the newest of Debian's, else the one on the PATH.
fn binaries() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter(|path| path.join("bin/initdb").exists()).max_by_key(number);
    let on_path = || Invocation::program(Path::new("initdb")).args(["--version"]).works().then(PathBuf::new);
    newest.map(|version| version.join("bin")).or_else(on_path)
}
