//! Runs what takes too long for the gate: the simulation on many seeds, and tests that run for minutes.

use std::process::ExitCode;

use crate::engines::{Engine, Engines};
use crate::run::Invocation;

/// A long run of a test that also runs in the gate, but shorter.
struct LongTest {
    name: &'static str,
    server: Option<Engine>,
    /// The arguments of Cargo; split at spaces.
    args: &'static str,
    env: &'static [(&'static str, &'static str)],
}

/// How long money is moved while workers are killed.
const BANK: &[(&str, &str)] = &[("SAWMILL_TEST_BANK_SECONDS", "60")];

const LONG_TESTS: &[LongTest] = &[
    LongTest {
        name: "exactly-once-sqlite",
        server: None,
        args: "test -p sawmill-sqlite --test transactions f6_killed -- --nocapture",
        env: BANK,
    },
    LongTest {
        name: "exactly-once-postgres",
        server: Some(Engine::Postgres),
        args: "test -p sawmill-postgres --features sqlx --test transactions f6_killed -- --nocapture",
        env: BANK,
    },
    LongTest {
        name: "postgres-stranger",
        server: Some(Engine::Postgres),
        args: "test -p sawmill-postgres --test engine late_commits::a_strangers_transaction",
        env: &[("SAWMILL_TEST_STRANGER_SECONDS", "60")],
    },
    LongTest {
        name: "exactly-once-mysql",
        server: Some(Engine::Mariadb),
        args: "test -p sawmill-mysql --test transactions f6_killed -- --nocapture",
        env: BANK,
    },
    // OpenSSL takes minutes to compile.
    LongTest {
        name: "kafka-tls",
        server: None,
        args: "test -p sawmill-kafka --features tls --test secure",
        env: &[],
    },
    LongTest {
        name: "cassandra-late",
        server: Some(Engine::Cassandra),
        args: "test -p sawmill-cassandra --test engine late:: -- --nocapture",
        env: &[("SAWMILL_TEST_LATE_MESSAGES", "100000"), ("SAWMILL_TEST_LATE_MS", "100")],
    },
    LongTest {
        name: "cassandra-long",
        server: Some(Engine::Cassandra),
        args: "test -p sawmill-cassandra --test engine long:: -- --nocapture",
        env: &[("SAWMILL_TEST_LONG_MESSAGES", "1000000")],
    },
    // How busy workers are depends on the load of the machine.
    LongTest {
        name: "busy-sqlite",
        server: None,
        args: "test -p sawmill-sqlite --test processes sixty_four_workers -- --nocapture",
        env: &[("SAWMILL_TEST_BUSY_PERCENT", "95")],
    },
    // Three nodes take more memory than the gate may use.
    LongTest {
        name: "cassandra-ring",
        server: None,
        args: "test -p sawmill-cassandra --test faults -- --nocapture",
        env: &[("SAWMILL_TEST_NODES", "3")],
    },
    LongTest {
        name: "fuzz-serve",
        server: None,
        args: "test -p sawmill-serve --test serve fuzz -- --nocapture",
        env: &[("SAWMILL_TEST_FUZZ_EXAMPLES", "200")],
    },
];

/// The name of the simulation among the parts.
const SIM: &str = "sim";

pub(crate) fn part_names() -> Vec<&'static str> {
    [SIM].into_iter().chain(LONG_TESTS.iter().map(|long| long.name)).collect()
}

/// Runs these parts, and goes on if one fails. The simulation starts at this seed.
pub(crate) fn run(parts: &[&str], start: u64) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    if parts.contains(&SIM) {
        code = crate::pass_on(&seeds(start));
    }
    for long in LONG_TESTS.iter().filter(|long| parts.contains(&long.name)) {
        let ended = long.run();
        if ended != ExitCode::SUCCESS {
            eprintln!("error: {} failed; to repeat it: cargo xtask soak --only {}", long.name, long.name);
            code = ended;
        }
    }
    code
}

fn seeds(start: u64) -> Invocation {
    crate::sim(&["--seeds".into(), "20000".into(), "--start".into(), start.to_string()])
}

impl LongTest {
    fn command(&self) -> Invocation {
        let command = Invocation::cargo(&[]).args(self.args.split_whitespace());
        self.env.iter().fold(command, |command, (name, value)| command.env(name, *value))
    }

    fn run(&self) -> ExitCode {
        let (mut engines, mut command) = (Engines::default(), self.command());
        if let Some(server) = self.server {
            match engines.need(server) {
                Ok(url) => command = command.env(server.variable(), url),
                Err(why) => {
                    eprintln!("error: {} cannot be had: {why}", server.name());
                    return ExitCode::FAILURE;
                }
            }
        }
        // A part that cannot run has failed, even if its test would rather skip itself.
        let skips = std::env::temp_dir().join(format!("sawmill-soak-{}-skips", std::process::id()));
        command = command.env("CI", "true").env("SAWMILL_SKIPS", skips.display().to_string());
        let code = crate::pass_on(&command);
        engines.end();
        let skipped = std::fs::read_to_string(&skips).unwrap_or_default();
        // The file does not exist if nothing was skipped.
        let _ = std::fs::remove_file(&skips);
        if !skipped.is_empty() {
            eprint!("error: this could not be run: {skipped}");
            return ExitCode::FAILURE;
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulation_starts_where_the_caller_says() {
        assert_eq!(seeds(42).to_string(), "cargo run --release -p sawmill-sim -- --seeds 20000 --start 42");
    }

    #[test]
    fn a_long_run_says_for_how_long() {
        let command = LONG_TESTS[0].command().to_string();
        assert_eq!(
            command,
            "SAWMILL_TEST_BANK_SECONDS=60 cargo test -p sawmill-sqlite --test transactions f6_killed -- --nocapture"
        );
    }
}
