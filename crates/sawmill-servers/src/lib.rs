//! Real servers for the tests of Sawmill: each in a folder and on a port of its own, never the system's service, and ended by
//! its process id.
//!
//! A [`Server`] is private to whoever started it: it may be stopped, killed and started again under load, with the same data
//! on the same port, and is removed when it is dropped. It uses the standard library only, so that the project's own tool can
//! start servers too and stays quick to build.
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

// It starts servers beside the product: time here is the machine's own.
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

/// How the error begins if a server can be had, and was only too slow to start or to stop: the machine is busy. Any other error says
/// what is missing.
pub const TOO_SLOW: &str = "too slow: ";

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The PostgreSQL that Debian has.
    Postgres,
    /// The newest PostgreSQL that is tried, from Maven's archive.
    Postgres18,
    /// The MariaDB that Debian has.
    Mariadb,
    /// A pooler in transaction mode before a PostgreSQL: see [`Server::pgbouncer`].
    Pgbouncer,
    /// A ZooKeeper, alone, from Maven's archive.
    Zookeeper,
    /// A Kafka broker that is its own controller, from Maven's archive; with more than that: [`Server::kafka`].
    Kafka,
    /// A Cassandra node, alone, from Maven's archive.
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

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A server that was started here, with all that is needed to start it again.
#[derive(Debug)]
pub struct Server {
    running: Running,
    /// Where its programs are.
    programs: PathBuf,
    host: Ipv4Addr,
    port: u16,
    /// Where else it listens, by name.
    ports: Vec<(String, u16)>,
    /// The process that we started, if it is not the server itself that was left to run by itself.
    child: Option<Child>,
    /// False once it was handed over to somebody who will end it.
    ours: bool,
}

impl Server {
    /// Starts a new one, getting its programs first if they are not here. The error says what is missing, or that it was [too slow](TOO_SLOW).
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
                cassandra::prepare(at.folder(), at.host, cassandra::Ports::beside(at.port)?)
            }),
            Kind::Pgbouncer => Err("a pooler needs a server behind it".to_owned()),
        }
    }

    /// Starts a pooler in transaction mode before the PostgreSQL at this port, with so few connections to it that clients must
    /// share them.
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

    /// Starts three Cassandra nodes, from 127.0.0.1 to 127.0.0.3, that are one ring. Each knows the way to all of them.
    pub fn cassandra_ring() -> Result<Vec<Self>, String> {
        let ports = cassandra::Ports::beside(process::free_port()?)?;
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
        // From here on, whatever fails, the folder goes when this is dropped.
        let host = Ipv4Addr::LOCALHOST;
        let mut server = Self { running, programs, host, port, ports: Vec::new(), child: None, ours: true };
        prepare(&mut server)?;
        server.restart()?;
        Ok(server)
    }

    /// Where clients find it, with user and password.
    pub fn url(&self) -> &str {
        &self.running.url
    }

    /// Where clients find it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where clients find another listener of a broker.
    pub fn port_of(&self, listener: &str) -> Option<u16> {
        self.ports.iter().find(|(name, _)| name == listener).map(|(_, port)| *port)
    }

    /// The folder in which it keeps everything. The data of a database is in `data`, what it says in `log`.
    pub fn folder(&self) -> &Path {
        &self.running.folder
    }

    /// Gives a file to the server: it can read it, and nobody else can.
    pub fn give_file(&self, name: &str, content: &str) -> Result<PathBuf, String> {
        let path = self.running.folder.join(name);
        process::give(&path, content)?;
        Ok(path)
    }

    /// Ends it as an administrator would who does not wait for clients. Its data stays.
    pub fn stop(&mut self) -> Result<(), String> {
        self.running.end_politely()?;
        self.reap();
        Ok(())
    }

    /// Ends it and all its processes at once, without a chance to tidy up (SIGKILL). Its data stays as it is.
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

    /// Leaves it running when this is dropped, and even when this program ends: the caller ends it.
    pub fn hand_over(mut self) -> Running {
        self.ours = false;
        self.running.clone()
    }

    /// What we started has ended: its parent must say that it knows.
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
        // A test that failed is told by its own words, not by these.
        if let Err(why) = self.kill() {
            eprintln!("warning: {why}");
        }
        if let Err(error) = fs::remove_dir_all(&self.running.folder) {
            eprintln!("warning: {} cannot be removed: {error}", self.running.folder.display());
        }
    }
}
