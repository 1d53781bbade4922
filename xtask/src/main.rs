//! The project's own tool: one gate (`cargo xtask test`), the simulation, longer runs and benchmarks.
//!
//! It starts other programs and counts the tests that they report. It has few dependencies, so that the gate
//! itself is quick to build.

// A build tool may use the machine's clock to report how long a step took.
#![allow(clippy::disallowed_methods)]

mod args;
mod behaviours;
mod engines;
mod layers;
mod licences;
mod programs;
mod run;
mod second_run;
mod soak;
mod tally;
mod test;
mod tools;

use std::process::ExitCode;

use args::Task;
use engines::{Engine, Engines};
use run::Invocation;

const HELP: &str = "\
cargo xtask: checks, simulation and benchmarks of Sawmill

Usage: cargo xtask TASK [OPTIONS]

Tasks:
  test                      Run the whole gate, stop at the first step that fails
      --list                  Show the steps and their commands, run nothing
      --only STEP[,STEP]      Run these steps only
  engines up [ENGINE...]    Start servers for tests and print their URLs: postgres,
                            postgres-18, pgbouncer, mariadb, zookeeper, kafka,
                            cassandra
  engines down              Stop every server that was started so
  sim [ARGS...]             Run the simulation; every argument goes to it as it is
  soak                      What takes longer than the gate may: the simulation on seeds the gate does
                            not try; for a minute each, money moved by workers that are killed, and a
                            transaction that somebody holds open; Kafka with encryption; Cassandra with
                            100,000 messages by wrong clocks, a million through one topic, and one of three
                            nodes killed; whatever the description of the HTTP API allows, and what it
                            does not
      --start SEED            First seed [default: 1000000]
      --only PART[,PART]      Run these only: sim, exactly-once-sqlite, exactly-once-postgres,
                              exactly-once-mysql, postgres-stranger, kafka-tls, cassandra-late,
                              cassandra-long, cassandra-ring, fuzz-serve
  bench ENGINE              Measure Sawmill beside the engine alone: sqlite, postgres, mysql,
                            kafka, cassandra; and zookeeper, as a ledger
      --quick                 A small run, to see that it works
      --only PART[,PART]      Measure these only: throughput, single, latency, backlog, idle, commit
      --n N                   Messages pushed and worked in a round [default: 500000]
      --rounds N              Rounds, of which the best counts [default: 3]
      --latency-seconds N     How long to push now and then [default: 10]
      --backlog N             Messages that wait in the larger backlog [default: 5000000]
      --idle-seconds N        How long to watch an idle worker [default: 20]
      --pin SECONDS           Push and work for so long, without and with a transaction that is held open
                              (postgres, mysql), and measure only whether that gets slower
      --serve SECONDS         Send 500 pushes a second to a server for so long, with 50 long polls beside them,
                              and measure only that
      --json                  Print the figures as JSON
  behaviours                Write the table of behaviours, engines and tests in docs/behaviours.md
  pictures                  Make the pictures of the page in docs/, in a real browser
  help                      Show this text

Examples:
  cargo xtask test                          everything, before a commit
  cargo xtask test --only format,clippy     the quick half
  source <(cargo xtask engines up)          servers for `cargo test` by hand
  cargo xtask sim --seeds 100 --start 7     seeds 7 to 106
  cargo xtask sim --mutants                 does the simulation find the planted bugs?
  cargo xtask soak --start 5000000          twenty thousand new seeds
  cargo xtask bench sqlite                  all figures, in some minutes
  cargo xtask bench postgres --pin 300      does the rate decay while somebody holds a transaction open?
  cargo xtask bench sqlite --serve 60       what an HTTP request takes under load
  cargo xtask bench sqlite --only idle      what a worker costs that has nothing to do

Environment:
  CI=true                  A skipped test or step is a failure
  SAWMILL_TEST_POSTGRES    A PostgreSQL for tests and benchmarks [default: one is started]
  SAWMILL_TEST_POSTGRES_18 A newer PostgreSQL for tests [default: one is started]
  SAWMILL_TEST_PGBOUNCER   A pooler in transaction mode for tests [default: one is started]
  SAWMILL_TEST_MYSQL       A MariaDB or MySQL for tests and benchmarks [default: one is started]
  SAWMILL_TEST_ZOOKEEPER   A ZooKeeper for tests and benchmarks [default: one is started]
  SAWMILL_TEST_KAFKA       A Kafka broker for tests [default: one is started]
  SAWMILL_TEST_CASSANDRA   A Cassandra node for tests and benchmarks [default: one is started]
  CARGO_TARGET_DIR         Where builds and tools go [default: target]

