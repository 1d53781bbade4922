//! What can be typed: the commands, and what is common to all of them.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand};

#[cfg(feature = "deliver")]
use crate::deliver;
use crate::failure::Failure;
use crate::log::LogLevel;
#[cfg(feature = "kafka")]
use crate::pool;
use crate::{
    bench, cancel, cron, dead, demo, doctor, manual, migrate, pause, peek, push, replay, show, status, topic,
    trim, work, workers,
};
#[cfg(feature = "serve")]
use crate::{serve, token};

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

/// The commands that a program may have been built without, and the features that have them.
const OPTIONAL: [(&str, &str); 4] =
    [("deliver", "deliver"), ("pool-worker", "kafka"), ("serve", "serve"), ("token", "serve")];

impl Cli {
    /// What was typed. Clap itself ends the program with 2 for wrong usage, and with 0 for help.
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::try_parse().map_err(|error| left_out(&error).unwrap_or_else(|| error.exit()))
    }
}

/// What to say of a command that this program was built without, if that is what is wrong.
fn left_out(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (name, feature) = OPTIONAL.iter().find(|(name, _)| name == typed)?;
    Some(Failure::usage(format!(
        "this program was built without `sawmill {name}`; build it with `--features {feature}`"
    )))
}

/// What every command takes. What is not given here may stand in the configuration file.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct Globals {
    /// Where messages live, as a URL [default: sqlite:sawmill.db]
    #[arg(long, global = true, value_name = "URL", env = "SAWMILL_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Where the ledger is kept, if not in the store itself
    #[arg(long, global = true, value_name = "URL", env = "SAWMILL_LEDGER", hide_env_values = true)]
    pub(crate) ledger: Option<String>,
    /// Keeps this installation apart from others in the same store [default: default]
    #[arg(long, global = true, value_name = "NAME", env = "SAWMILL_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// A TOML file with the same names; flags and environment are stronger
    #[arg(long, global = true, value_name = "FILE", env = "SAWMILL_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Print data as JSON: one object, or one per line for lists
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How much is told on stderr, or in the log file [default: info for work, else warn]
    #[arg(long, global = true, value_name = "LEVEL", env = "SAWMILL_LOG", hide_possible_values = true)]
    pub(crate) log_level: Option<LogLevel>,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one in a process")]
pub(crate) enum Command {
    /// Push a message, or one per line of stdin, and print the ids
    Push(push::PushArgs),
    /// Run a command for each message of a topic
    Work(work::Args),
    /// Deliver each message of a topic: by e-mail, to a URL, or to another topic
    #[cfg(feature = "deliver")]
    #[command(subcommand)]
    Deliver(deliver::Command),
    /// Work one order of a Kafka topic as one of several instances, then exit to be started again
    #[cfg(feature = "kafka")]
    PoolWorker(pool::Args),
    /// Show a message, and what each group has made of it
    Show(show::ShowArgs),
    /// Cancel a message, in all groups
    Cancel(cancel::CancelArgs),
    /// Show the next messages that wait, without taking them
    Peek(peek::PeekArgs),
    /// Create, list, show and delete topics
    #[command(subcommand)]
    Topic(topic::Command),
    /// Show where every group stands, and whether it is behind
    Status(status::StatusArgs),
    /// List the workers, and how far their messages are
    Workers(workers::WorkersArgs),
    /// Have a group start nothing until it is resumed
    Pause(pause::PauseArgs),
    /// Let a paused group go on
    Resume(pause::ResumeArgs),
    /// List, show, resend and drop what a group has given up
    #[command(subcommand)]
    Dead(dead::Command),
    /// Have a group handle messages again, or skip them
    Replay(replay::ReplayArgs),
    /// Add, list and remove schedules
    #[command(subcommand)]
    Cron(cron::Command),
    /// Drop what nobody needs any more, now
    Trim(trim::TrimArgs),
    /// Create the store, or make it what this version needs
    Migrate(migrate::MigrateArgs),
    /// Say what is wrong with the store, and what to do about it
    Doctor(doctor::DoctorArgs),
    /// Serve the store over HTTP: an API, a page for operators, and metrics
    #[cfg(feature = "serve")]
    Serve(serve::ServeArgs),
    /// Create, list and revoke the tokens that `serve` lets people in by
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Token(token::Command),
    /// Measure what this store does on this machine
    Bench(bench::BenchArgs),
    #[command(hide = true)]
    BenchAnswer,
    /// See it at work: letters, workers, and one that is killed before your eyes
    Demo(demo::DemoArgs),
    #[command(hide = true)]
    DemoDeliver(demo::DeliverArgs),
    /// Print a script that teaches your shell to complete sawmill's commands
    Completions(manual::CompletionsArgs),
    /// Print the manual page of sawmill or of one of its commands, or write all of them to a folder
    Man(manual::ManArgs),
    /// Ends what a killed worker leaves behind
    #[command(name = work::minder::COMMAND, hide = true)]
    Minder(work::minder::MindArgs),
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    /// The most columns that help may have.
    const WIDEST: usize = 100;

    #[test]
    fn a_command_that_was_left_out_is_named() {
        // As a program without any of them.
        let parse = |name: &str| {
            clap::Command::new("sawmill")
                .subcommand(Command::new("work"))
                .try_get_matches_from(["sawmill", name])
        };
        let said = |name: &str| super::left_out(&parse(name).unwrap_err()).map(|failure| failure.to_string());
        assert!(said("serve").unwrap().contains("--features serve"));
        assert!(said("deliver").unwrap().contains("--features deliver"));
        assert!(said("pool-worker").unwrap().contains("--features kafka"));
        assert!(said("sevre").is_none());
    }

    #[test]
    fn the_commands_are_well_formed() {
        super::Cli::command().debug_assert();
    }

    /// Visits a command and all below it that people may see.
    fn visit(command: &mut Command, path: &str, look: &mut impl FnMut(&str, &mut Command)) {
        look(path, command);
        for below in command.get_subcommands_mut().filter(|below| !below.is_hide_set()) {
            let path = format!("{path} {}", below.get_name());
            visit(below, &path, look);
        }
    }

    #[test]
    fn every_command_says_how_it_is_used_and_fits_a_terminal() {
        let mut cli = super::Cli::command().disable_help_subcommand(true);
        cli.build();
        visit(&mut cli, "sawmill", &mut |path, command| {
            let help = command.render_long_help().to_string();
            // As it is written, too: a line that is wrapped looks torn.
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
