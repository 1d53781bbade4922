//! A command that stays, and what is said to it and by it.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use sawmill::env::Env;
use sawmill::{Context, Outcome};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::child::LAST_WORDS;
use super::last_words::LastWords;
use super::line;
use super::process_group::ProcessGroup;

/// How long an answer may be.
const LONGEST_ANSWER: u64 = 1 << 20;

/// A command that runs. It is killed when this is dropped.
pub(super) struct Talker {
    pub(super) group: Arc<ProcessGroup>,
    child: Child,
    /// `None` when there are no more messages for it.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    words: Arc<LastWords>,
    /// True when there is nothing more to hear on its stderr.
    silent: watch::Receiver<bool>,
    env: Env,
    /// It has answered a message.
    pub(super) answered: bool,
    /// It can be given a message: it has read all of the last one, and has not ended since.
    fit: bool,
}

/// Why there is no answer.
pub(super) enum Wrong {
    Answer(String),
    Ended,
}

impl Talker {
    /// `None` if the command was started without pipes.
    pub(super) fn new(group: Arc<ProcessGroup>, mut child: Child, env: &Env) -> Option<Self> {
        let (stdin, stdout, stderr) = (child.stdin.take()?, child.stdout.take()?, child.stderr.take()?);
        let (words, (end, silent)) = (Arc::new(LastWords::default()), watch::channel(false));
        let (heard, env) = (words.clone(), env.clone());
        let waits = env.clone();
        env.spawn(async move {
            let mut follow = pin!(heard.follow(stderr, &waits));
            tokio::select! {
                biased;
                () = &mut follow => {}
                // The command is gone, and what it has left behind may hold its stderr open for ever.
                () = end.closed() => {
                    let _ = waits.within(LAST_WORDS, follow).await;
                }
            }
            end.send_replace(true);
        });
        let (stdin, stdout) = (Some(stdin), BufReader::new(stdout));
        Some(Self { group, child, stdin, stdout, words, silent, env, answered: false, fit: true })
    }

    /// Sends a message, and waits for the answer, or for the end of the command.
    pub(super) async fn talk(&mut self, context: &Context) -> Result<Outcome, Wrong> {
        self.words.clear();
        let sent = line::of(context);
        let (stdin, stdout) = (&mut self.stdin, &mut self.stdout);
        let (mut answer, mut told, mut lives) = (Vec::new(), false, true);
        let received = {
            let send = async {
                // If it does not read, it may answer all the same.
                if let Some(stdin) = stdin {
                    told = stdin.write_all(&sent).await.is_ok();
                }
                std::future::pending::<Infallible>().await
            };
            let mut limited = stdout.take(LONGEST_ANSWER);
            let mut receive = pin!(limited.read_until(b'\n', &mut answer));
            tokio::select! {
                biased;
                received = &mut receive => received.ok(),
                _ = self.child.wait() => {
                    lives = false;
                    // What it has left behind may hold its stdout open.
                    self.group.end();
                    self.env.within(LAST_WORDS, receive).await.and_then(Result::ok)
                }
                never = send => match never {},
            }
        };
        self.fit = told && lives;
        match received {
            Some(_) if answer.ends_with(b"\n") => {
                line::answer(&answer, &context.id().to_string()).map_err(Wrong::Answer)
            }
            Some(count) if count as u64 == LONGEST_ANSWER => {
                let most = crate::text::size(LONGEST_ANSWER);
                Err(Wrong::Answer(format!("its answer is longer than {most}")))
            }
            _ => Err(Wrong::Ended),
        }
    }

    /// True if it can be given a message. What it has said without being asked would be taken for the answer to that: one that
    /// does so is not to be trusted any more. What it says in the very moment in which it is asked is not noticed.
    pub(super) async fn is_ready(&mut self) -> bool {
        if !self.fit || !matches!(self.child.try_wait(), Ok(None)) {
            return false;
        }
        let unasked = tokio::select! {
            biased;
            said = self.stdout.fill_buf() => Some(said.map_or(0, <[u8]>::len)),
            () = tokio::task::yield_now() => None,
        };
        if unasked.is_some_and(|count| count > 0) {
            tracing::warn!(
                "the command said more than its answer on stdout: it is ended, and another takes its place"
            );
        }
        unasked.is_none()
    }

    /// How it ended, if it has or does so within this time. All that it has started ends with it.
    pub(super) async fn ended(&mut self, within: Duration) -> Option<io::Result<ExitStatus>> {
        let status = self.env.within(within, self.child.wait()).await;
        self.group.end();
        status
    }

    /// There are no more messages for it: it may end.
    pub(super) fn dismiss(&mut self) {
        self.stdin = None;
    }

    /// What it said on stderr before its end.
    pub(super) async fn last_words(&mut self) -> String {
        let _ = self.env.within(LAST_WORDS, self.silent.wait_for(|silent| *silent)).await;
        self.words.text()
    }
}
