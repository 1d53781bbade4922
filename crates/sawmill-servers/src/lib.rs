//! Real servers for the tests of Sawmill. Each has a folder and a port of its own, is never the system's
//! service, and is ended by its process id.
//!
//! A [`Server`] is private to its owner: it can be stopped, killed and restarted under load, with the same
//! data on the same port, and is removed when it is dropped. The crate uses the standard library only, so
//! that `xtask` can start servers too and stays quick to build.
//!
//! ```no_run
//! # fn main() -> Result<(), String> {
//! use sawmill_servers::{Kind, Server};
//!
//! let mut server = Server::start(Kind::Postgres)?;
//! server.kill()?;
//! server.restart()?;
//! println!("{}", server.url());
//! # Ok(())
//! # }
//! ```

// Test servers use the machine's own clock.
#![allow(clippy::disallowed_methods)]

mod cassandra;
mod install;
mod java;
mod kafka;
mod mariadb;
mod pgbouncer;
mod postgres;
mod process;
mod running;
mod zookeeper;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Child;

pub use install::{chromium, podman, python};
pub use kafka::KafkaExtras;
pub use running::Running;

/// The prefix of the error of a server that is available but was too slow to start or to stop: the machine is
/// busy. Any other error says what is missing.
pub const TOO_SLOW: &str = "too slow: ";

/// The kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Debian's PostgreSQL.
    Postgres,
    /// The newest PostgreSQL that is tested, from Maven's archive.
    Postgres18,
    /// Debian's MariaDB.
    Mariadb,
    /// A pooler in transaction mode in front of a PostgreSQL: see [`Server::pgbouncer`].
    Pgbouncer,
    /// A single ZooKeeper, from Maven's archive.
    Zookeeper,
    /// A Kafka broker that is its own controller, from Maven's archive. [`Server::kafka`] adds listeners and
    /// users.
    Kafka,
    /// A single Cassandra node, from Maven's archive.
    Cassandra,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Postgres,
        Self::Postgres18,
        Self::Mariadb,
        Self::Pgbouncer,
        Self::Zookeeper,
        Self::Kafka,
        Self::Cassandra,
    ];

    /// One word, for folders and lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Postgres18 => "postgres-18",
            Self::Mariadb => "mariadb",
            Self::Pgbouncer => "pgbouncer",
            Self::Zookeeper => "zookeeper",
            Self::Kafka => "kafka",
            Self::Cassandra => "cassandra",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A server that this process has started, and can start again.
#[derive(Debug)]
pub struct Server {
    running: Running,
    /// The folder of its programs.
    programs: PathBuf,
    host: Ipv4Addr,
    port: u16,
    /// The ports of its other listeners, by name.
    ports: Vec<(String, u16)>,
    /// Our child process, if there is one: the server itself, or the program that runs it.
    child: Option<Child>,
    /// False once it was handed over to a caller that will end it.
    ours: bool,
}

impl Server {
    /// Starts a new server, and fetches its programs first if they are missing. The error says what is
    /// missing, or that it was [too slow](TOO_SLOW).
    pub fn start(kind: Kind) -> Result<Self, String> {
        match kind {
            Kind::Postgres => {
                Self::make(kind, postgres::programs()?, |at| postgres::prepare(&at.programs, at.folder()))
            }
            Kind::Postgres18 => Self::make(kind, postgres::programs_of_18()?, |at| {
                postgres::prepare(&at.programs, at.folder())
            }),
            Kind::Mariadb => {
                Self::make(kind, mariadb::programs()?, |at| mariadb::prepare(&at.programs, at.folder()))
            }
            Kind::Zookeeper => {
                Self::make(kind, zookeeper::programs()?, |at| zookeeper::prepare(at.folder(), at.port))
            }
            Kind::Kafka => Self::kafka(&KafkaExtras::default()),
            Kind::Cassandra => Self::make(kind, cassandra::programs()?, |at| {
                cassandra::prepare(at.folder(), at.host, cassandra::Ports::with_native(at.port)?)
            }),
            Kind::Pgbouncer => Err("a pooler needs a server behind it".to_owned()),
        }
    }

    /// Starts a pooler in transaction mode in front of the PostgreSQL on this port, with so few server
    /// connections that clients must share them.
    pub fn pgbouncer(port: u16) -> Result<Self, String> {
        let prepare = |at: &mut Self| pgbouncer::prepare(&at.programs, at.folder(), port);
        Self::make(Kind::Pgbouncer, pgbouncer::programs()?, prepare)
    }

