//! The hooks: commands that run once before the first message and once after the last.

use std::process::Stdio;

use tokio::process::Command;

use super::process_group::{ProcessGroup, ending};
use super::runner::Runner;
use crate::failure::Failure;

/// Runs a hook to its end. A shell runs it, since it is one string.
pub(crate) async fn run(name: &str, hook: &str, runner: &Runner) -> Result<(), Failure> {
    let wrong = |what: String| Failure::failed(format!("the {name} command `{hook}` {what}"));
    let mut command = Command::new("sh");
    command.arg("-c").arg(hook).env("SAWMILL_STATE", &runner.shared).stdin(Stdio::null());
    let (group, mut child) = ProcessGroup::start(&mut command, None, &runner.minder)
        .map_err(|error| wrong(format!("cannot be started: {error}")))?;
    let status =
        child.wait().await.map_err(|error| wrong(format!("ended with an unknown status: {error}")))?;
    match status.success() {
        // Processes that the start hook leaves may serve the messages; the stop hook ends them.
        true => group.release(),
        false => return Err(wrong(format!("failed: {}", ending(status)))),
    }
    Ok(())
}
