//! The program `sawmill`: a durable work queue for people and scripts.
//!
//! Data goes to stdout, everything else to stderr. Each command has its own file, with its arguments, what it
//! does and what it prints. Every command gets a [`Session`](session::Session) and fails with a
//! [`Failure`](failure::Failure), which knows its exit code.

mod cli;
mod commands;
mod engines;
mod failure;
mod group;
mod message;
mod metrics;
mod session;
mod settings;
mod terminal;
#[cfg(any(feature = "deliver", feature = "kafka"))]
mod trust;
mod values;

use std::process::ExitCode;

use cli::{Cli, Command};
use failure::Failure;
use session::Session;

fn main() -> ExitCode {
    let ended = Cli::read().and_then(run);
    terminal::live::flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    // These need no store, and must work with a broken configuration.
    match cli.command {
        Command::Completions(args) => return commands::manual::completions(&args),
        Command::Man(args) => return commands::manual::man(&args),
        Command::Minder(args) => return commands::work::minder::run(&args),
        _ => {}
    }
    #[cfg_attr(
        not(feature = "kafka"),
        allow(unused_mut, reason = "only the pool worker changes the session")
    )]
    let mut session = Session::new(cli.globals)?;
    #[cfg(feature = "kafka")]
    if let Command::PoolWorker(_) = &cli.command {
        commands::pool::Configuration::read()?.apply_to(&mut session);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no threads could be started: {error}")))?;
    let ended = runtime.block_on(async {
        match cli.command {
            Command::Push(args) => commands::push::run(args, &session).await,
            Command::Work(args) => commands::work::run(args, &session).await,
            #[cfg(feature = "deliver")]
            Command::Deliver(command) => commands::deliver::run(command, &session).await,
            #[cfg(feature = "kafka")]
            Command::PoolWorker(args) => commands::pool::run(args, &session).await,
            Command::Show(args) => commands::show::run(args, &session).await,
            Command::Cancel(args) => commands::cancel::run(args, &session).await,
            Command::Peek(args) => commands::peek::run(args, &session).await,
            Command::Topic(command) => commands::topic::run(command, &session).await,
            Command::Status(args) => commands::status::run(args, &session).await,
            Command::Workers(args) => commands::workers::run(args, &session).await,
            Command::Pause(args) => commands::pause::pause(args, &session).await,
            Command::Resume(args) => commands::pause::resume(args, &session).await,
            Command::Dead(command) => commands::dead::run(command, &session).await,
            Command::Replay(args) => commands::replay::run(args, &session).await,
            Command::Cron(command) => commands::cron::run(command, &session).await,
            Command::Trim(args) => commands::trim::run(args, &session).await,
            Command::Migrate(args) => commands::migrate::run(args, &session).await,
            Command::Doctor(args) => commands::doctor::run(args, &session).await,
            #[cfg(feature = "serve")]
            Command::Serve(args) => commands::serve::run(args, &session).await,
            #[cfg(feature = "serve")]
            Command::Key(command) => commands::key::run(command, &session).await,
            Command::Bench(args) => commands::bench::run(args, &session).await,
            Command::BenchAnswer => commands::bench::answer(),
            Command::Demo(args) => commands::demo::run(args, &session).await,
            Command::DemoDeliver(args) => commands::demo::deliver(&args).await,
            Command::Completions(_) | Command::Man(_) | Command::Minder(_) => Ok(()),
        }
    });
    ended.map_err(|failure| session.name_store(failure))
}
