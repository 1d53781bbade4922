//! Parses the command line.

use crate::Failure;

/// A measurement that can be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Throughput,
    Single,
    Latency,
    Backlog,
    Idle,
    Commit,
    Pin,
    Serve,
}

impl Part {
    const ALL: [Part; 8] = [
        Part::Throughput,
        Part::Single,
        Part::Latency,
        Part::Backlog,
        Part::Idle,
        Part::Commit,
        Part::Pin,
        Part::Serve,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Throughput => "throughput",
            Part::Single => "single",
            Part::Latency => "latency",
            Part::Backlog => "backlog",
            Part::Idle => "idle",
            Part::Commit => "commit",
            Part::Pin => "pin",
            Part::Serve => "serve",
        }
    }
}

pub(crate) struct Settings {
    pub(crate) parts: Vec<Part>,
    /// Messages pushed and worked in each throughput round.
    pub(crate) messages: usize,
    pub(crate) rounds: usize,
    /// Single pushes, by all tasks together.
    pub(crate) singles: usize,
    pub(crate) latency_seconds: u64,
    /// Messages in the larger backlog.
    pub(crate) backlog: usize,
    pub(crate) idle_seconds: u64,
    /// How long a transaction is held open.
    pub(crate) pin_seconds: u64,
    /// How long requests are sent to a server.
    pub(crate) serve_seconds: u64,
    pub(crate) json: bool,
}

impl Settings {
    const DEFAULT: fn() -> Self = || Self {
        // Measurements that take minutes or involve more than the engine run only on request.
        parts: Part::ALL.into_iter().filter(|part| !matches!(part, Part::Pin | Part::Serve)).collect(),
        messages: 500_000,
        rounds: 3,
        singles: 10_000,
        latency_seconds: 10,
        backlog: 5_000_000,
        idle_seconds: 20,
        pin_seconds: 300,
        serve_seconds: 60,
        json: false,
    };

    /// Makes everything small, to check that it works and not how fast.
    fn quick(&mut self) {
        self.messages = 50_000;
        self.rounds = 2;
        self.singles = 2_000;
        self.latency_seconds = 2;
        self.backlog = 300_000;
        self.idle_seconds = 5;
        self.pin_seconds = 10;
        self.serve_seconds = 5;
    }

    pub(crate) fn parse(arguments: Vec<String>) -> Result<Self, Failure> {
        let mut settings = Self::DEFAULT();
        // Other options override the quick settings, in any order.
        if arguments.iter().any(|argument| argument == "--quick") {
            settings.quick();
        }
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut number = || -> Result<usize, Failure> {
                let text = arguments.next().unwrap_or_default();
                let wrong = || format!("{argument} wants a whole number from 1, not {text:?}");
                Ok(text.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?)
            };
            match argument.as_str() {
                "--quick" => {}
                "--json" => settings.json = true,
                "--n" => settings.messages = number()?,
                "--rounds" => settings.rounds = number()?,
                "--latency-seconds" => settings.latency_seconds = number()? as u64,
                "--backlog" => settings.backlog = number()?,
                "--idle-seconds" => settings.idle_seconds = number()? as u64,
                "--serve" => {
                    settings.serve_seconds = number()? as u64;
                    settings.parts = vec![Part::Serve];
                }
                "--pin" => {
                    settings.pin_seconds = number()? as u64;
                    settings.parts = vec![Part::Pin];
                }
                "--only" => settings.parts = parts(&arguments.next().unwrap_or_default())?,
                other => return Err(format!("{other:?} is not known here: see cargo xtask help").into()),
            }
        }
        Ok(settings)
    }
}

fn parts(names: &str) -> Result<Vec<Part>, Failure> {
    let all = || Part::ALL.map(Part::name).join(", ");
    let part = |name: &str| {
        let found = Part::ALL.into_iter().find(|part| part.name() == name.trim());
        Ok(found.ok_or_else(|| format!("there is no part {name:?}: use some of {}", all()))?)
    };
    names.split(',').map(part).collect()
}
