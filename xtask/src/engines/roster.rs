//! Which servers were started here and have not been ended: a small file that outlives this program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Engine;

/// How long a server may take to stop when it is asked to, before it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that was started here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) engine: Engine,
    pub(crate) pid: u32,
    /// Everything that it keeps; it goes when the server goes.
    pub(crate) folder: PathBuf,
    pub(crate) url: String,
}

impl Running {
    /// True if this very server runs: a process with this id may by now be somebody else's.
    pub(crate) fn is_alive(&self) -> bool {
        let of = |what: &str| PathBuf::from(format!("/proc/{}/{what}", self.pid));
        let folder = self.folder.to_string_lossy();
        let named =
            fs::read(of("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&*folder));
        let zombie = fs::read_to_string(of("stat"))
            .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z')));
        named && !zombie
    }

    /// Asks it to stop, waits, and removes what it kept.
    pub(crate) fn stop(&self) {
        // SIGINT is a quick and clean end to PostgreSQL; SIGTERM would wait for its clients.
        let polite = match self.engine {
            Engine::Postgres => "-INT",
            Engine::Mariadb => "-TERM",
        };
        for signal in [polite, "-KILL"] {
            let started = Instant::now();
            if self.is_alive() {
                self.signal(signal);
            }
            while self.is_alive() && started.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(50));
            }
        }
        if let Err(error) = fs::remove_dir_all(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            eprintln!("warning: {} cannot be removed: {error}", self.folder.display());
        }
    }

    fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.pid.to_string()]).stderr(Stdio::null()).status();
        if let Err(error) = kill {
            eprintln!("warning: {} ({}) cannot be stopped: {error}", self.engine.name(), self.pid);
        }
    }

    fn line(&self) -> String {
        format!("{}\t{}\t{}\t{}", self.engine.name(), self.pid, self.folder.display(), self.url)
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut parts = line.split('\t');
        let (engine, pid, folder, url) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (engine, pid) = (Engine::named(engine)?, pid.parse().ok()?);
        Some(Self { engine, pid, folder: folder.into(), url: url.to_owned() })
    }
}

/// The file, one line per server.
pub(crate) struct Roster(PathBuf);

impl Roster {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn all(&self) -> io::Result<Vec<Running>> {
        Ok(read(&self.0)?.lines().filter_map(Running::of_line).collect())
    }

    pub(crate) fn add(&self, server: &Running) -> io::Result<()> {
        fs::write(&self.0, format!("{}{}\n", read(&self.0)?, server.line()))
    }

    pub(crate) fn remove(&self, server: &Running) -> io::Result<()> {
        let others = self.all()?.into_iter().filter(|other| other != server);
        fs::write(&self.0, others.map(|other| other.line() + "\n").collect::<String>())
    }
}

fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(pid: u32, folder: &Path) -> Running {
        let url = "postgres://a:b@127.0.0.1:1/c".to_owned();
        Running { engine: Engine::Postgres, pid, folder: folder.to_owned(), url }
    }

    #[test]
    fn what_is_added_is_read_until_it_is_removed() {
        let path = std::env::temp_dir().join(format!("roster-{}", std::process::id()));
        let roster = Roster::at(path.clone());
        assert_eq!(roster.all().unwrap(), []);
        let servers = [server(1, Path::new("/some where")), server(2, Path::new("/elsewhere"))];
        servers.iter().for_each(|server| roster.add(server).unwrap());
        assert_eq!(roster.all().unwrap(), servers);
        roster.remove(&servers[0]).unwrap();
        assert_eq!(roster.all().unwrap(), servers[1..]);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_process_that_does_not_name_the_folder_is_a_stranger_and_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("no-such-server-{}", std::process::id()));
        let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
        let server = server(stranger.id(), &folder);
        assert!(!server.is_alive());
        server.stop();
        assert!(stranger.try_wait().unwrap().is_none(), "it still runs");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
