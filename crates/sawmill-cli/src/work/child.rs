//! One process per message: payload in, exit code out.

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
use super::last_words::LastWords;
use super::process_group::{ProcessGroup, ending};
use super::relay;
use super::runner::{GRACE, Runner, unwanted};

/// Not now: to be tried again later (EX_TEMPFAIL).
const LATER: i32 = 75;
/// The message can never succeed (EX_DATAERR).
const HOPELESS: i32 = 65;
/// Something is wrong with this worker, not with the message (EX_CONFIG).
pub(crate) const BROKEN: i32 = 78;

/// How long to wait for the last words of a process that has ended, if something else holds its stderr open.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(200);

/// Runs the command for one message.
pub(crate) async fn run(runner: Arc<Runner>, context: Context) -> Outcome {
    if runner.is_aborting() {
        return runner.said(Outcome::retry("the worker was aborted")).await;
    }
    let job = match runner.task.job(&runner, &context).await {
        Ok(job) => job,
        Err(outcome) => return runner.said(outcome).await,
    };
    let mut command = runner.command(&job.program);
    // What the message is called comes last: nothing else may say so.
    command.envs(job.variables).envs(variables(&context));
    let cleanup = Cleanup::ready(job.cleanup, &runner.minder);
    let (group, mut child) = match runner.start(&mut command).await {
        Ok(started) => started,
        Err(outcome) => return outcome,
    };
    let entry = runner.runs.begin(&context, Some(&group));
    // Dropping the group kills it: so it is when the claim is lost, and when the worker drops this run.
    let outcome = tokio::select! {
        biased;
        attempted = attempt(&runner, &job.input, &group, &mut child) => match attempted {
            Ok(outcome) => {
                cleanup.ended();
                outcome
            }
            Err(outcome) => outcome,
        },
        outcome = unwanted(&context) => outcome,
    };
    group.end();
    drop(entry);
    runner.said(outcome).await
}

/// What became of the message. It is the error if the command did not end by itself.
async fn attempt(
    runner: &Runner,
    input: &[u8],
    group: &ProcessGroup,
    child: &mut Child,
) -> Result<Outcome, Outcome> {
    let words = LastWords::default();
    let ended = {
        let process = attend(runner, input, group, child, &words);
        match runner.limits().timeout {
            None => Ok(process.await),
            Some(limit) => in_time(runner, group, process, limit).await,
        }
    };
    match ended {
        Ok(Ok(status)) if status.code().is_some() => Ok(judge(runner, status, &words)),
        Ok(Ok(status)) => Err(judge(runner, status, &words)),
        Ok(Err(error)) => Err(Outcome::retry(format!("how it ended is not known: {error}"))),
        Err(late) => Err(Outcome::retry(with_words(&late, &words.text()))),
    }
}

/// Waits for a process that may take so long. One that takes longer has ended when this returns the error.
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
    Err(runner.late(limit))
}

/// Feeds the process, listens to it, and waits for its end.
async fn attend(
    runner: &Runner,
    input: &[u8],
    group: &ProcessGroup,
    child: &mut Child,
    words: &LastWords,
) -> io::Result<ExitStatus> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command need not read its payload.
            let _ = stdin.write_all(input).await;
        }
    };
    let listen = async {
        if let Some(stderr) = stderr {
            words.follow(stderr, &runner.env).await;
        }
    };
    let relay = async {
        if let Some(stdout) = stdout {
            relay::pass_on(stdout, &runner.env).await;
        }
    };
    let mut talk = pin!(async { tokio::join!(feed, listen, relay) });
    let mut talked = false;
    let status = loop {
        tokio::select! {
            biased;
            _ = &mut talk, if !talked => talked = true,
            status = child.wait() => break status,
        }
    };
    // What it has left behind in its group ends with it.
    group.end();
    if !talked {
        let _ = runner.env.within(LAST_WORDS, talk).await;
    }
    status
}

/// What an exit code means.
fn judge(runner: &Runner, status: ExitStatus, words: &LastWords) -> Outcome {
    let said = words.text();
    let hint = runner.memory_hint(&said, status.code().is_none());
    let error = with_words(&format!("{}{hint}", ending(status)), &said);
    match status.code() {
        Some(0) => Outcome::Done,
        Some(LATER) => Outcome::Snooze(runner.snooze),
        Some(HOPELESS) => Outcome::dead(error),
        Some(BROKEN) => Outcome::stop(error),
        _ => Outcome::retry(error),
    }
}

/// An error, and what was said about it.
pub(crate) fn with_words(error: &str, said: &str) -> String {
    if said.is_empty() { error.to_owned() } else { format!("{error}: {said}") }
}
