//! One process per message: the payload goes to its stdin, the exit code decides the outcome.

use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use sawmill::{Context, Outcome};
use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use super::cleanup::Cleanup;
use super::environment::variables;
use super::process_group::{ProcessGroup, ending};
use super::relay;
use super::runner::{GRACE, Runner, unwanted};
use super::stderr_tail::StderrTail;

/// Exit code of a message to try again later.
const EX_TEMPFAIL: i32 = 75;
/// Exit code of a message that can never succeed.
const EX_DATAERR: i32 = 65;
/// Exit code of a problem with this worker, not with the message.
pub(crate) const EX_CONFIG: i32 = 78;

/// How long to wait for the rest of stderr after a process has ended, if another process holds stderr open.
pub(crate) const STDERR_WAIT: Duration = Duration::from_millis(200);

/// Runs the command for one message.
pub(crate) async fn run(runner: Arc<Runner>, context: Context) -> Outcome {
    if runner.is_aborting() {
        return runner.report(Outcome::retry("the worker was aborted")).await;
    }
    let job = match runner.task.job(&runner, &context).await {
        Ok(job) => job,
        Err(outcome) => return runner.report(outcome).await,
    };
    let mut command = runner.command(&job.program);
    // The variables of the message come last, so that nothing can override them.
    command.envs(job.variables).envs(variables(&context));
    let cleanup = Cleanup::new(job.cleanup, &runner.minder);
    let (group, mut child) = match runner.start(&mut command).await {
        Ok(started) => started,
        Err(outcome) => return outcome,
    };
    let entry = runner.runs.begin(&context, Some(&group));
    // Dropping the group kills it, for example when the claim is lost or the worker drops this run.
    let outcome = tokio::select! {
        biased;
        attempted = attempt(&runner, &job.input, &group, &mut child) => match attempted {
            Ok(outcome) => {
                cleanup.cancel();
                outcome
            }
            Err(outcome) => outcome,
        },
        outcome = unwanted(&context) => outcome,
    };
    group.end();
    drop(entry);
    runner.report(outcome).await
}

/// Returns the outcome; as `Err` if the command did not exit by itself.
async fn attempt(
    runner: &Runner,
    input: &[u8],
    group: &ProcessGroup,
    child: &mut Child,
) -> Result<Outcome, Outcome> {
    let tail = StderrTail::default();
    let ended = {
        let process = communicate(runner, input, group, child, &tail);
        match runner.limits().timeout {
            None => Ok(process.await),
            Some(limit) => in_time(runner, group, process, limit).await,
        }
    };
    match ended {
        Ok(Ok(status)) if status.code().is_some() => Ok(judge(runner, status, &tail)),
        Ok(Ok(status)) => Err(judge(runner, status, &tail)),
        Ok(Err(error)) => Err(Outcome::retry(format!("how it ended is not known: {error}"))),
        Err(late) => Err(Outcome::retry(with_stderr(&late, &tail.text()))),
    }
}

/// Waits for a process within a time limit. A process that exceeds it has been ended when this returns the
/// error.
pub(crate) async fn in_time<T>(
    runner: &Runner,
    group: &ProcessGroup,
    process: impl Future<Output = T>,
    limit: Duration,
) -> Result<T, String> {
    let mut process = pin!(process);
    if let Some(ended) = runner.env.within(limit, process.as_mut()).await {
        return Ok(ended);
    }
    group.terminate();
    if runner.env.within(GRACE, process.as_mut()).await.is_none() {
        group.end();
        let _ = runner.env.within(GRACE, process).await;
    }
    Err(runner.timeout_error(limit))
}

/// Writes the input, reads the output, and waits for the exit.
async fn communicate(
    runner: &Runner,
    input: &[u8],
    group: &ProcessGroup,
    child: &mut Child,
    tail: &StderrTail,
) -> io::Result<ExitStatus> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command need not read its payload, so a broken pipe is no error.
            let _ = stdin.write_all(input).await;
        }
    };
    let read_stderr = async {
        if let Some(stderr) = stderr {
            tail.follow(stderr, &runner.env).await;
        }
    };
    let relay = async {
        if let Some(stdout) = stdout {
            relay::pass_on(stdout, &runner.env).await;
        }
    };
    let mut pipes = pin!(async { tokio::join!(feed, read_stderr, relay) });
    let mut pipes_done = false;
    let status = loop {
        tokio::select! {
            biased;
            _ = &mut pipes, if !pipes_done => pipes_done = true,
            status = child.wait() => break status,
        }
    };
    // Processes that it has left in its group end with it.
    group.end();
    if !pipes_done {
        let _ = runner.env.within(STDERR_WAIT, pipes).await;
    }
    status
}

/// Returns the outcome for an exit status.
fn judge(runner: &Runner, status: ExitStatus, tail: &StderrTail) -> Outcome {
    let said = tail.text();
    let hint = runner.memory_hint(&said, status.code().is_none());
    let error = with_stderr(&format!("{}{hint}", ending(status)), &said);
    match status.code() {
        Some(0) => Outcome::Done,
        Some(EX_TEMPFAIL) => Outcome::Snooze(runner.snooze),
        Some(EX_DATAERR) => Outcome::dead(error),
        Some(EX_CONFIG) => Outcome::stop(error),
        _ => Outcome::retry(error),
    }
}

/// Appends what the command wrote to stderr to an error.
pub(crate) fn with_stderr(error: &str, said: &str) -> String {
    if said.is_empty() { error.to_owned() } else { format!("{error}: {said}") }
}
