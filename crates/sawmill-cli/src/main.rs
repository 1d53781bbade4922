//! The program `sawmill`: a durable work queue for people and scripts.
//!
//! Data goes to stdout, everything else to stderr. Each command has its own file, with its arguments, what it
//! does and what it prints. Every command gets a [`Session`](session::Session) and fails with a
//! [`Failure`](failure::Failure), which knows its exit code.

mod bench;
mod cancel;
mod cli;
mod cron;
mod dead;
#[cfg(feature = "deliver")]
mod deliver;
mod demo;
mod doctor;
mod engines;
mod failure;
mod group;
#[cfg(feature = "serve")]
mod key;
mod live;
mod log;
mod log_line;
mod manual;
mod message;
mod metrics;
mod migrate;
mod output;
mod pause;
mod peek;
#[cfg(feature = "kafka")]
mod pool;
mod push;
mod replay;
#[cfg(feature = "serve")]
mod serve;
mod session;
mod settings;
mod show;
mod status;
mod table;
mod text;
mod topic;
mod trim;
#[cfg(any(feature = "deliver", feature = "kafka"))]
mod trust;
mod values;
mod work;
mod workers;

use std::process::ExitCode;

use cli::{Cli, Command};
use failure::Failure;
use session::Session;

fn main() -> ExitCode {
    let ended = Cli::read().and_then(run);
    live::flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    // These need no store, and must work with a broken configuration.
    match cli.command {
        Command::Completions(args) => return manual::completions(&args),
        Command::Man(args) => return manual::man(&args),
        Command::Minder(args) => return work::minder::run(&args),
        _ => {}
    }
    #[cfg_attr(
        not(feature = "kafka"),
        allow(unused_mut, reason = "only the pool worker changes the session")
    )]
    let mut session = Session::new(cli.globals)?;
    #[cfg(feature = "kafka")]
    if let Command::PoolWorker(_) = &cli.command {
        pool::Configuration::read()?.apply_to(&mut session);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no threads could be started: {error}")))?;
    let ended = runtime.block_on(async {
        match cli.command {
            Command::Push(args) => push::run(args, &session).await,
            Command::Work(args) => work::run(args, &session).await,
            #[cfg(feature = "deliver")]
            Command::Deliver(command) => deliver::run(command, &session).await,
            #[cfg(feature = "kafka")]
            Command::PoolWorker(args) => pool::run(args, &session).await,
            Command::Show(args) => show::run(args, &session).await,
            Command::Cancel(args) => cancel::run(args, &session).await,
            Command::Peek(args) => peek::run(args, &session).await,
            Command::Topic(command) => topic::run(command, &session).await,
            Command::Status(args) => status::run(args, &session).await,
            Command::Workers(args) => workers::run(args, &session).await,
            Command::Pause(args) => pause::pause(args, &session).await,
            Command::Resume(args) => pause::resume(args, &session).await,
            Command::Dead(command) => dead::run(command, &session).await,
            Command::Replay(args) => replay::run(args, &session).await,
            Command::Cron(command) => cron::run(command, &session).await,
            Command::Trim(args) => trim::run(args, &session).await,
            Command::Migrate(args) => migrate::run(args, &session).await,
            Command::Doctor(args) => doctor::run(args, &session).await,
            #[cfg(feature = "serve")]
            Command::Serve(args) => serve::run(args, &session).await,
            #[cfg(feature = "serve")]
            Command::Key(command) => key::run(command, &session).await,
            Command::Bench(args) => bench::run(args, &session).await,
            Command::BenchAnswer => bench::answer(),
            Command::Demo(args) => demo::run(args, &session).await,
            Command::DemoDeliver(args) => demo::deliver(&args).await,
            Command::Completions(_) | Command::Man(_) | Command::Minder(_) => Ok(()),
        }
    });
    ended.map_err(|failure| session.name_store(failure))
}
