//! Shell completions and manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sawmill completions bash > ~/.local/share/bash-completion/completions/sawmill\n  \
                        sawmill completions zsh > ~/.zfunc/_sawmill\n  \
                        sawmill completions fish > ~/.config/fish/completions/sawmill.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sawmill", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sawmill man | man -l -\n  sawmill man work | man -l -\n  sawmill man --out /usr/local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// The command, such as `topic create` [default: sawmill itself]
    command: Vec<String>,
    /// Write the pages of all commands to this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    out: Option<PathBuf>,
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut cli = Cli::command();
    cli.build();
    if let Some(folder) = &args.out {
        let wrong = |error| {
            Failure::failed(format!("manual pages cannot be written to {}: {error}", folder.display()))
        };
        fs::create_dir_all(folder).map_err(wrong)?;
        return clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), folder).map_err(wrong);
    }
    let mut command = &cli;
    for word in &args.command {
        let missing = || Failure::not_found(format!("there is no command {word:?} here: see `sawmill help`"));
        command = command.find_subcommand(word).ok_or_else(missing)?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(io::stdout().write_all(&page)?)
}
