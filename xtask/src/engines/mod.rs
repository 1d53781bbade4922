//! Starts and stops servers for tests and for developers. Those of `engines up` outlive this program.

mod running_list;

use std::fs;
use std::io;
use std::process::ExitCode;
use std::thread::{self, JoinHandle};

use crate::run::say;
use crate::tools;
use running_list::RunningList;
use sawmill_servers::{Kind, Running, Server};

/// An engine whose server can be started here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Postgres,
    Postgres18,
    /// A pooler in front of `Postgres`.
    Pgbouncer,
    Mariadb,
    Zookeeper,
    Kafka,
    Cassandra,
}

impl Engine {
    /// The engines that the tests need.
    pub(crate) const ALL: &[Self] = &[
        Self::Postgres,
        Self::Postgres18,
        Self::Pgbouncer,
        Self::Mariadb,
        Self::Zookeeper,
        Self::Kafka,
        Self::Cassandra,
    ];

    fn kind(self) -> Kind {
        match self {
            Self::Postgres => Kind::Postgres,
            Self::Postgres18 => Kind::Postgres18,
            Self::Pgbouncer => Kind::Pgbouncer,
            Self::Mariadb => Kind::Mariadb,
            Self::Zookeeper => Kind::Zookeeper,
            Self::Kafka => Kind::Kafka,
            Self::Cassandra => Kind::Cassandra,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.kind().name()
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|engine| engine.name() == name)
    }

    /// The environment variable with its URL. If the user sets it, that server is used.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "SAWMILL_TEST_POSTGRES",
            Self::Postgres18 => "SAWMILL_TEST_POSTGRES_18",
            Self::Pgbouncer => "SAWMILL_TEST_PGBOUNCER",
            Self::Mariadb => "SAWMILL_TEST_MYSQL",
            Self::Zookeeper => "SAWMILL_TEST_ZOOKEEPER",
            Self::Kafka => "SAWMILL_TEST_KAFKA",
            Self::Cassandra => "SAWMILL_TEST_CASSANDRA",
        }
    }
}

/// Starts the engines that do not run yet, and prints the URLs of all.
pub(crate) fn up(engines: &[Engine]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for engine in engines {
        match Engines::default().need(*engine) {
            Ok(url) => say(&format!("export {}={url}", engine.variable())),
            Err(why) => {
                eprintln!("error: {} cannot be had: {why}", engine.name());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Ends every server that was started here, and removes its folder.
pub(crate) fn down() -> ExitCode {
    match running_list().and_then(|running_list| running_list.all()) {
        Ok(running) => {
            if running.is_empty() {
                eprintln!("no engine runs");
            }
            for server in &running {
                end(server);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: the list of running engines cannot be read: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The engines that a run needs. Those that it started end with it.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    started: Vec<Running>,
}

impl Engines {
    /// Returns the URL of a server of this engine: the one in the environment, one that runs already, or a
    /// new one.
    pub(crate) fn need(&mut self, engine: Engine) -> Result<String, String> {
        if let Ok(url) = std::env::var(engine.variable())
            && !url.is_empty()
        {
            return Ok(url);
        }
        self.own(engine)
    }

    /// Returns the URL of a server that was started here, earlier or now.
    fn own(&mut self, engine: Engine) -> Result<String, String> {
        let running_list = running_list().map_err(|error| error.to_string())?;
        let running = running_list.all().map_err(|error| error.to_string())?;
        for server in running.into_iter().filter(|server| server.kind == engine.kind()) {
            if server.is_alive() {
                return Ok(server.url);
            }
            end(&server);
        }
        let started = match engine {
            // The pooler needs a PostgreSQL that was started here, with the same user.
            Engine::Pgbouncer => Server::pgbouncer(port(&self.own(Engine::Postgres)?)?),
            _ => Server::start(engine.kind()),
        };
        let server = started?.hand_over();
        let url = server.url.clone();
        if let Err(error) = running_list.add(&server) {
            server.stop();
            return Err(format!("the list of running engines cannot be written: {error}"));
        }
        self.started.push(server);
        Ok(url)
    }

    /// Ends the servers that this run has started.
    pub(crate) fn end(&mut self) {
        for server in self.started.drain(..).rev() {
            end(&server);
        }
    }
}

/// The engines that the tests need, started on a thread while the tests are built.
pub(crate) struct StartingEngines(JoinHandle<StartedEngines>);

/// The result of starting the engines.
pub(crate) struct StartedEngines {
    pub(crate) engines: Engines,
    /// The URLs of the engines that run.
    pub(crate) urls: Vec<(Engine, String)>,
    /// Why the others cannot be had.
    pub(crate) lacking: Vec<String>,
}

impl StartingEngines {
    pub(crate) fn all() -> Self {
        Self(thread::spawn(|| {
            let mut started =
                StartedEngines { engines: Engines::default(), urls: Vec::new(), lacking: Vec::new() };
            for engine in Engine::ALL {
                match started.engines.need(*engine) {
                    Ok(url) => started.urls.push((*engine, url)),
                    Err(why) => started.lacking.push(format!("{} cannot be had: {why}", engine.name())),
                }
            }
            started
        }))
    }

    /// Waits until each engine runs or has failed to start.
    pub(crate) fn wait(self) -> StartedEngines {
        self.0.join().unwrap_or_else(|_| StartedEngines {
            engines: Engines::default(),
            urls: Vec::new(),
            lacking: vec!["starting the engines ended in a panic".to_owned()],
        })
    }
}

/// The port in the URL of a server that was started here.
fn port(url: &str) -> Result<u16, String> {
    let port = url.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
    port.ok_or_else(|| format!("{url} has no port"))
}

fn end(server: &Running) {
    server.stop();
    if let Err(error) = running_list().and_then(|running_list| running_list.remove(server)) {
        eprintln!("warning: {} stays in the list of running engines: {error}", server.kind.name());
    }
    eprintln!("{} ({}) is stopped", server.kind.name(), server.pid);
}

fn running_list() -> io::Result<RunningList> {
    tools::enter_repository()?;
    let folder = tools::target_dir().join("xtask");
    fs::create_dir_all(&folder)?;
    Ok(RunningList::at(folder.join("engines.txt")))
}
