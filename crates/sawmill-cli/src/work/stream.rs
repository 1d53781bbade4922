//! Streaming: a command that stays, and is given one message after the other.
//!
//! There are as many as run at once, started when they are needed. One that does anything but answer its message is ended, and
//! another takes its place: nobody could say any more which answer belongs to what.

use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sawmill::{Context, Outcome};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::child::{BROKEN, LAST_WORDS, in_time, with_tail};
use super::group::{Group, ending};
use super::line;
use super::runner::{Runner, unwanted};
use super::tail::Tail;

/// How long an answer may be.
const LONGEST_ANSWER: u64 = 1 << 20;
/// How long a command may take to end after the last message, or after it stopped answering.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long to wait before a command is started again that has answered nothing: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The commands of a worker.
pub(crate) struct Stream {
    runner: Arc<Runner>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Talker>,
    /// How many in a row have ended without having answered anything.
    duds: u32,
}

/// A command that runs.
struct Talker {
    group: Arc<Group>,
    child: Child,
    /// `None` when there are no more messages for it.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    tail: Arc<Tail>,
    /// True when there is nothing more to hear on its stderr.
    silent: watch::Receiver<bool>,
    /// It has answered a message.
    answered: bool,
}

impl Stream {
    pub(crate) fn new(runner: Arc<Runner>) -> Arc<Self> {
        Arc::new(Self { runner, state: Mutex::default() })
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
        let mut talker = match self.talker().await {
            Ok(talker) => talker,
            Err(outcome) => return outcome,
        };
        let group = talker.group.clone();
        let entry = self.runner.runs.begin(context, &group);
        talker.tail.clear();
        let talk = talker.talk(context);
        let answer = match self.runner.limits().timeout {
            None => talk.await,
            Some(limit) => match in_time(&self.runner, &group, talk, limit).await {
                Ok(answer) => answer,
                Err(late) => {
                    let said = talker.last_words(&self.runner).await;
                    return Outcome::retry(with_tail(&late, &said));
                }
            },
        };
        drop(entry);
        match answer {
            Ok(outcome) => {
                talker.answered = true;
                let mut state = self.state();
                state.duds = 0;
                state.idle.push(talker);
                outcome
            }
            Err(wrong) => self.give_up(talker, wrong).await,
        }
    }

    /// One that waits for a message, or a new one.
    async fn talker(&self) -> Result<Talker, Outcome> {
        loop {
            let Some(mut talker) = self.state().idle.pop() else { break };
            match talker.child.try_wait() {
                Ok(None) => return Ok(talker),
                // It has ended while it had nothing to do: that is nobody's failure.
                _ => talker.group.end(),
            }
        }
        let pause = match self.state().duds {
            0 => Duration::ZERO,
            duds => FIRST_PAUSE.saturating_mul(1 << (duds - 1).min(20)).min(LONGEST_PAUSE),
        };
        self.runner.env.sleep(pause).await;
        let mut command = self.runner.command();
        command.stdout(Stdio::piped());
        let (group, child) = self.runner.start(&mut command).await?;
        Talker::new(group, child, &self.runner)
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
                let status = runner.env.within(FAREWELL, talker.child.wait()).await;
                match status {
                    Some(Ok(status)) if status.code() == Some(BROKEN) => {
                        let said = talker.last_words(runner).await;
                        return Outcome::stop(with_tail(&ending(status), &said));
                    }
                    Some(Ok(status)) => format!("the command ended without an answer: {}", ending(status)),
                    _ => "the command closed its stdout without an answer".to_owned(),
                }
            }
        };
        talker.group.end();
        let said = talker.last_words(runner).await;
        let hint = runner.memory_hint(&said, false);
        Outcome::retry(with_tail(&format!("{error}{hint}"), &said))
    }

    /// There are no more messages: the commands may end by themselves, but not take for ever.
    pub(crate) async fn end(&self) {
        let mut idle = std::mem::take(&mut self.state().idle);
        idle.iter_mut().for_each(|talker| drop(talker.stdin.take()));
        let all = async {
            for talker in &mut idle {
                let _ = talker.child.wait().await;
                talker.group.end();
            }
        };
        let _ = self.runner.env.within(FAREWELL, all).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Why there is no answer.
enum Wrong {
    Answer(String),
    Ended,
}

impl Talker {
    fn new(group: Arc<Group>, mut child: Child, runner: &Runner) -> Option<Self> {
        let (stdin, stdout, stderr) = (child.stdin.take()?, child.stdout.take()?, child.stderr.take()?);
        let (tail, (end, silent)) = (Arc::new(Tail::default()), watch::channel(false));
        let (listens, env) = (tail.clone(), runner.env.clone());
        runner.env.spawn(async move {
            listens.follow(stderr, &env).await;
            // The command may be gone already.
            let _ = end.send(true);
        });
        let (stdin, stdout) = (Some(stdin), BufReader::new(stdout));
        Some(Self { group, child, stdin, stdout, tail, silent, answered: false })
    }

    /// Sends a message, and waits for the answer.
    async fn talk(&mut self, context: &Context) -> Result<Outcome, Wrong> {
        let sent = line::of(context);
        let (stdin, stdout) = (&mut self.stdin, &mut self.stdout);
        let mut answer = Vec::new();
        let send = async {
            if let Some(stdin) = stdin {
                // If it does not read, it will not answer.
                let _ = stdin.write_all(&sent).await;
            }
        };
        let receive = async {
            let mut limited = stdout.take(LONGEST_ANSWER);
            limited.read_until(b'\n', &mut answer).await
        };
        let (_, received) = tokio::join!(send, receive);
        match received {
            Ok(_) if answer.ends_with(b"\n") => {
                line::answer(&answer, &context.id().to_string()).map_err(Wrong::Answer)
            }
            Ok(count) if count as u64 == LONGEST_ANSWER => {
                let most = crate::text::size(LONGEST_ANSWER);
                Err(Wrong::Answer(format!("its answer is longer than {most}")))
            }
            Ok(_) | Err(_) => Err(Wrong::Ended),
        }
    }

    /// What it said on stderr before its end.
    async fn last_words(&mut self, runner: &Runner) -> String {
        let _ = runner.env.within(LAST_WORDS, self.silent.wait_for(|silent| *silent)).await;
        self.tail.text()
    }
}
