//! The program `sawmill`: a durable work queue for people and scripts.
//!
//! Data goes to stdout, everything else to stderr. A command is a file of its own: what it takes, what it does, and what it
//! prints. All of them are given a [`Session`](session::Session), and end with a [`Failure`](failure::Failure) that knows
//! its exit code.

mod cli;
mod engines;
mod failure;
mod live;
mod log;
mod log_line;
mod manual;
mod metrics;
mod output;
mod session;
mod settings;
mod table;
mod text;
mod topic;
mod work;
mod written;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use failure::Failure;
use session::Session;

fn main() -> ExitCode {
    // Clap itself ends the program with 2 for wrong usage, and with 0 for help.
    let ended = run(Cli::parse());
    live::flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    // These need no store, and work beside a broken configuration.
    match cli.command {
        Command::Completions(args) => return manual::completions(&args),
        Command::Man(args) => return manual::man(&args),
        Command::Minder(args) => return work::minder::mind(&args),
        _ => {}
    }
    let session = Session::new(cli.globals)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no threads could be started: {error}")))?;
    runtime.block_on(async {
        match cli.command {
            Command::Topic(command) => topic::run(command, &session).await,
            Command::Work(args) => work::run(args, &session).await,
            Command::Completions(_) | Command::Man(_) | Command::Minder(_) => Ok(()),
        }
    })
}
