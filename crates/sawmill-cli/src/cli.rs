//! The command line: the commands and the options that all of them share.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand};

#[cfg(feature = "deliver")]
use crate::commands::deliver;
#[cfg(feature = "kafka")]
use crate::commands::pool;
use crate::commands::{
    bench, cancel, cron, dead, demo, doctor, manual, migrate, pause, peek, push, replay, show, status, topic,
    trim, work, workers,
};
#[cfg(feature = "serve")]
use crate::commands::{key, serve};
use crate::failure::Failure;
use crate::terminal::log::LogLevel;

/// A durable work queue that runs on the storage you already have.
#[derive(Debug, Parser)]
#[command(
    name = "sawmill",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 ok, 1 the operation failed, 2 wrong usage or configuration,\n\
                  3 the store could not be reached, 4 not found."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands that depend on a cargo feature, and that feature.
const OPTIONAL: [(&str, &str); 5] = [
    ("deliver", "deliver"),
    ("pool-worker", "kafka"),
    ("serve", "serve"),
    ("key", "serve"),
    ("token", "serve"),
];

impl Cli {
    /// Parses the command line. Clap itself ends the program with 2 for wrong usage and with 0 for help.
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::try_parse().map_err(|error| without_feature(&error).unwrap_or_else(|| error.exit()))
    }
}

/// Returns the failure for a command that this program was built without.
fn without_feature(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (name, feature) = OPTIONAL.iter().find(|(name, _)| name == typed)?;
    Some(Failure::usage(format!(
        "this program was built without `sawmill {name}`; build it with `--features {feature}`"
    )))
}

/// Options of every command. The configuration file can set most of them too.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct Globals {
    /// The URL of the store that holds the messages [default: sqlite:sawmill.db]
    #[arg(long, global = true, value_name = "URL", env = "SAWMILL_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// The URL of the store that holds the ledger [default: the same store]
    #[arg(long, global = true, value_name = "URL", env = "SAWMILL_LEDGER", hide_env_values = true)]
    pub(crate) ledger: Option<String>,
    /// The namespace, which separates installations in one store [default: default]
    #[arg(long, global = true, value_name = "NAME", env = "SAWMILL_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// The configuration file (TOML). Flags and environment variables take precedence over it
    #[arg(long, global = true, value_name = "FILE", env = "SAWMILL_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON instead of text: one object, or one per line for a list
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The lowest level to log [default: info for work, else warn]
    #[arg(long, global = true, value_name = "LEVEL", env = "SAWMILL_LOG", hide_possible_values = true)]
    pub(crate) log_level: Option<LogLevel>,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one in a process")]
pub(crate) enum Command {
    /// Push one message, or one per line of stdin, and print the ids
    Push(push::PushArgs),
    /// Run a command for each message of a topic
    Work(work::Args),
    /// Deliver each message of a topic by e-mail, to a URL or to another topic
    #[cfg(feature = "deliver")]
    #[command(subcommand)]
    Deliver(deliver::Command),
    /// Run one order of a Kafka topic as one instance of a pool, then exit
    #[cfg(feature = "kafka")]
    PoolWorker(pool::Args),
    /// Show a message and its state in each group
    Show(show::ShowArgs),
    /// Cancel a message in all groups
    Cancel(cancel::CancelArgs),
    /// Show the next waiting messages without claiming them
    Peek(peek::PeekArgs),
    /// Create, list, show and delete topics
    #[command(subcommand)]
    Topic(topic::Command),
    /// Show the backlog of each group, and whether the group keeps up
    Status(status::StatusArgs),
    /// List the workers and the messages that they run
    Workers(workers::WorkersArgs),
    /// Pause a group: it starts no messages until it is resumed
    Pause(pause::PauseArgs),
    /// Resume a paused group
    Resume(pause::ResumeArgs),
    /// List, show, retry and drop the dead letters of a group
    #[command(subcommand)]
    Dead(dead::Command),
    /// Move a group back to handle messages again, or forward to skip them
    Replay(replay::ReplayArgs),
    /// Add, list and remove schedules
    #[command(subcommand)]
    Cron(cron::Command),
    /// Drop messages that are no longer needed, now
    Trim(trim::TrimArgs),
    /// Create the store, or upgrade its schema to this version
    Migrate(migrate::MigrateArgs),
    /// Report problems of the store and how to fix them
    Doctor(doctor::DoctorArgs),
    /// Serve the store over HTTP: an API, a dashboard and metrics
    #[cfg(feature = "serve")]
    Serve(serve::ServeArgs),
    /// Create, list and revoke the access keys of `serve`
    #[cfg(feature = "serve")]
    #[command(subcommand, alias = "token")]
    Key(key::Command),
    /// Measure the throughput and the latency of the store on this machine
    Bench(bench::BenchArgs),
    #[command(hide = true)]
    BenchAnswer,
    /// Run a demonstration in which one of three workers is killed
    Demo(demo::DemoArgs),
    #[command(hide = true)]
    DemoDeliver(demo::DeliverArgs),
    /// Print a completion script for a shell
    Completions(manual::CompletionsArgs),
    /// Print the manual page of a command, or write all pages to a folder
    Man(manual::ManArgs),
    /// Kill the processes that a killed worker leaves
    #[command(name = work::minder::COMMAND, hide = true)]
    Minder(work::minder::MinderArgs),
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    /// The widest line that help may have, in columns.
    const WIDEST: usize = 100;

    #[test]
    fn a_command_that_was_left_out_is_named() {
        // A program that was built without the optional commands.
        let parse = |name: &str| {
            clap::Command::new("sawmill")
                .subcommand(Command::new("work"))
                .try_get_matches_from(["sawmill", name])
        };
        let said =
            |name: &str| super::without_feature(&parse(name).unwrap_err()).map(|failure| failure.to_string());
        assert!(said("serve").unwrap().contains("--features serve"));
        assert!(said("deliver").unwrap().contains("--features deliver"));
        assert!(said("pool-worker").unwrap().contains("--features kafka"));
        assert!(said("sevre").is_none());
    }

    #[test]
    fn the_commands_are_well_formed() {
        super::Cli::command().debug_assert();
    }

    /// Visits a command and all its visible subcommands.
    fn visit(command: &mut Command, path: &str, check: &mut impl FnMut(&str, &mut Command)) {
        check(path, command);
        for below in command.get_subcommands_mut().filter(|below| !below.is_hide_set()) {
            let path = format!("{path} {}", below.get_name());
            visit(below, &path, check);
        }
    }

    #[test]
    fn every_command_says_how_it_is_used_and_fits_a_terminal() {
        let mut cli = super::Cli::command().disable_help_subcommand(true);
        cli.build();
        visit(&mut cli, "sawmill", &mut |path, command| {
            let help = command.render_long_help().to_string();
            // Also check the text as written: help that clap has to wrap is hard to read.
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().chain(after.lines()) {
                assert!(line.chars().count() <= WIDEST, "{path}: {line}");
            }
            if command.get_subcommands().next().is_none() {
                assert!(
                    help.contains("Examples:\n") && help.contains(&format!("\n  {path}")),
                    "{path}: {help}"
                );
            }
        });
    }
}