    /// Starts a Kafka broker with more listeners, settings and users.
    pub fn kafka(extras: &KafkaExtras) -> Result<Self, String> {
        Self::make(Kind::Kafka, kafka::programs()?, |at| {
            at.ports = kafka::prepare(&at.programs, at.folder(), at.port, extras)?;
            Ok(())
        })
    }

    /// Starts a ring of three Cassandra nodes, on 127.0.0.1 to 127.0.0.3. The URL of each names all of them.
    pub fn cassandra_ring() -> Result<Vec<Self>, String> {
        let ports = cassandra::Ports::with_native(process::free_port()?)?;
        let host = |number| Ipv4Addr::new(127, 0, 0, number);
        let nodes = (1..=3).map(|number| format!("{}:{}", host(number), ports.native)).collect::<Vec<_>>();
        let url = format!("cassandra://{}/sawmill?replication=3", nodes.join(","));
        let node = |number| {
            Self::make(Kind::Cassandra, cassandra::programs()?, |at| {
                (at.host, at.port, at.running.url) = (host(number), ports.native, url.clone());
                cassandra::prepare(at.folder(), at.host, ports)
            })
        };
        (1..=3).map(node).collect()
    }

    fn make(
        kind: Kind,
        programs: PathBuf,
        prepare: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<Self, String> {
        let (folder, port) = (process::folder(kind.name())?, process::free_port()?);
        let url = match kind {
            Kind::Mariadb => format!("mysql://sawmill:sawmill@127.0.0.1:{port}/sawmill"),
            Kind::Zookeeper | Kind::Kafka => format!("{}://127.0.0.1:{port}", kind.name()),
            Kind::Cassandra => format!("cassandra://127.0.0.1:{port}/sawmill?replication=1"),
            _ => format!("postgres://sawmill:sawmill@127.0.0.1:{port}/postgres"),
        };
        let running = Running { kind, pid: 0, folder, url };
        // From here on, dropping the server removes the folder if a step fails.
        let host = Ipv4Addr::LOCALHOST;
        let mut server = Self { running, programs, host, port, ports: Vec::new(), child: None, ours: true };
        prepare(&mut server)?;
        server.restart()?;
        Ok(server)
    }

    /// The URL for clients, with user and password.
    pub fn url(&self) -> &str {
        &self.running.url
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port of another listener of a broker.
    pub fn port_of(&self, listener: &str) -> Option<u16> {
        self.ports.iter().find(|(name, _)| name == listener).map(|(_, port)| *port)
    }

    /// The folder with all its files. The data of a database is in `data`, its output in `log`.
    pub fn folder(&self) -> &Path {
        &self.running.folder
    }

    /// Writes a file that only the server can read.
    pub fn give_file(&self, name: &str, content: &str) -> Result<PathBuf, String> {
        let path = self.running.folder.join(name);
        process::write_private(&path, content)?;
        Ok(path)
    }

    /// Stops it cleanly, without waiting for clients. Its data stays.
    pub fn stop(&mut self) -> Result<(), String> {
        self.running.end_gracefully()?;
        self.reap();
        Ok(())
    }

    /// Kills it and its child processes (SIGKILL). Its data stays as it is.
    pub fn kill(&mut self) -> Result<(), String> {
        self.running.kill()?;
        self.reap();
        Ok(())
    }

    /// Starts it again, on the same port and with the same data, and waits until it answers.
    pub fn restart(&mut self) -> Result<(), String> {
        let (folder, programs) = (&self.running.folder, &self.programs);
        (self.running.pid, self.child) = match self.running.kind {
            Kind::Postgres | Kind::Postgres18 => (postgres::launch(programs, folder, self.port)?, None),
            Kind::Mariadb => mariadb::launch(programs, folder, self.port)?,
            Kind::Pgbouncer => pgbouncer::launch(programs, folder, self.port)?,
            Kind::Zookeeper => zookeeper::launch(programs, folder, self.port)?,
            Kind::Kafka => kafka::launch(programs, folder, self.port)?,
            Kind::Cassandra => cassandra::launch(programs, folder, self.host, self.port)?,
        };
        Ok(())
    }

    /// Leaves it running, even after this program ends: the caller must end it.
    pub fn hand_over(mut self) -> Running {
        self.ours = false;
        self.running.clone()
    }

    /// Reaps our child process, which has ended.
    fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        // Only warn: a panic here would hide the failure of the test.
        if let Err(why) = self.kill() {
            eprintln!("warning: {why}");
        }
        if let Err(error) = fs::remove_dir_all(&self.running.folder) {
            eprintln!("warning: {} cannot be removed: {error}", self.running.folder.display());
        }
    }
}