The last line of `test` reads: N passed, M failed, K skipped
Exit codes: 0 all good, 1 something failed, 2 the command line was wrong;
sim, soak and bench answer with the exit code of the program they ran.
";

fn main() -> ExitCode {
    match args::parse(std::env::args_os().skip(1)) {
        Ok(task) => perform(&task),
        Err(usage) => {
            eprintln!("error: {usage}\n\nTry `cargo xtask help`.");
            ExitCode::from(2)
        }
    }
}

fn perform(task: &Task) -> ExitCode {
    match task {
        Task::Help => {
            run::say(HELP.trim_end());
            ExitCode::SUCCESS
        }
        Task::ListSteps => {
            test::list();
            ExitCode::SUCCESS
        }
        Task::Test { steps } => test::run(steps),
        Task::EnginesUp { engines } => engines::up(engines),
        Task::EnginesDown => engines::down(),
        Task::Sim { args } => pass_on(&sim(args)),
        Task::Soak { parts, start } => soak::run(parts, *start),
        Task::Behaviours => behaviours::write(),
        Task::Pictures => pictures(),
        Task::Bench { engine, server, args } => measure(engine, *server, args),
    }
}

/// The planted bugs are compiled in only for `--mutants`.
fn sim(args: &[String]) -> Invocation {
    let mut cargo = Invocation::cargo(&["run", "--release", "-p", "sawmill-sim"]);
    if args.iter().any(|arg| arg == "--mutants") {
        cargo = cargo.args(["--features", "planted"]);
    }
    cargo.args(["--"]).args(args)
}

/// Runs the browser test of the page and keeps its screenshots.
fn pictures() -> ExitCode {
    let folder = tools::enter_repository().and_then(|()| Ok(std::env::current_dir()?.join("docs")));
    match folder {
        Ok(folder) => {
            let test = "test -p sawmill-serve --test serve browser::pictures::the_page";
            pass_on(
                &Invocation::cargo(&[])
                    .args(test.split_whitespace())
                    .env("CI", "true")
                    .env("SAWMILL_PICTURES", folder),
            )
        }
        Err(error) => {
            eprintln!("error: the folder docs cannot be found: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(engine: &str, args: &[String]) -> Invocation {
    Invocation::cargo(&["run", "--release", "-p", "sawmill-bench", "--", engine]).args(args)
}

/// Runs a benchmark, and starts the server that it needs if there is none.
fn measure(engine: &str, server: Option<Engine>, args: &[String]) -> ExitCode {
    let (mut engines, mut bench) = (Engines::default(), bench(engine, args));
    if let Some(server) = server {
        match engines.need(server) {
            Ok(url) => bench = bench.env(server.variable(), url),
            Err(why) => {
                eprintln!("error: {} cannot be had: {why}", server.name());
                return ExitCode::FAILURE;
            }
        }
    }
    let code = pass_on(&bench);
    engines.end();
    code
}

/// Runs one program on the caller's terminal and returns its exit code.
fn pass_on(invocation: &Invocation) -> ExitCode {
    eprintln!("== {invocation}");
    match invocation.run() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            ExitCode::from(code.unwrap_or(1))
        }
        Err(error) => {
            eprintln!("error: {invocation}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn the_simulation_gets_its_arguments_as_they_are() {
        let command = sim(&words("--seeds 5 --trace")).to_string();
        assert_eq!(command, "cargo run --release -p sawmill-sim -- --seeds 5 --trace");
    }

    #[test]
    fn planted_bugs_are_built_in_only_for_mutants() {
        let command = sim(&words("--mutants")).to_string();
        assert_eq!(command, "cargo run --release -p sawmill-sim --features planted -- --mutants");
    }

    #[test]
    fn a_benchmark_is_told_its_engine_and_its_options() {
        assert_eq!(
            bench("sqlite", &words("--n 10 --json")).to_string(),
            "cargo run --release -p sawmill-bench -- sqlite --n 10 --json"
        );
    }
}
