//! One streaming command: its process and the exchange of messages and answers.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill::{Context, Outcome};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::child::STDERR_WAIT;
use super::process_group::ProcessGroup;
use super::stderr_tail::StderrTail;
use super::stream_protocol;

/// The longest answer in bytes.
const LONGEST_ANSWER: u64 = 1 << 20;

/// A running command. It is killed on drop.
pub(super) struct StreamProcess {
    pub(super) group: Arc<ProcessGroup>,
    child: Child,
    /// `None` after the last message.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    tail: Arc<StderrTail>,
    /// True when stderr has ended.
    stderr_ended: watch::Receiver<bool>,
    env: Env,
    /// The command has answered a message.
    pub(super) answered: bool,
    /// The command can get another message: it has read all of the last one, and has not exited since.
    is_usable: bool,
}

/// Why there is no valid answer.
pub(super) enum NoAnswer {
    Invalid(String),
    Ended,
}

impl StreamProcess {
    /// Takes over a started command; `None` if it was started without pipes.
    pub(super) fn new(group: Arc<ProcessGroup>, mut child: Child, env: &Env) -> Option<Self> {
        let (stdin, stdout, stderr) = (child.stdin.take()?, child.stdout.take()?, child.stderr.take()?);
        let (tail, (end, stderr_ended)) = (Arc::new(StderrTail::default()), watch::channel(false));
        let (reading, env) = (tail.clone(), env.clone());
        let clock = env.clone();
        env.spawn(async move {
            let mut follow = pin!(reading.follow(stderr, &clock));
            tokio::select! {
                biased;
                () = &mut follow => {}
                // The command is gone, but processes that it has left may hold its stderr open.
                () = end.closed() => {
                    let _ = clock.within(STDERR_WAIT, follow).await;
                }
            }
            end.send_replace(true);
        });
        let (stdin, stdout) = (Some(stdin), BufReader::new(stdout));
        Some(Self { group, child, stdin, stdout, tail, stderr_ended, env, answered: false, is_usable: true })
    }

    /// Sends a message, and waits for the answer or for the end of the command.
    pub(super) async fn exchange(&mut self, context: &Context) -> Result<Outcome, NoAnswer> {
        self.tail.clear();
        let sent = stream_protocol::request(context);
        let (stdin, stdout) = (&mut self.stdin, &mut self.stdout);
        let (mut answer, mut sent_all, mut lives) = (Vec::new(), false, true);
        let received = {
            let send = async {
                // The command may answer without reading the whole message.
                if let Some(stdin) = stdin {
                    sent_all = stdin.write_all(&sent).await.is_ok();
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
                    // Processes that it has left may hold its stdout open.
                    self.group.end();
                    self.env.within(STDERR_WAIT, receive).await.and_then(Result::ok)
                }
                never = send => match never {},
            }
        };
        self.is_usable = sent_all && lives;
        match received {
            Some(_) if answer.ends_with(b"\n") => {
                stream_protocol::answer(&answer, &context.id().to_string()).map_err(NoAnswer::Invalid)
            }
            Some(count) if count as u64 == LONGEST_ANSWER => {
                let most = crate::terminal::text::size(LONGEST_ANSWER);
                Err(NoAnswer::Invalid(format!("its answer is longer than {most}")))
            }
            _ => Err(NoAnswer::Ended),
        }
    }

    /// True if the command can get a message. Unrequested output would be taken for the next answer, so a
    /// command that writes some is not used again. Output at the very moment of the next message goes
    /// unnoticed.
    pub(super) async fn is_ready(&mut self) -> bool {
        if !self.is_usable || !matches!(self.child.try_wait(), Ok(None)) {
            return false;
        }
        let unasked = tokio::select! {
            biased;
            said = self.stdout.fill_buf() => Some(said.map_or(0, <[u8]>::len)),
            () = tokio::task::yield_now() => None,
        };
        if unasked.is_some_and(|count| count > 0) {
            tracing::warn!("the command wrote more than its answer to stdout: it is ended and replaced");
        }
        unasked.is_none()
    }

    /// Returns the exit status if the command exits within this time. Everything that it has started ends
    /// with it.
    pub(super) async fn ended(&mut self, within: Duration) -> Option<io::Result<ExitStatus>> {
        let status = self.env.within(within, self.child.wait()).await;
        self.group.end();
        status
    }

    /// Closes stdin: there are no more messages, and the command may exit.
    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Returns the end of its stderr.
    pub(super) async fn stderr_tail(&mut self) -> String {
        let _ = self.env.within(STDERR_WAIT, self.stderr_ended.wait_for(|ended| *ended)).await;
        self.tail.text()
    }
}
