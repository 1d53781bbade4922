//! PgBouncer in transaction mode: after every transaction a client may get another connection to the server.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::install;
use crate::process::{accepts, unprivileged, write_private};

/// The package is only unpacked, because installing it would set up a service. The other two are libraries
/// that it needs.
const PACKAGES: &[&str] = &["pgbouncer", "libc-ares2", "libevent-2.1-7"];

/// Few connections, used round robin: clients must take turns, and get another connection each time.
const SETTINGS: &str = "\
    listen_addr = 127.0.0.1\n\
    unix_socket_dir =\n\
    auth_type = scram-sha-256\n\
    pool_mode = transaction\n\
    default_pool_size = 6\n\
    max_client_conn = 500\n\
    server_round_robin = 1\n\
    server_login_retry = 1\n";

/// The root of the folders that contain the program and its libraries.
pub(crate) fn programs() -> Result<PathBuf, String> {
    match find(Path::new("/")) {
        Some(_) => Ok(PathBuf::from("/")),
        None => install::unpacked("pgbouncer", PACKAGES),
    }
}

fn find(root: &Path) -> Option<PathBuf> {
    ["usr/sbin/pgbouncer", "usr/bin/pgbouncer"]
        .into_iter()
        .map(|path| root.join(path))
        .find(|path| path.exists())
}

/// Writes the address of the server behind it, and the users.
pub(crate) fn prepare(_programs: &Path, folder: &Path, server_port: u16) -> Result<(), String> {
    write_private(&folder.join("users"), "\"sawmill\" \"sawmill\"\n")?;
    write_private(&folder.join("server"), &format!("[databases]\n* = host=127.0.0.1 port={server_port}\n"))
}

/// Starts it and returns its process id.
pub(crate) fn launch(programs: &Path, folder: &Path, port: u16) -> Result<(u32, Option<Child>), String> {
    let file = |name: &str| folder.join(name);
    let (log, ini, pid_file) = (file("log"), file("pgbouncer.ini"), file("pid"));
    let program = find(programs).ok_or("it is not there any more")?;
    // The file of a killed process would prevent the start.
    let _ = fs::remove_file(&pid_file);
    let (server, users, pid) = (file("server"), file("users"), pid_file.display());
    write_private(
        &ini,
        &format!(
            "%include {}\n[pgbouncer]\n{SETTINGS}listen_port = {port}\nauth_file = {}\npidfile = {pid}\n",
            server.display(),
            users.display()
        ),
    )?;
    let with_path = |error| format!("{}: {error}", log.display());
    let printed = File::options().create(true).append(true).open(&log).map_err(with_path)?;
    let mut bouncer: Command = unprivileged(&program);
    if programs != Path::new("/") {
        bouncer.env("LD_LIBRARY_PATH", programs.join("usr/lib/x86_64-linux-gnu"));
    }
    bouncer.current_dir(folder).arg(&ini).stdin(Stdio::null());
    bouncer.stdout(printed.try_clone().map_err(with_path)?).stderr(printed);
    let mut bouncer = bouncer.process_group(0).spawn().map_err(|error| format!("pgbouncer: {error}"))?;
    accepts(port, &mut bouncer, &log)?;
    let pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
    Ok((pid.unwrap_or(bouncer.id()), Some(bouncer)))
}
