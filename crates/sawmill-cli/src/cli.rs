//! What can be typed: the commands, and what is common to all of them.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::log::LogLevel;
use crate::{manual, topic, work};

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
    /// Run a command for each message of a topic
    Work(work::Args),
    /// Create, list, show and delete topics
    #[command(subcommand)]
    Topic(topic::Command),
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
    use clap::CommandFactory;

    #[test]
    fn the_commands_are_well_formed() {
        super::Cli::command().debug_assert();
    }
}
