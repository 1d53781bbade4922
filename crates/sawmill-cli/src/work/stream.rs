//! Streaming: a command that stays, and is given one message after the other.
//!
//! There are as many as run at once, started when they are needed. One that does anything but answer its message is ended, and
//! another takes its place: nobody could say any more which answer belongs to what.

use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sawmill::{Context, Outcome};

use super::child::{BROKEN, in_time, with_words};
use super::process_group::ending;
use super::program::Program;
use super::runner::{Runner, unwanted};
use super::talker::{Talker, Wrong};

/// How long a command may take to end after the last message, or after it stopped answering.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long to wait before a command is started again that has answered nothing: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The commands of a worker.
pub(crate) struct Stream {
    runner: Arc<Runner>,
    program: Program,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Talker>,
    /// How many in a row have ended without having answered anything.
    duds: u32,
}

impl Stream {
    pub(crate) fn new(runner: Arc<Runner>, program: Program) -> Arc<Self> {
        Arc::new(Self { runner, program, state: Mutex::default() })
    }

    /// Has a command handle one message.
    pub(crate) async fn run(self: Arc<Self>, context: Context) -> Outcome {
        let runner = &self.runner;
        if runner.is_aborting() {
            return runner.said(Outcome::retry("the worker was aborted")).await;
        }
        // A command that is dropped on the way is killed, and does not come back.
        let outcome = tokio::select! {
            biased;
            outcome = self.handle(&context) => outcome,
            outcome = unwanted(&context) => outcome,
        };
        runner.said(outcome).await
    }

    async fn handle(&self, context: &Context) -> Outcome {
        let mut talker = match self.talker(context).await {
            Ok(talker) => talker,
            Err(outcome) => return outcome,
        };
        let group = talker.group.clone();
        let entry = self.runner.runs.begin(context, Some(&group));
        let talk = talker.talk(context);
        let answer = match self.runner.limits().timeout {
            None => talk.await,
            Some(limit) => match in_time(&self.runner, &group, talk, limit).await {
                Ok(answer) => answer,
                Err(late) => {
                    let said = talker.last_words().await;
                    return Outcome::retry(with_words(&late, &said));
                }
            },
        };
        drop(entry);
        match answer {
            Ok(outcome) => {
                talker.answered = true;
                let ready = talker.is_ready().await;
                let mut state = self.state();
                state.duds = 0;
                if ready {
                    state.idle.push(talker);
                }
                outcome
            }
            Err(wrong) => self.give_up(talker, wrong).await,
        }
    }

    /// One that waits for a message, or a new one.
    async fn talker(&self, context: &Context) -> Result<Talker, Outcome> {
        loop {
            let Some(mut talker) = self.state().idle.pop() else { break };
            // One that has ended while it had nothing to do is nobody's failure.
            if talker.is_ready().await {
                return Ok(talker);
            }
        }
        let pause = match self.state().duds {
            0 => Duration::ZERO,
            duds => FIRST_PAUSE.saturating_mul(1 << (duds - 1).min(20)).min(LONGEST_PAUSE),
        };
        tokio::select! {
            biased;
            () = self.runner.env.sleep(pause) => {}
            // Nothing has begun that would have to be finished. What may start only once has no other chance than now.
            () = context.stopping() => if !self.runner.once {
                return Err(Outcome::Snooze(Duration::ZERO));
            },
        }
        let mut command = self.runner.command(&self.program);
        command.stdout(Stdio::piped());
        let (group, child) = self.runner.start(&mut command).await?;
        Talker::new(group, child, &self.runner.env)
            .ok_or_else(|| Outcome::stop("the command was started without pipes"))
    }

    /// Ends a command that did not answer as it should, and says why.
    async fn give_up(&self, mut talker: Talker, wrong: Wrong) -> Outcome {
        if !talker.answered {
            self.state().duds += 1;
        }
        let runner = &self.runner;
        let error = match wrong {
            Wrong::Answer(error) => error,
            Wrong::Ended => {
                // It may have closed its stdout and live on; it must not.
                match talker.ended(FAREWELL).await {
                    Some(Ok(status)) if status.code() == Some(BROKEN) => {
                        let said = talker.last_words().await;
                        return Outcome::stop(with_words(&ending(status), &said));
                    }
                    Some(Ok(status)) => format!("the command ended without an answer: {}", ending(status)),
                    _ => "the command closed its stdout without an answer".to_owned(),
                }
            }
        };
        talker.group.end();
        let said = talker.last_words().await;
        let hint = runner.memory_hint(&said, false);
        Outcome::retry(with_words(&format!("{error}{hint}"), &said))
    }

    /// There are no more messages: the commands may end by themselves, but not take for ever.
    pub(crate) async fn end(&self) {
        let mut idle = std::mem::take(&mut self.state().idle);
        idle.iter_mut().for_each(Talker::dismiss);
        let all = async {
            for talker in &mut idle {
                let _ = talker.ended(FAREWELL).await;
                talker.last_words().await;
            }
        };
        let _ = self.runner.env.within(FAREWELL, all).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
