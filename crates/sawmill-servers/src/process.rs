//! Shared by all servers: a folder and a port of their own, an unprivileged user, and waiting until they
//! answer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take until it answers, on a busy machine.
pub(crate) const READY: Duration = Duration::from_secs(120);

/// The error of a server that did not start or stop in time.
pub(crate) fn too_slow(what: &str) -> String {
    format!("{}{what}", crate::TOO_SLOW)
}

/// The user that runs servers if we are root: they refuse to run as root.
const NOBODY: &str = "nobody";

pub(crate) fn we_are_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// A command that runs a program as another user if we are root.
pub(crate) fn unprivileged(program: &Path) -> Command {
    if we_are_root() {
        let mut runuser = Command::new("runuser");
        runuser.args(["-u", NOBODY, "--"]).arg(program);
        runuser
    } else {
        Command::new(program)
    }
}

/// Creates a folder that belongs to the user of the server. It is not among build products, which other users
/// may be unable to reach.
pub(crate) fn folder(engine: &str) -> Result<PathBuf, String> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("sawmill-{engine}-{}-{number}", std::process::id()));
    fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if we_are_root() {
        run("chown", Command::new("chown").arg(NOBODY).arg(&folder))?;
    }
    Ok(folder)
}

/// Writes a file that only the user of the server can read.
pub(crate) fn write_private(path: &Path, content: &str) -> Result<(), String> {
    let written =
        fs::write(path, content).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)));
    written.map_err(|error| format!("{}: {error}", path.display()))?;
    if we_are_root() {
        run("chown", Command::new("chown").arg(NOBODY).arg(path))?;
    }
    Ok(())
}

/// The ports of test servers. They lie outside the range from which the system assigns ports (from 32768 on
/// Linux): there it might give the port of a stopped server to another process.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns an unused port, and reserves it among tests for the lifetime of this process, even while its
/// server is stopped.
pub(crate) fn free_port() -> Result<u16, String> {
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let locks = std::env::temp_dir().join("sawmill-ports");
    fs::create_dir_all(&locks).map_err(|error| format!("{}: {error}", locks.display()))?;
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    // Each process starts its search at another port.
    let first = PORTS.start + (std::process::id() % (PORTS.len() as u32)) as u16;
    for port in (first..PORTS.end).chain(PORTS.start..first) {
        let lock = File::create(locks.join(port.to_string()));
        let ours = lock.ok().filter(|lock| lock.try_lock().is_ok());
        if let Some(lock) = ours.filter(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            held.push(lock);
            return Ok(port);
        }
    }
    Err(format!("there is no free port from {} to {}", PORTS.start, PORTS.end))
}

/// Runs a program to its end, quietly. The error contains its output.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{what}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{what} failed ({}): {}", output.status, String::from_utf8_lossy(&said).trim()))
}

/// Waits until a server that speaks first (as MariaDB does) sends something on the port.
pub(crate) fn answers(port: u16, server: &mut Child, log: &Path) -> Result<(), String> {
    wait(server, log, || greets(port))
}

/// Waits until a server accepts connections on the port.
pub(crate) fn accepts(port: u16, server: &mut Child, log: &Path) -> Result<(), String> {
    wait(server, log, || connected(port).map(drop))
}

/// Waits until the server is ready. Fails if it ends meanwhile; ends it if it takes too long.
pub(crate) fn wait(server: &mut Child, log: &Path, ready: impl Fn() -> io::Result<()>) -> Result<(), String> {
    let started = Instant::now();
    while started.elapsed() < READY {
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("it ended ({status}): {}", end_of(log)));
        }
        if ready().is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    // `runuser` forwards this signal, and no other.
    let _ = Command::new("kill").arg(server.id().to_string()).status().and_then(|_| server.wait());
    Err(too_slow(&format!("it does not answer within {READY:?}: {}", end_of(log))))
}

pub(crate) fn connected(port: u16) -> io::Result<TcpStream> {
    connected_to(Ipv4Addr::LOCALHOST, port)
}

pub(crate) fn connected_to(host: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::from((host, port)), Duration::from_secs(1))
}

fn greets(port: u16) -> io::Result<()> {
    let mut stream = connected(port)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.read_exact(&mut [0; 4])
}

pub(crate) fn end_of(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
}
