//! Streaming: commands that keep running and get one message after the other.
//!
//! There is one command per slot, started when it is needed. A command that does anything but answer its
//! message is ended and replaced, as later answers could not be matched to messages.

use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sawmill::{Context, Outcome};

use super::child::{EX_CONFIG, in_time, with_stderr};
use super::process_group::ending;
use super::program::Program;
use super::runner::{Runner, unwanted};
use super::stream_process::{NoAnswer, StreamProcess};

/// How long a command may take to exit after the last message, or after closing its stdout.
const EXIT_WAIT: Duration = Duration::from_secs(5);
/// The pause before restarting commands that exit without any answer. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The streaming commands of a worker.
pub(crate) struct Stream {
    runner: Arc<Runner>,
    program: Program,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<StreamProcess>,
    /// How many commands in a row have ended without any answer.
    unanswered: u32,
}

impl Stream {
    pub(crate) fn new(runner: Arc<Runner>, program: Program) -> Arc<Self> {
        Arc::new(Self { runner, program, state: Mutex::default() })
    }

    /// Has a command handle one message.
    pub(crate) async fn run(self: Arc<Self>, context: Context) -> Outcome {
        let runner = &self.runner;
        if runner.is_aborting() {
            return runner.report(Outcome::retry("the worker was aborted")).await;
        }
        // A command that is dropped on the way is killed and does not return to the idle ones.
        let outcome = tokio::select! {
            biased;
            outcome = self.handle(&context) => outcome,
            outcome = unwanted(&context) => outcome,
        };
        runner.report(outcome).await
    }

    async fn handle(&self, context: &Context) -> Outcome {
        let mut process = match self.idle_or_new(context).await {
            Ok(process) => process,
            Err(outcome) => return outcome,
        };
        let group = process.group.clone();
        let entry = self.runner.runs.begin(context, Some(&group));
        let answer = process.exchange(context);
        let answer = match self.runner.limits().timeout {
            None => answer.await,
            Some(limit) => match in_time(&self.runner, &group, answer, limit).await {
                Ok(answer) => answer,
                Err(late) => {
                    let said = process.stderr_tail().await;
                    return Outcome::retry(with_stderr(&late, &said));
                }
            },
        };
        drop(entry);
        match answer {
            Ok(outcome) => {
                process.answered = true;
                let ready = process.is_ready().await;
                let mut state = self.state();
                state.unanswered = 0;
                if ready {
                    state.idle.push(process);
                }
                outcome
            }
            Err(cause) => self.give_up(process, cause).await,
        }
    }

    /// Returns an idle command, or starts a new one.
    async fn idle_or_new(&self, context: &Context) -> Result<StreamProcess, Outcome> {
        loop {
            let Some(mut process) = self.state().idle.pop() else { break };
            // A command that exited while idle fails no message.
            if process.is_ready().await {
                return Ok(process);
            }
        }
        let pause = match self.state().unanswered {
            0 => Duration::ZERO,
            unanswered => FIRST_PAUSE.saturating_mul(1 << (unanswered - 1).min(20)).min(LONGEST_PAUSE),
        };
        tokio::select! {
            biased;
            () = self.runner.env.sleep(pause) => {}
            // No run has begun, so the message can be given back. With at-most-once this is its only chance
            // to run.
            () = context.stopping() => if !self.runner.once {
                return Err(Outcome::Snooze(Duration::ZERO));
            },
        }
        let mut command = self.runner.command(&self.program);
        command.stdout(Stdio::piped());
        let (group, child) = self.runner.start(&mut command).await?;
        StreamProcess::new(group, child, &self.runner.env)
            .ok_or_else(|| Outcome::stop("the command was started without pipes"))
    }

    /// Ends a command without a valid answer, and returns the outcome of its message.
    async fn give_up(&self, mut process: StreamProcess, cause: NoAnswer) -> Outcome {
        if !process.answered {
            self.state().unanswered += 1;
        }
        let runner = &self.runner;
        let error = match cause {
            NoAnswer::Invalid(error) => error,
            NoAnswer::Ended => {
                // It may have closed its stdout and still be running; it must end.
                match process.ended(EXIT_WAIT).await {
                    Some(Ok(status)) if status.code() == Some(EX_CONFIG) => {
                        let said = process.stderr_tail().await;
                        return Outcome::stop(with_stderr(&ending(status), &said));
                    }
                    Some(Ok(status)) => format!("the command ended without an answer: {}", ending(status)),
                    _ => "the command closed its stdout without an answer".to_owned(),
                }
            }
        };
        process.group.end();
        let said = process.stderr_tail().await;
        let hint = runner.memory_hint(&said, false);
        Outcome::retry(with_stderr(&format!("{error}{hint}"), &said))
    }

    /// Ends the commands after the last message: they get time to exit, but not without limit.
    pub(crate) async fn end(&self) {
        let mut idle = std::mem::take(&mut self.state().idle);
        idle.iter_mut().for_each(StreamProcess::close_stdin);
        let all = async {
            for process in &mut idle {
                let _ = process.ended(EXIT_WAIT).await;
                process.stderr_tail().await;
            }
        };
        let _ = self.runner.env.within(EXIT_WAIT, all).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
